package launch_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
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
