package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
)

// raceRows are what holds with many askers at once, through two ledgers over one
// store, as two replicas have it.
func raceRows() []Row {
	return []Row{
		{"race: 64 callers on a cap of N get exactly N, 1,000 times", exactlyN},
		{"race: 64 first askers of a new subject, cap 1: exactly one", firstAskers},
		{"race: two racers for the last slot, either one first", bothOrders},
		{"race: eight asks for the last dollar, exactly one (A1)", lastDollar},
		{"race: 20,000 asks count 20,000 (A3)", countsEverything},
		{"race: one freed slot is taken once (A6)", freedOnce},
		{"race: a group of one never runs two (A8)", neverTwo},
		{"race: two sweepers over 1,000 dead make 1,000 closes (F10)", twoSweepers},
		{"race: one id asked from everywhere is one allocation", oneID},
	}
}

// together runs all at once and joins their errors.
func together(fs ...func() error) error {
	errs := make([]error, len(fs))
	var start, done sync.WaitGroup
	start.Add(1)
	for i, f := range fs {
		done.Go(func() {
			start.Wait()
			errs[i] = f()
		})
	}
	start.Done()
	done.Wait()
	return errors.Join(errs...)
}

// replicas are two ledgers over one store.
func replicas(h Harness) (capacityledger.Store, [2]*capacityledger.Ledger, *clocktest.Manual, error) {
	store, err := h.Open()
	if err != nil {
		return nil, [2]*capacityledger.Ledger{}, nil, err
	}
	clock := clocktest.New()
	options := capacityledger.Options{Clock: clock}
	return store, [2]*capacityledger.Ledger{capacityledger.New(store, options), capacityledger.New(store, options)}, clock, nil
}

const callers = 64

