package launch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// Bounds of what a request may hold.
const (
	maxRepo       = 200
	maxInputs     = 64
	maxInputValue = 32 << 10
	maxInputBytes = 128 << 10
)

// DefaultPool is the runner pool of a launch that names none.
const DefaultPool = "default"

func invalid(field, problem, allowed string) error {
	return &holdfast.InvalidError{Field: field, Problem: problem, Allowed: allowed}
}

// read folds a request's names and refuses what cannot be meant. It reads nothing
// and takes nothing.
func (s *Service) read(who auth.Principal, r *Request) (call, error) {
	team, err := holdfast.FoldName(r.Team)
	if err != nil {
		return call{}, holdfast.InField("team", err)
	}
	if r.Bot, err = holdfast.FoldName(r.Bot); err != nil {
		return call{}, holdfast.InField("bot", err)
	}
	if len(r.Repo) > maxRepo || holdfast.Clip(r.Repo, maxRepo) != r.Repo {
		return call{}, invalid("repo", "it is too long or holds control characters", fmt.Sprintf("owner/name, at most %d bytes", maxRepo))
	}
	r.Repo = budgetfloor.RepoName(r.Repo)
	if err := checkBudgets(r.BudgetUSD, r.MinBudgetUSD); err != nil {
		return call{}, err
	}
	if r.Pool == "" {
		r.Pool = DefaultPool
	}
	if err := checkInputs(r.Inputs); err != nil {
		return call{}, err
	}
	return call{who: who, team: holdfast.TeamID(team), repo: r.Repo}, nil
}

func checkBudgets(budget, least *holdfast.MicroUSD) error {
	const allowed = "more than 0 and at most 1000000000 dollars, or absent"
	switch {
	case budget != nil && (*budget <= 0 || *budget > holdfast.MaxUSD):
		return invalid("budget_usd", fmt.Sprintf("%s is not a budget", budget.Dollars()), allowed)
	case least != nil && (*least <= 0 || *least > holdfast.MaxUSD):
		return invalid("min_budget_usd", fmt.Sprintf("%s is not a minimum", least.Dollars()), allowed)
	case budget != nil && least != nil && *least > *budget:
		return invalid("min_budget_usd", fmt.Sprintf("it is above budget_usd, %s", budget.Dollars()), "at most budget_usd")
	}
	return nil
}

func checkInputs(inputs map[string]string) error {
	if len(inputs) > maxInputs {
		return invalid("inputs", "there are too many", fmt.Sprintf("at most %d", maxInputs))
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		value := inputs[name]
		total += len(name) + len(value)
		if len(value) > maxInputValue || total > maxInputBytes || !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
			return invalid("inputs."+holdfast.Clip(name, 60), "the value is too long or not text", fmt.Sprintf("at most %d bytes of UTF-8 without zero bytes, %d in all", maxInputValue, maxInputBytes))
		}
	}
	return nil
}

// resolve is the resolution of a launch: the bot under the request's name, raw. Its
// label is read here for the last time.
func (s *Service) resolve(r *Request) resolveFunc {
	return func(ctx context.Context, a *admission) (candidate, holdfast.Denial, error) {
		found, ok, err := s.Bots.Resolve(ctx, a.team.ID, r.Bot)
		switch {
		case isInvalid(err):
			return candidate{}, holdfast.Denial{}, err
		case err != nil:
			return candidate{}, holdfast.Denial{}, unavailable(err)
		case !ok:
			return candidate{}, holdfast.Denial{
				Reason: holdfast.DenyUnknownBot,
				Public: fmt.Sprintf("the team %s has no bot %s; holdfast bots list --team %s shows those that it can launch", a.team.ID, r.Bot, a.team.ID),
			}, nil
		}
		if denial := s.checkLane(found.Bot.Lane, r.External); denial.Denied() {
			return candidate{}, denial, nil
		}
		if r.Inputs, err = fillInputs(found.Bot, r.Inputs, r.External); err != nil {
			return candidate{}, holdfast.Denial{}, err
		}
		c, err := s.candidate(a, WorkloadOf(found), r.BudgetUSD, r.MinBudgetUSD)
		return c, holdfast.Denial{}, err
	}
}

// resume is the resolution of a continuation: the run document's identity and bot,
// and what is left of its budget.
func (s *Service) resume(run runs.Run, left holdfast.MicroUSD) resolveFunc {
	return func(_ context.Context, a *admission) (candidate, holdfast.Denial, error) {
		if denial := s.checkLane(run.Bot.Lane, run.External); denial.Denied() {
			return candidate{}, denial, nil
		}
		w := WorkloadOf(run)
		w.bot.BudgetUSD, w.bot.MinBudget = nil, nil // its budget was decided at the launch
		c, err := s.candidate(a, w, &left, nil)
		return c, holdfast.Denial{}, err
	}
}

// checkLane refuses a lane that this build does not execute. An external run is
// executed by its caller.
func (s *Service) checkLane(lane holdfast.Lane, external bool) holdfast.Denial {
	if external || slices.Contains(s.options.Lanes, lane) {
		return holdfast.Denial{}
	}
	return holdfast.Denial{
		Reason: holdfast.DenyLane,
		Public: fmt.Sprintf("this build does not run bots of the lane %s yet; it runs %v", lane, s.options.Lanes),
	}
}

// fillInputs adds the bot's defaults and refuses inputs that it does not declare or
// that are missing. Who runs the work itself needs none.
func fillInputs(bot holdfast.Bot, given map[string]string, external bool) (map[string]string, error) {
	declared := slices.Sorted(maps.Keys(bot.Inputs))
	allowed := "the inputs of " + string(bot.Name) + ": " + strings.Join(declared, ", ")
	if len(declared) == 0 {
		allowed = string(bot.Name) + " takes no inputs"
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if _, ok := bot.Inputs[name]; !ok {
			return nil, invalid("inputs."+holdfast.Clip(name, 60), "the bot declares no such input", allowed)
		}
	}
	filled := make(map[string]string, len(declared))
	for _, name := range declared {
		value, ok := given[name]
		switch input := bot.Inputs[name]; {
		case ok:
			filled[name] = value
		case input.Default != "" || !input.Required:
			filled[name] = input.Default
		case !external:
			return nil, invalid("inputs."+name, "the bot requires it", allowed)
		}
	}
	return filled, nil
}
