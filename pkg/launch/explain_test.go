package launch_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

func (w *world) explained(denial holdfast.Denial) launch.Explanation {
	w.t.Helper()
	if err := w.decisions.Flush(w.ctx); err != nil {
		w.t.Fatal(err)
	}
	return must(w.Explain(w.ctx, viewer, denial.DecisionID))(w.t)
}

// The change that an explanation names is enough, and anything less is not.
func TestTheChangeThatIsNamedIsTheSmallestThatAdmits(t *testing.T) {
	for name, c := range map[string]struct {
		before        teams.Limits
		reason        holdfast.DenyReason
		change        string
		less, enough  teams.Limits
		reserved      holdfast.Slots
		held, refused string // bots
	}{
		"slots": {
			before: teams.Limits{MaxConcurrentRuns: slots(2)}, reserved: 1, reason: holdfast.DenyConcurrency, change: "from 2 slots to 3 slots",
			less: teams.Limits{MaxConcurrentRuns: slots(2)}, enough: teams.Limits{MaxConcurrentRuns: slots(3)}, held: "probe", refused: "feature-dev",
		},
		"runs of the month": {
			before: teams.Limits{MonthlyRuns: slots(1)}, reason: holdfast.DenyMonthlyRuns, change: "from 1 run to 2 runs",
			less: teams.Limits{MonthlyRuns: slots(1)}, enough: teams.Limits{MonthlyRuns: slots(2)}, held: "probe", refused: "probe",
		},
		"dollars": { // feature-dev asks for 3 dollars, at least 0.30
			before: teams.Limits{MonthlyUSD: usdLimit(3.1)}, reason: holdfast.DenyMonthlyUSD, change: "from $3.10 to $3.30",
			less: teams.Limits{MonthlyUSD: usdLimit(3.299999)}, enough: teams.Limits{MonthlyUSD: usdLimit(3.3)}, held: "feature-dev", refused: "feature-dev",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.team("acme", c.before)
			w.policy(reviews(c.reserved, 0))
			w.admitted(ask(c.held))
			e := w.explained(w.refused(ask(c.refused), c.reason))
			if !strings.Contains(e.Change, c.change) {
				t.Errorf("the change is %q, want one %s", e.Change, c.change)
			}
			w.team("acme", c.less)
			w.refused(ask(c.refused), c.reason)
			w.team("acme", c.enough)
			w.admitted(ask(c.refused))
		})
	}
}

// Each refusal says when it can fit at the earliest, and then it does.
func TestTheEarliestTimeIsWhenItFits(t *testing.T) {
	t.Run("the rate refills", func(t *testing.T) {
		w := newWorld(t)
		w.team("acme", teams.Limits{LaunchesPerMinute: slots(1)})
		w.admitted(ask("probe"))
		w.clock.Advance(15 * time.Second)
		e := w.explained(w.refused(ask("probe"), holdfast.DenyLaunchRate))
		if want := w.clock.Now().Add(45 * time.Second); !e.Earliest.Equal(want) {
			t.Fatalf("the earliest is %s, want %s", e.Earliest, want)
		}
		w.clock.Set(e.Earliest.Add(-time.Millisecond))
		w.refused(ask("probe"), holdfast.DenyLaunchRate)
		w.clock.Set(e.Earliest)
		w.admitted(ask("probe"))
	})
	t.Run("the month begins anew", func(t *testing.T) {
		w := newWorld(t)
		w.team("acme", teams.Limits{MonthlyRuns: slots(1)})
		w.admitted(ask("probe"))
		e := w.explained(w.refused(ask("probe"), holdfast.DenyMonthlyRuns))
		w.clock.Set(e.Earliest.Add(-time.Second))
		w.refused(ask("probe"), holdfast.DenyMonthlyRuns)
		w.clock.Set(e.Earliest)
		w.admitted(ask("probe"))
	})
	t.Run("the maintenance fence lifts itself", func(t *testing.T) {
		w := newWorld(t)
		w.maintenance(platformcfg.Maintenance{On: true, Until: w.clock.Now().Add(time.Hour)})
		e := w.explained(w.refused(ask("probe"), holdfast.DenyMaintenance))
		w.clock.Set(e.Earliest)
		w.admitted(ask("probe"))
	})
	t.Run("the oldest lease ends and its holder is dead", func(t *testing.T) {
		w := newWorld(t)
		w.team("acme", teams.Limits{MaxConcurrentRuns: slots(1)})
		run := w.admitted(ask("probe"))
		w.started(run.ID) // and is never heard of again
		e := w.explained(w.refused(ask("probe"), holdfast.DenyConcurrency))
		if want := w.clock.Now().Add(lease + 15*time.Second); !e.Earliest.Equal(want) {
			t.Fatalf("the earliest is %s, want %s", e.Earliest, want)
		}
		w.clock.Set(e.Earliest)
		w.sweep()
		w.refused(ask("probe"), holdfast.DenyConcurrency)
		w.clock.Advance(time.Second)
		w.sweep()
		w.admitted(ask("probe"))
	})
	t.Run("what can never fit", func(t *testing.T) {
		w := newWorld(t)
		w.team("acme", teams.Limits{MaxConcurrentRuns: slots(0)})
		if e := w.explained(w.refused(ask("probe"), holdfast.DenyConcurrency)); !e.Earliest.IsZero() || e.Until != "waiting does not help" {
			t.Errorf("the earliest is %s, until %q", e.Earliest, e.Until)
		}
	})
}

