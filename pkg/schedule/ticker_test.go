package schedule_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
	"github.com/holdfast-io/holdfast/pkg/schedule"
	"github.com/holdfast-io/holdfast/pkg/surface"
	"github.com/holdfast-io/holdfast/pkg/surface/surfacetest"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// world is the gate with schedules and one replica's ticker.
type world struct {
	*surfacetest.World
	schedules *schedule.Repository
	ticker    *schedule.Ticker
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: surfacetest.New(t)}
	w.schedules = surfacetest.Must(schedule.New(t.Context(), w.DB, w.Clock))(t)
	w.ticker = w.replica()
	return w
}

func (w *world) replica() *schedule.Ticker {
	return surfacetest.Must(schedule.NewTicker(w.schedules, w.Gate, w.Runs, schedule.Options{Clock: w.Clock}))(w.T)
}

// quarters launches probe every quarter of an hour, unless change says otherwise.
func (w *world) quarters(change func(*schedule.Schedule)) schedule.Schedule {
	w.T.Helper()
	s := schedule.Schedule{Team: "acme", Name: "quarters", Cron: "*/15 * * * *", Work: surface.Work{Bot: "probe"}, Enabled: true}
	if change != nil {
		change(&s)
	}
	return surfacetest.Must(w.schedules.Create(w.T.Context(), s))(w.T)
}

// at moves the clock to a time of the day of T0 and makes a pass.
func (w *world) at(hour, minute, second int) {
	w.T.Helper()
	w.Clock.Set(time.Date(2026, 3, 10, hour, minute, second, 0, time.UTC))
	w.pass()
}

func (w *world) pass() {
	w.T.Helper()
	if err := w.ticker.Pass(w.T.Context()); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) get() schedule.Schedule {
	w.T.Helper()
	return surfacetest.Must(w.schedules.Get(w.T.Context(), "acme.quarters"))(w.T)
}

func (w *world) launched(n int) {
	w.T.Helper()
	if all := w.All(); len(all) != n {
		w.T.Fatalf("%d runs, want %d: %s", len(all), n, w.Footprint())
	}
}

func clockText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("15:04:05")
}

func TestATickLaunchesOnceOnTimeAndSaysWhenTheNextOneComes(t *testing.T) {
	w := newWorld(t)
	s := w.quarters(nil)
	if got := clockText(s.NextAt); got != "12:15:00" {
		t.Fatalf("the next tick is %s", got)
	}
	w.at(12, 14, 59)
	w.launched(0)
	w.at(12, 15, 3)
	w.launched(1)
	w.at(12, 15, 8)
	w.at(12, 29, 59)
	w.launched(1)
	w.at(12, 30, 0)
	w.launched(2)
	s, run := w.get(), w.All()[1]
	if s.LastRun != run.ID || clockText(s.NextAt) != "12:45:00" || s.Missed != 0 || run.Caller != "schedule" || run.Team != "acme" {
		t.Errorf("%+v launched %s by %s", s, run.ID, run.Caller)
	}
}

