package launch_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

func external(bot string) launch.Request {
	r := ask(bot)
	r.External = true
	return r
}

func TestAnExternalRunLivesByItsHeartbeats(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(external("feature-dev"))
	first := w.LeaseOf(run)
	if run.Status != runs.Running || run.Attempt != 1 || !first.ExpiresAt.Equal(w.clock.Now().Add(lease)) || first.HeartbeatEvery != 20*time.Second {
		t.Fatalf("run is %+v, lease %+v", run, first)
	}
	if len(w.queue.All()) != 0 {
		t.Error("an external run was queued")
	}
	for i := range 20 { // far beyond one lease
		w.clock.Advance(100 * time.Second)
		beat := must(w.Heartbeat(w.ctx, member, run.ID, usd(0.1)*holdfast.MicroUSD(i+1)))(t)
		if beat.Stop || !beat.ExpiresAt.Equal(w.clock.Now().Add(lease)) {
			t.Fatalf("heartbeat %d: %+v", i, beat)
		}
		w.sweep()
	}
	w.held(1, 1, 2, 0, 1)
	closed, err := w.Settle(w.ctx, member, run.ID, usd(2.5), "finished")
	if err != nil || !closed {
		t.Fatalf("closed %v, error %v", closed, err)
	}
	w.status(run.ID, runs.Finished, "")
	w.held(0, 0, 2.5, 0, 1)
}

func TestSettlingTwiceClosesOnce(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(external("feature-dev"))
	for i, want := range []bool{true, false, false} {
		closed, err := w.Settle(w.ctx, member, run.ID, usd(1), "failed")
		if err != nil || closed != want {
			t.Errorf("settle %d: closed %v, error %v", i, closed, err)
		}
	}
	w.status(run.ID, runs.Failed, runs.ReasonExit)
	w.held(0, 0, 1, 0, 1)
	if _, err := w.Heartbeat(w.ctx, member, run.ID, usd(1)); !errors.Is(err, launch.ErrAllocationClosed) || !errors.Is(err, launch.ErrConflict) {
		t.Errorf("a heartbeat after the end: %v", err)
	}
}

func TestAFailedRunThatSpentItsWholeBudgetSaysSo(t *testing.T) {
	w := newWorld(t)
	for _, row := range []struct {
		left    holdfast.MicroUSD
		outcome string
		status  runs.Status
		reason  runs.Reason
	}{
		{0, "failed", runs.Failed, runs.ReasonBudget},
		{1, "failed", runs.Failed, runs.ReasonExit},
		{0, "finished", runs.Finished, runs.ReasonNone},
		{0, "cancelled", runs.Cancelled, runs.ReasonCancelled},
	} {
		run := w.admitted(external("feature-dev"))
		if _, err := w.Settle(w.ctx, member, run.ID, run.Budget-row.left, row.outcome); err != nil {
			t.Fatal(err)
		}
		w.status(run.ID, row.status, row.reason)
	}
}

// E1: settled, released and expired at once, beside another holder.
func TestSettleReleaseAndExpireCloseOnce(t *testing.T) {
	for range 50 {
		w := newWorld(t)
		w.team("acme", teams.Limits{MonthlyUSD: usdLimit(100)})
		run := w.admitted(external("feature-dev"))
		w.admitted(external("review-pr"))
		w.clock.Advance(lease + 16*time.Second)
		var group sync.WaitGroup
		group.Go(func() { _, _ = w.Settle(w.ctx, member, run.ID, usd(2), "finished") })
		group.Go(func() { _, _ = w.ReleaseAllocation(w.ctx, operator, run.Holds[2].ID, "stuck") })
		group.Go(func() { _, _ = w.ledger.Expire(w.ctx, w.clock.Now().Add(-time.Hour), 10) })
		group.Wait()
		w.held(1, 1, 2, 0, 2)
	}
}