func exactlyN(ctx context.Context, h Harness) error {
	store, ledgers, clock, err := replicas(h)
	if err != nil {
		return err
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	runs := 0
	for round := range 1000 {
		n := 1 + random.Int64N(callers-2)
		subject := holdfast.TeamSubject(holdfast.TeamID(fmt.Sprintf("t-%d", round%7)), holdfast.AxisSlots, "")
		first := runs
		runs += callers
		granted, err := race(ctx, ledgers, func(i int) capacityledger.Ask {
			return askOf(runID(first+i), subject, feature, at(subject, n), 1, clock.Now().Add(lease))
		})
		if err != nil || int64(len(granted)) != n {
			return fmt.Errorf("seed %d, round %d: %d of a cap of %d were admitted, %w", seed, round, len(granted), n, err)
		}
		if err := sub(ctx, store, subject, [2]int64{0, n}); err != nil {
			return fmt.Errorf("seed %d, round %d: %w", seed, round, err)
		}
		closing := make([]capacityledger.Closing, 0, n)
		for _, a := range granted {
			closing = append(closing, capacityledger.Closing{ID: a.ID, Outcome: capacityledger.Released})
		}
		if _, err := store.Close(ctx, clock.Now(), closing); err != nil {
			return err
		}
	}
	return Invariants(ctx, store)
}

// race lets 64 callers ask at once, half through each ledger, and lists the grants.
func race(ctx context.Context, ledgers [2]*capacityledger.Ledger, ask func(i int) capacityledger.Ask) ([]capacityledger.Allocation, error) {
	var mu sync.Mutex
	var granted []capacityledger.Allocation
	fs := make([]func() error, callers)
	for i := range fs {
		fs[i] = func() error {
			a, denial, err := ledgers[i%2].Reserve(ctx, ask(i))
			if bad := one(a, denial, err); bad != nil {
				return bad
			}
			if a.ID != "" {
				mu.Lock()
				defer mu.Unlock()
				granted = append(granted, a)
			}
			return err
		}
	}
	err := together(fs...)
	return granted, err
}

// sub demands a subject's totals.
func sub(ctx context.Context, store capacityledger.Store, subject holdfast.Subject, want [2]int64) error {
	b, err := store.Balance(ctx, subject)
	if err != nil {
		return err
	}
	if got := [2]int64{b.Settled, b.Outstanding}; got != want {
		return fmt.Errorf("%s has %v, want %v", subject, got, want)
	}
	return nil
}

func firstAskers(ctx context.Context, h Harness) error {
	store, ledgers, clock, err := replicas(h)
	if err != nil {
		return err
	}
	for round := range 100 {
		subject := holdfast.TeamSubject(holdfast.TeamID(fmt.Sprintf("new-%d", round)), holdfast.AxisSlots, "")
		granted, err := race(ctx, ledgers, func(i int) capacityledger.Ask {
			return askOf(runID(round*callers+i), subject, feature, at(subject, 1), 1, clock.Now().Add(lease))
		})
		if err != nil || len(granted) != 1 {
			return fmt.Errorf("round %d: %d of the first askers were admitted, %w", round, len(granted), err)
		}
	}
	return Invariants(ctx, store)
}

// turnstile holds each Admit back until both racers have come, and then lets the one
// pass that is to be first, to its end, before the other.
type turnstile struct {
	capacityledger.Store
	first holdfast.Identity
	come  sync.WaitGroup
	over  chan struct{}
}

func (t *turnstile) Admit(ctx context.Context, now time.Time, subject holdfast.Subject, asks []capacityledger.Ask, judge capacityledger.JudgeFunc) ([]capacityledger.Admission, error) {
	t.come.Done()
	t.come.Wait()
	if asks[0].Holder == t.first {
		defer close(t.over)
	} else {
		<-t.over
	}
	return t.Store.Admit(ctx, now, subject, asks, judge)
}

func bothOrders(ctx context.Context, h Harness) error {
	for _, first := range []holdfast.Identity{review, feature} {
		store, err := h.Open()
		if err != nil {
			return err
		}
		s := newScript(ctx, store)
		s.grant(s.ask(slots, docs, at(slots, 3), 1), 1)
		s.grant(s.ask(slots, review, at(slots, 3), 1), 1)
		hook := &turnstile{Store: store, first: first, over: make(chan struct{})}
		hook.come.Add(2)
		racers := map[holdfast.Identity]holdfast.Denial{}
		var mu sync.Mutex
		var fs []func() error
		for _, holder := range []holdfast.Identity{review, feature} {
			ledger := capacityledger.New(hook, capacityledger.Options{Clock: s.clock})
			ask := s.ask(slots, holder, at(slots, 3), 1, reserve(slots, review, 1))
			fs = append(fs, func() error {
				a, denial, err := ledger.Reserve(ctx, ask)
				if bad := one(a, denial, err); bad != nil {
					return bad
				}
				mu.Lock()
				defer mu.Unlock()
				racers[holder] = denial
				return err
			})
		}
		if err := errors.Join(s.err, together(fs...)); err != nil {
			return err
		}
		for holder, denial := range racers {
			if denial.Denied() == (holder == first) {
				return fmt.Errorf("with %s first, %s was refused %t", first, holder, denial.Denied())
			}
		}
		s.holds(slots, 0, 3)
		s.sound()
		if s.err != nil {
			return s.err
		}
	}
	return nil
}

func lastDollar(ctx context.Context, h Harness) error {
	store, err := h.Open()
	if err != nil {
		return err
	}
	s := newScript(ctx, store)
	ledgers := [2]*capacityledger.Ledger{s.ledger, capacityledger.New(store, capacityledger.Options{Clock: s.clock})}
	for round := range 1000 {
		month := holdfast.TeamSubject(holdfast.TeamID(fmt.Sprintf("t-%d", round)), holdfast.AxisUSD, "2026-03")
		spent := askOf(runID(round*100), month, review, at(month, usd(10)), usd(9), far)
		if _, denial, err := s.ledger.Reserve(ctx, spent); err != nil || denial.Denied() {
			return fmt.Errorf("%s %w", denial.Public, err)
		}
		if _, err := s.ledger.Settle(ctx, spent.ID, capacityledger.Report{Attempt: 1, Spent: spent.Requested}); err != nil {
			return err
		}
		var granted atomic.Int64
		fs := make([]func() error, 8)
		for i := range fs {
			fs[i] = func() error {
				ask := askOf(runID(round*100+1+i), month, feature, at(month, usd(10)), usd(1), s.clock.Now())
				a, denial, err := ledgers[i%2].Reserve(ctx, ask)
				if bad := one(a, denial, err); bad != nil {
					return bad
				}
				if a.ID != "" {
					granted.Add(1)
				} else if denial.Reason != holdfast.DenyMonthlyUSD {
					return fmt.Errorf("refused with %q, %w", denial.Reason, err)
				}
				return err
			}
		}
		if err := together(fs...); err != nil || granted.Load() != 1 {
			return fmt.Errorf("round %d: %d of eight were admitted, %w", round, granted.Load(), err)
		}
		if err := sub(ctx, store, month, [2]int64{usd(9), usd(1)}); err != nil {
			return err
		}
	}
	return Invariants(ctx, store)
}
