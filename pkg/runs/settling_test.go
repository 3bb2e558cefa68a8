package runs_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

func TestWalkUnsettledFindsWhatEndedWithOpenAllocationsUntilItIsSettled(t *testing.T) {
	r := open(t, memory.NewRecords())
	subject := holdfast.TeamSubject("acme", holdfast.AxisSlots, "")
	var want []holdfast.RunID
	for _, status := range runs.Statuses() {
		for _, held := range []bool{true, false} {
			for _, settled := range []bool{true, false} {
				run := runs.Run{ID: r.NewID(clocktest.T0), Team: "acme", Identity: review, Status: status, Settled: settled}
				if held {
					run.Holds = []runs.Hold{{ID: holdfast.NewAllocationID(run.ID, subject, 0), Subject: subject, Amount: 1}}
				}
				if _, err := r.Insert(t.Context(), run); err != nil {
					t.Fatal(err)
				}
				if held && !settled && !status.Active() {
					want = append(want, run.ID)
				}
			}
		}
	}
	for _, expected := range [][]holdfast.RunID{want, nil} { // the first walk settles them
		var got []holdfast.RunID
		err := r.WalkUnsettled(t.Context(), func(run runs.Run) error {
			got = append(got, run.ID)
			_, err := r.Update(t.Context(), run.ID, func(x *runs.Run) error { x.Settled = true; return nil })
			return err
		})
		if diff := cmp.Diff(expected, got); diff != "" || err != nil {
			t.Errorf("%v %s", err, diff)
		}
	}
}

func TestAMonthAddsUpItsOwnRunsAndNoOthers(t *testing.T) {
	r := open(t, memory.NewRecords())
	march := time.Date(2026, 3, 31, 23, 59, 59, 999_000_000, time.UTC)
	for i, row := range []struct {
		at            time.Time
		team          holdfast.TeamID
		repo          string
		status        runs.Status
		budget, spent holdfast.MicroUSD
	}{
		{time.Date(2026, 2, 28, 23, 59, 59, 999_000_000, time.UTC), "acme", "a/b", runs.Finished, 1000, 1000}, // the month before
		{time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), "acme", "a/b", runs.Finished, 500, 20},                  // ended: what it spent
		{march, "acme", "", runs.Running, 300, 100},                                                           // under way: its budget
		{march, "acme", "a/b", runs.Paused, 300, 400},                                                         // or its spend, when above
		{march, "web", "a/b", runs.Finished, 7, 7},
		{time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC), "acme", "a/b", runs.Finished, 9000, 9000}, // the month after
	} {
		run := runs.Run{ID: r.NewID(row.at), Team: row.team, Identity: review, Repo: row.repo, Status: row.status, Budget: row.budget, Spent: row.spent, CreatedAt: row.at}
		if _, err := r.Insert(t.Context(), run); err != nil {
			t.Fatalf("row %d: %v", i, err)
		}
	}
	for name, row := range map[string]struct {
		filter runs.MonthFilter
		want   runs.Month
	}{
		"a team": {runs.MonthFilter{Team: "acme"}, runs.Month{Runs: 3, USD: 720}},
		"a repo": {runs.MonthFilter{Repo: "a/b"}, runs.Month{Runs: 3, USD: 427}},
		"all":    {runs.MonthFilter{}, runs.Month{Runs: 4, USD: 727}},
		"nobody": {runs.MonthFilter{Team: "gone"}, runs.Month{}},
	} {
		got, err := r.MonthOf(t.Context(), row.filter, march)
		if diff := cmp.Diff(row.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
}
