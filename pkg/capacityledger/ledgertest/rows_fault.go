package ledgertest

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// faultRows are what holds when calls fail, before or after they took effect.
func faultRows() []Row {
	return []Row{
		{"fault: whichever call fails, asked again it is as if nothing had failed (C6)", anyCallFails},
		{"fault: an unreachable store is an error and never a denial", faulted(unreachableIsNoDenial)},
		{"fault: an ask whose reply was lost is found again or comes back by itself", faulted(lostReply)},
		{"fault: a release that fails leaves the entry listed, and the sweep closes it (D4)", faulted(failedRelease)},
		{"fault: a settle that fails is settled by its retry (D8)", faulted(failedSettle)},
		{"fault: whichever call fails and whatever is given up, nothing is held in the end", givenUp},
	}
}

// faulted plays steps whose ledger goes through a faulty store; the invariants look
// at the store behind it.
func faulted(steps func(*script, *Faulty)) func(context.Context, Harness) error {
	return play(func(s *script) {
		faulty := &Faulty{Store: s.store}
		s.ledger = capacityledger.New(faulty, capacityledger.Options{Clock: s.clock})
		steps(s, faulty)
	})
}

// history is a short life of a team's month in which every verb occurs, told through
// attempt: that is called with each verb and says whether to go on. It ends with
// five dollars settled and nothing outstanding.
func history(s *script, attempt func(func() error) error) error {
	limit := at(dollars, usd(30))
	first, second, third := s.ask(dollars, feature, limit, usd(20)), s.ask(dollars, review, limit, usd(15)), s.ask(dollars, docs, limit, usd(1))
	forgotten := s.ask(slots, docs, at(slots, 1), 1)
	for _, verb := range []func() error{
		func() error { return granted(s.ledger.Reserve(s.ctx, first))(usd(20)) },
		func() error { return granted(s.ledger.Reserve(s.ctx, second))(usd(10)) },
		func() error { return granted(s.ledger.Reserve(s.ctx, third))(0) },
		func() error { return granted(s.ledger.Reserve(s.ctx, forgotten))(1) },
		func() error {
			_, _, err := s.ledger.Renew(s.ctx, first.ID, capacityledger.Renewal{Attempt: 1, Sequence: 1, Spent: holdfast.USDAmount(3 * holdfast.OneUSD), Expires: s.clock.Now().Add(lease)})
			return err
		},
		func() error {
			return s.ledger.Lower(s.ctx, []capacityledger.Correction{{ID: second.ID, Amount: holdfast.USDAmount(8 * holdfast.OneUSD)}})
		},
		func() error {
			_, err := s.ledger.Settle(s.ctx, first.ID, capacityledger.Report{Attempt: 1, Spent: holdfast.USDAmount(5 * holdfast.OneUSD)})
			return err
		},
		func() error { _, err := s.ledger.Release(s.ctx, second.ID); return err },
		func() error { _, err := s.ledger.Expire(s.ctx, far, 10); return err },
	} {
		if err := attempt(verb); err != nil {
			return err
		}
		if err := Invariants(s.ctx, s.store); err != nil {
			return err
		}
	}
	return nil
}

// granted demands that a reserve got so much, 0 being refused.
func granted(a capacityledger.Allocation, d holdfast.Denial, err error) func(int64) error {
	return func(want int64) error {
		switch bad := one(a, d, err); {
		case bad != nil:
			return bad
		case err != nil:
			return err
		case a.Amount.Int() != want:
			return fmt.Errorf("%d was granted, want %d", a.Amount.Int(), want)
		}
		return nil
	}
}

// eachFault plays with the n-th call failing, before and after it took effect, until
// there are no more calls.
func eachFault(ctx context.Context, h Harness, steps func(*script) error) error {
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			store, err := h.Open()
			if err != nil {
				return err
			}
			s := newScript(ctx, store)
			faulty := &Faulty{Store: store}
			s.ledger = capacityledger.New(faulty, capacityledger.Options{Clock: s.clock})
			faulty.Fail(n, after)
			if err := errors.Join(steps(s), s.err); err != nil {
				return fmt.Errorf("call %d failing, after it took effect %t: %w", n, after, err)
			}
			if faulty.Calls() < n {
				break
			}
		}
	}
	return nil
}

