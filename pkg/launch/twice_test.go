package launch_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/store/embedded"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// pair is one launch that is made at two servers over the same stores. Each server has
// hooks of its own, so that a test decides in which order the two go on.
type pair struct {
	first, second *world
	request       launch.Request
}

// pairs runs a test over the stores of one process.
func pairs(t *testing.T, test func(t *testing.T, p pair)) {
	t.Helper()
	over := func(t *testing.T, ledger capacityledger.Store, db records.DB) {
		t.Helper()
		p := pair{first: newWorldOver(t, ledger, db), second: newWorldOver(t, ledger, db), request: ask("feature-dev")}
		p.second.queue = p.first.queue
		p.second.Service = p.second.replica()
		p.request.Run = p.first.runs.NewID(p.first.clock.Now())
		p.limits(slots(9))
		test(t, p)
	}
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		over(t, memory.NewLedger(), memory.NewRecords())
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		store := must(embedded.Open(t.Context(), t.TempDir(), embedded.Options{}))(t)
		t.Cleanup(func() {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
		over(t, store.Ledger(), store.Records())
	})
}

func (p pair) limits(runs holdfast.CountLimit) {
	p.first.t.Helper()
	p.first.team("acme", teams.Limits{MaxConcurrentRuns: slots(3), MonthlyUSD: usdLimit(9), MonthlyRuns: runs})
}

// attempt is one of the two launches under way.
type attempt struct {
	world  *world
	goOn   chan error    // what the point at which it stands answers
	done   chan struct{} // closed at the end
	run    runs.Run
	denial holdfast.Denial
	err    error
}

// The points at which a launch is stopped, before they happen.
const (
	beforeUnits    = "admit runs"
	beforeTakeOver = "move slots"
	beforeDocument = "insert"
)

// stopped launches and returns when the launch stands at the point.
func (p pair) stopped(w *world, point string) *attempt {
	w.t.Helper()
	a := &attempt{world: w, goOn: make(chan error, 1), done: make(chan struct{})}
	reached := make(chan struct{}, 1)
	stop := func(at string) error {
		if at != point {
			return nil
		}
		w.store.set(nil)
		w.db.set(nil)
		reached <- struct{}{}
		return <-a.goOn
	}
	w.store.set(func(op string, subjects ...holdfast.Subject) error { return stop(op + " " + string(subjects[0].Axis)) })
	w.db.set(func(collection, op, _ string) error {
		if collection != "runs" {
			return nil
		}
		return stop(op)
	})
	go func() {
		defer close(a.done)
		a.run, a.denial, a.err = w.Launch(w.ctx, member, p.request)
	}()
	select {
	case <-reached:
	case <-a.done:
		w.t.Fatalf("the launch never stood at %q: denied %q, error %v", point, a.denial.Reason, a.err)
	}
	return a
}

// end lets a launch go on to its end, with an error at the point where it stands or nil.
func (a *attempt) end(err error) *attempt {
	a.goOn <- err
	<-a.done
	return a
}

// won demands that the launch was admitted.
func (a *attempt) won() {
	a.world.t.Helper()
	if a.err != nil || a.denial.Denied() {
		a.world.t.Fatalf("denied %q, error %v", a.denial.Reason, a.err)
	}
}

// failed demands that it failed with that error.
func (a *attempt) failed(want error) {
	a.world.t.Helper()
	if !errors.Is(a.err, want) {
		a.world.t.Fatalf("denied %q, error %v; want %v", a.denial.Reason, a.err, want)
	}
}

// runs demands that there is one queued run, which holds everything that its document
// names, and nothing else is held.
func (p pair) runs() {
	w := p.first
	w.t.Helper()
	run := w.status(p.request.Run, runs.Queued, "")
	if len(run.Holds) == 0 {
		w.t.Error("it holds nothing")
	}
	for _, hold := range run.Holds {
		a := must(w.ledger.Get(w.ctx, hold.ID))(w.t)
		if open := hold.Subject.Axis != holdfast.AxisRuns; open != (a.Outcome == capacityledger.Open) {
			w.t.Errorf("the run relies on %s, which is %q", hold.ID, a.Outcome)
		}
	}
	w.held(1, 3, 0, 0, 1)
}

// hangUp makes the caller of the next launch hang up in the middle of a check, where
// the ledger does not answer.
func hangUp(w *world, axis holdfast.Axis) context.Context {
	ctx, cancel := context.WithCancel(w.ctx)
	w.store.set(func(op string, subjects ...holdfast.Subject) error {
		if op != "admit" || subjects[0].Axis != axis {
			return nil
		}
		cancel()
		return capacityledger.ErrUnavailable
	})
	return ctx
}

