package launch_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// D4, D8: the ledger is away when the run ends. The run ends, what it holds stays
// listed, and the next sweep closes it with what was spent.
func TestASettleThatFailsIsFinishedByTheSweep(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(1)})
	run := w.admitted(ask("feature-dev"))
	w.started(run.ID)
	w.store.set(func(op string, _ ...holdfast.Subject) error {
		if op == "close" {
			return capacityledger.ErrUnavailable
		}
		return nil
	})
	w.apply(w.ended(run.ID, 1, 0.5, queue.EndFinished))
	w.status(run.ID, runs.Finished, "")
	w.held(1, 3, 0, 0, 1)
	if w.count("settle failed") == 0 {
		t.Error("the failure was not told")
	}
	w.refused(ask("probe"), holdfast.DenyConcurrency)
	w.store.set(nil)
	w.sweep()
	w.held(0, 0, 0.5, 0, 1)
	if !w.get(run.ID).Settled {
		t.Error("the run is not marked settled")
	}
	w.admitted(ask("probe"))
}

// D1: 100 runs, the runners of 30 die, 70 settle.
func TestTheDeadComeBackAndCostNothing(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MonthlyUSD: usdLimit(100)})
	var ids []holdfast.RunID
	for range 100 {
		run := w.admitted(ask("docs-writer"))
		w.started(run.ID)
		ids = append(ids, run.ID)
	}
	w.refused(ask("docs-writer"), holdfast.DenyMonthlyUSD)
	for _, id := range ids[30:] {
		w.apply(w.ended(id, 1, 0.2, queue.EndFinished))
	}
	w.held(30, 30, 14, 0, 100)
	w.clock.Advance(lease + 16*time.Second)
	w.sweep()
	w.held(0, 0, 14, 0, 100)
	if got := w.count("expired"); got != 60 { // a slot and the dollars of each
		t.Errorf("%d allocations expired, want 60", got)
	}
	if got := w.status(ids[0], runs.FailedResumable, runs.ReasonLeaseLost); !got.Settled {
		t.Error("a dead run is not settled")
	}
	w.admitted(ask("docs-writer"))
}

// D2, D6: slots come back one by one at their own expiry, while traffic goes on.
func TestADeadRunsSlotComesBackUnderTraffic(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(2)})
	dead := w.admitted(ask("probe"))
	w.started(dead.ID)
	w.clock.Advance(60 * time.Second)
	live := w.admitted(ask("probe"))
	w.started(live.ID)
	for elapsed := 60 * time.Second; elapsed < lease+15*time.Second; elapsed += 15 * time.Second {
		w.refused(ask("probe"), holdfast.DenyConcurrency)
		w.clock.Advance(15 * time.Second)
		must(w.Claim(w.ctx, queue.Claim{Run: live.ID, Attempt: 1, Sequence: int64(elapsed)}))(t)
		w.sweep()
	}
	w.clock.Advance(time.Second)
	w.sweep()
	w.status(live.ID, runs.Running, "")
	w.admitted(ask("probe"))
}

// 298: a crash between the acquire and the document leaves what the launch lease
// and one sweep heal.
func TestACrashBeforeTheDocumentIsHealed(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(1), MonthlyRuns: slots(1), MonthlyUSD: usdLimit(5)})
	w.db.set(func(collection, op, _ string) error {
		if collection == "runs" && op == "insert" {
			panic("kill -9")
		}
		return nil
	})
	func() {
		defer func() { _ = recover() }()
		_, _, _ = w.Launch(w.ctx, member, ask("feature-dev"))
	}()
	w.db.set(nil)
	w.held(1, 3, 0, 1, 0)
	w.clock.Advance(46 * time.Second)
	w.sweep()
	w.held(0, 0, 0, 0, 0)
	w.admitted(ask("feature-dev"))
}

// D10: an allocation of a run that is over cannot stay: a checker finds none.
func TestNoEndedRunHoldsAnything(t *testing.T) {
	w := newWorld(t)
	for i := range 6 {
		run := w.admitted(ask("probe"))
		switch i {
		case 0:
			must(w.Cancel(w.ctx, member, run.ID))(t)
		case 1:
			w.started(run.ID)
			w.apply(w.ended(run.ID, 1, 0, queue.EndFailed))
		case 2:
			w.started(run.ID)
			must(w.Cancel(w.ctx, member, run.ID))(t)
			w.apply(w.ended(run.ID, 1, 0, queue.EndInterrupted))
		}
	}
	for _, subject := range must(w.ledger.Subjects(w.ctx, "", 100))(t) {
		for _, open := range w.balance(subject).Open {
			if run := w.get(open.Run); !run.Status.Active() {
				t.Errorf("%s is held by a run that is %s", subject, run.Status)
			}
		}
	}
	w.held(3, 0.15, 0, 0, 6)
}

// D11: the document is deleted under the allocation.
func TestADeletedDocumentFreesItsSlot(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("probe"))
	w.started(run.ID)
	collection := must(w.db.Collection(w.ctx, runsSchema(t, w)))(t)
	if err := collection.Delete(w.ctx, string(run.ID), 0); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(lease + 16*time.Second)
	w.sweep()
	w.held(0, 0, 0, 0, 1)
}

