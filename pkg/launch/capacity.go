package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// Capacity shows the subjects of a team and of its organisation, and those over all
// teams where they are capped or used. An operator that names no team sees every
// team's and organisation's; anybody else sees the own teams' only.
func (s *Service) Capacity(ctx context.Context, who auth.Principal, team string) ([]SubjectView, error) {
	rules, err := s.readRules(ctx)
	if err != nil {
		return nil, err
	}
	shown, err := s.ownersShown(ctx, who, rules, team)
	if err != nil {
		return nil, err
	}
	now := s.now()
	month := holdfast.MonthPeriod(now)
	var views []SubjectView
	add := func(o owners, always bool, subjects ...holdfast.Subject) error {
		for _, subject := range subjects {
			view, err := s.view(ctx, who, rules, o, subject, now, false)
			if err != nil {
				return err
			}
			if always || !view.Cap.None() || !view.Settled.IsZero() || !view.Outstanding.IsZero() {
				views = append(views, view)
			}
		}
		return nil
	}
	for _, o := range shown {
		if id := o.team.ID; id != "" {
			err = add(o, true, holdfast.TeamSubject(id, holdfast.AxisSlots, ""), holdfast.TeamSubject(id, holdfast.AxisUSD, month), holdfast.TeamSubject(id, holdfast.AxisRuns, month))
		} else {
			id := o.org.ID
			err = add(o, true, holdfast.OrgSubject(id, holdfast.AxisSlots, ""), holdfast.OrgSubject(id, holdfast.AxisUSD, month), holdfast.OrgSubject(id, holdfast.AxisRuns, month))
		}
		if err != nil {
			return nil, err
		}
	}
	err = add(owners{}, false, holdfast.PlatformSubject(holdfast.AxisSlots, ""), holdfast.PlatformSubject(holdfast.AxisUSD, month))
	return views, err
}

// ownersShown are the teams whose subjects a caller sees, and behind them the
// organisations that these belong to, each once.
func (s *Service) ownersShown(ctx context.Context, who auth.Principal, rules rules, name string) ([]owners, error) {
	list, err := s.teamsShown(ctx, who, name)
	if err != nil {
		return nil, err
	}
	var shown []owners
	var orgs []holdfast.OrgID
	for _, team := range list {
		shown = append(shown, owners{team: team})
		if team.Organisation != "" {
			orgs = append(orgs, team.Organisation)
		}
	}
	slices.Sort(orgs)
	for _, id := range slices.Compact(orgs) {
		o, err := s.orgOwners(ctx, rules, id)
		if err != nil {
			return nil, unavailable(err)
		}
		shown = append(shown, o)
	}
	return shown, nil
}

// teamsShown are the teams whose subjects a caller sees.
func (s *Service) teamsShown(ctx context.Context, who auth.Principal, name string) ([]teams.Team, error) {
	if name == "" && who.Operator {
		all, err := s.Teams.All(ctx)
		return all, unavailable(err)
	}
	if name == "" && who.Team == "" {
		var own []teams.Team
		for _, id := range who.Teams() {
			team, err := s.teamOf(ctx, who, id)
			if err != nil && !errors.Is(err, ErrNotFound) {
				return nil, err
			}
			if err == nil {
				own = append(own, team)
			}
		}
		return own, nil
	}
	if name == "" {
		name = string(who.Team)
	}
	id, err := holdfast.FoldName(name)
	if err != nil {
		return nil, holdfast.InField("team", err)
	}
	team, err := s.teamOf(ctx, who, holdfast.TeamID(id))
	if err != nil {
		return nil, err
	}
	return []teams.Team{team}, nil
}

// teamOf reads a team that the caller may look at.
func (s *Service) teamOf(ctx context.Context, who auth.Principal, id holdfast.TeamID) (teams.Team, error) {
	if !who.May(id, auth.Viewer) {
		return teams.Team{}, fmt.Errorf("team %s: %w", id, ErrNotFound)
	}
	team, err := s.Teams.Get(ctx, id)
	if errors.Is(err, records.ErrNotFound) {
		return teams.Team{}, fmt.Errorf("team %s: %w", id, ErrNotFound)
	}
	return team, unavailable(err)
}

// CapacitySubject shows one subject with its open entries, oldest first. A team's
// subject is shown to that team; what spans teams to everybody, with the entries and
// the others' own bots to an operator only.
func (s *Service) CapacitySubject(ctx context.Context, who auth.Principal, subject holdfast.Subject) (SubjectView, error) {
	rules, err := s.readRules(ctx)
	if err != nil {
		return SubjectView{}, err
	}
	var o owners
	switch {
	case subject.Axis.Unit() == holdfast.UnitNone:
		return SubjectView{}, invalid("subject", fmt.Sprintf("this build does not know the axis %q", holdfast.Clip(string(subject.Axis), 40)), "slots, usd, runs, five_hour, week, in_flight")
	case subject.Kind == holdfast.KindTeam:
		if o.team, err = s.teamOf(ctx, who, holdfast.TeamID(subject.ID)); err != nil {
			return SubjectView{}, err
		}
	case subject.Kind == holdfast.KindOrg:
		if o, err = s.orgFor(ctx, who, rules, holdfast.OrgID(subject.ID)); err != nil {
			return SubjectView{}, err
		}
	case subject.Kind != holdfast.KindPlatform && !who.Operator:
		return SubjectView{}, fmt.Errorf("subject %s: %w", subject, ErrNotFound)
	}
	return s.view(ctx, who, rules, o, subject, s.now(), true)
}

