package launch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
)

// TeamPolicy is what of the policy and of the limits touches one team.
type TeamPolicy struct {
	Team         holdfast.TeamID
	Organisation holdfast.OrgID
	Standing     platformcfg.Standing
	// Subjects are those that a launch of the team takes from, and the windows of
	// accounts, with what is reserved on each.
	Subjects []SubjectPolicy
	// Reservations are the entries that name a holder whom the team may see, with
	// their notes, in policy order.
	Reservations []budgetfloor.Reservation
	// TeamRate and OrgRate are the launches per minute of the team and of its
	// organisation; NoLimit where there is none.
	TeamRate, OrgRate holdfast.Limit
	// DefaultRunUSD is the budget of a run where nobody names one; MaxRunUSD the most
	// that a run may ask for, nil without a ceiling.
	DefaultRunUSD holdfast.MicroUSD
	MaxRunUSD     *holdfast.MicroUSD
}

// SubjectPolicy is what the policy does on one subject.
type SubjectPolicy struct {
	Subject holdfast.Subject
	Cap     holdfast.Limit
	// Reserved is as served: in policy order, each cut to what is left of the cap.
	// Nobody as the holder stands for other teams' own bots together.
	Reserved []budgetfloor.Share
	// Ordinary is what work without a reservation keeps; NoLimit without a cap.
	Ordinary holdfast.Limit
}

// TeamPolicy tells a member of a team, a viewer too, what is reserved for whom on
// the subjects that the team's launches take from, and under which limits they are.
// Of other teams it shows totals and nothing else.
func (s *Service) TeamPolicy(ctx context.Context, who auth.Principal, id holdfast.TeamID) (TeamPolicy, error) {
	if _, err := s.teamOf(ctx, who, id); err != nil {
		return TeamPolicy{}, err
	}
	rules, err := s.readRules(ctx)
	if err != nil {
		return TeamPolicy{}, err
	}
	o, err := s.ownersOf(ctx, rules, id)
	if err != nil {
		return TeamPolicy{}, unavailable(err)
	}
	now := s.now()
	view := TeamPolicy{
		Team: id, Organisation: o.org.ID, Standing: s.Settings.BudgetFloor.Standing(),
		DefaultRunUSD: *rules.limits.DefaultRunUSD, MaxRunUSD: rules.limits.MaxRunUSD, TeamRate: holdfast.NoLimit, OrgRate: holdfast.NoLimit,
	}
	for _, r := range rules.rates(o) {
		if limit := holdfast.AtMost(holdfast.RunAmount(r.perMinute)); r.key == TeamRate(id) {
			view.TeamRate = limit
		} else {
			view.OrgRate = limit
		}
	}
	month := holdfast.MonthPeriod(now)
	for _, axis := range []struct {
		axis   holdfast.Axis
		period string
	}{{holdfast.AxisSlots, ""}, {holdfast.AxisUSD, month}, {holdfast.AxisRuns, month}} {
		for _, subject := range rules.subjects(o, axis.axis, axis.period) {
			view.Subjects = append(view.Subjects, policyOn(subject, rules.capOf(subject, o), rules.policy.Reserved(subject, now, o.memberIDs()...), id))
		}
	}
	if view.Subjects, err = s.addWindows(ctx, view.Subjects, rules, id, now); err != nil {
		return TeamPolicy{}, err
	}
	for _, r := range rules.policy.Reservations {
		ours := len(r.Teams) == 0 || slices.Contains(r.Teams, id)
		if r.Tier == holdfast.TierTeam {
			ours = r.Team == id
		}
		if ours {
			r.Teams = nil // who else is named there is not this team's to know
			view.Reservations = append(view.Reservations, r)
		}
	}
	return view, nil
}

// addWindows adds the windows of accounts on which something is reserved.
func (s *Service) addWindows(ctx context.Context, subjects []SubjectPolicy, rules rules, id holdfast.TeamID, now time.Time) ([]SubjectPolicy, error) {
	caps, state := s.Settings.UsageCaps.Lookup(ctx)
	if !state.Known() {
		return nil, fmt.Errorf("%w: the usage-caps setting was never read", ErrUnavailable)
	}
	for _, axis := range []holdfast.Axis{holdfast.AxisFiveHour, holdfast.AxisWeek} {
		window := holdfast.Subject{Kind: holdfast.KindAccount, ID: budgetfloor.AnyAccount, Axis: axis}
		shares := rules.policy.Reserved(window, now)
		if len(shares) == 0 {
			continue
		}
		limit := holdfast.NoLimit
		if ceiling := caps.Cap(axis); ceiling > 0 {
			limit = holdfast.AtMost(holdfast.ShareAmount(ceiling))
		}
		subjects = append(subjects, policyOn(window, limit, shares, id))
	}
	return subjects, nil
}

// policyOn serves what is reserved on a subject in policy order, and puts other
// teams' own bots together.
func policyOn(subject holdfast.Subject, limit holdfast.Limit, shares []budgetfloor.Share, team holdfast.TeamID) SubjectPolicy {
	p := SubjectPolicy{Subject: subject, Cap: limit, Ordinary: holdfast.NoLimit}
	left := limit.Max()
	others := holdfast.AmountOf(subject.Axis.Unit(), 0)
	for _, share := range shares {
		if !limit.None() {
			share.Amount = holdfast.MinAmount(share.Amount, left)
			left = left.Minus(share.Amount)
		}
		if share.Holder.Tier() == holdfast.TierTeam && share.Holder.Team() != team {
			others = others.Plus(share.Amount)
			continue
		}
		p.Reserved = append(p.Reserved, share)
	}
	if others.Int() > 0 {
		p.Reserved = append(p.Reserved, budgetfloor.Share{Amount: others})
	}
	if !limit.None() {
		p.Ordinary = holdfast.AtMost(left)
	}
	return p
}
