package launch

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// This file is for two launches under one id at one time: a delivery that came twice,
// or a surface that took over from a process which was only slow. Both ask for the
// same allocations, each of which is granted once, to one of the two; and one writes
// the document. Neither may give back what the other runs on, in whatever order they
// fail:
//
//   - who was granted an allocation withdraws it, which does nothing once it was
//     taken over;
//   - who found one takes it over before the document is written, and never gives it
//     back. Where it was withdrawn in that moment nothing is launched;
//   - of what was asked and not answered nobody knows whose it is, and nobody gives it
//     back.
//
// What neither holds on to, because both failed or died, the lease of a launch ends.

// tookOrFound remembers how to give back an allocation that was granted to this launch,
// or how to take over one that was granted to the other.
func (s *Service) tookOrFound(a *admission, allocation capacityledger.Allocation, verdict capacityledger.Verdict) {
	if verdict.Replayed {
		a.found = append(a.found, func(ctx context.Context) error {
			return s.Ledger.TakeOver(ctx, allocation, s.now().Add(s.options.LaunchLease))
		})
		return
	}
	a.took("allocation "+string(allocation.ID), func(ctx context.Context) error {
		_, err := s.Ledger.Withdraw(ctx, allocation)
		return err
	})
}

// takeOver makes what a launch found its own to rely on, until its document exists.
func (s *Service) takeOver(ctx context.Context, a *admission) error {
	for _, over := range a.found {
		err := over(ctx)
		switch {
		case errors.Is(err, capacityledger.ErrClosed), errors.Is(err, capacityledger.ErrNotFound):
			return fmt.Errorf("%w: the run %s was launched twice at once, and the other launch gave its capacity back", ErrUnavailable, a.run)
		case err != nil:
			return unavailable(err)
		}
	}
	return nil
}
