package apply

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
)

// Change is one thing that is not as the files say.
type Change struct {
	What   string  `json:"what"`   // "team web"
	Action string  `json:"action"` // create or change
	Fields []Field `json:"fields"`
}

// Field is one value of a thing. From is empty where there was none, To where there
// is none any more.
type Field struct {
	Path string `json:"path"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// The actions.
const (
	ActionCreate = "create"
	ActionChange = "change"
)

// Plan is what has to be done, in the order in which it is done: organisations, teams,
// limits, bots and the policy last, because it names the others.
type Plan struct{ steps []step }

type step struct {
	change Change
	do     func(context.Context) error
}

// Changes lists what the plan does; empty when there is nothing to do.
func (p Plan) Changes() []Change {
	changes := make([]Change, 0, len(p.steps))
	for _, s := range p.steps {
		changes = append(changes, s.change)
	}
	return changes
}

// Apply does it, and tells done of each change behind which nothing is left to do.
// It stops at the first error; what was done stays, and a new plan goes on from
// there. A setting that somebody else wrote since the plan is a *client.Conflict.
func (p Plan) Apply(ctx context.Context, done func(Change)) error {
	for _, s := range p.steps {
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s %s: %w", s.change.Action, s.change.What, err)
		}
		if done != nil {
			done(s.change)
		}
	}
	return nil
}

// NewPlan compares the fleet with the server. It changes nothing.
func NewPlan(ctx context.Context, server *client.Client, fleet Fleet) (Plan, error) {
	p := planner{server: server}
	for _, org := range fleet.Organisations {
		if err := p.organisation(ctx, org); err != nil {
			return Plan{}, fmt.Errorf("compare organisation %s: %w", org.ID, err)
		}
	}
	for _, team := range fleet.Teams {
		if err := p.team(ctx, team); err != nil {
			return Plan{}, fmt.Errorf("compare team %s: %w", team.ID, err)
		}
	}
	if fleet.Limits != nil {
		if err := p.limits(ctx, *fleet.Limits); err != nil {
			return Plan{}, fmt.Errorf("compare the limits setting: %w", err)
		}
	}
	for _, bot := range fleet.Bots {
		if err := p.bot(ctx, bot); err != nil {
			return Plan{}, fmt.Errorf("compare %s: %w", bot.what(), err)
		}
	}
	if fleet.Policy != nil {
		if err := p.policy(ctx, *fleet.Policy); err != nil {
			return Plan{}, fmt.Errorf("compare the policy: %w", err)
		}
	}
	return p.plan, nil
}

type planner struct {
	server  *client.Client
	plan    Plan
	created map[string]bool // teams that the plan makes
}

func (p *planner) add(what, action string, from, to any, do func(context.Context) error) error {
	fields, err := diff(from, to)
	if err != nil {
		return err
	}
	if len(fields) > 0 || action == ActionCreate {
		p.plan.steps = append(p.plan.steps, step{Change{what, action, fields}, do})
	}
	return nil
}

func (p *planner) team(ctx context.Context, wanted Team) error {
	current, err := p.server.Team(ctx, wanted.ID)
	var missing *client.NotFound
	switch {
	case errors.As(err, &missing):
		if p.created == nil {
			p.created = map[string]bool{}
		}
		p.created[wanted.ID] = true
		return p.add("team "+wanted.ID, ActionCreate, nil, wanted, func(ctx context.Context) error { return p.createTeam(ctx, wanted) })
	case err != nil:
		return err
	}
	before := Team{ID: current.ID}
	patch := api.TeamPatch{Name: wanted.Name, Organisation: wanted.Organisation, Suspended: wanted.Suspended}
	if wanted.Name != nil {
		before.Name = &current.Name
	}
	if wanted.Organisation != nil {
		before.Organisation = &current.Organisation
	}
	if wanted.Suspended != nil {
		before.Suspended = &current.Suspended
	}
	if wanted.Limits != nil {
		before.Limits = &current.Limits
		patch.Limits, patch.InheritLimits = wanted.Limits, inherited(current.Limits, *wanted.Limits)
	}
	return p.add("team "+wanted.ID, ActionChange, before, wanted, func(ctx context.Context) error {
		_, err := p.server.PatchTeam(ctx, wanted.ID, patch)
		return err
	})
}

func (p *planner) createTeam(ctx context.Context, wanted Team) error {
	create := api.TeamCreate{ID: wanted.ID}
	if wanted.Name != nil {
		create.Name = *wanted.Name
	}
	if wanted.Organisation != nil {
		create.Organisation = *wanted.Organisation
	}
	if wanted.Limits != nil {
		create.Limits = *wanted.Limits
	}
	if _, err := p.server.CreateTeam(ctx, create); err != nil {
		return err
	}
	if wanted.Suspended == nil || !*wanted.Suspended {
		return nil
	}
	_, err := p.server.PatchTeam(ctx, wanted.ID, api.TeamPatch{Suspended: wanted.Suspended})
	return err
}

// inherited names the limits that are written and shall not be any more.
func inherited(current, wanted api.TeamLimits) []string {
	var names []string
	for _, limit := range []struct {
		name            string
		current, wanted holdfast.LimitSetting
	}{
		{"max_concurrent_runs", current.MaxConcurrentRuns.LimitSetting, wanted.MaxConcurrentRuns.LimitSetting},
		{"monthly_usd", current.MonthlyUSD.LimitSetting, wanted.MonthlyUSD.LimitSetting},
		{"monthly_runs", current.MonthlyRuns.LimitSetting, wanted.MonthlyRuns.LimitSetting},
		{"launches_per_minute", current.LaunchesPerMinute.LimitSetting, wanted.LaunchesPerMinute.LimitSetting},
	} {
		if limit.wanted.Inherits() && !limit.current.Inherits() {
			names = append(names, limit.name)
		}
	}
	return names
}

func (p *planner) limits(ctx context.Context, wanted api.Limits) error {
	current, err := p.server.Limits(ctx)
	if err != nil {
		return err
	}
	wanted.SettingState = api.SettingState{UpdatedAt: current.UpdatedAt}
	return p.add("the limits setting", ActionChange, normalLimits(current), normalLimits(wanted), func(ctx context.Context) error {
		_, err := p.server.PutLimits(ctx, wanted)
		return err
	})
}

// normalLimits fills in what the build's own defaults say, and leaves out what is no
// limit, so that what means the same is the same.
func normalLimits(l api.Limits) api.Limits {
	l.SettingState = api.SettingState{}
	if l.DefaultLaunchesPerMinute.Inherits() {
		l.DefaultLaunchesPerMinute.LimitSetting = holdfast.LimitTo(platformcfg.DefaultLaunchesPerMinute)
	}
	if l.DefaultRunUSD == nil {
		budget := platformcfg.DefaultRunUSD
		if l.MaxRunUSD != nil {
			budget = min(budget, *l.MaxRunUSD)
		}
		l.DefaultRunUSD = &budget
	}
	for _, limit := range []*holdfast.LimitSetting{
		&l.DefaultMaxConcurrentRuns.LimitSetting, &l.DefaultMonthlyUSD.LimitSetting, &l.DefaultMonthlyRuns.LimitSetting,
		&l.Platform.MaxConcurrentRuns.LimitSetting, &l.Platform.MonthlyUSD.LimitSetting,
	} {
		if *limit == holdfast.Unlimited {
			*limit = holdfast.LimitSetting{}
		}
	}
	return l
}

func (p *planner) bot(ctx context.Context, wanted Bot) error {
	put := func(ctx context.Context) error {
		_, _, err := p.server.PutBot(ctx, wanted.Team, wanted.Bot, wanted.BotBody)
		return err
	}
	create := func() error { return p.add(wanted.what(), ActionCreate, nil, wanted.BotBody, put) }
	if p.created[wanted.Team] {
		return create()
	}
	current, err := p.server.Bot(ctx, wanted.Team, wanted.Bot)
	var missing *client.NotFound
	origin := "platform"
	if wanted.Team != "" {
		origin = "team"
	}
	switch {
	case errors.As(err, &missing), err == nil && current.Origin != origin:
		return create()
	case err != nil:
		return err
	}
	return p.add(wanted.what(), ActionChange, current.BotBody, wanted.BotBody, put)
}

func (p *planner) policy(ctx context.Context, wanted api.BudgetFloor) error {
	current, err := p.server.BudgetFloor(ctx)
	if err != nil {
		return err
	}
	before, err := normalPolicy(current)
	if err != nil {
		return fmt.Errorf("the stored policy: %w", err)
	}
	wanted.SettingState = api.SettingState{UpdatedAt: current.UpdatedAt}
	return p.add("the policy", ActionChange, policyView(before), policyView(wanted), func(ctx context.Context) error {
		_, err := p.server.PutBudgetFloor(ctx, wanted)
		return err
	})
}
