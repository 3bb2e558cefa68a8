package decisions_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

func open(t *testing.T, db records.DB, c clock.Clock, o decisions.Options) *decisions.Recorder {
	t.Helper()
	r, err := decisions.New(t.Context(), db, c, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func flush(t *testing.T, r *decisions.Recorder) {
	t.Helper()
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, r *decisions.Recorder, id string) decisions.Decision {
	t.Helper()
	d, err := r.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func refusal(team holdfast.TeamID, bot string) decisions.Decision {
	return decisions.Decision{Team: team, Bot: bot, Reason: holdfast.DenyConcurrency, Subject: holdfast.TeamSubject(team, holdfast.AxisSlots, "")}
}

func admission(team holdfast.TeamID, run holdfast.RunID) decisions.Decision {
	return decisions.Decision{Team: team, Bot: "probe", Run: run, Admitted: true}
}

func TestARefusalKeepsEveryNumberThatItWasJudgedBy(t *testing.T) {
	r := open(t, memory.NewRecords(), clocktest.New(), decisions.Options{})
	usd := func(n holdfast.MicroUSD) holdfast.Amount { return holdfast.USDAmount(n) }
	holder := holdfast.PlatformBot("review-pr")
	denial := holdfast.Denial{
		Reason: holdfast.DenyMonthlyUSD, Cause: holdfast.CauseReserved, Subject: holdfast.TeamSubject("acme", holdfast.AxisUSD, "2026-03"),
		Public: "full", Operator: "not for callers", Cap: holdfast.AtMost(usd(50)), Requested: usd(9), Minimum: usd(2), Settled: usd(20), Outstanding: usd(10),
		Withheld: usd(30), Remaining: usd(-10), Retryable: true, RetryAfter: 30 * time.Second, ResetAt: time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC),
		Holders: []holdfast.Holding{{Holder: holder, Reserved: usd(30), Settled: usd(0), Outstanding: usd(0)}},
	}
	d := decisions.Decision{Team: "acme", Bot: "Feature Dev", Identity: holdfast.TeamBot("acme", "feature-dev"), Surface: "rest", Caller: "ci", Checks: []decisions.Check{
		{Name: "launch-rate", Verdict: decisions.Pass},
		decisions.DenyCheck("monthly-usd", denial),
	}}.Refused(denial)
	id := r.Record(d)
	flush(t, r)
	other := open(t, memory.NewRecords(), clocktest.New(), decisions.Options{})
	if _, err := other.Get(t.Context(), id); !errors.Is(err, records.ErrNotFound) {
		t.Errorf("another store has it: %v", err)
	}
	want := denial
	want.Operator = ""
	same := cmp.Comparer(func(a, b holdfast.Identity) bool { return a == b })
	amounts := cmp.AllowUnexported(holdfast.Amount{}, holdfast.Limit{})
	got := get(t, r, id)
	if diff := cmp.Diff(want, got.Denial(), same, amounts); diff != "" {
		t.Error(diff)
	}
	if got.Bot != "Feature Dev" || got.Identity != holdfast.TeamBot("acme", "feature-dev") || got.Count != 1 || !got.At.Equal(clocktest.T0) || len(got.Checks) != 2 {
		t.Errorf("%+v", got)
	}
}

func TestADecisionIsReadableBeforeItIsWritten(t *testing.T) {
	db := recordstest.NewFaults(memory.NewRecords())
	r := open(t, db, clocktest.New(), decisions.Options{})
	db.Before(func(context.Context, recordstest.Operation) error { return records.ErrUnavailable })
	id := r.Record(refusal("acme", "probe"))
	if d := get(t, r, id); d.ID != id || d.Team != "acme" {
		t.Errorf("%+v", d)
	}
	for _, id := range []string{"", "gone", strings.Repeat("x", 300)} {
		db.Before(nil)
		if _, err := r.Get(t.Context(), id); !errors.Is(err, records.ErrNotFound) {
			t.Errorf("%q: %v, want not found", id, err)
		}
	}
}

func TestRepeatsOfARefusalWithinASecondAreOneRowWithACount(t *testing.T) {
	c := clocktest.New()
	r := open(t, memory.NewRecords(), c, decisions.Options{})
	first := r.Record(refusal("acme", "probe"))
	c.Advance(500 * time.Millisecond)
	flush(t, r) // a row that is written goes on counting
	second := r.Record(refusal("acme", "probe"))
	c.Advance(499 * time.Millisecond)
	third := r.Record(refusal("acme", "probe"))
	if second != first || third != first {
		t.Errorf("the repeats have the rows %q and %q, want %q", second, third, first)
	}
	c.Advance(time.Millisecond)
	fourth := r.Record(refusal("acme", "probe"))
	if fourth == first {
		t.Error("a second later it is still the same row")
	}
	flush(t, r)
	d := get(t, r, first)
	if d.Count != 3 || !d.At.Equal(clocktest.T0) || !d.LastAt.Equal(clocktest.T0.Add(999*time.Millisecond)) {
		t.Errorf("count %d from %s to %s, want 3 within 999 ms", d.Count, d.At, d.LastAt)
	}
	list, _, err := r.List(t.Context(), decisions.Filter{})
	if err != nil || len(list) != 2 || list[0].ID != fourth || list[1].Count != 3 {
		t.Errorf("%+v, %v; want the two rows, the newest first", list, err)
	}
}

func TestWhatDiffersIsNotARepeatAndAdmissionsNeverAre(t *testing.T) {
	r := open(t, memory.NewRecords(), clocktest.New(), decisions.Options{})
	base := refusal("acme", "probe")
	team, bot, reason, subject := base, base, base, base
	team.Team = "web"
	bot.Bot = "review-pr"
	reason.Reason = holdfast.DenyLaunchRate
	subject.Subject = holdfast.PlatformSubject(holdfast.AxisSlots, "")
	ids := map[string]bool{}
	for _, d := range []decisions.Decision{base, team, bot, reason, subject, admission("acme", "01A"), admission("acme", "01B")} {
		ids[r.Record(d)] = true
	}
	if len(ids) != 7 {
		t.Errorf("%d rows, want 7", len(ids))
	}
}

func TestAFullBufferDropsCountsAndNeverBlocks(t *testing.T) {
	dropped := 0
	r := open(t, memory.NewRecords(), clocktest.New(), decisions.Options{Buffer: 3, Dropped: func(n int) { dropped += n }})
	var ids []string
	for i := range 5 {
		ids = append(ids, r.Record(admission("acme", holdfast.RunID(fmt.Sprint(i)))))
	}
	if dropped != 2 {
		t.Errorf("%d dropped, want 2", dropped)
	}
	flush(t, r)
	for i, id := range ids {
		_, err := r.Get(t.Context(), id)
		if lost := errors.Is(err, records.ErrNotFound); lost != (i >= 3) {
			t.Errorf("decision %d: %v", i, err)
		}
	}
	if r.Record(admission("acme", "later")); dropped != 2 {
		t.Error("the flush made no room")
	}
}

func TestAFailedWriteIsTriedAgainAndAWrittenRowStaysOne(t *testing.T) {
	db := recordstest.NewFaults(memory.NewRecords())
	c := clocktest.New()
	r := open(t, db, c, decisions.Options{})
	id := r.Record(refusal("acme", "probe"))
	db.Before(func(context.Context, recordstest.Operation) error { return records.ErrUnavailable })
	if err := r.Flush(t.Context()); !errors.Is(err, records.ErrUnavailable) {
		t.Fatalf("%v, want unavailable", err)
	}
	r.Record(refusal("acme", "probe"))
	old := r.Record(admission("acme", "01A"))
	if err := r.Flush(t.Context()); !errors.Is(err, records.ErrUnavailable) {
		t.Fatalf("%v, want unavailable", err)
	}
	if get(t, r, old).Run != "01A" {
		t.Error("a decision that waits for its write was forgotten")
	}
	db.Before(nil)
	db.After(func(_ context.Context, op recordstest.Operation) error { // written, and the reply is lost
		if op.Verb == "insert" {
			return records.ErrUnavailable
		}
		return nil
	})
	if err := r.Flush(t.Context()); !errors.Is(err, records.ErrUnavailable) {
		t.Fatalf("%v, want unavailable", err)
	}
	db.After(nil)
	r.Record(refusal("acme", "probe"))
	flush(t, r)
	c.Advance(time.Minute)
	flush(t, r) // and forgets it: from here on it comes from the store
	list, _, err := r.List(t.Context(), decisions.Filter{})
	if err != nil || len(list) != 2 || list[1].Count != 3 || get(t, r, id).Count != 3 {
		t.Errorf("%+v, %v; want an admission and one row of 3", list, err)
	}
}

func TestADecisionThatNoStoreTakesIsDroppedAndNotTriedForEver(t *testing.T) {
	dropped := 0
	r := open(t, memory.NewRecords(), clocktest.New(), decisions.Options{Dropped: func(n int) { dropped += n }})
	huge := refusal("acme", "probe")
	huge.Detail = strings.Repeat("x", records.MaxBody)
	id := r.Record(huge)
	var bad *holdfast.InvalidError
	if err := r.Flush(t.Context()); !errors.As(err, &bad) || dropped != 1 {
		t.Errorf("%v, %d dropped; want the store's refusal and 1", err, dropped)
	}
	flush(t, r)
	if _, err := r.Get(t.Context(), id); !errors.Is(err, records.ErrNotFound) {
		t.Errorf("%v, want not found", err)
	}
	if next := r.Record(refusal("acme", "probe")); next == id {
		t.Error("the next refusal joined the row that was dropped")
	}
	long := r.Record(refusal(holdfast.TeamID(strings.Repeat("t", 5_000)), strings.Repeat("b\n", 5_000)))
	flush(t, r)
	if d := get(t, r, long); len(d.Team) > 110 || len(d.Bot) > 110 || strings.Contains(d.Bot, "\n") {
		t.Errorf("a label of %d and one of %d bytes were kept as they came", len(d.Team), len(d.Bot))
	}
}

func TestRunWritesInTheBackgroundAndWhatIsLeftAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.NewRecords()
		r := open(t, db, clock.System{}, decisions.Options{})
		reader := open(t, db, clock.System{}, decisions.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		early := r.Record(admission("acme", "01A"))
		if _, err := reader.Get(t.Context(), early); !errors.Is(err, records.ErrNotFound) {
			t.Errorf("it was written on the answer's path: %v", err)
		}
		time.Sleep(time.Second)
		get(t, reader, early)
		late := r.Record(admission("acme", "01B"))
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run ended with %v", err)
		}
		get(t, reader, late)
	})
}

