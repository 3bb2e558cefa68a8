package retry_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/retry"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/surface/surfacetest"
)

// world is the gate with one replica's sweeper.
type world struct {
	*surfacetest.World
	sweeper  *retry.Sweeper
	mu       sync.Mutex
	outcomes map[retry.Outcome]int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: surfacetest.New(t), outcomes: map[retry.Outcome]int{}}
	w.sweeper = w.replica(retry.Options{})
	return w
}

func (w *world) replica(o retry.Options) *retry.Sweeper {
	w.T.Helper()
	o.Clock = w.Clock
	o.Done = func(_ runs.Run, outcome retry.Outcome) { w.mu.Lock(); w.outcomes[outcome]++; w.mu.Unlock() }
	return surfacetest.Must(retry.New(w.Runs, w.Gate, o))(w.T)
}

// launched is a run of a bot of acme with so many retries.
func (w *world) launched(retries int) runs.Run {
	w.T.Helper()
	bot := holdfast.Bot{Name: "worker", Lane: holdfast.LaneCommand, Command: []string{"true"}, Retries: retries}
	if _, _, err := w.Bots.Put(w.T.Context(), w.Clock.Now(), "acme", bot, "dev"); err != nil {
		w.T.Fatal(err)
	}
	run, denial, err := w.Gate.Launch(w.T.Context(), launch.Machine(launch.SurfaceBoard, "acme"), launch.Request{Team: "acme", Bot: "worker"})
	if err != nil || denial.Denied() {
		w.T.Fatal(denial, err)
	}
	return run
}

func (w *world) get(id holdfast.RunID) runs.Run {
	w.T.Helper()
	return surfacetest.Must(w.Runs.Get(w.T.Context(), id))(w.T)
}

// after moves the clock and makes a pass.
func (w *world) after(d time.Duration) {
	w.T.Helper()
	w.Clock.Advance(d)
	if err := w.sweeper.Pass(w.T.Context()); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) counted(want map[retry.Outcome]int) {
	w.T.Helper()
	if diff := cmp.Diff(want, w.outcomes); diff != "" {
		w.T.Error(diff)
	}
}

func (w *world) status(id holdfast.RunID, status runs.Status) runs.Run {
	w.T.Helper()
	run := w.get(id)
	if run.Status != status {
		w.T.Fatalf("the run is %s (%s), want %s; retry %+v", run.Status, run.StatusReason, status, run.Retry)
	}
	return run
}

func TestALostRunComesBackAsOftenAsItsBotSaysAndNotOnceMore(t *testing.T) {
	w := newWorld(t)
	run := w.launched(2)
	for i := range 2 {
		w.Finish(run.ID, queue.EndInterrupted)
		w.after(0)
		w.after(5 * time.Second)
		w.status(run.ID, runs.FailedResumable) // its first wait
		w.after(time.Minute)
		if back := w.status(run.ID, runs.Queued); back.Generation != i+1 || back.Retry.Tries != i+1 || back.Identity != run.Identity {
			t.Fatalf("%+v", back)
		}
	}
	w.Finish(run.ID, queue.EndInterrupted)
	w.after(time.Hour)
	w.status(run.ID, runs.FailedResumable)
	w.counted(map[retry.Outcome]int{retry.Resumed: 2})
}

func TestWhatFailedByItselfOrHasNoRetriesIsLeftAlone(t *testing.T) {
	for name, row := range map[string]struct {
		retries int
		ending  queue.Ending
	}{
		"no retries":    {0, queue.EndInterrupted},
		"it failed":     {3, queue.EndFailed},
		"over budget":   {3, queue.EndBudget},
		"was cancelled": {3, queue.EndCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			run := w.Finish(w.launched(row.retries).ID, row.ending)
			w.after(0)
			w.after(time.Hour)
			if got := w.get(run.ID); got.Status != run.Status || got.Generation != 0 {
				t.Errorf("%+v", got)
			}
			w.counted(map[retry.Outcome]int{})
		})
	}
}

// parked takes a run to its claim, where its capacity is gone and somebody else's.
func (w *world) parked() (waiting runs.Run, other runs.Run) {
	w.T.Helper()
	w.Team("acme", surfacetest.Slots(1))
	run := w.launched(0)
	for _, hold := range run.Holds { // an operator, or an expiry, took it
		if _, err := w.Ledger.Release(w.T.Context(), hold.ID); err != nil {
			w.T.Fatal(err)
		}
	}
	other = w.launched(0)
	grant, err := w.Gate.Claim(w.T.Context(), queue.Claim{Run: run.ID, Publication: 1, Runner: "r", Nonce: "n"})
	if err != nil || grant.Verdict != queue.GrantDrop {
		w.T.Fatal(grant, err)
	}
	run = w.status(run.ID, runs.Parked)
	if run.StatusReason != runs.ReasonCapacity {
		w.T.Fatalf("parked as %s", run.StatusReason)
	}
	return run, other
}