func TestTwoReplicasLaunchOneTickOnce(t *testing.T) {
	w := newWorld(t)
	w.quarters(nil)
	replicas := []*schedule.Ticker{w.ticker, w.replica(), w.replica(), w.replica()}
	for i := range 20 {
		w.Clock.Set(time.Date(2026, 3, 10, 12, 15, 0, 0, time.UTC).Add(time.Duration(i) * 15 * time.Minute))
		var all sync.WaitGroup
		for _, replica := range replicas {
			all.Go(func() {
				if err := replica.Pass(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		w.launched(i + 1)
	}
}

func TestTicksOfADowntimeAreMissedAndSaid(t *testing.T) {
	for name, row := range map[string]struct {
		catchUp      schedule.CatchUp
		runs         int
		missed       int64
		missedAgain  int64
		launchedTick string
	}{
		"none is caught up":          {schedule.CatchNone, 0, 4, 6, "13:07:00"},
		"the newest one is launched": {schedule.CatchOne, 1, 3, 4, "13:07:00"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.quarters(func(s *schedule.Schedule) { s.CatchUp = row.catchUp })
			w.at(13, 7, 0) // 12:15, 12:30, 12:45 and 13:00 are past
			w.launched(row.runs)
			s := w.get()
			if s.Missed != row.missed || clockText(s.MissedSince) != "12:15:00" || clockText(s.NextAt) != "13:15:00" || clockText(s.Tick) != "13:00:00" {
				t.Errorf("missed %d since %s, next %s, tick %s", s.Missed, clockText(s.MissedSince), clockText(s.NextAt), clockText(s.Tick))
			}
			w.at(13, 15, 59) // late, and still on time
			w.launched(row.runs + 1)
			w.at(13, 47, 0) // 13:30 and 13:45
			if s := w.get(); s.Missed != row.missedAgain || clockText(s.MissedSince) != "12:15:00" {
				t.Errorf("missed %d since %s", s.Missed, clockText(s.MissedSince))
			}
		})
	}
}

func TestAClockThatJumpsBackNeitherDoublesNorLosesTicks(t *testing.T) {
	w := newWorld(t)
	w.quarters(nil)
	w.at(12, 15, 0)
	w.at(12, 30, 0)
	w.launched(2)
	for _, minute := range []int{10, 15, 29, 30} { // all of it was lived through before
		w.at(12, minute, 1)
	}
	w.launched(2)
	w.at(12, 45, 0)
	w.launched(3)
	// Also a change of the schedule, which begins its clock anew, repeats no tick.
	w.Clock.Set(time.Date(2026, 3, 10, 12, 29, 0, 0, time.UTC))
	for _, enabled := range []bool{false, true} {
		surfacetest.Must(w.schedules.Update(t.Context(), "acme.quarters", func(s *schedule.Schedule) error { s.Enabled = enabled; return nil }))(t)
	}
	w.at(12, 46, 0)
	w.launched(3)
	w.at(13, 0, 0)
	w.launched(4)
}

func TestARefusedTickIsTriedAgainUntilTheNextOne(t *testing.T) {
	w := newWorld(t)
	w.Team("acme", surfacetest.Slots(1))
	w.quarters(nil)
	w.at(12, 15, 0)
	first := w.All()[0].ID
	w.Clock.Set(time.Date(2026, 3, 10, 12, 30, 0, 0, time.UTC))
	before := w.Footprint()
	w.pass()
	s := w.get()
	if s.LastError.Reason != "concurrency_cap_exceeded" || !s.LastError.Transient || s.LastError.DecisionID == "" || s.Pending == nil {
		t.Fatalf("%+v", s)
	}
	if diff := cmp.Diff(before, w.Footprint()); diff != "" {
		t.Errorf("a refused tick took something: %s", diff)
	}
	w.at(12, 30, 5) // not before its backoff
	if tries := w.get().Pending.Tries; tries != 1 {
		t.Errorf("%d tries", tries)
	}
	w.at(12, 31, 0)
	if tries := w.get().Pending.Tries; tries != 2 {
		t.Errorf("%d tries", tries)
	}
	w.Finish(first, "finished")
	w.at(12, 44, 0)
	w.launched(2)
	if s := w.get(); s.LastError.Reason != "" || s.Pending != nil || clockText(s.Tick) != "12:30:00" {
		t.Errorf("%+v", s)
	}
	// A tick that is refused to its end gives way to the next one, with its reason kept.
	w.at(12, 45, 0)
	w.at(13, 0, 0)
	if s := w.get(); s.LastError.Reason != "concurrency_cap_exceeded" || clockText(s.Tick) != "13:00:00" || s.Pending.Tries != 1 {
		t.Errorf("%+v", s)
	}
}

func TestATickIsGivenUpAfterItsWindow(t *testing.T) {
	w := newWorld(t)
	w.Team("acme", surfacetest.Slots(0))
	w.quarters(func(s *schedule.Schedule) { s.Cron = "30 12 * * *" })
	w.at(12, 30, 0)
	for minute := 31; minute < 60; minute++ {
		w.at(12, minute, 0)
	}
	w.at(13, 31, 0)
	w.Team("acme", teams.Limits{})
	w.at(14, 0, 0)
	w.launched(0)
	if s := w.get(); s.Pending != nil || s.LastError.Reason != "concurrency_cap_exceeded" {
		t.Errorf("%+v", s)
	}
}

func TestAPermanentRefusalIsSaidAndNotTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.quarters(func(s *schedule.Schedule) { s.Bot = "nobody-wrote-it" })
	w.at(12, 15, 0)
	if s := w.get(); s.LastError.Reason != "unknown_bot" || s.LastError.Transient || s.Pending != nil {
		t.Errorf("%+v", s)
	}
}

func TestAnOutageIsTriedAgainAndNeverLaunchesTwice(t *testing.T) {
	w := newWorld(t)
	w.quarters(nil)
	w.Queue.Fail(errors.New("cut"))
	w.at(12, 15, 0)
	s := w.get()
	if s.LastError.Reason != surface.ReasonUnavailable || s.Pending == nil || len(s.Pending.Before) != 1 {
		t.Fatalf("%+v", s)
	}
	w.Queue.Fail(nil)
	w.at(12, 16, 0)
	if got := len(w.Queue.All()); got != 1 || w.get().LastError.Reason != "" {
		t.Errorf("%d messages, last error %q", got, w.get().LastError.Reason)
	}
}

func TestARunOfAClaimThatDiedIsFoundAndNotLaunchedAgain(t *testing.T) {
	w := newWorld(t)
	w.quarters(nil)
	// The process dies behind the launch: what came of it is never written.
	written := errors.New("the process is dead")
	w.DB.Before(func(_ context.Context, op recordstest.Operation) error {
		if op.Collection == "schedules" && op.Verb == "get" {
			return written
		}
		return nil
	})
	w.Clock.Set(time.Date(2026, 3, 10, 12, 15, 0, 0, time.UTC))
	if err := w.ticker.Pass(t.Context()); !errors.Is(err, written) {
		t.Fatal(err)
	}
	w.DB.Before(nil)
	w.launched(1)
	w.at(12, 16, 59) // its claim is believed
	if w.get().LastRun != "" {
		t.Error("the claim was taken over too early")
	}
	w.at(12, 17, 1)
	w.launched(1)
	if s := w.get(); s.LastRun != w.All()[0].ID || s.Pending != nil {
		t.Errorf("%+v", s)
	}
}

func TestAPausedScheduleDoesNotTickAndIsNotBehindWhenItGoesOn(t *testing.T) {
	w := newWorld(t)
	w.quarters(nil)
	set := func(enabled bool) schedule.Schedule {
		return surfacetest.Must(w.schedules.Update(t.Context(), "acme.quarters", func(s *schedule.Schedule) error { s.Enabled = enabled; return nil }))(t)
	}
	if s := set(false); !s.NextAt.IsZero() {
		t.Errorf("paused, and the next tick is %s", s.NextAt)
	}
	w.at(14, 0, 0)
	w.launched(0)
	if s := set(true); clockText(s.NextAt) != "14:15:00" || s.Missed != 0 {
		t.Errorf("%+v", s)
	}
}

func TestASchedulesTeamIsItsOwnWhateverItsBotIsCalled(t *testing.T) {
	w := newWorld(t)
	w.quarters(func(s *schedule.Schedule) { s.Bot = "Review PR" })
	if _, _, err := w.Bots.Put(t.Context(), w.Clock.Now(), "acme", holdfast.Bot{Name: "review-pr", Lane: holdfast.LaneCommand, Command: []string{"true"}}, "test"); err != nil {
		t.Fatal(err)
	}
	w.Reserve("review-pr", 2)
	w.Team("acme", surfacetest.Slots(2))
	w.at(12, 15, 0) // the team's own bot of that name is not the holder
	if s := w.get(); s.LastError.Reason != "concurrency_cap_exceeded" || s.LastError.Cause != string(holdfast.CauseReserved) || !s.LastError.Transient {
		t.Errorf("%+v", s.LastError)
	}
	w.launched(0)
}

func TestSchedulesThatCannotBeMeantAreRefused(t *testing.T) {
	w := newWorld(t)
	good := schedule.Schedule{Team: "acme", Name: "n", Cron: "@daily", Work: surface.Work{Bot: "probe"}}
	for field, change := range map[string]func(*schedule.Schedule){
		"team":      func(s *schedule.Schedule) { s.Team = "A" },
		"name":      func(s *schedule.Schedule) { s.Name = "a.b" },
		"cron":      func(s *schedule.Schedule) { s.Cron = "soon" },
		"time_zone": func(s *schedule.Schedule) { s.TimeZone = "Here" },
		"catch_up":  func(s *schedule.Schedule) { s.CatchUp = "all" },
		"bot":       func(s *schedule.Schedule) { s.Bot = "" },
	} {
		s := good
		change(&s)
		_, err := w.schedules.Create(t.Context(), s)
		var bad *holdfast.InvalidError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%v, want the field %s", err, field)
		}
	}
	surfacetest.Must(w.schedules.Create(t.Context(), good))(t)
	if _, err := w.schedules.Create(t.Context(), good); !errors.Is(err, records.ErrExists) {
		t.Errorf("%v, want that it exists", err)
	}
	for _, id := range []string{"", "acme", "acme.", "acme.x/y", "acme.absent"} {
		if _, err := w.schedules.Get(t.Context(), id); !errors.Is(err, records.ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestOneScheduleThatCannotBeWrittenDoesNotKeepTheOthersFromTheirTick(t *testing.T) {
	w := newWorld(t)
	w.quarters(nil)
	w.quarters(func(s *schedule.Schedule) { s.Name = "another" })
	w.DB.Before(func(_ context.Context, op recordstest.Operation) error {
		if op.Verb == "replace" && op.ID == "acme.another" {
			return records.ErrUnavailable
		}
		return nil
	})
	w.Clock.Set(time.Date(2026, 3, 10, 12, 15, 0, 0, time.UTC))
	if err := w.ticker.Pass(t.Context()); !errors.Is(err, records.ErrUnavailable) {
		t.Errorf("%v, want the error of the one", err)
	}
	w.launched(1)
}