func TestRunGoesOnWhenTheStoreFailsAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := recordstest.NewFaults(memory.NewRecords())
		var failed atomic.Int64
		r := open(t, db, clock.System{}, decisions.Options{Failed: func(error) { failed.Add(1) }})
		go func() { _ = r.Run(t.Context()) }()
		db.Before(func(context.Context, recordstest.Operation) error { return records.ErrUnavailable })
		id := r.Record(admission("acme", "01A"))
		time.Sleep(time.Second)
		if failed.Load() == 0 {
			t.Error("nobody was told")
		}
		db.Before(nil)
		time.Sleep(time.Second)
		list, _, err := r.List(t.Context(), decisions.Filter{})
		if err != nil || len(list) != 1 || list[0].ID != id {
			t.Errorf("%+v, %v; want it written after all", list, err)
		}
	})
}

func TestOf64RecordersOfOneRefusalNoRepeatIsLost(t *testing.T) {
	db := memory.NewRecords()
	r := open(t, db, clocktest.New(), decisions.Options{})
	var told atomic.Int64
	counted := open(t, db, clocktest.New(), decisions.Options{Recorded: func(decisions.Decision) { told.Add(1) }})
	counted.Record(admission("web", "01A"))
	var group sync.WaitGroup
	for range 64 {
		group.Go(func() {
			for range 100 {
				r.Record(refusal("acme", "probe"))
			}
		})
	}
	for range 4 {
		group.Go(func() {
			for range 20 {
				if err := r.Flush(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	list, _, err := r.List(t.Context(), decisions.Filter{})
	if err != nil || len(list) != 1 || list[0].Count != 6400 || told.Load() != 1 {
		t.Errorf("%d rows, %v, told %d times; want one row of 6400, told once", len(list), err, told.Load())
	}
}
