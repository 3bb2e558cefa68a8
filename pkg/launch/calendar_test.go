package launch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// finished brings a run to its end.
func (w *world) finished(run runs.Run, spent float64) {
	w.t.Helper()
	grant := w.started(run.ID)
	w.apply(w.ended(run.ID, grant.Attempt, spent, queue.EndFinished))
}

// H1: a month is the calendar's, in a common year and in a leap year: what is used is
// used until its last millisecond, and the next month's first instant begins anew;
// twelve times a year.
func TestAMonthIsTheCalendars(t *testing.T) {
	for _, year := range []int{2027, 2028, 2100} { // common, leap, and common though divisible by four
		w := newWorld(t)
		w.team("acme", teams.Limits{MonthlyRuns: slots(1), MonthlyUSD: usdLimit(1)})
		w.clock.Set(time.Date(year, time.January, 10, 12, 0, 0, 0, time.UTC))
		periods := map[string]bool{}
		for month := range 12 {
			w.finished(w.admitted(ask("probe")), 0.01)
			periods[w.month()] = true
			next := time.Date(year, time.January+time.Month(month)+1, 1, 0, 0, 0, 0, time.UTC)
			w.clock.Set(next.Add(-time.Millisecond))
			if denial := w.refused(ask("probe"), holdfast.DenyMonthlyRuns); !denial.ResetAt.Equal(next) {
				t.Fatalf("%s resets at %s, want %s", w.month(), denial.ResetAt, next)
			}
			w.clock.Set(next)
		}
		if len(periods) != 12 {
			t.Errorf("%d has %d periods: %v", year, len(periods), periods)
		}
	}
}

// H3 and summer time: a month is named in UTC, whatever zone the clock reads in and
// whether its offset changes in between.
func TestTheZoneOfTheClockChangesNoMonth(t *testing.T) {
	east, west := time.FixedZone("east", 14*3600), time.FixedZone("west", -12*3600)
	winter, summer := time.FixedZone("CET", 3600), time.FixedZone("CEST", 2*3600)
	for name, c := range map[string]struct {
		at   time.Time
		want string
	}{
		"far east, last evening":        {time.Date(2026, 3, 31, 23, 30, 0, 0, east), "2026-03"},
		"far east, first morning":       {time.Date(2026, 4, 1, 0, 30, 0, 0, east), "2026-03"},
		"far west, last noon":           {time.Date(2026, 3, 31, 12, 0, 0, 0, west), "2026-04"},
		"before summer time":            {time.Date(2026, 3, 29, 1, 59, 59, 0, winter), "2026-03"},
		"the hour that does not exist":  {time.Date(2026, 3, 29, 3, 0, 0, 0, summer), "2026-03"},
		"the hour that is there twice":  {time.Date(2026, 10, 25, 2, 30, 0, 0, summer), "2026-10"},
		"and its second time":           {time.Date(2026, 10, 25, 2, 30, 0, 0, winter), "2026-10"},
		"summer time, the month's end":  {time.Date(2026, 10, 1, 1, 59, 59, 0, summer), "2026-09"},
		"summer time, the month's turn": {time.Date(2026, 10, 1, 2, 0, 0, 0, summer), "2026-10"},
		"the leap day":                  {time.Date(2028, 2, 29, 23, 59, 59, 0, time.UTC), "2028-02"},
	} {
		w := newWorld(t)
		w.clock.Set(c.at)
		run := w.admitted(ask("probe"))
		for _, hold := range run.Holds {
			if hold.Subject.Period != "" && hold.Subject.Period != c.want {
				t.Errorf("%s: %s, want %s", name, hold.Subject, c.want)
			}
		}
		w.finished(run, 0.02)
		if b := w.balance(holdfast.TeamSubject("acme", holdfast.AxisUSD, c.want)); b.Settled != 20_000 || b.Outstanding != 0 {
			t.Errorf("%s: %d settled, %d outstanding", name, b.Settled, b.Outstanding)
		}
	}
}

