package launch_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

func TestARunIsClaimedRenewedAndSettled(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("feature-dev"))
	grant := w.started(run.ID)
	if grant.Attempt != 1 || grant.Budget != usd(3) || !grant.Expires.Equal(w.clock.Now().Add(lease)) {
		t.Errorf("granted %+v", grant)
	}
	for i := range 30 { // ten minutes, five leases
		w.clock.Advance(20 * time.Second)
		beat := must(w.Claim(w.ctx, queue.Claim{Run: run.ID, Attempt: 1, Sequence: int64(i + 2), Spent: usd(0.01) * holdfast.MicroUSD(i+1)}))(t)
		if beat.Verdict != queue.GrantGo {
			t.Fatalf("heartbeat %d: %s (%s)", i, beat.Verdict, beat.Reason)
		}
		w.sweep()
	}
	w.held(1, 2.7, 0.3, 0, 1)
	w.apply(w.ended(run.ID, 1, 1.2, queue.EndFinished))
	w.held(0, 0, 1.2, 0, 1)
	got := w.status(run.ID, runs.Finished, "")
	if got.Spent != usd(1.2) || !got.Settled {
		t.Errorf("spent %s, settled %v", got.Spent, got.Settled)
	}
}

// Every way for an attempt to end closes all that its run holds, once (D12).
func TestEveryEndingSettlesEverything(t *testing.T) {
	for how, want := range map[queue.Ending]struct {
		status runs.Status
		reason runs.Reason
	}{
		queue.EndFinished:    {runs.Finished, ""},
		queue.EndFailed:      {runs.Failed, runs.ReasonExit},
		queue.EndDeadline:    {runs.Failed, runs.ReasonDeadline},
		queue.EndBudget:      {runs.Failed, runs.ReasonBudget},
		queue.EndCancelled:   {runs.Cancelled, runs.ReasonCancelled},
		queue.EndInterrupted: {runs.FailedResumable, runs.ReasonInterrupted},
		queue.EndStartFailed: {runs.Failed, runs.ReasonStartFailed},
		queue.EndLeaseLost:   {runs.FailedResumable, runs.ReasonLeaseLost},
		"melted":             {runs.Failed, runs.ReasonExit},
	} {
		t.Run(string(how), func(t *testing.T) {
			w := newWorld(t)
			run := w.admitted(ask("feature-dev"))
			w.started(run.ID)
			report := w.ended(run.ID, 1, 0.5, how)
			report.ExitCode = ptr(3)
			w.apply(report)
			w.apply(report) // 301: delivered twice
			w.held(0, 0, 0.5, 0, 1)
			if got := w.status(run.ID, want.status, want.reason); *got.ExitCode != 3 || !got.Settled {
				t.Errorf("run is %+v", got)
			}
		})
	}
}

// An attempt that ends before it reported its start is closed like any other (D12).
func TestAnEndWithoutAStartSettles(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("probe"))
	grant := w.claim(run.ID)
	w.apply(w.ended(run.ID, grant.Attempt, 0, queue.EndStartFailed))
	w.held(0, 0, 0, 0, 1)
}

func TestSpendAboveTheBudgetIsRecordedInFull(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("feature-dev"))
	w.started(run.ID)
	w.apply(w.ended(run.ID, 1, 7, queue.EndBudget))
	w.held(0, 0, 7, 0, 1)
}

func TestAMessageStartsOneAttempt(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("probe"))
	message := queue.Claim{Run: run.ID, Publication: 1, Runner: "r1", Nonce: "first"}
	first := must(w.Claim(w.ctx, message))(t)
	lost := must(w.Claim(w.ctx, message))(t) // the answer was lost, and asked for again
	if first.Verdict != queue.GrantGo || lost.Verdict != queue.GrantGo || lost.Attempt != first.Attempt {
		t.Errorf("granted %+v and then %+v", first, lost)
	}
	message.Nonce = "redelivered"
	if again := must(w.Claim(w.ctx, message))(t); again.Verdict != queue.GrantDrop {
		t.Errorf("a redelivery was answered %s", again.Verdict)
	}
	w.apply(queue.Report{Run: run.ID, Attempt: 1, Kind: queue.ReportStarted, At: w.clock.Now()})
	message.Nonce = "first"
	if again := must(w.Claim(w.ctx, message))(t); again.Verdict != queue.GrantDrop {
		t.Errorf("a replayed claim of an attempt that runs was answered %s", again.Verdict)
	}
	w.apply(w.ended(run.ID, 1, 0, queue.EndFinished))
	if again := must(w.Claim(w.ctx, message))(t); again.Verdict != queue.GrantDrop {
		t.Errorf("a claim after the end was answered %s", again.Verdict)
	}
	if unknown := must(w.Claim(w.ctx, queue.Claim{Run: "01J0"}))(t); unknown.Verdict != queue.GrantDrop {
		t.Errorf("a claim of no run was answered %s", unknown.Verdict)
	}
}