func TestARunThatWaitsForCapacityHoldsNothingAndComesBackWhenThereIsSome(t *testing.T) {
	w := newWorld(t)
	run, other := w.parked()
	w.after(0)
	w.after(time.Minute)
	refused := w.status(run.ID, runs.Parked)
	if refused.Retry.Refusals != 1 || refused.Retry.Last != "concurrency_cap_exceeded" || refused.Retry.Tries != 0 || refused.Retry.Claim != "" {
		t.Errorf("%+v", refused.Retry)
	}
	footprint := w.Footprint()
	w.after(30 * time.Minute)
	w.after(30 * time.Minute)
	if got := w.get(run.ID).Retry.Refusals; got != 3 {
		t.Errorf("%d refusals", got)
	}
	if diff := cmp.Diff(footprint, w.Footprint()); diff != "" {
		t.Errorf("a refused retry took something: %s", diff)
	}
	w.Finish(other.ID, queue.EndFinished)
	w.after(30 * time.Minute)
	if back := w.status(run.ID, runs.Queued); back.Retry.Refusals != 0 || back.Retry.Last != "" {
		t.Errorf("%+v", back.Retry)
	}
	w.Finish(run.ID, queue.EndFinished)
	w.counted(map[retry.Outcome]int{retry.Refused: 3, retry.Resumed: 1})
}

func TestAHeldOutRetryIsTransient(t *testing.T) {
	w := newWorld(t)
	run, other := w.parked()
	w.Finish(other.ID, queue.EndFinished)
	w.Reserve("review-pr", 1)
	w.after(0)
	w.after(time.Minute)
	if got := w.status(run.ID, runs.Parked); got.Retry.Last != "concurrency_cap_exceeded (capacity_reserved)" || got.Retry.GivenUp != "" {
		t.Errorf("%+v", got.Retry)
	}
	w.Reserve("review-pr", 0)
	w.after(30 * time.Minute)
	w.status(run.ID, runs.Queued)
}

func TestAPermanentRefusalAbandonsTheRunWithItsReason(t *testing.T) {
	w := newWorld(t)
	run := w.Finish(w.launched(5).ID, queue.EndInterrupted)
	w.Suspend("acme", true)
	w.after(0)
	w.after(time.Minute)
	if got := w.status(run.ID, runs.FailedResumable); got.Retry.GivenUp == "" || got.RetryOpen() {
		t.Errorf("%+v", got.Retry)
	}
	w.Suspend("acme", false)
	w.after(time.Hour)
	w.status(run.ID, runs.FailedResumable)
	w.counted(map[retry.Outcome]int{retry.Abandoned: 1})
}

func TestARunIsGivenUpAfterTheCapOfRefusals(t *testing.T) {
	w := newWorld(t)
	run, _ := w.parked()
	w.sweeper = w.replica(retry.Options{MaxRefusals: 3})
	w.after(0)
	for range 5 {
		w.after(time.Hour)
	}
	if got := w.status(run.ID, runs.Parked); got.Retry.GivenUp == "" || got.Retry.Refusals != 3 {
		t.Errorf("%+v", got.Retry)
	}
	w.counted(map[retry.Outcome]int{retry.Refused: 2, retry.Abandoned: 1})
}

func TestRefusalsConsumeNoRetry(t *testing.T) {
	w := newWorld(t)
	w.Team("acme", surfacetest.Slots(1))
	run := w.Finish(w.launched(1).ID, queue.EndInterrupted)
	other := w.launched(0)
	w.after(0)
	for range 4 {
		w.after(30 * time.Minute)
	}
	if got := w.status(run.ID, runs.FailedResumable); got.Retry.Tries != 0 || got.Retry.Refusals != 4 {
		t.Errorf("%+v", got.Retry)
	}
	w.Finish(other.ID, queue.EndFinished)
	w.after(30 * time.Minute)
	if got := w.status(run.ID, runs.Queued); got.Retry.Tries != 1 {
		t.Errorf("%+v", got.Retry)
	}
}

func TestTwoReplicasResumeARunOnce(t *testing.T) {
	w := newWorld(t)
	run := w.launched(9)
	for generation := 1; generation <= 9; generation++ {
		w.Finish(run.ID, queue.EndInterrupted)
		w.after(0)
		w.Clock.Advance(time.Hour)
		var all sync.WaitGroup
		for range 4 {
			replica := w.replica(retry.Options{})
			all.Go(func() {
				if err := replica.Pass(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if back := w.status(run.ID, runs.Queued); back.Generation != generation {
			t.Fatalf("generation %d after %d losses", back.Generation, generation)
		}
	}
	w.counted(map[retry.Outcome]int{retry.Resumed: 9})
}

func TestAnOutageIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	run := w.Finish(w.launched(1).ID, queue.EndInterrupted)
	w.after(0)
	w.Queue.Fail(errors.New("cut"))
	w.after(time.Minute)
	if got := w.status(run.ID, runs.FailedResumable); got.Retry.GivenUp != "" || got.Retry.Tries != 0 {
		t.Errorf("%+v", got.Retry)
	}
	w.Queue.Fail(nil)
	w.after(30 * time.Minute)
	w.status(run.ID, runs.Queued)
	w.counted(map[retry.Outcome]int{retry.Failed: 1, retry.Resumed: 1})
}

func TestABatchOfRefusedRunsDoesNotHideTheOthers(t *testing.T) {
	w := newWorld(t)
	w.sweeper = w.replica(retry.Options{Batch: 2})
	var ids []holdfast.RunID
	for range 6 {
		ids = append(ids, w.Finish(w.launched(1).ID, queue.EndInterrupted).ID)
	}
	w.Team("acme", surfacetest.Slots(0))
	for range 3 {
		w.after(0) // the first waits
	}
	for range 3 {
		w.after(time.Minute)
	}
	for _, id := range ids {
		if w.get(id).Retry.Refusals == 0 {
			t.Errorf("run %s was never looked at", id)
		}
	}
}