func anyCallFails(ctx context.Context, h Harness) error {
	return eachFault(ctx, h, func(s *script) error {
		err := history(s, func(verb func() error) error {
			err := verb()
			if errors.Is(err, capacityledger.ErrUnavailable) {
				return verb()
			}
			return err
		})
		s.holds(dollars, usd(5), 0)
		s.has(dollars, feature, usd(5), 0)
		s.holds(slots, 0, 0)
		return err
	})
}

func givenUp(ctx context.Context, h Harness) error {
	return eachFault(ctx, h, func(s *script) error {
		err := history(s, func(verb func() error) error {
			_ = verb() // whoever asked goes away, whatever the answer was
			return nil
		})
		s.ledger = capacityledger.New(s.store, capacityledger.Options{Clock: s.clock})
		s.expire(far, 10, len(s.open()))
		s.holds(slots, 0, 0)
		got := s.totals(dollars)
		s.check(got[1] == 0 && (got[0] == usd(5) || got[0] == usd(3) || got[0] == 0), "the month has %v", got)
		return err
	})
}

// open lists what is open.
func (s *script) open() []capacityledger.Allocation {
	due, err := s.store.Due(s.ctx, far, capacityledger.Cursor{}, 1000)
	if err != nil {
		s.fail("%w", err)
	}
	return due
}

func unreachableIsNoDenial(s *script, faulty *Faulty) {
	s.grant(s.ask(slots, feature, at(slots, 1), 1), 1)
	for _, limit := range []holdfast.Limit{at(slots, 1), at(slots, 5), at(slots, 0), holdfast.NoLimit} {
		faulty.Fail(1, false)
		s.refuse(s.ask(slots, feature, limit, 1), capacityledger.ErrUnavailable)
	}
	ask := s.ask(slots, feature, at(slots, 1), 1)
	faulty.Fail(1, false)
	_, denial, _, err := s.ledger.Preview(s.ctx, ask)
	s.check(!denial.Denied() && errors.Is(err, capacityledger.ErrUnavailable), "preview: %v", err)
	s.holds(slots, 0, 1)
}

func lostReply(s *script, faulty *Faulty) {
	ask := s.ask(dollars, feature, at(dollars, usd(10)), usd(8))
	faulty.Fail(1, true)
	_, denial, err := s.ledger.Reserve(s.ctx, ask)
	s.check(!denial.Denied() && errors.Is(err, capacityledger.ErrUnavailable), "reserve: %v", err)
	s.holds(dollars, 0, usd(8))
	s.grant(ask, usd(8))
	s.holds(dollars, 0, usd(8))
	s.release(ask.ID, true)
	s.refuse(ask, capacityledger.ErrClosed)

	abandoned := s.ask(dollars, feature, at(dollars, usd(10)), usd(8))
	faulty.Fail(1, true)
	_, _, err = s.ledger.Reserve(s.ctx, abandoned)
	s.check(err != nil, "the reply was not lost")
	s.clock.Advance(2 * lease)
	s.expire(s.clock.Now(), 10, 1)
	s.holds(dollars, 0, 0)
}

func failedRelease(s *script, faulty *Faulty) {
	a := s.grant(s.ask(slots, feature, at(slots, 1), 1), 1)
	var told int
	s.ledger = capacityledger.New(faulty, capacityledger.Options{Clock: s.clock, Events: capacityledger.Events{Failed: func(string, error) { told++ }}})
	faulty.Fail(1, false)
	closed, err := s.ledger.Release(s.ctx, a.ID)
	s.check(!closed && errors.Is(err, capacityledger.ErrUnavailable), "release: %t, %v", closed, err)
	s.check(told == 1, "the failure was told %d times", told)
	s.check(len(s.open()) == 1, "the entry is not listed")
	s.clock.Advance(2 * lease)
	s.expire(s.clock.Now(), 10, 1)
	s.holds(slots, 0, 0)
}

func failedSettle(s *script, faulty *Faulty) {
	for _, after := range []bool{false, true} {
		before := s.totals(dollars)
		a := s.grant(s.ask(dollars, feature, at(dollars, usd(50)), usd(8)), usd(8))
		faulty.Fail(1, after)
		_, err := s.ledger.Settle(s.ctx, a.ID, capacityledger.Report{Attempt: 1, Spent: holdfast.USDAmount(3 * holdfast.OneUSD)})
		s.check(errors.Is(err, capacityledger.ErrUnavailable), "settle: %v", err)
		s.settle(a.ID, 1, usd(3), !after)
		s.holds(dollars, before[0]+usd(3), 0)
		s.check(s.get(a.ID).Outcome == capacityledger.Settled, "it is %q", s.get(a.ID).Outcome)
	}
}