func TestAnAbandonedExternalRunIsEnded(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(external("feature-dev"))
	must(w.Heartbeat(w.ctx, member, run.ID, usd(0.4)))(t)
	w.clock.Advance(lease + 15*time.Second)
	w.sweep()
	w.status(run.ID, runs.Running, "")
	w.clock.Advance(time.Second)
	w.sweep()
	w.status(run.ID, runs.Failed, runs.ReasonAbandoned)
	w.held(0, 0, 0.4, 0, 1)
	if _, err := w.Heartbeat(w.ctx, member, run.ID, usd(0.5)); !errors.Is(err, launch.ErrAllocationClosed) {
		t.Errorf("heartbeat: %v", err)
	}
	// The caller comes back: its spend is recorded once, and its outcome is known now.
	for range 2 {
		closed, err := w.Settle(w.ctx, member, run.ID, usd(0.9), "finished")
		if err != nil || closed {
			t.Errorf("closed %v, error %v", closed, err)
		}
	}
	w.status(run.ID, runs.Finished, "")
	w.held(0, 0, 0.9, 0, 1)
}

// The allocation is closed under the caller before any document says so.
func TestAHeartbeatOnAClosedAllocationEndsTheRun(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(external("feature-dev"))
	must(w.ledger.Release(w.ctx, run.Holds[0].ID))(t)
	if _, err := w.Heartbeat(w.ctx, member, run.ID, usd(1)); !errors.Is(err, launch.ErrAllocationClosed) {
		t.Errorf("heartbeat: %v", err)
	}
	w.status(run.ID, runs.Failed, runs.ReasonAbandoned)
	w.held(0, 0, 1, 0, 1)
}

func TestACallerIsToldToStop(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(external("feature-dev"))
	must(w.Cancel(w.ctx, member, run.ID))(t)
	beat := must(w.Heartbeat(w.ctx, member, run.ID, usd(0.1)))(t)
	if !beat.Stop || beat.Reason != string(runs.ReasonCancelled) {
		t.Errorf("heartbeat %+v", beat)
	}
	if closed, err := w.Settle(w.ctx, member, run.ID, usd(0.1), "cancelled"); !closed || err != nil {
		t.Errorf("closed %v, error %v", closed, err)
	}
	w.status(run.ID, runs.Cancelled, runs.ReasonCancelled)

	spender := w.admitted(external("review-pr"))
	if beat := must(w.Heartbeat(w.ctx, member, spender.ID, usd(1)))(t); !beat.Stop || beat.Reason != string(runs.ReasonBudget) {
		t.Errorf("heartbeat %+v", beat)
	}
}

func TestAnExternalRunIsItsTeams(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(external("probe"))
	if _, err := w.Heartbeat(w.ctx, stranger, run.ID, 0); !errors.Is(err, launch.ErrNotFound) {
		t.Errorf("a stranger: %v", err)
	}
	if _, err := w.Settle(w.ctx, viewer, run.ID, 0, "finished"); !errors.Is(err, launch.ErrForbidden) {
		t.Errorf("a viewer: %v", err)
	}
	var bad *holdfast.InvalidError
	if _, err := w.Settle(w.ctx, member, run.ID, 0, "great"); !errors.As(err, &bad) || bad.Field != "outcome" {
		t.Errorf("an outcome: %v", err)
	}
	if _, err := w.Heartbeat(w.ctx, member, run.ID, -1); !errors.As(err, &bad) || bad.Field != "spent_usd" {
		t.Errorf("a spend: %v", err)
	}
	queued := w.admitted(ask("probe"))
	if _, err := w.Heartbeat(w.ctx, member, queued.ID, 0); !errors.Is(err, launch.ErrConflict) {
		t.Errorf("a run of a runner: %v", err)
	}
}

// An external launch whose first renewal fails leaves nothing.
func TestAnExternalLaunchThatCannotBeHeldLeavesNothing(t *testing.T) {
	w := newWorld(t)
	w.store.fail("move", holdfast.AxisUSD)
	if _, _, err := w.Launch(w.ctx, member, external("probe")); !errors.Is(err, launch.ErrUnavailable) {
		t.Fatalf("error %v", err)
	}
	w.store.set(nil)
	w.held(0, 0, 0, 0, 0)
}

// D8 for a caller that settles itself: the intent is durable, the sweep closes.
func TestASettleDuringAnOutageIsFinishedLater(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(external("feature-dev"))
	w.store.set(func(op string, _ ...holdfast.Subject) error {
		if op == "close" {
			return capacityledger.ErrUnavailable
		}
		return nil
	})
	if closed, err := w.Settle(w.ctx, member, run.ID, usd(1), "finished"); closed || !errors.Is(err, launch.ErrUnavailable) {
		t.Errorf("closed %v, error %v", closed, err)
	}
	w.store.set(nil)
	w.sweep()
	w.held(0, 0, 1, 0, 1)
}