// H5: what was taken in March is settled in March, on the team's, its organisation's
// and the platform's subject alike; April begins empty, and nothing is in both.
func TestAHoldIsSettledInTheMonthThatAdmittedItOnEveryOwner(t *testing.T) {
	twins(t, func(t *testing.T, w *world) {
		w.clock.Set(time.Date(2026, time.March, 31, 23, 50, 0, 0, time.UTC))
		w.team("acme", teams.Limits{MonthlyUSD: usdLimit(20)})
		w.organisation("eu", teams.Limits{MonthlyUSD: usdLimit(20)}, "acme")
		r := ask("no-budget")
		r.BudgetUSD = ptr(usd(20))
		if _, _, err := w.bots.Put(w.ctx, w.clock.Now(), "acme", holdfast.Bot{Name: "no-budget", Lane: holdfast.LaneCommand, Command: []string{"true"}}, "test"); err != nil {
			t.Fatal(err)
		}
		march := w.admitted(r)
		w.started(march.ID)
		w.refused(r, holdfast.DenyMonthlyUSD)
		w.clock.Set(time.Date(2026, time.April, 1, 0, 5, 0, 0, time.UTC))
		april := w.admitted(r)
		w.clock.Set(time.Date(2026, time.April, 1, 0, 10, 0, 0, time.UTC))
		w.apply(w.ended(march.ID, 1, 18, queue.EndFinished))
		must(w.Cancel(w.ctx, member, april.ID))(t)
		for _, subject := range []func(string) holdfast.Subject{
			func(month string) holdfast.Subject { return holdfast.TeamSubject("acme", holdfast.AxisUSD, month) },
			func(month string) holdfast.Subject { return holdfast.OrgSubject("eu", holdfast.AxisUSD, month) },
		} {
			for month, want := range map[string]float64{"2026-03": 18, "2026-04": 0} {
				if b := w.balance(subject(month)); b.Settled != int64(usd(want)) || b.Outstanding != 0 {
					t.Errorf("%s: %d settled, %d outstanding, want %v", subject(month), b.Settled, b.Outstanding, want)
				}
			}
		}
	})
}

// A clock that jumps back fills no rate twice, ends nobody who lives, and loses or
// doubles no hold: a run settles on the subjects that it holds, whatever month the
// clock says it is.
func TestAClockThatJumpsBackLosesAndDoublesNothing(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{LaunchesPerMinute: slots(2), MonthlyRuns: slots(2)})
	start := time.Date(2026, time.April, 1, 0, 0, 10, 0, time.UTC)
	w.clock.Set(start)
	first := w.admitted(ask("probe"))
	w.started(first.ID)
	w.admitted(ask("probe"))
	w.clock.Set(start.Add(-time.Hour)) // March again
	w.refused(ask("probe"), holdfast.DenyLaunchRate)
	w.sweep()
	w.status(first.ID, runs.Running, "")
	w.clock.Set(start.Add(29 * time.Second))
	w.refused(ask("probe"), holdfast.DenyLaunchRate)
	w.clock.Set(start.Add(30 * time.Second))
	w.refused(ask("probe"), holdfast.DenyMonthlyRuns) // the rate has one again; April's two are used
	w.clock.Set(start.Add(-time.Minute))
	w.apply(w.ended(first.ID, 1, 0.01, queue.EndFinished))
	got := fmt.Sprintf("March %d+%d, April %d+%d",
		w.balance(holdfast.TeamSubject("acme", holdfast.AxisRuns, "2026-03")).Settled, w.balance(holdfast.TeamSubject("acme", holdfast.AxisUSD, "2026-03")).Settled,
		w.balance(holdfast.TeamSubject("acme", holdfast.AxisRuns, "2026-04")).Settled, w.balance(holdfast.TeamSubject("acme", holdfast.AxisUSD, "2026-04")).Settled)
	if want := "March 0+0, April 2+10000"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}
