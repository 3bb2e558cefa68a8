package launch_test

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

func TestAClaimThatIsAnsweredASecondTimeBeginsItsLeaseAnew(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("feature-dev"))
	message := queue.Claim{Run: run.ID, Publication: 1, Runner: "r1", Nonce: "first"}
	must(w.Claim(w.ctx, message))(t) // the answer is lost
	w.clock.Advance(lease - time.Second)
	again := must(w.Claim(w.ctx, message))(t)
	if want := w.clock.Now().Add(lease); again.Verdict != queue.GrantGo || again.Attempt != 1 || !again.Expires.Equal(want) {
		t.Errorf("granted %+v, want attempt 1 until %v", again, want)
	}
	w.clock.Advance(lease - time.Second) // far beyond the lease of the first answer
	w.sweep()
	if got := w.get(run.ID); got.Status != runs.Running || got.Published != 1 {
		t.Errorf("the run is %s, published %d times: it was taken away from a runner that is starting it", got.Status, got.Published)
	}
}

func TestAClaimIsNotAnsweredASecondTimeWhenItsRunWasQueuedAgain(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("feature-dev"))
	message := queue.Claim{Run: run.ID, Publication: 1, Runner: "r1", Nonce: "first"}
	must(w.Claim(w.ctx, message))(t) // the answer is lost, and the runner silent
	w.clock.Advance(lease + 16*time.Second)
	w.sweep()
	if got := w.get(run.ID); got.Status != runs.Queued || got.Published != 2 {
		t.Fatalf("a run that was never started is %s, published %d times", got.Status, got.Published)
	}
	if again := must(w.Claim(w.ctx, message))(t); again.Verdict != queue.GrantDrop {
		t.Errorf("the runner that comes back is told %s: two would execute the run", again.Verdict)
	}
	if next := w.claim(run.ID); next.Verdict != queue.GrantGo || next.Attempt != 2 {
		t.Errorf("the new message is answered %+v", next)
	}
}

func TestAClaimWhoseAllocationWasClosedMeanwhileIsJudgedWithItsNextMessage(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("feature-dev"))
	message := queue.Claim{Run: run.ID, Publication: 1, Runner: "r1", Nonce: "first"}
	must(w.Claim(w.ctx, message))(t)
	for _, hold := range w.get(run.ID).Holds {
		must(w.ledger.Release(w.ctx, hold.ID))(t)
	}
	if again := must(w.Claim(w.ctx, message))(t); again.Verdict != queue.GrantDrop {
		t.Errorf("it may begin on a promise that is gone: %+v", again)
	}
	if got := w.get(run.ID); got.Status != runs.Queued || got.Published != 2 {
		t.Errorf("the run is %s (%s), published %d times; nothing of it ran, so it is queued again", got.Status, got.StatusReason, got.Published)
	}
	if next := w.claim(run.ID); next.Verdict != queue.GrantGo || next.Attempt != 2 {
		t.Errorf("the new message is answered %+v", next)
	}
}

func TestAHeartbeatIsProofThatTheRunWasStarted(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("feature-dev"))
	w.claim(run.ID) // and the report of its start is lost with the queue
	if got := must(w.Claim(w.ctx, queue.Claim{Run: run.ID, Publication: 1, Attempt: 1, Sequence: 2}))(t); got.Verdict != queue.GrantGo {
		t.Fatalf("the heartbeat was answered %+v", got)
	}
	w.clock.Advance(lease + 16*time.Second)
	w.sweep()
	w.status(run.ID, runs.FailedResumable, runs.ReasonLeaseLost)
}