// A queued run keeps what it holds for as long as it waits.
func TestAQueuedRunIsKeptByTheSweep(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("probe"))
	for range 40 {
		w.clock.Advance(15 * time.Second)
		w.sweep()
	}
	w.held(1, 0.05, 0, 0, 1)
	if got := w.get(run.ID); got.Published != 1 {
		t.Errorf("published %d times although its message waits", got.Published)
	}
	w.started(run.ID)
}

func TestAVanishedMessageIsPublishedAgain(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("probe"))
	w.queue.lose(run.ID)
	w.sweep()
	if len(w.queue.All()) != 0 {
		t.Error("it was published again at once, when it may have been on its way")
	}
	w.clock.Advance(31 * time.Second)
	w.queue.queued = errors.New("the queue cannot tell")
	if err := w.Sweep(w.ctx); !errors.Is(err, launch.ErrUnavailable) || len(w.queue.All()) != 0 {
		t.Errorf("messages %v, error %v", w.queue.All(), err)
	}
	w.queue.queued = nil
	w.sweep()
	message := w.queue.Message(run.ID)
	if message.Publication != 2 {
		t.Fatalf("message is %+v", message)
	}
	if stale := must(w.Claim(w.ctx, queue.Claim{Run: run.ID, Publication: 1}))(t); stale.Verdict != queue.GrantDrop {
		t.Errorf("the first message was answered %s", stale.Verdict)
	}
	w.started(run.ID)
	w.held(1, 0.05, 0, 0, 1)
}

// A run that was claimed and never started goes back to the queue, not to failure.
func TestAClaimWithoutAStartIsQueuedAgain(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("probe"))
	w.claim(run.ID)
	w.queue.lose(run.ID)
	w.clock.Advance(lease + 16*time.Second)
	w.sweep()
	w.status(run.ID, runs.Queued, "")
	grant := w.started(run.ID) // what it held has expired, and was had again
	if grant.Attempt != 2 {
		t.Errorf("attempt %d", grant.Attempt)
	}
	w.held(1, 0.05, 0, 0, 1)
	w.apply(w.ended(run.ID, 2, 0.01, queue.EndFinished))
	w.held(0, 0, 0.01, 0, 1)
}

// Recovery: the former process and its runners are known dead.
func TestRecoverLeavesNothingToTheDead(t *testing.T) {
	w := newWorld(t)
	executing, claimed, queued, vanished := w.admitted(ask("feature-dev")), w.admitted(ask("probe")), w.admitted(ask("probe")), w.admitted(ask("probe"))
	w.started(executing.ID)
	must(w.Claim(w.ctx, queue.Claim{Run: executing.ID, Attempt: 1, Sequence: 2, Spent: usd(0.7)}))(t)
	w.claim(claimed.ID)
	w.queue.lose(vanished.ID)
	external := ask("docs-writer")
	external.External = true
	outside := w.admitted(external)
	w.db.set(func(collection, op, _ string) error {
		if collection == "runs" && op == "insert" {
			panic("kill -9")
		}
		return nil
	})
	func() {
		defer func() { _ = recover() }()
		_, _, _ = w.Launch(w.ctx, member, ask("feature-dev"))
	}()
	w.db.set(nil)

	next := w.replica()
	if err := next.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.status(executing.ID, runs.FailedResumable, runs.ReasonInterrupted)
	w.status(claimed.ID, runs.Queued, "")
	w.status(queued.ID, runs.Queued, "")
	w.status(outside.ID, runs.Running, "")
	w.held(4, 1.15, 0.7, 0, 5)
	for id, want := range map[holdfast.RunID]int{claimed.ID: 2, queued.ID: 1, vanished.ID: 2} {
		if got := w.queue.Message(id).Publication; got != want {
			t.Errorf("publication %d of %s, want %d", got, id, want)
		}
	}
	if err := next.Recover(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.held(4, 1.15, 0.7, 0, 5)
}

// A process that has just started, or that lost a store, holds nobody dead for one
// lease.
func TestAnOutageBeginsAQuietTime(t *testing.T) {
	w := newWorld(t)
	service := must(launch.New(w.Service.Deps, launch.Options{Clock: w.clock}))(t)
	run := w.admitted(ask("probe"))
	w.started(run.ID)
	w.clock.Advance(2 * lease)
	service.NoteOutage()
	if err := service.Sweep(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.status(run.ID, runs.Running, "")
	w.clock.Advance(lease)
	if err := service.Sweep(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.status(run.ID, runs.FailedResumable, runs.ReasonLeaseLost)
}

// A sweep that finds a store away holds nobody dead for one lease after it is back.
func TestASweepThatFindsAStoreAwayIsQuietForALease(t *testing.T) {
	w := newWorld(t)
	service := must(launch.New(w.Service.Deps, launch.Options{Clock: w.clock}))(t)
	w.clock.Advance(lease)
	run := w.admitted(ask("probe"))
	w.started(run.ID)
	w.clock.Advance(100 * time.Second)
	w.db.fail("runs", "list")
	if err := service.Sweep(w.ctx); !errors.Is(err, launch.ErrUnavailable) {
		t.Fatalf("error %v", err)
	}
	w.db.set(nil)
	w.clock.Advance(100 * time.Second) // the runner could not reach anybody either
	if err := service.Sweep(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.status(run.ID, runs.Running, "")
}
