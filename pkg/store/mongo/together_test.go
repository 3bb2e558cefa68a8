package mongo_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest"
	"github.com/holdfast-io/holdfast/pkg/store/mongo"
)

// rounds is how often a race is run: few in `make test`, more where
// HOLDFAST_TEST_MONGO_ROUNDS says so.
func rounds(t *testing.T, few int) int {
	text := os.Getenv("HOLDFAST_TEST_MONGO_ROUNDS")
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("HOLDFAST_TEST_MONGO_ROUNDS is %q, want a number", text)
	}
	return n
}

// atOnce runs all at once.
func atOnce(n int, f func(i int)) {
	var start, done sync.WaitGroup
	start.Add(1)
	for i := range n {
		done.Go(func() {
			start.Wait()
			f(i)
		})
	}
	start.Done()
	done.Wait()
}

// TestFirstAskersOfASubjectAreAdmittedOnce lets 64 askers race for the one slot of a
// subject that nobody has asked before: all in one process, in two, and each in one of
// its own.
func TestFirstAskersOfASubjectAreAdmittedOnce(t *testing.T) {
	t.Parallel() // it waits more than it works
	for _, c := range []struct{ processes, rounds int }{{1, 100}, {2, 30}, {64, 4}} {
		t.Run(fmt.Sprintf("%d processes", c.processes), func(t *testing.T) {
			all := processes(t, c.processes)
			runs := 0
			for round := range rounds(t, c.rounds) {
				subject := holdfast.TeamSubject(holdfast.TeamID(fmt.Sprintf("new-%d", round)), holdfast.AxisSlots, "")
				var granted atomic.Int64
				atOnce(64, func(i int) {
					a, denial, err := all[i%len(all)].ledger.Reserve(t.Context(), ask(runs+i, subject, feature, 1, 1))
					if err != nil || denial.Denied() == (a.ID != "") {
						t.Errorf("%s %v", denial.Public, err)
					}
					if a.ID != "" {
						granted.Add(1)
					}
				})
				runs += 64
				b, err := all[0].ledger.Outstanding(t.Context(), subject)
				if granted.Load() != 1 || err != nil || b.Outstanding != 1 {
					t.Fatalf("round %d: %d were admitted, %d are outstanding, %v", round, granted.Load(), b.Outstanding, err)
				}
			}
			if err := ledgertest.Invariants(t.Context(), all[0].store.Ledger()); err != nil {
				t.Error(err)
			}
		})
	}
}

// several sends each call to the next of several processes.
type several struct {
	stores []*mongo.Store
	next   *atomic.Uint64
}

func (s several) one() capacityledger.Store {
	return s.stores[s.next.Add(1)%uint64(len(s.stores))].Ledger()
}

func (s several) Admit(ctx context.Context, now time.Time, key holdfast.Subject, asks []capacityledger.Ask, judge capacityledger.JudgeFunc) ([]capacityledger.Admission, error) {
	return s.one().Admit(ctx, now, key, asks, judge)
}

func (s several) Move(ctx context.Context, now time.Time, movings []capacityledger.Moving) ([]capacityledger.Moved, error) {
	return s.one().Move(ctx, now, movings)
}

func (s several) Close(ctx context.Context, now time.Time, closings []capacityledger.Closing) ([]capacityledger.Closed, error) {
	return s.one().Close(ctx, now, closings)
}

func (s several) Balance(ctx context.Context, key holdfast.Subject) (capacityledger.Balance, error) {
	return s.one().Balance(ctx, key)
}

func (s several) Get(ctx context.Context, id holdfast.AllocationID) (capacityledger.Allocation, error) {
	return s.one().Get(ctx, id)
}

func (s several) Subjects(ctx context.Context, after string, limit int) ([]holdfast.Subject, error) {
	return s.one().Subjects(ctx, after, limit)
}

func (s several) Due(ctx context.Context, now time.Time, after capacityledger.Cursor, limit int) ([]capacityledger.Allocation, error) {
	return s.one().Due(ctx, now, after, limit)
}

func (s several) Repair(ctx context.Context, now time.Time, limit int) (capacityledger.Repaired, error) {
	return s.one().Repair(ctx, now, limit)
}

