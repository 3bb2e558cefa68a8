package launch

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/auth"
)

// Preview answers what a launch would get now, by the same checks in the same order,
// and takes nothing: no slot, no dollars, no run of the month, no launch of the rate.
// It goes on through the capacity checks after one refused, to show all of the
// arithmetic. Bad input is an error as it is for a launch.
func (s *Service) Preview(ctx context.Context, who auth.Principal, r Request) (Preview, error) {
	c, err := s.read(who, &r)
	if err != nil {
		return Preview{}, err
	}
	if err := s.checkPool(ctx, r.Pool); err != nil {
		return Preview{}, err
	}
	now := s.now()
	a := &admission{run: s.Runs.NewID(now), at: now, dry: true}
	found, denial, err := s.judge(ctx, a, c, s.resolve(&r))
	if err != nil {
		return Preview{}, err
	}
	denial.Holders = visibleHoldings(who, denial.Subject, denial.Holders)
	p := Preview{Admitted: !denial.Denied(), Identity: found.identity, Checks: a.checks, Denial: denial}
	if p.Admitted {
		p.Budget = a.budget
		p.Asked, p.CutBy = found.cutOf(r.BudgetUSD, a.budget)
	}
	return p, nil
}
