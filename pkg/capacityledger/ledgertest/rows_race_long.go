package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

func countsEverything(ctx context.Context, h Harness) error {
	store, ledgers, clock, err := replicas(h)
	if err != nil {
		return err
	}
	const each, kept = 20_000 / callers, 4_000 / callers // the subject holds 5,000 open ones
	fs := make([]func() error, callers)
	for i := range fs {
		fs[i] = func() error {
			for n := range each + 1 {
				if n == each && i >= 20_000%callers {
					break
				}
				ask := askOf(runID(i*1000+n), units, feature, holdfast.NoLimit, 1, clock.Now().Add(lease))
				a, denial, err := ledgers[i%2].Reserve(ctx, ask)
				if bad := one(a, denial, err); bad != nil || err != nil || denial.Denied() {
					return fmt.Errorf("%w: %w %s", bad, err, denial.Public)
				}
				if n < kept {
					continue
				}
				if closed, err := ledgers[(i+n)%2].Settle(ctx, ask.ID, capacityledger.Report{Attempt: 1, Spent: a.Amount}); err != nil || !closed {
					return fmt.Errorf("settle %s: closed %t, %w", ask.ID, closed, err)
				}
			}
			return nil
		}
	}
	if err := together(fs...); err != nil {
		return err
	}
	if err := sub(ctx, store, units, [2]int64{20_000 - kept*callers, kept * callers}); err != nil {
		return err
	}
	return Invariants(ctx, store)
}

func freedOnce(ctx context.Context, h Harness) error {
	store, ledgers, clock, err := replicas(h)
	if err != nil {
		return err
	}
	for round := range 200 {
		subject := holdfast.TeamSubject(holdfast.TeamID(fmt.Sprintf("t-%d", round)), holdfast.AxisSlots, "")
		ask := func(i int) capacityledger.Ask {
			return askOf(runID(round*10+i), subject, feature, at(subject, 2), 1, clock.Now().Add(lease))
		}
		for i := range 2 {
			if _, denial, err := ledgers[i].Reserve(ctx, ask(i)); err != nil || denial.Denied() {
				return fmt.Errorf("%s %w", denial.Public, err)
			}
		}
		var granted atomic.Int64
		asker := func(i int) func() error {
			return func() error {
				for range 1000 { // asks until the slot is seen, or the other has it
					a, denial, err := ledgers[i].Reserve(ctx, ask(2+i))
					if bad := one(a, denial, err); bad != nil || err != nil {
						return errors.Join(bad, err)
					}
					if a.ID != "" {
						granted.Add(1)
					}
					if granted.Load() > 0 {
						return nil
					}
				}
				return nil
			}
		}
		free := func() error {
			_, err := ledgers[0].Release(ctx, ask(0).ID)
			return err
		}
		if err := together(asker(0), asker(1), free); err != nil {
			return err
		}
		for i := range 2 { // whoever still lacks it asks once more
			if _, _, err := ledgers[i].Reserve(ctx, ask(2+i)); err != nil {
				return err
			}
		}
		if err := sub(ctx, store, subject, [2]int64{0, 2}); err != nil || granted.Load() > 1 {
			return fmt.Errorf("round %d: %d took the one freed slot, %w", round, granted.Load(), err)
		}
	}
	return Invariants(ctx, store)
}

// watcher counts independently of any ledger how many run at once.
type watcher struct {
	mu           sync.Mutex
	inside, most int
}

func (w *watcher) enter() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inside++
	w.most = max(w.most, w.inside)
}

func (w *watcher) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inside--
}