func TestSixteenClaimsOfOneMessageStartOneAttempt(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("probe"))
	var group sync.WaitGroup
	var mu sync.Mutex
	verdicts := map[queue.GrantVerdict]int{}
	for i := range 16 {
		group.Go(func() {
			grant, err := w.Claim(w.ctx, queue.Claim{Run: run.ID, Publication: 1, Nonce: fmt.Sprint(i)})
			mu.Lock()
			defer mu.Unlock()
			verdicts[grant.Verdict]++
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if verdicts[queue.GrantGo] != 1 || verdicts[queue.GrantDrop] != 15 {
		t.Errorf("answered %v", verdicts)
	}
	w.held(1, 0.05, 0, 0, 1)
}

// E4: the attempt that lost its lease wakes up late. Its spend is charged, and it
// neither extends nor ends the attempt that follows.
func TestALateAttemptIsChargedAndDecidesNothing(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("feature-dev"))
	w.started(run.ID)
	w.clock.Advance(lease + 16*time.Second)
	w.sweep()
	w.status(run.ID, runs.FailedResumable, runs.ReasonLeaseLost)
	w.held(0, 0, 0, 0, 1)
	if _, denial, err := w.Resume(w.ctx, member, run.ID); err != nil || denial.Denied() {
		t.Fatalf("resume: denied %q, error %v", denial.Reason, err)
	}
	second := w.started(run.ID)
	if second.Attempt != 2 || second.Budget != usd(3) {
		t.Fatalf("granted %+v", second)
	}
	w.held(1, 3, 0, 0, 2)

	beat := must(w.Claim(w.ctx, queue.Claim{Run: run.ID, Attempt: 1, Sequence: 7, Spent: usd(1)}))(t)
	if beat.Verdict != queue.GrantStop {
		t.Errorf("the first attempt's heartbeat was answered %s", beat.Verdict)
	}
	w.apply(w.ended(run.ID, 1, 1.5, queue.EndFinished))
	w.status(run.ID, runs.Running, "")
	w.held(1, 3, 1.5, 0, 2)
	beat = must(w.Claim(w.ctx, queue.Claim{Run: run.ID, Attempt: 2, Sequence: 2, Spent: usd(0.5)}))(t)
	if beat.Verdict != queue.GrantGo || beat.Budget != usd(1.5) {
		t.Errorf("the second attempt's heartbeat was answered %+v", beat)
	}
	w.apply(w.ended(run.ID, 2, 0.5, queue.EndFinished))
	w.held(0, 0, 2, 0, 2)
	if got := w.get(run.ID); got.Spent != usd(2) {
		t.Errorf("spent %s, want 2", got.Spent)
	}
}

// The sweep only believed that the run was lost; its runner knows better.
func TestAReportOfTheSameAttemptCorrectsAnInferredEnd(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("feature-dev"))
	w.started(run.ID)
	w.clock.Advance(lease + 16*time.Second)
	w.sweep()
	w.apply(w.ended(run.ID, 1, 1, queue.EndFinished))
	w.status(run.ID, runs.Finished, "")
	w.held(0, 0, 1, 0, 1)
}

// E2: stopped for one reason, ended for another: one close, the first reason.
func TestTheFirstReasonStays(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("feature-dev"))
	w.started(run.ID)
	w.apply(w.ended(run.ID, 1, 3, queue.EndBudget))
	w.apply(w.ended(run.ID, 1, 3, queue.EndFinished))
	w.status(run.ID, runs.Failed, runs.ReasonBudget)
	w.held(0, 0, 3, 0, 1)
}

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
	w.db.set(func(collection, op, _ string) error { return nil })
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
	if len(w.queue.all()) != 0 {
		t.Error("it was published again at once, when it may have been on its way")
	}
	w.clock.Advance(31 * time.Second)
	w.queue.queued = errors.New("the queue cannot tell")
	if err := w.Sweep(w.ctx); !errors.Is(err, launch.ErrUnavailable) || len(w.queue.all()) != 0 {
		t.Errorf("messages %v, error %v", w.queue.all(), err)
	}
	w.queue.queued = nil
	w.sweep()
	message := w.queue.messages[run.ID]
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