// orgFor reads an organisation that the caller may look at: an operator, and who is
// in one of its teams. One that nobody created and no team names is not found.
func (s *Service) orgFor(ctx context.Context, who auth.Principal, rules rules, id holdfast.OrgID) (owners, error) {
	missing := fmt.Errorf("organisation %s: %w", id, ErrNotFound)
	members, err := s.Teams.Members(ctx, id)
	if err != nil {
		return owners{}, unavailable(err)
	}
	if !slices.ContainsFunc(members, func(team teams.Team) bool { return who.May(team.ID, auth.Viewer) }) {
		if !who.Operator {
			return owners{}, missing
		}
		if _, err := s.Teams.Organisation(ctx, id); errors.Is(err, records.ErrNotFound) {
			return owners{}, missing
		}
	}
	o, err := s.orgOwners(ctx, rules, id)
	return o, unavailable(err)
}

// viewOf is the view of a subject that the caller was found to hold something on.
func (s *Service) viewOf(ctx context.Context, who auth.Principal, rules rules, subject holdfast.Subject) (SubjectView, error) {
	var o owners
	var err error
	switch subject.Kind {
	case holdfast.KindTeam:
		if o, err = s.ownersOf(ctx, rules, holdfast.TeamID(subject.ID)); errors.Is(err, records.ErrNotFound) {
			o, err = owners{team: teams.Team{ID: holdfast.TeamID(subject.ID)}}, nil
		}
	case holdfast.KindOrg:
		o, err = s.orgOwners(ctx, rules, holdfast.OrgID(subject.ID))
	case holdfast.KindPlatform, holdfast.KindAccount, holdfast.KindDonor, holdfast.KindRunnerPool:
	}
	if err != nil {
		return SubjectView{}, unavailable(err)
	}
	return s.view(ctx, who, rules, o, subject, s.now(), false)
}

// view is a subject's balance with what it means under the rules in force.
func (s *Service) view(ctx context.Context, who auth.Principal, rules rules, o owners, subject holdfast.Subject, now time.Time, entries bool) (SubjectView, error) {
	balance, err := s.Ledger.Outstanding(ctx, subject)
	if err != nil {
		return SubjectView{}, unavailable(err)
	}
	balance.Subject = subject
	unit := subject.Axis.Unit()
	terms := rules.terms(subject, o, now)
	nobody := capacityledger.Room(balance, terms, holdfast.Identity{})
	v := SubjectView{
		Subject: subject, Cap: terms.Cap, Free: holdfast.NoLimit, NextExpiry: balance.NextExpiry,
		Settled: holdfast.AmountOf(unit, balance.Settled), Outstanding: holdfast.AmountOf(unit, balance.Outstanding),
		Withheld: holdfast.AmountOf(unit, nobody.Withheld), Over: holdfast.AmountOf(unit, 0),
	}
	if !terms.Cap.None() {
		v.Free = holdfast.AtMost(holdfast.AmountOf(unit, max(0, nobody.Remaining)))
		v.Over = holdfast.AmountOf(unit, max(0, balance.Total()-terms.Cap.Max().Int()))
	}
	for _, holding := range visibleHoldings(who, subject, capacityledger.Holdings(terms, balance)) {
		free := holdfast.NoLimit
		if !terms.Cap.None() {
			free = holdfast.AtMost(holdfast.AmountOf(unit, max(0, capacityledger.Room(balance, terms, holding.Holder).Remaining)))
		}
		v.Holders = append(v.Holders, HolderView{Holding: holding, FreeFor: free})
	}
	if entries && (who.Operator || subject.Kind == holdfast.KindTeam) {
		v.Entries = s.entries(ctx, balance, o.team)
	}
	return v, nil
}

func (s *Service) entries(ctx context.Context, balance capacityledger.Balance, team teams.Team) []EntryView {
	views := make([]EntryView, 0, len(balance.Open))
	for _, a := range balance.Open {
		owner := team.ID
		if owner == "" {
			if run, err := s.Runs.Get(ctx, a.Run); err == nil { // else it is shown without
				owner = run.Team
			}
		}
		views = append(views, EntryView{
			Allocation: a.ID, Holder: a.Holder, Run: a.Run, Team: owner, Amount: a.Amount, Spent: a.Spent,
			AcquiredAt: a.AcquiredAt, ExpiresAt: a.ExpiresAt, Confirmed: a.Confirmed,
		})
	}
	return views
}

// visibleHoldings is who holds what on a subject, as a caller may see it: on what
// spans teams, the own bots of other teams are one holder without a name.
func visibleHoldings(who auth.Principal, subject holdfast.Subject, holdings []holdfast.Holding) []holdfast.Holding {
	if who.Operator || subject.Kind == holdfast.KindTeam {
		return holdings
	}
	var visible []holdfast.Holding
	var others *holdfast.Holding
	for _, h := range holdings {
		if h.Holder.Tier() != holdfast.TierTeam || who.In(h.Holder.Team()) {
			visible = append(visible, h)
			continue
		}
		if others == nil {
			others = &holdfast.Holding{}
		}
		others.Reserved = others.Reserved.Plus(h.Reserved)
		others.Settled = others.Settled.Plus(h.Settled)
		others.Outstanding = others.Outstanding.Plus(h.Outstanding)
	}
	if others != nil {
		visible = append(visible, *others)
	}
	return visible
}
