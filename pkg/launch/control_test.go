package launch_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

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
	if resumed.Budget != usd(1) || w.queue.Message(run.ID).Budget != usd(0.75) {
		t.Errorf("budget %s, message %s", resumed.Budget, w.queue.Message(run.ID).Budget)
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

func TestAConflictSaysHowTheRunStandsAndWhatCanBeDone(t *testing.T) {
	w := newWorld(t)
	says := func(err error, words ...string) {
		t.Helper()
		if !errors.Is(err, launch.ErrConflict) {
			t.Fatalf("%v, want a conflict", err)
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q does not say %q", err, word)
			}
		}
	}
	resume := func(id holdfast.RunID) error { _, _, err := w.Resume(w.ctx, member, id); return err }
	cancel := func(id holdfast.RunID) error { _, err := w.Cancel(w.ctx, member, id); return err }

	queued := w.admitted(ask("probe"))
	says(resume(queued.ID), "is queued already", "holdfast runs logs "+string(queued.ID))
	w.started(queued.ID)
	w.apply(w.ended(queued.ID, 1, 0.01, queue.EndFinished))
	says(cancel(queued.ID), "is finished", "since 20", "nothing to cancel", "holdfast runs show")
	says(resume(queued.ID), "is finished", "holdfast launch probe --team acme")

	broken := w.admitted(ask("feature-dev"))
	w.started(broken.ID)
	w.apply(w.ended(broken.ID, 1, 0.01, queue.EndInterrupted))
	says(cancel(broken.ID), "is failed_resumable", "holdfast runs resume "+string(broken.ID))
}