// At the claim the allocation is gone and cannot be had again: the run is parked,
// holds nothing, and a resume brings it back.
func TestAClaimWithoutCapacityParksTheRun(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(1)})
	run := w.admitted(ask("probe"))
	for _, hold := range run.Holds {
		must(w.ledger.Release(w.ctx, hold.ID))(t)
	}
	other := w.admitted(ask("probe"))
	if grant := w.claim(run.ID); grant.Verdict != queue.GrantDrop {
		t.Fatalf("the claim was answered %s", grant.Verdict)
	}
	w.status(run.ID, runs.Parked, runs.ReasonCapacity)
	w.held(1, 0.05, 0, 0, 2)
	if _, denial, err := w.Resume(w.ctx, member, run.ID); denial.Reason != holdfast.DenyConcurrency || err != nil {
		t.Errorf("resume: denied %q, error %v", denial.Reason, err)
	}
	must(w.Cancel(w.ctx, member, other.ID))(t)
	if _, denial, err := w.Resume(w.ctx, member, run.ID); denial.Denied() || err != nil {
		t.Errorf("resume: denied %q, error %v", denial.Reason, err)
	}
	w.started(run.ID)
}

func TestAStoreThatIsAwayAnswersAClaimLater(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("probe"))
	w.store.fail("move", holdfast.AxisSlots)
	if grant := w.claim(run.ID); grant.Verdict != queue.GrantLater {
		t.Errorf("a claim was answered %s", grant.Verdict)
	}
	w.store.set(nil)
	w.db.fail("runs", "replace")
	claim := queue.Claim{Run: run.ID, Publication: 1}
	if grant := must(w.Claim(w.ctx, claim))(t); grant.Verdict != queue.GrantLater {
		t.Errorf("a claim was answered %s", grant.Verdict)
	}
	w.db.set(nil)
	grant := w.started(run.ID)
	w.store.fail("move", holdfast.AxisSlots)
	claim.Attempt, claim.Sequence = grant.Attempt, 2
	if beat := must(w.Claim(w.ctx, claim))(t); beat.Verdict != queue.GrantLater {
		t.Errorf("a heartbeat was answered %s; an answer that extends nothing must not read as one", beat.Verdict)
	}
	w.store.set(nil)
}

// B2: a run never waits for what it holds itself.
func TestARunIsNotRefusedByItself(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(1), MonthlyUSD: usdLimit(1)})
	run := w.admitted(ask("review-pr")) // the whole cap
	w.started(run.ID)
	w.apply(w.ended(run.ID, 1, 0.25, queue.EndInterrupted))
	resumed, denial, err := w.Resume(w.ctx, member, run.ID)
	if err != nil || denial.Denied() {
		t.Fatalf("denied %q %s, error %v", denial.Reason, denial.Public, err)
	}
	if resumed.Budget != usd(1) || w.queue.messages[run.ID].Budget != usd(0.75) {
		t.Errorf("budget %s, message %s", resumed.Budget, w.queue.messages[run.ID].Budget)
	}
	w.refused(ask("probe"), holdfast.DenyConcurrency)
	w.held(1, 0.75, 0.25, 0, 2)
}

func TestARunThatCannotBeResumedSaysSo(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("probe"))
	if _, _, err := w.Resume(w.ctx, member, run.ID); !errors.Is(err, launch.ErrConflict) {
		t.Errorf("a queued run: %v", err)
	}
	w.started(run.ID)
	w.apply(w.ended(run.ID, 1, 0.05, queue.EndInterrupted))
	if _, _, err := w.Resume(w.ctx, member, run.ID); !errors.Is(err, launch.ErrConflict) {
		t.Errorf("a run without budget: %v", err)
	}
	if _, _, err := w.Resume(w.ctx, viewer, run.ID); !errors.Is(err, launch.ErrForbidden) {
		t.Errorf("a viewer: %v", err)
	}
	if _, _, err := w.Resume(w.ctx, stranger, run.ID); !errors.Is(err, launch.ErrNotFound) {
		t.Errorf("a stranger: %v", err)
	}
}

