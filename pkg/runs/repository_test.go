package runs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

func open(t *testing.T, db records.DB) *runs.Repository {
	t.Helper()
	r, err := runs.New(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// insert stores a run that was launched at an instant.
func insert(t *testing.T, r *runs.Repository, at time.Time, identity holdfast.Identity, team holdfast.TeamID, status runs.Status) runs.Run {
	t.Helper()
	run, err := r.Insert(t.Context(), runs.Run{ID: r.NewID(at), Team: team, Identity: identity, Status: status, CreatedAt: at})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

var (
	review = holdfast.PlatformBot("review-pr")
	ours   = holdfast.TeamBot("acme", "review-pr")
	docs   = holdfast.PlatformBot("docs-writer")
)

func TestARunIsReadBackAsItWasWritten(t *testing.T) {
	r := open(t, memory.NewRecords())
	budget, code := 3*holdfast.OneUSD, 2
	subject := holdfast.TeamSubject("acme", holdfast.AxisUSD, "2026-03")
	run := runs.Run{
		ID: r.NewID(clocktest.T0), Team: "acme", Identity: ours, Repo: "acme/widgets", Inputs: map[string]string{"pr": "7"},
		Bot:    holdfast.Bot{Name: "review-pr", Lane: holdfast.LaneCommand, Command: []string{"x"}, BudgetUSD: &budget, MaxDuration: holdfast.Duration(time.Hour)},
		Status: runs.Failed, StatusReason: runs.ReasonExit, ExitCode: &code, Budget: budget, Spent: 1_234_567,
		SpentBy: map[int]holdfast.MicroUSD{1: 1_000_000, 2: 234_567}, CreatedAt: clocktest.T0, EndedAt: clocktest.T0.Add(time.Minute),
	}
	run.Holds = []runs.Hold{{ID: holdfast.NewAllocationID(run.ID, subject, 0), Subject: subject, Amount: int64(budget)}}
	if _, err := r.Insert(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	got, err := r.Get(t.Context(), run.ID)
	if diff := cmp.Diff(run, got, cmp.Comparer(func(a, b holdfast.Identity) bool { return a == b })); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	if got.Holds[0].AmountOf() != holdfast.USDAmount(budget) {
		t.Errorf("it holds %s", got.Holds[0].AmountOf())
	}
	if _, err := r.Insert(t.Context(), run); !errors.Is(err, records.ErrExists) {
		t.Errorf("inserted again: %v, want exists", err)
	}
}

func TestADocumentThatNobodyCouldReadIsNotStored(t *testing.T) {
	r := open(t, memory.NewRecords())
	good := runs.Run{ID: "01A", Team: "acme", Identity: review, Status: runs.Queued}
	for name, spoil := range map[string]func(*runs.Run){
		"no id": func(x *runs.Run) { x.ID = "" }, "no team": func(x *runs.Run) { x.Team = "" },
		"nobody": func(x *runs.Run) { x.Identity = holdfast.Identity{} }, "no status": func(x *runs.Run) { x.Status = "" },
		"a status of another build": func(x *runs.Run) { x.Status = "dreaming" },
	} {
		bad := good
		spoil(&bad)
		if _, err := r.Insert(t.Context(), bad); err == nil {
			t.Errorf("%s: stored", name)
		}
	}
	if _, err := r.Insert(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Update(t.Context(), "01A", func(x *runs.Run) error { x.Status = "dreaming"; return nil }); err == nil {
		t.Error("an update to no status was stored")
	}
}

func TestARunNeverChangesWhoseItIsAndTheBotThatItRuns(t *testing.T) {
	r := open(t, memory.NewRecords())
	run := insert(t, r, clocktest.T0, review, "acme", runs.Queued)
	got, err := r.Update(t.Context(), run.ID, func(x *runs.Run) error {
		x.ID, x.Team, x.Identity, x.Status = "other", "web", ours, runs.Running
		return nil
	})
	if err != nil || got.ID != run.ID || got.Team != "acme" || got.Identity != review || got.Status != runs.Running {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestOf16ClaimantsOfAQueuedRunOneMovesIt(t *testing.T) {
	r := open(t, memory.NewRecords())
	lost := errors.New("it runs already")
	for range 50 {
		run := insert(t, r, clocktest.T0, review, "acme", runs.Queued)
		var mu sync.Mutex
		won := 0
		var group sync.WaitGroup
		for range 16 {
			group.Go(func() {
				_, err := r.Update(t.Context(), run.ID, func(x *runs.Run) error {
					if x.Status != runs.Queued {
						return lost
					}
					x.Status, x.Attempt = runs.Running, x.Attempt+1
					return nil
				})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won++
				case !errors.Is(err, lost):
					t.Error(err)
				}
			})
		}
		group.Wait()
		if got, err := r.Get(t.Context(), run.ID); won != 1 || got.Attempt != 1 || err != nil {
			t.Fatalf("%d claimants won, attempt %d, %v; want 1 and 1", won, got.Attempt, err)
		}
	}
}

func TestARunThatDoesNotExistIsNotFoundWhateverItsID(t *testing.T) {
	r := open(t, memory.NewRecords())
	for _, id := range []holdfast.RunID{"", "gone", "a\x00b", holdfast.RunID(strings.Repeat("x", 500))} {
		if _, err := r.Get(t.Context(), id); !errors.Is(err, records.ErrNotFound) {
			t.Errorf("get %q: %v, want not found", id, err)
		}
		if _, err := r.Update(t.Context(), id, func(*runs.Run) error { return nil }); !errors.Is(err, records.ErrNotFound) {
			t.Errorf("update %q: %v, want not found", id, err)
		}
	}
}

// all pages through a filter and names the runs by their inputs' "n".
func all(t *testing.T, r *runs.Repository, f runs.Filter) []string {
	t.Helper()
	var got []string
	for {
		page, next, err := r.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range page {
			got = append(got, run.Detail)
		}
		if next == "" {
			return got
		}
		f.Cursor = next
	}
}

func TestListFiltersTheNewestFirst(t *testing.T) {
	r := open(t, memory.NewRecords())
	at := func(minutes int) time.Time { return clocktest.T0.Add(time.Duration(minutes) * time.Minute) }
	for i, row := range []struct {
		team     holdfast.TeamID
		identity holdfast.Identity
		status   runs.Status
	}{
		{"acme", review, runs.Finished}, {"acme", ours, runs.Running}, {"web", review, runs.Running}, {"web", docs, runs.Queued},
		{"acme", docs, runs.Failed}, {"acme", review, runs.Running}, {"acme", ours, runs.Finished}, {"acme-2", review, runs.Running},
	} {
		_, err := r.Insert(t.Context(), runs.Run{ID: r.NewID(at(i)), Team: row.team, Identity: row.identity, Status: row.status, Detail: fmt.Sprint(i), CreatedAt: at(i)})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		name   string
		filter runs.Filter
		want   string
	}{
		{"everything", runs.Filter{}, "7 6 5 4 3 2 1 0"},
		{"a team", runs.Filter{Team: "acme"}, "6 5 4 1 0"},
		{"a status", runs.Filter{Status: runs.Running}, "7 5 2 1"},
		{"a team's status", runs.Filter{Team: "acme", Status: runs.Running}, "5 1"},
		{"a bot by any tier", runs.Filter{Bot: "Review PR"}, "7 6 5 2 1 0"},
		{"a bot by identity", runs.Filter{Bot: "platform/review-pr"}, "7 5 2 0"},
		{"a team's own bot", runs.Filter{Bot: "team:acme/review-pr"}, "6 1"},
		{"a bot in a team", runs.Filter{Bot: "review-pr", Team: "acme"}, "6 5 1 0"},
		{"a bot's status in a team", runs.Filter{Bot: "review-pr", Team: "acme", Status: runs.Finished}, "6 0"},
		{"a bot's status", runs.Filter{Bot: "review-pr", Status: runs.Running}, "7 5 2 1"},
		{"since", runs.Filter{Since: at(5)}, "7 6 5"},
		{"a team since", runs.Filter{Team: "acme", Since: at(1)}, "6 5 4 1"},
		{"nothing", runs.Filter{Team: "gone"}, ""},
	} {
		for _, limit := range []int{1, 2, 0} {
			row.filter.Limit = limit
			if got := strings.Join(all(t, r, row.filter), " "); got != row.want {
				t.Errorf("%s by %d: %s, want %s", row.name, limit, got, row.want)
			}
		}
	}
	for field, f := range map[string]runs.Filter{"status": {Status: "sleeping"}, "bot": {Bot: "a//b"}, "limit": {Limit: 1001}, "cursor": {Cursor: "x"}} {
		_, _, err := r.List(t.Context(), f)
		var bad *holdfast.InvalidError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%+v: %v, want the field %s", f, err, field)
		}
	}
}

func TestActiveCountsWhatHoldsASlotAndNothingElse(t *testing.T) {
	r := open(t, memory.NewRecords())
	for _, status := range runs.Statuses() {
		insert(t, r, clocktest.T0, review, "acme", status)
	}
	insert(t, r, clocktest.T0, review, "acme-2", runs.Running)
	active := func(team holdfast.TeamID, want int64) {
		t.Helper()
		if n, err := r.Active(t.Context(), team); n != want || err != nil {
			t.Errorf("%q has %d active runs, %v; want %d", team, n, err, want)
		}
	}
	active("acme", 2)
	active("acme-2", 1)
	active("gone", 0)
	active("", 3)
	err := r.WalkActive(t.Context(), func(run runs.Run) error {
		if run.Team != "acme" {
			return nil
		}
		_, err := r.Update(t.Context(), run.ID, func(x *runs.Run) error { x.Status = runs.Finished; return nil })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	active("acme", 0)
	active("", 1)
}

func TestWalkVisitsEveryRunOfAStatusTheOldestFirst(t *testing.T) {
	r := open(t, memory.NewRecords())
	var want []holdfast.RunID
	for i := range 450 {
		status := runs.Queued
		if i%2 == 0 {
			status = runs.Running
		}
		run := insert(t, r, clocktest.T0.Add(time.Duration(i)*time.Second), review, "acme", status)
		if status == runs.Queued {
			want = append(want, run.ID)
		}
	}
	var got []holdfast.RunID
	err := r.Walk(t.Context(), runs.Queued, func(run runs.Run) error {
		got = append(got, run.ID)
		_, err := r.Update(t.Context(), run.ID, func(x *runs.Run) error { x.Status = runs.Running; return nil })
		return err
	})
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}

func TestAnUnreachableStoreIsAnErrorAndNeverACountOfZero(t *testing.T) {
	db := recordstest.NewFaults(memory.NewRecords())
	r := open(t, db)
	insert(t, r, clocktest.T0, review, "acme", runs.Running)
	db.Before(func(context.Context, recordstest.Operation) error { return records.ErrUnavailable })
	for _, team := range []holdfast.TeamID{"acme", ""} {
		if _, err := r.Active(t.Context(), team); !errors.Is(err, records.ErrUnavailable) {
			t.Errorf("%q: %v, want unavailable", team, err)
		}
	}
	if err := r.WalkActive(t.Context(), func(runs.Run) error { return nil }); !errors.Is(err, records.ErrUnavailable) {
		t.Errorf("%v, want unavailable", err)
	}
}

func TestEveryStatusIsKnownAndOneOfActiveEndedOrWaiting(t *testing.T) {
	waiting := map[runs.Status]bool{runs.Paused: true, runs.Parked: true}
	for _, s := range runs.Statuses() {
		n := 0
		for _, is := range []bool{s.Active(), s.Ended(), waiting[s]} {
			if is {
				n++
			}
		}
		if !s.Known() || n != 1 {
			t.Errorf("%s: known %t, and %d of active, ended and waiting", s, s.Known(), n)
		}
	}
	if runs.Status("").Known() || runs.Status("dreaming").Known() {
		t.Error("a word that is no status is known")
	}
}