// Who held what when it was refused is told as it was then, and the arithmetic is in
// the checks and nowhere else.
func TestARefusalTellsWhoHeldWhatAtThatInstant(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(3)})
	w.policy(reviews(2, 0))
	run := w.admitted(ask("feature-dev"))
	denial := w.refused(ask("probe"), holdfast.DenyConcurrency)
	grant := w.started(run.ID)
	w.apply(w.ended(run.ID, grant.Attempt, 1, "finished"))
	e := w.explained(denial)
	story := strings.Join(e.Summary, "\n")
	for _, part := range []string{"platform/feature-dev held 1 slot", "platform/review-pr held 0 slots of the 2 slots reserved for it", "because the rest is reserved (capacity_reserved)", "What comes behind that check was not judged"} {
		if !strings.Contains(story, part) {
			t.Errorf("the story lacks %q:\n%s", part, story)
		}
	}
	if strings.Contains(story, "the cap is") || strings.Contains(story, "asked;") {
		t.Errorf("the story repeats the arithmetic:\n%s", story)
	}
	if last := e.Decision.Checks[len(e.Decision.Checks)-1]; last.Figures == nil || last.Figures.Outstanding != 1 || last.Figures.Withheld != 2 {
		t.Errorf("the arithmetic is %+v", last)
	}
	if e.Capacity[0].Outstanding.Int() != 0 {
		t.Error("the subject is not shown as it is now")
	}
}

// A run that was lost says whether, when and at which of its bot's retries it comes back.
func TestALostRunSaysHowItComesBack(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("probe"))
	grant := w.started(run.ID)
	w.apply(w.ended(run.ID, grant.Attempt, 0.01, queue.EndInterrupted))
	due := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		retries int
		retry   runs.Retry
		want    string // empty: nothing is said of it
	}{
		"its bot has no retries":       {0, runs.Retry{}, ""},
		"nobody looked at it yet":      {2, runs.Retry{}, "It comes back by itself (retry 1 of 2)."},
		"it waits":                     {2, runs.Retry{Tries: 1, NotBefore: due}, "It comes back by itself, at 2026-12-01T08:00:00Z at the earliest (retry 2 of 2)."},
		"it was refused":               {2, runs.Retry{Refusals: 3, NotBefore: due, Last: "capacity"}, "at the earliest (retry 1 of 2); it was last refused by capacity, which consumes no retry."},
		"its retries are over":         {2, runs.Retry{Tries: 2}, ""},
		"it was given up":              {2, runs.Retry{GivenUp: "unknown_bot"}, "It does not come back by itself any more: unknown_bot."},
		"its wait is that of the past": {0, runs.Retry{NotBefore: due}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := w.Runs.Update(w.ctx, run.ID, func(r *runs.Run) error {
				r.Bot.Retries, r.Retry = c.retries, c.retry
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			story := strings.Join(must(w.Explain(w.ctx, viewer, string(run.ID)))(t).Summary, "\n")
			if c.want == "" && strings.Contains(story, "by itself") || !strings.Contains(story, c.want) {
				t.Errorf("the story lacks %q:\n%s", c.want, story)
			}
		})
	}
}