func TestALaunchThatIsRefusedTakesNothingFromTheOtherUnderItsID(t *testing.T) {
	pairs(t, func(_ *testing.T, p pair) {
		a := p.stopped(p.first, beforeUnits)
		p.limits(slots(0))
		if _, denial, err := p.second.Launch(p.second.ctx, member, p.request); err != nil || denial.Reason != holdfast.DenyMonthlyRuns {
			p.first.t.Fatalf("denied %q, error %v", denial.Reason, err)
		}
		p.limits(slots(9))
		a.end(nil).won()
		p.runs()
	})
}

func TestALaunchThatFailsTakesNothingFromTheOtherUnderItsID(t *testing.T) {
	for _, axis := range []holdfast.Axis{holdfast.AxisSlots, holdfast.AxisUSD} {
		pairs(t, func(t *testing.T, p pair) {
			a := p.stopped(p.first, beforeDocument)
			_, _, err := p.second.Launch(hangUp(p.second, axis), member, p.request)
			if !errors.Is(err, launch.ErrUnavailable) {
				t.Fatalf("%s: %v", axis, err)
			}
			a.end(nil).won()
			p.runs()
		})
	}
}

func TestALaunchOfAnotherBotTakesNothingFromTheOtherUnderItsID(t *testing.T) {
	pairs(t, func(t *testing.T, p pair) {
		a := p.stopped(p.first, beforeDocument)
		other := p.request
		other.Bot = "probe"
		if _, _, err := p.second.Launch(p.second.ctx, member, other); !errors.Is(err, capacityledger.ErrMismatch) {
			t.Fatal(err)
		}
		a.end(nil).won()
		p.runs()
	})
}

func TestWhoeverWritesTheDocumentKeepsEverything(t *testing.T) {
	for _, row := range []struct {
		name   string
		answer error // to the first one's document, after the second has won
		want   error
	}{
		{"the first finds the document", nil, launch.ErrConflict},
		{"the first does not learn whether it wrote it", records.ErrUnavailable, launch.ErrUnavailable},
	} {
		t.Run(row.name, func(t *testing.T) {
			pairs(t, func(t *testing.T, p pair) {
				a := p.stopped(p.first, beforeDocument)
				if _, denial, err := p.second.Launch(p.second.ctx, member, p.request); err != nil || denial.Denied() {
					t.Fatal(denial, err)
				}
				a.end(row.answer).failed(row.want)
				p.runs()
			})
		})
	}
}

func TestWhatALaunchTookOverIsNotGivenBackUnderIt(t *testing.T) {
	pairs(t, func(_ *testing.T, p pair) {
		a := p.stopped(p.first, beforeDocument)
		b := p.stopped(p.second, beforeDocument)
		a.end(records.ErrUnavailable).failed(launch.ErrUnavailable)
		b.end(nil).won()
		p.runs()
	})
}

func TestALaunchWhoseFindingsWereGivenBackStartsNothing(t *testing.T) {
	pairs(t, func(t *testing.T, p pair) {
		before := p.first.footprint()
		a := p.stopped(p.first, beforeDocument)
		b := p.stopped(p.second, beforeTakeOver)
		a.end(records.ErrUnavailable).failed(launch.ErrUnavailable)
		b.end(nil).failed(launch.ErrUnavailable)
		if after := p.first.footprint(); after != before {
			t.Errorf("something is left:\n%s\nbefore:\n%s", after, before)
		}
	})
}

// A launch that stands still is one whose process died, until it goes on all the same.
func TestADeadLaunchLeavesTheOtherItsCapacityAndTheLeaseEndsTheRest(t *testing.T) {
	settle := func(p pair) {
		p.first.clock.Advance(time.Minute)
		p.first.sweep()
	}
	t.Run("the one that was granted it", func(t *testing.T) {
		pairs(t, func(t *testing.T, p pair) {
			a := p.stopped(p.first, beforeDocument)
			if _, denial, err := p.second.Launch(p.second.ctx, member, p.request); err != nil || denial.Denied() {
				t.Fatal(denial, err)
			}
			settle(p)
			p.runs()
			a.end(nil).failed(launch.ErrConflict)
			p.runs()
		})
	})
	t.Run("the one that took it over", func(t *testing.T) {
		pairs(t, func(_ *testing.T, p pair) {
			a := p.stopped(p.first, beforeDocument)
			b := p.stopped(p.second, beforeDocument)
			a.end(nil).won()
			settle(p)
			p.runs()
			b.end(nil).failed(launch.ErrConflict)
			p.runs()
		})
	})
	t.Run("both", func(t *testing.T) {
		pairs(t, func(t *testing.T, p pair) {
			before := p.first.footprint()
			a := p.stopped(p.first, beforeDocument)
			b := p.stopped(p.second, beforeDocument)
			settle(p)
			p.first.held(0, 0, 0, 0, 0)
			a.end(records.ErrUnavailable).failed(launch.ErrUnavailable)
			b.end(records.ErrUnavailable).failed(launch.ErrUnavailable)
			if after := p.first.footprint(); after != before {
				t.Errorf("something is left:\n%s\nbefore:\n%s", after, before)
			}
		})
	})
}