// A resume that cannot be queued leaves the run as resumable as it was.
func TestAResumeThatFailsCanBeRepeated(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("feature-dev"))
	w.started(run.ID)
	w.apply(w.ended(run.ID, 1, 1, queue.EndInterrupted))
	w.queue.publish = func(queue.RunMessage) error { return errors.New("away") }
	if _, _, err := w.Resume(w.ctx, member, run.ID); !errors.Is(err, launch.ErrUnavailable) {
		t.Fatalf("error %v", err)
	}
	w.status(run.ID, runs.FailedResumable, runs.ReasonLaunchFailed)
	w.held(0, 0, 1, 0, 1)
	w.queue.publish = nil
	resumed, denial, err := w.Resume(w.ctx, member, run.ID)
	if err != nil || denial.Denied() || resumed.Generation != 2 {
		t.Fatalf("generation %d, denied %q, error %v", resumed.Generation, denial.Reason, err)
	}
	must(w.Cancel(w.ctx, member, run.ID))(t)
	w.held(0, 0, 1, 0, 2) // what the first attempt spent is charged once
}

func TestCancelEndsAQueuedRunAndStopsARunningOne(t *testing.T) {
	w := newWorld(t)
	queued, running := w.admitted(ask("probe")), w.admitted(ask("probe"))
	w.started(running.ID)
	must(w.Cancel(w.ctx, member, queued.ID))(t)
	w.status(queued.ID, runs.Cancelled, runs.ReasonCancelled)
	w.held(1, 0.05, 0, 0, 2) // the run of the month stays used
	must(w.Cancel(w.ctx, member, queued.ID))(t)

	asked := must(w.Cancel(w.ctx, member, running.ID))(t)
	if asked.Status != runs.Running || !asked.CancelAsked || len(w.queue.cancelled) != 2 {
		t.Errorf("run is %+v, the queue was told of %v", asked, w.queue.cancelled)
	}
	beat := must(w.Claim(w.ctx, queue.Claim{Run: running.ID, Attempt: 1, Sequence: 2, Spent: usd(0.02)}))(t)
	if beat.Verdict != queue.GrantStop || beat.Reason != string(runs.ReasonCancelled) {
		t.Errorf("the heartbeat was answered %+v", beat)
	}
	w.apply(w.ended(running.ID, 1, 0.03, queue.EndInterrupted))
	w.status(running.ID, runs.Cancelled, runs.ReasonCancelled)
	w.held(0, 0, 0.03, 0, 2)
	finished := w.admitted(ask("probe"))
	w.started(finished.ID)
	w.apply(w.ended(finished.ID, 1, 0, queue.EndFinished))
	if _, err := w.Cancel(w.ctx, member, finished.ID); !errors.Is(err, launch.ErrConflict) {
		t.Errorf("cancelling a finished run: %v", err)
	}
	if _, err := w.Cancel(w.ctx, stranger, finished.ID); !errors.Is(err, launch.ErrNotFound) {
		t.Errorf("a stranger cancels: %v", err)
	}
}

