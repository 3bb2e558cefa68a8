package launch_test

import (
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// A store that is away lets a sweep's reading wait and then answers it: the outage ended
// while it was read, and what it shows of the silent is of before. The run holds nothing,
// so that nobody but the sweep of the silent looks at it.
func TestAnOutageThatEndsWhileASweepReadsEndsNoRun(t *testing.T) {
	w := newWorld(t)
	service := must(launch.New(w.Service.Deps, launch.Options{Clock: w.clock}))(t)
	w.clock.Advance(lease)
	w.store.fail("admit", holdfast.AxisSlots)
	run := w.admitted(ask("probe"))
	w.started(run.ID)
	w.clock.Advance(2 * lease)
	read := 0
	w.db.set(func(collection, op, _ string) error {
		if collection == "runs" && op == "list" {
			read++
			service.NoteOutage()
		}
		return nil
	})
	if err := service.Sweep(w.ctx); err == nil {
		t.Error("the ledger was away, and the sweep that adopts said nothing")
	}
	if read == 0 {
		t.Error("the sweep read no runs")
	}
	w.status(run.ID, runs.Running, "")
	w.db.set(nil)
	w.clock.Advance(lease)
	_ = service.Sweep(w.ctx) // the ledger is still away, and begins another quiet time afterwards
	w.status(run.ID, runs.FailedResumable, runs.ReasonLeaseLost)
}
