package launch_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// letter is a dead letter of a run's newest message.
func (w *world) letter(id holdfast.RunID) queue.DeadLetter {
	w.t.Helper()
	run := w.get(id)
	body, err := json.Marshal(queue.RunMessage{Version: 1, Run: id, Team: run.Team, Publication: run.Published, Generation: run.Generation})
	if err != nil {
		w.t.Fatal(err)
	}
	return queue.DeadLetter{Seq: 7, Reason: queue.Exhausted, Run: id, Body: body}
}

// worn is a run that was queued again in vain as often as a sweep does it.
func (w *world) worn() runs.Run {
	w.t.Helper()
	run := w.admitted(ask("probe"))
	return must(w.runs.Update(w.ctx, run.ID, func(r *runs.Run) error { r.Published += queue.Republished; return nil }))(w.t)
}

func TestADeadLetteredRunSettlesEveryAxisAndIsReplayedThroughTheGate(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(1)})
	run := w.worn()
	d := w.letter(run.ID)
	for range 2 { // the same letter again changes nothing
		if err := w.Buried(w.ctx, d); err != nil {
			t.Fatal(err)
		}
	}
	w.status(run.ID, runs.FailedResumable, runs.ReasonDeadLetter)
	w.held(0, 0, 0, 0, 1)

	other := w.admitted(ask("probe"))
	before := w.footprint()
	if _, denial, err := w.Replay(w.ctx, operator, d); err != nil || denial.Reason != holdfast.DenyConcurrency {
		t.Fatalf("%+v, %v", denial, err)
	}
	if diff := cmp.Diff(before, w.footprint()); diff != "" {
		t.Errorf("a refused replay took something: %s", diff)
	}
	grant := w.started(other.ID)
	w.apply(w.ended(other.ID, grant.Attempt, 0, queue.EndFinished))

	// What is in force now judges it, not what was when it was launched.
	w.maintenance(platformcfg.Maintenance{On: true})
	if _, denial, err := w.Replay(w.ctx, operator, d); err != nil || denial.Reason != holdfast.DenyMaintenance {
		t.Fatalf("%+v, %v", denial, err)
	}
	w.maintenance(platformcfg.Maintenance{})
	back, denial, err := w.Replay(w.ctx, operator, d)
	if err != nil || denial.Denied() || back.Identity != run.Identity || back.Generation != 1 {
		t.Fatalf("%+v, %+v, %v", back, denial, err)
	}
	if _, _, err := w.Replay(w.ctx, operator, d); !errors.Is(err, launch.ErrConflict) {
		t.Errorf("replayed twice: %v", err)
	}
	if got := w.slotsOf("acme"); got != 1 {
		t.Errorf("%d slots", got)
	}
}

func TestADeadLetterEndsOnlyARunThatStillWaitsForIt(t *testing.T) {
	for name, spoil := range map[string]func(*world, runs.Run){
		"it runs": func(w *world, run runs.Run) { w.started(run.ID) },
		"a newer message": func(w *world, run runs.Run) {
			must(w.runs.Update(w.ctx, run.ID, func(r *runs.Run) error { r.Published++; return nil }))(w.t)
		},
		"a sweep will queue it again": func(w *world, run runs.Run) {
			must(w.runs.Update(w.ctx, run.ID, func(r *runs.Run) error { r.Published = 1; return nil }))(w.t)
		},
	} {
		w := newWorld(t)
		run := w.worn()
		d := w.letter(run.ID)
		spoil(w, run)
		was := w.get(run.ID).Status
		if err := w.Buried(w.ctx, d); err != nil {
			t.Fatal(err)
		}
		if got := w.get(run.ID).Status; got != was {
			t.Errorf("%s: it is %s, was %s", name, got, was)
		}
	}
	w := newWorld(t)
	for _, d := range []queue.DeadLetter{{Run: ""}, {Run: "01KKBSWHG0Y0EYCPQJA81Y2SQT"}} {
		if err := w.Buried(w.ctx, d); err != nil {
			t.Errorf("%+v: %v", d, err)
		}
	}
	if _, _, err := w.Replay(w.ctx, member, queue.DeadLetter{Run: "x"}); !errors.Is(err, launch.ErrForbidden) {
		t.Errorf("a member replays: %v", err)
	}
	if _, _, err := w.Replay(w.ctx, operator, queue.DeadLetter{}); !errors.Is(err, launch.ErrConflict) {
		t.Errorf("nobody's: %v", err)
	}
}