func TestAReleaseByTheOperatorFencesTheRun(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("feature-dev"))
	w.started(run.ID)
	id := run.Holds[0].ID
	if _, err := w.ReleaseAllocation(w.ctx, member, id, "mine"); !errors.Is(err, launch.ErrForbidden) {
		t.Errorf("a member releases: %v", err)
	}
	closed, err := w.ReleaseAllocation(w.ctx, operator, id, "stuck")
	if err != nil || !closed {
		t.Fatalf("closed %v, error %v", closed, err)
	}
	w.status(run.ID, runs.Failed, runs.ReasonReleased)
	w.held(0, 0, 0, 0, 1)
	beat := must(w.Claim(w.ctx, queue.Claim{Run: run.ID, Attempt: 1, Sequence: 2, Spent: usd(1)}))(t)
	if beat.Verdict != queue.GrantStop {
		t.Errorf("the heartbeat was answered %s", beat.Verdict)
	}
	w.held(0, 0, 1, 0, 1)
	if closed, err := w.ReleaseAllocation(w.ctx, operator, id, "again"); closed || err != nil {
		t.Errorf("closed %v again, error %v", closed, err)
	}
	if _, err := w.ReleaseAllocation(w.ctx, operator, holdfast.NewAllocationID("01J0", run.Holds[0].Subject, 0), "x"); !errors.Is(err, launch.ErrNotFound) {
		t.Errorf("an unknown allocation: %v", err)
	}
	entries, _, err := w.audit.List(w.ctx, auditOf(id))
	if err != nil || len(entries) != 2 || entries[0].Actor != "op" {
		t.Errorf("audited %+v, error %v", entries, err)
	}
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
		if got := w.queue.messages[id].Publication; got != want {
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

// 300: what was taken before the end of the month is settled in that month.
func TestARunAcrossTheMonthsEndLeavesNothingInEither(t *testing.T) {
	w := newWorld(t)
	w.clock.Set(time.Date(2026, time.March, 31, 23, 59, 30, 0, time.UTC))
	w.team("acme", teams.Limits{MonthlyUSD: usdLimit(3), MonthlyRuns: slots(1)})
	run := w.admitted(ask("feature-dev"))
	w.started(run.ID)
	w.clock.Advance(time.Minute)
	april := w.admitted(ask("feature-dev")) // a new month, a new cap
	w.apply(w.ended(run.ID, 1, 2, queue.EndFinished))
	must(w.Cancel(w.ctx, member, april.ID))(t)
	for month, spent := range map[string]holdfast.MicroUSD{"2026-03": usd(2), "2026-04": 0} {
		b := w.balance(holdfast.TeamSubject("acme", holdfast.AxisUSD, month))
		if b.Outstanding != 0 || b.Settled != int64(spent) {
			t.Errorf("%s: %d outstanding, %d settled", month, b.Outstanding, b.Settled)
		}
		if units := w.balance(holdfast.TeamSubject("acme", holdfast.AxisRuns, month)); units.Settled != 1 || units.Outstanding != 0 {
			t.Errorf("%s: runs %+v", month, units)
		}
	}
}

// A report that names an absurd spend neither overflows nor loops for ever.
func TestAHostileReportIsBounded(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("probe"))
	w.started(run.ID)
	for _, spent := range []holdfast.MicroUSD{-1, 1 << 62} {
		w.apply(queue.Report{Run: run.ID, Attempt: 1, Sequence: 3, Kind: queue.ReportProgress, Spent: spent})
	}
	w.apply(queue.Report{Run: run.ID, Attempt: 9, Kind: queue.ReportEnded, Ending: queue.EndFinished})
	w.apply(queue.Report{Run: "nobody", Attempt: 1, Kind: queue.ReportEnded})
	w.apply(queue.Report{Run: run.ID, Attempt: 0, Kind: queue.ReportEnded})
	if got := w.status(run.ID, runs.Running, ""); got.Spent != holdfast.MaxUSD {
		t.Errorf("spent %s", got.Spent)
	}
}

// Only a part of what it held is gone: the rest goes back before it asks again, so
// that the run is not refused by what it holds itself.
func TestAClaimOnHalfAPromiseIsJudgedAgainWithoutIt(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(1), MonthlyUSD: usdLimit(1)})
	run := w.admitted(ask("review-pr")) // all of the month's dollars
	must(w.ledger.Release(w.ctx, run.Holds[0].ID))(t)
	w.started(run.ID)
	w.held(1, 1, 0, 0, 1)
	w.apply(w.ended(run.ID, 1, 0.5, queue.EndFinished))
	w.held(0, 0, 0.5, 0, 1)
}

// B2: what could not be closed at the end of the first attempt does not stand in the
// way of its resume.
func TestAResumeClosesWhatItsFirstAttemptStillHolds(t *testing.T) {
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
	w.apply(w.ended(run.ID, 1, 1, queue.EndInterrupted))
	w.store.set(nil)
	if _, denial, err := w.Resume(w.ctx, member, run.ID); err != nil || denial.Denied() {
		t.Fatalf("denied %q, error %v", denial.Reason, err)
	}
	w.held(1, 2, 1, 0, 2)
}

// Two callers resume one run at once: one does, and the other takes nothing from it.
func TestTwoResumesOfOneRunMakeOne(t *testing.T) {
	for range 30 {
		w := newWorld(t)
		run := w.admitted(ask("feature-dev"))
		w.started(run.ID)
		w.apply(w.ended(run.ID, 1, 1, queue.EndInterrupted))
		var group sync.WaitGroup
		var mu sync.Mutex
		resumed := 0
		for range 4 {
			group.Go(func() {
				_, denial, err := w.Resume(w.ctx, member, run.ID)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && !denial.Denied():
					resumed++
				case !errors.Is(err, launch.ErrConflict):
					t.Errorf("denied %q, error %v", denial.Reason, err)
				}
			})
		}
		group.Wait()
		if resumed != 1 {
			t.Fatalf("resumed %d times", resumed)
		}
		w.held(1, 2, 1, 0, 2)
		w.started(run.ID)
	}
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