// TestSeveralProcessesConform runs rows of the suite with every call going to another
// process than the one before.
func TestSeveralProcessesConform(t *testing.T) {
	t.Parallel()             // it waits more than it works
	skip := map[string]bool{ // these say the same of one process, at length, or stand above
		"race: 64 first askers of a new subject, cap 1: exactly one": true, "race: one freed slot is taken once (A6)": true,
		"race: 64 callers on a cap of N get exactly N, 1,000 times": true, "race: 20,000 asks count 20,000 (A3)": true,
		"race: eight asks for the last dollar, exactly one (A1)": true, "race: a group of one never runs two (A8)": true,
		"model: random verbs, seed 1": true, "model: random verbs, seed 2": true, "model: random verbs, seed 3": true,
		"a subject has at most 5,000 open entries": true, "a total that cannot be counted is an error and moves nothing": true,
	}
	conform(t, skip, func(t *testing.T) ledgertest.Harness {
		d := newDatabases(t)
		return ledgertest.Harness{Open: func() (capacityledger.Store, error) {
			stores, err := d.together(3)
			return several{stores, new(atomic.Uint64)}, err
		}}
	})
}

// TestExactlyNOfManyProcesses races 64 askers, each in a process of its own, for a cap
// of N, over and over, and never admits more; who is refused asks until nobody is in
// flight any more, and then exactly N have it.
func TestExactlyNOfManyProcesses(t *testing.T) {
	t.Parallel() // it waits more than it works
	for _, count := range []int{2, 16} {
		t.Run(fmt.Sprintf("%d processes", count), func(t *testing.T) {
			all := processes(t, count)
			runs := 0
			for round := range rounds(t, 6) {
				n := int64(1 + (round*7)%40)
				subject := holdfast.TeamSubject(holdfast.TeamID(fmt.Sprintf("t-%d", round)), holdfast.AxisSlots, "")
				var granted atomic.Int64
				atOnce(64, func(i int) {
					got, _, err := all[i%count].ledger.Reserve(t.Context(), ask(runs+i, subject, feature, n, 1))
					if err != nil {
						t.Error(err)
					}
					if got.ID != "" {
						granted.Add(1)
					}
				})
				runs += 64
				if granted.Load() > n {
					t.Fatalf("round %d: %d of a cap of %d were admitted", round, granted.Load(), n)
				}
				for granted.Load() < n { // a refusal may have rested on asks in flight; nobody is now
					if got := all[round%count].gets(ask(runs, subject, feature, n, 1), 1); got.ID == "" {
						t.FailNow()
					}
					runs++
					granted.Add(1)
				}
				all[round%count].gets(ask(runs, subject, feature, n, 1), 0)
				runs++
			}
			if err := ledgertest.Invariants(t.Context(), all[0].store.Ledger()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLateReportsAndMovesToTheHistoryLoseNothing lets three processes report on closed
// allocations while two keep house: each report counts once.
func TestLateReportsAndMovesToTheHistoryLoseNothing(t *testing.T) {
	all := processes(t, 3)
	const allocations, reports = 30, 12
	for n := range allocations {
		a := ask(n, dollars, feature, 1_000_000, 10)
		all[0].gets(a, 10)
		if _, err := all[0].ledger.Release(t.Context(), a.ID); err != nil {
			t.Fatal(err)
		}
	}
	all[0].clock.Advance(time.Hour)
	ctx, stop := context.WithCancel(t.Context())
	var house sync.WaitGroup
	for _, p := range all[1:] {
		house.Go(func() {
			for ctx.Err() == nil {
				if _, err := p.store.Ledger().Repair(t.Context(), p.clock.Now(), 100); err != nil {
					t.Error(err)
				}
			}
		})
	}
	atOnce(12, func(i int) {
		for spent := int64(1); spent <= reports; spent++ {
			for n := i % 6; n < allocations; n += 6 {
				_, err := all[i%3].ledger.Settle(t.Context(), ask(n, dollars, feature, 1_000_000, 10).ID, capacityledger.Report{Attempt: 1, Spent: holdfast.AmountOf(holdfast.UnitUSD, spent)})
				if err != nil && !errors.Is(err, capacityledger.ErrUnavailable) {
					t.Error(err)
				}
			}
		}
	})
	stop()
	house.Wait()
	for _, p := range all {
		p.holds(dollars, allocations*reports, 0)
	}
	for n := range allocations {
		a, err := all[0].ledger.Get(t.Context(), ask(n, dollars, feature, 1_000_000, 10).ID)
		if err != nil || a.Spent.Int() != reports || a.Outcome != capacityledger.Released {
			t.Errorf("%s: spent %d, %q, %v", a.ID, a.Spent.Int(), a.Outcome, err)
		}
	}
}
