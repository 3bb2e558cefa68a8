package launch

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// checkConcurrency reserves a slot on every subject that counts runs at a time.
func (s *Service) checkConcurrency(ctx context.Context, a *admission, c candidate) (holdfast.Denial, error) {
	if s.withoutPolicy(ctx, a) {
		return holdfast.Denial{}, nil
	}
	one := holdfast.SlotAmount(1)
	return s.reserve(ctx, a, c, concurrencyCheck, one, one, a.rules.subjects(a.owners, holdfast.AxisSlots, "")...)
}

// checkMonthly reserves a run of the month and the run's dollars. The run of the
// month is settled as used once the run is published; only an unwinding before that
// gives it back.
func (s *Service) checkMonthly(ctx context.Context, a *admission, c candidate) (holdfast.Denial, error) {
	if a.unheld == UnheldPolicy { // nothing is judged, so nothing is cut
		a.budget = c.ask
		return holdfast.Denial{}, nil
	}
	var first holdfast.Denial
	if a.unheld == "" && c.unit {
		var err error
		one := holdfast.RunAmount(1)
		first, err = s.reserve(ctx, a, c, monthlyCheck, one, one, a.rules.subjects(a.owners, holdfast.AxisRuns, holdfast.MonthPeriod(a.at))...)
		if err != nil || (first.Denied() && !a.dry) {
			return first, err
		}
	}
	if a.unheld != "" { // the documents were judged for every axis
		return first, nil
	}
	denial, err := s.reserveUSD(ctx, a, c)
	if first.Denied() && err == nil {
		denial = first
	}
	return denial, err
}

// reserveUSD reserves dollars on every subject that counts them. The smallest
// allowance becomes the run's budget, and the larger ones are corrected down to it,
// so that what is promised is what the run is held to.
func (s *Service) reserveUSD(ctx context.Context, a *admission, c candidate) (holdfast.Denial, error) {
	subjects := a.rules.subjects(a.owners, holdfast.AxisUSD, holdfast.MonthPeriod(a.at))
	a.budget = c.ask
	denial, err := s.reserve(ctx, a, c, monthlyCheck, holdfast.USDAmount(c.ask), holdfast.USDAmount(c.minimum), subjects...)
	if denial.Denied() || err != nil || a.unheld != "" || a.dry {
		return denial, err
	}
	var corrections []capacityledger.Correction
	for i, hold := range a.holds {
		if hold.Subject.Axis == holdfast.AxisUSD && hold.Amount > int64(a.budget) {
			a.holds[i].Amount = int64(a.budget)
			corrections = append(corrections, capacityledger.Correction{ID: hold.ID, Amount: holdfast.USDAmount(a.budget)})
		}
	}
	if len(corrections) == 0 {
		return holdfast.Denial{}, nil
	}
	if err := s.Ledger.Lower(ctx, corrections); err != nil {
		return s.failOpen(ctx, a, c, monthlyCheck, subjects[0], err)
	}
	return holdfast.Denial{}, nil
}

// reserve asks every subject for the same; all must admit. A refusal ends it, and
// what was taken before is the unwinding's.
func (s *Service) reserve(ctx context.Context, a *admission, c candidate, check string, requested, minimum holdfast.Amount, subjects ...holdfast.Subject) (holdfast.Denial, error) {
	var first holdfast.Denial
	for _, subject := range subjects {
		ask := s.ask(a, c, subject, requested, minimum)
		denial, err := s.reserveOne(ctx, a, check, ask, subject)
		switch {
		case errors.Is(err, capacityledger.ErrUnavailable):
			return s.failOpen(ctx, a, c, check, subject, err)
		case err != nil:
			return holdfast.Denial{}, unavailable(err)
		case denial.Denied() && !first.Denied():
			first = denial
		}
		if first.Denied() && !a.dry {
			break
		}
	}
	return first, nil
}

// ask is what a candidate wants of one subject.
func (s *Service) ask(a *admission, c candidate, subject holdfast.Subject, requested, minimum holdfast.Amount) capacityledger.Ask {
	return capacityledger.Ask{
		ID:        holdfast.NewAllocationID(a.run, subject, a.asks),
		Terms:     a.rules.terms(subject, a.owners, a.at),
		Holder:    c.identity,
		Run:       a.run,
		Requested: requested,
		Minimum:   minimum,
		Expires:   s.now().Add(s.options.LaunchLease),
	}
}

// reserveOne asks one subject. A preview asks what it would get.
func (s *Service) reserveOne(ctx context.Context, a *admission, check string, ask capacityledger.Ask, subject holdfast.Subject) (holdfast.Denial, error) {
	if a.dry {
		verdict, denial, _, err := s.Ledger.Preview(ctx, ask)
		if err == nil {
			a.weighed(check, ask, verdict, denial, subject)
			a.cut(subject, verdict.Allowance)
		}
		return denial, err
	}
	if !a.shared {
		a.took("allocation "+string(ask.ID), func(ctx context.Context) error {
			_, err := s.Ledger.Release(ctx, ask.ID)
			return err
		})
	}
	allocation, verdict, denial, err := s.Ledger.ReserveJudged(ctx, ask)
	switch {
	case err != nil:
		return holdfast.Denial{}, err // released blindly: nobody knows whether it was recorded
	case denial.Denied():
		if !a.shared {
			a.untook() // a refusal records nothing
		}
	default:
		if a.shared {
			s.tookOrFound(a, allocation, verdict)
		}
		verdict.Allowance = allocation.Amount.Int()
		a.holds = append(a.holds, runs.Hold{ID: allocation.ID, Subject: subject, Amount: allocation.Amount.Int()})
		a.cut(subject, allocation.Amount.Int())
	}
	a.weighed(check, ask, verdict, denial, subject)
	return denial, nil
}

// cut makes the budget the smallest allowance of dollars.
func (a *admission) cut(subject holdfast.Subject, allowance int64) {
	if subject.Axis == holdfast.AxisUSD {
		a.budget = min(a.budget, holdfast.MicroUSD(allowance))
	}
}
