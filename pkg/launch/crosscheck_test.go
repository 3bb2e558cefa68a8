package launch_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// findings cross-checks and demands what it says.
func (w *world) findings(what string, want ...launch.Finding) {
	w.t.Helper()
	got := must(w.CrossCheck(w.ctx, w.clock.Now()))(w.t)
	opaque := cmp.Comparer(func(a, b holdfast.Amount) bool { return a == b })
	if diff := cmp.Diff(want, got, opaque); diff != "" {
		w.t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

func (w *world) usdFinding(ledger, documents float64, lost launch.Lost) launch.Finding {
	return launch.Finding{
		Subject: holdfast.TeamSubject("acme", holdfast.AxisUSD, w.month()),
		Ledger:  holdfast.USDAmount(usd(ledger)), Documents: holdfast.USDAmount(usd(documents)), Lost: lost,
	}
}

func (w *world) runsFinding(ledger, documents int64, lost launch.Lost) launch.Finding {
	return launch.Finding{
		Subject: holdfast.TeamSubject("acme", holdfast.AxisRuns, w.month()),
		Ledger:  holdfast.RunAmount(ledger), Documents: holdfast.RunAmount(documents), Lost: lost,
	}
}

// done launches a run that ends with so much spent.
func (w *world) done(spent float64, how queue.Ending) runs.Run {
	w.t.Helper()
	run := w.admitted(ask("feature-dev"))
	grant := w.started(run.ID)
	w.apply(w.ended(run.ID, grant.Attempt, spent, how))
	return w.get(run.ID)
}

func (w *world) resumed(id holdfast.RunID) {
	w.t.Helper()
	if _, denial, err := w.Resume(w.ctx, member, id); err != nil || denial.Denied() {
		w.t.Fatal(denial.Public, err)
	}
}

// A month of everything that can happen to a run leaves nothing to find: what is
// found is a store that was lost, and no way that a run can go.
func TestALedgerAndDocumentsOfOneHistoryAgree(t *testing.T) {
	w := newWorld(t)
	w.findings("before anything")
	w.done(1.2, queue.EndFinished)
	w.done(0.3, queue.EndFailed)
	w.done(9, queue.EndBudget) // more than it was allowed
	queued := w.admitted(ask("feature-dev"))
	must(w.Cancel(w.ctx, member, queued.ID))(t)

	// Spent in two generations, the last of which is under way.
	twice := w.done(0.5, queue.EndInterrupted)
	w.resumed(twice.ID)
	grant := w.started(twice.ID)
	w.apply(queue.Report{Run: twice.ID, Attempt: grant.Attempt, Sequence: 2, Kind: queue.ReportProgress, Spent: usd(0.25), At: w.clock.Now()})
	w.findings("with one under way")

	// A late report of the first attempt, and an end.
	w.apply(w.ended(twice.ID, 1, 0.7, queue.EndInterrupted))
	w.apply(w.ended(twice.ID, grant.Attempt, 0.4, queue.EndFinished))
	w.findings("after a late report")

	// Its allocation is taken away while it runs.
	taken := w.admitted(ask("feature-dev"))
	w.started(taken.ID)
	for _, hold := range w.get(taken.ID).Holds {
		if hold.Subject.Axis == holdfast.AxisUSD {
			must(w.ReleaseAllocation(w.ctx, operator, hold.ID, "test"))(t)
		}
	}
	w.apply(w.ended(taken.ID, 1, 0.2, queue.EndCancelled))

	external := ask("feature-dev")
	external.External = true
	outside := w.admitted(external)
	must(w.Heartbeat(w.ctx, member, outside.ID, usd(0.1)))(t)
	w.findings("with an external run under way")
	must(w.Settle(w.ctx, member, outside.ID, usd(0.6), "finished"))(t)

	// A launch that cannot be queued, and a resume that cannot.
	broken := w.done(0.1, queue.EndInterrupted)
	w.queue.publish = func(queue.RunMessage) error { return launch.ErrUnavailable }
	if _, _, err := w.Launch(w.ctx, member, ask("feature-dev")); err == nil {
		t.Fatal("a launch without a queue succeeded")
	}
	if _, _, err := w.Resume(w.ctx, member, broken.ID); err == nil {
		t.Fatal("a resume without a queue succeeded")
	}
	w.queue.publish = nil
	w.findings("after a launch and a resume that failed")
	w.resumed(broken.ID)
	w.findings("after a resume that began nothing yet")
	w.started(broken.ID)
	w.apply(w.ended(broken.ID, w.get(broken.ID).Attempt, 0.2, queue.EndFinished))
	w.findings("at the end")
}

func TestARunOfLastMonthThatIsResumedIsChargedToThisOne(t *testing.T) {
	w := newWorld(t)
	run := w.done(0.5, queue.EndInterrupted)
	w.clock.Advance(32 * 24 * time.Hour)
	w.findings("in the new month")
	w.resumed(run.ID)
	w.started(run.ID)
	w.apply(w.ended(run.ID, w.get(run.ID).Attempt, 0.4, queue.EndFinished))
	if b := w.balance(holdfast.TeamSubject("acme", holdfast.AxisUSD, w.month())); b.Settled != int64(usd(0.4)) {
		t.Fatalf("the new month was charged %d", b.Settled)
	}
	w.findings("with a run of another month")
}

// A parked run began no attempt, so its document forgets the run of the month that its
// launch used.
func TestAParkedRunThatIsResumedUsesTwoRunsOfTheMonth(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(1)})
	parked := w.admitted(ask("feature-dev"))
	must(w.ledger.Release(w.ctx, parked.Holds[0].ID))(t)
	other := w.admitted(ask("feature-dev"))
	w.claim(parked.ID)
	w.status(parked.ID, runs.Parked, runs.ReasonCapacity)
	w.started(other.ID)
	w.apply(w.ended(other.ID, 1, 0.5, queue.EndFinished))
	w.findings("while it is parked")
	w.resumed(parked.ID)
	w.held(1, 3, 0.5, 0, 3)
	w.findings("after it was resumed")
}

func TestALostLedgerIsFound(t *testing.T) {
	w := newWorld(t)
	w.done(1.2, queue.EndFinished)
	w.done(0.3, queue.EndFailed)
	w.store.Store = memory.NewLedger()
	w.findings("with an empty ledger", w.runsFinding(0, 2, launch.LostLedger), w.usdFinding(0, 1.5, launch.LostLedger))
	w.done(0.5, queue.EndFinished)
	w.findings("and after more was used", w.runsFinding(1, 3, launch.LostLedger), w.usdFinding(0.5, 2, launch.LostLedger))
	w.clock.Advance(32 * 24 * time.Hour)
	w.findings("in the next month")
}

func TestLostDocumentsAreFound(t *testing.T) {
	w := newWorld(t)
	w.done(1.2, queue.EndFinished)
	gone := w.done(0.3, queue.EndFailed)
	collection := must(w.db.Collection(w.ctx, runsSchema(t, w)))(t)
	if err := collection.Delete(w.ctx, string(gone.ID), 0); err != nil {
		t.Fatal(err)
	}
	w.findings("without one document", w.runsFinding(2, 1, launch.LostRecords), w.usdFinding(1.5, 1.2, launch.LostRecords))
}

func TestACrossCheckThatCannotReadIsAnError(t *testing.T) {
	w := newWorld(t)
	w.done(1.2, queue.EndFinished)
	w.db.fail("runs", "list")
	if found, err := w.CrossCheck(w.ctx, w.clock.Now()); err == nil {
		t.Errorf("nothing could be read, and it found %v", found)
	}
}
