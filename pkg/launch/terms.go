package launch

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
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

// runsSubject is the team's count of runs in the month of an instant.
func runsSubject(team holdfast.TeamID, at time.Time) holdfast.Subject {
	return holdfast.TeamSubject(team, holdfast.AxisRuns, holdfast.MonthPeriod(at))
}

// terms are what an ask on a subject is judged against: the cap, and what the
// policy reserves there, in its order, the asker's own included.
func (r rules) terms(subject holdfast.Subject, o owners, at time.Time) capacityledger.Terms {
	terms := capacityledger.Terms{Cap: r.capOf(subject, o)}
	for _, share := range r.policy.Reserved(subject, at, o.memberIDs()...) {
		terms.Reserved = append(terms.Reserved, capacityledger.Reserved{Holder: share.Holder, Amount: share.Amount})
	}
	return terms
}
