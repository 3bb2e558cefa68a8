package launch

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// rules are the settings that one launch is judged by, read once, so that no two of
// its checks see different ones.
type rules struct {
	policy      budgetfloor.Policy
	policyState platformcfg.State
	limits      platformcfg.LimitsSetting
	maintenance platformcfg.Maintenance
}

// readRules reads the settings from their caches. Limits or a fence that were never
// read are an error: a cap that nobody knows cannot be judged, and is not the
// absence of one. The policy is another matter, see failopen.go.
func (s *Service) readRules(ctx context.Context) (rules, error) {
	var r rules
	var state platformcfg.State
	if r.maintenance, state = s.Settings.Maintenance.Lookup(ctx); !state.Known() {
		return r, fmt.Errorf("%w: the maintenance setting was never read", ErrUnavailable)
	}
	if r.limits, state = s.Settings.Limits.Lookup(ctx); !state.Known() {
		return r, fmt.Errorf("%w: the limits setting was never read", ErrUnavailable)
	}
	r.policy, r.policyState = s.Settings.BudgetFloor.Lookup(ctx)
	return r, nil
}

// slotSubjects are the subjects that a run of the team takes a slot on. The one over
// all teams is only there where it has a cap.
func (r rules) slotSubjects(team holdfast.TeamID) []holdfast.Subject {
	subjects := []holdfast.Subject{holdfast.TeamSubject(team, holdfast.AxisSlots, "")}
	if _, capped := r.limits.Platform.MaxConcurrentRuns.Value(); capped {
		subjects = append(subjects, holdfast.PlatformSubject(holdfast.AxisSlots, ""))
	}
	return subjects
}

// usdSubjects are the subjects that a run of the team spends on in the month of an
// instant, in the same way.
func (r rules) usdSubjects(team holdfast.TeamID, at time.Time) []holdfast.Subject {
	month := holdfast.MonthPeriod(at)
	subjects := []holdfast.Subject{holdfast.TeamSubject(team, holdfast.AxisUSD, month)}
	if _, capped := r.limits.Platform.MonthlyUSD.Value(); capped {
		subjects = append(subjects, holdfast.PlatformSubject(holdfast.AxisUSD, month))
	}
	return subjects
}

// runsSubject is the team's count of runs in the month of an instant.
func runsSubject(team holdfast.TeamID, at time.Time) holdfast.Subject {
	return holdfast.TeamSubject(team, holdfast.AxisRuns, holdfast.MonthPeriod(at))
}

// capOf is the cap in force on a subject; NoLimit where nothing caps it. team is the
// owner of a team's subject.
func (r rules) capOf(subject holdfast.Subject, team teams.Team) holdfast.Limit {
	unit := subject.Axis.Unit()
	switch {
	case subject.Kind == holdfast.KindTeam && subject.Axis == holdfast.AxisSlots:
		return team.Limits.MaxConcurrentRuns.Or(r.limits.DefaultMaxConcurrentRuns.LimitSetting).Limit(unit)
	case subject.Kind == holdfast.KindTeam && subject.Axis == holdfast.AxisUSD:
		return team.Limits.MonthlyUSD.Or(r.limits.DefaultMonthlyUSD.LimitSetting).Limit(unit)
	case subject.Kind == holdfast.KindTeam && subject.Axis == holdfast.AxisRuns:
		return team.Limits.MonthlyRuns.Or(r.limits.DefaultMonthlyRuns.LimitSetting).Limit(unit)
	case subject.Kind == holdfast.KindPlatform && subject.Axis == holdfast.AxisSlots:
		return r.limits.Platform.MaxConcurrentRuns.Limit(unit)
	case subject.Kind == holdfast.KindPlatform && subject.Axis == holdfast.AxisUSD:
		return r.limits.Platform.MonthlyUSD.Limit(unit)
	}
	return holdfast.NoLimit
}

// terms are what an ask on a subject is judged against: the cap, and what the
// policy reserves there, in its order, the asker's own included.
func (r rules) terms(subject holdfast.Subject, team teams.Team, at time.Time) capacityledger.Terms {
	terms := capacityledger.Terms{Cap: r.capOf(subject, team)}
	for _, share := range r.policy.Reserved(subject, at) {
		terms.Reserved = append(terms.Reserved, capacityledger.Reserved{Holder: share.Holder, Amount: share.Amount})
	}
	return terms
}

// launchesPerMinute is the team's launch rate; false when it has none.
func (r rules) launchesPerMinute(team teams.Team) (int64, bool) {
	return team.Limits.LaunchesPerMinute.Or(r.limits.DefaultLaunchesPerMinute.LimitSetting).Value()
}