func neverTwo(ctx context.Context, h Harness) error {
	store, ledgers, clock, err := replicas(h)
	if err != nil {
		return err
	}
	var denied, refusals atomic.Int64
	var observer watcher
	counting := capacityledger.Options{Clock: clock, Events: capacityledger.Events{Denied: func(capacityledger.Ask, holdfast.Denial) { refusals.Add(1) }}}
	ledgers = [2]*capacityledger.Ledger{capacityledger.New(store, counting), capacityledger.New(store, counting)}
	fs := make([]func() error, 20)
	for i := range fs {
		fs[i] = func() error {
			for n := range 100 {
				ask := askOf(runID(i*1000+n), slots, feature, at(slots, 1), 1, clock.Now().Add(lease))
				a, denial, err := ledgers[i%2].Reserve(ctx, ask)
				switch {
				case err != nil:
					return err
				case denial.Denied():
					denied.Add(1)
				default:
					observer.enter()
					runtime.Gosched()
					observer.leave()
					if _, err := ledgers[(i+1)%2].Settle(ctx, a.ID, capacityledger.Report{Attempt: 1}); err != nil {
						return err
					}
				}
			}
			return nil
		}
	}
	if err := together(fs...); err != nil {
		return err
	}
	if observer.most != 1 || denied.Load() != refusals.Load() {
		return fmt.Errorf("%d ran at once; %d were refused and %d counted", observer.most, denied.Load(), refusals.Load())
	}
	return errors.Join(sub(ctx, store, slots, [2]int64{}), Invariants(ctx, store))
}

func twoSweepers(ctx context.Context, h Harness) error {
	store, ledgers, clock, err := replicas(h)
	if err != nil {
		return err
	}
	for i := range 1000 {
		ask := askOf(runID(i), []holdfast.Subject{slots, units, dollars}[i%3], feature, holdfast.NoLimit, 1, clock.Now())
		if _, _, err := ledgers[0].Reserve(ctx, ask); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	closes := map[holdfast.AllocationID]int{}
	sweep := func(ledger *capacityledger.Ledger) func() error {
		return func() error {
			for {
				due, err := store.Due(ctx, clock.Now(), capacityledger.Cursor{}, 1)
				if err != nil || len(due) == 0 {
					return err
				}
				gone, err := ledger.Expire(ctx, clock.Now(), 50)
				if err != nil {
					return err
				}
				mu.Lock()
				for _, a := range gone {
					closes[a.ID]++
				}
				mu.Unlock()
			}
		}
	}
	if err := together(sweep(ledgers[0]), sweep(ledgers[1])); err != nil {
		return err
	}
	for id, n := range closes {
		if n != 1 {
			return fmt.Errorf("%s was closed %d times", id, n)
		}
	}
	if len(closes) != 1000 {
		return fmt.Errorf("%d closes, want 1000", len(closes))
	}
	for _, subject := range []holdfast.Subject{slots, units, dollars} {
		if err := sub(ctx, store, subject, [2]int64{}); err != nil {
			return err
		}
	}
	return Invariants(ctx, store)
}

func oneID(ctx context.Context, h Harness) error {
	store, ledgers, clock, err := replicas(h)
	if err != nil {
		return err
	}
	for round := range 50 {
		ask := askOf(runID(round), dollars, feature, holdfast.NoLimit, usd(2), clock.Now().Add(lease))
		granted, err := race(ctx, ledgers, func(int) capacityledger.Ask { return ask })
		if err != nil || len(granted) != callers {
			return fmt.Errorf("%d of the same ask were answered, %w", len(granted), err)
		}
		if err := sub(ctx, store, dollars, [2]int64{0, usd(2) * int64(round+1)}); err != nil {
			return err
		}
	}
	return Invariants(ctx, store)
}

// openLimit fills a subject up to its limit of open entries.
func openLimit(ctx context.Context, h Harness) error {
	store, ledgers, clock, err := replicas(h)
	if err != nil {
		return err
	}
	fs := make([]func() error, 50)
	for i := range fs {
		fs[i] = func() error {
			for n := range holdfast.MaxOpenPerSubject / 50 {
				ask := askOf(runID(i*1000+n), units, feature, holdfast.NoLimit, 1, clock.Now().Add(lease))
				if _, _, err := ledgers[0].Reserve(ctx, ask); err != nil {
					return err
				}
			}
			return nil
		}
	}
	if err := together(fs...); err != nil {
		return err
	}
	s := newScript(ctx, store)
	s.clock, s.ledger, s.runs = clock, ledgers[0], 1_000_000
	more := s.ask(units, feature, holdfast.NoLimit, 1)
	s.refuse(more, capacityledger.ErrTooManyOpen)
	s.grant(askOf(runID(7), units, feature, holdfast.NoLimit, 1, clock.Now().Add(lease)), 1) // a replay still answers
	s.holds(units, 0, holdfast.MaxOpenPerSubject)
	s.release(holdfast.NewAllocationID(runID(7), units, 0), true)
	s.grant(more, 1)
	return s.err
}
