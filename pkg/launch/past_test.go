package launch_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

func TestAnExplanationTellsEveryAttemptInALineAndTheNewestInFull(t *testing.T) {
	w := newWorld(t)
	run := w.admitted(ask("feature-dev"))
	again := func() {
		t.Helper()
		if _, denial, err := w.Resume(w.ctx, member, run.ID); err != nil || denial.Denied() {
			t.Fatal(denial, err)
		}
	}
	began := w.clock.Now()
	first := w.started(run.ID)
	w.clock.Advance(time.Minute)
	w.apply(w.ended(run.ID, first.Attempt, 0.25, queue.EndInterrupted))
	again()

	w.claim(run.ID) // and its runner is never heard of
	w.clock.Advance(5 * time.Minute)
	w.sweep()
	w.started(run.ID)

	if err := w.decisions.Flush(w.ctx); err != nil {
		t.Fatal(err)
	}
	story := must(w.Explain(w.ctx, viewer, string(run.ID)))(t)
	stamp := func(at time.Time) string { return at.UTC().Format(time.RFC3339) }
	want := []string{
		stamp(began) + ": Attempt 1 ran on r1, and then the run was failed_resumable (interrupted) at " + stamp(began.Add(time.Minute)) + ", having spent $0.25.",
		"Attempt 2 was claimed by r1 and never began.",
	}
	if diff := cmp.Diff(want, story.Summary[:2]); diff != "" {
		t.Error(diff)
	}
	rest := strings.Join(story.Summary[2:], "\n")
	if !strings.Contains(rest, "asked to resume") || !strings.Contains(rest, "admitted again, with $2.75 to spend") || !strings.Contains(rest, "attempt 3 began") || strings.Contains(rest, "ttempt 1") {
		t.Errorf("the newest attempt is told as\n%s", rest)
	}
}

func TestTheAttemptsThatAreKeptAreBoundedAndTheNewest(t *testing.T) {
	var run runs.Run
	for n := range runs.MaxPast + 5 {
		run.Remember(n)
	}
	if len(run.Past) != runs.MaxPast || run.Past[0].Attempt != 5 || run.Past[runs.MaxPast-1].Attempt != runs.MaxPast+4 {
		t.Errorf("%d are kept, from %d to %d", len(run.Past), run.Past[0].Attempt, run.Past[len(run.Past)-1].Attempt)
	}
}

func TestARunSaysWhyItsBudgetIsSmallerThanWhatWasAsked(t *testing.T) {
	for name, row := range map[string]struct {
		asked  float64
		limits platformcfg.LimitsSetting
		cap    float64
		budget float64
		by     runs.Cut
		told   string
	}{
		"it is not":         {2, platformcfg.LimitsSetting{}, 100, 2, runs.CutNone, ""},
		"the bot's ceiling": {9, platformcfg.LimitsSetting{}, 100, 3, runs.CutBot, "asked for a budget of $9.00, and its bot's own is smaller"},
		"the platform's":    {9, platformcfg.LimitsSetting{MaxRunUSD: ptr(usd(1))}, 100, 1, runs.CutLimits, "asked for a budget of $9.00, and max_run_usd of the limits setting is smaller"},
		"what is free":      {2, platformcfg.LimitsSetting{}, 1.5, 1.5, runs.CutCapacity, "asked for a budget of $2.00, and no more was free"},
		"less than all":     {9, platformcfg.LimitsSetting{}, 1.5, 1.5, runs.CutCapacity, "asked for a budget of $9.00, and no more was free"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.team("acme", teams.Limits{MonthlyUSD: usdLimit(row.cap)})
			w.limits(row.limits)
			r := launch.Request{Team: "acme", Bot: "feature-dev", BudgetUSD: ptr(usd(row.asked))}
			preview := must(w.Preview(w.ctx, member, r))(t)
			run := w.admitted(r)
			if preview.Budget != run.Budget || preview.Asked != run.Asked || preview.CutBy != run.CutBy {
				t.Errorf("the preview says %+v, the run got %s of %s, cut by %q", preview, run.Budget.Dollars(), run.Asked.Dollars(), run.CutBy)
			}
			asked := holdfast.MicroUSD(0)
			if row.by != runs.CutNone {
				asked = usd(row.asked)
			}
			if run.Budget != usd(row.budget) || run.Asked != asked || run.CutBy != row.by {
				t.Errorf("a budget of %s, asked %s, cut by %q", run.Budget.Dollars(), run.Asked.Dollars(), run.CutBy)
			}
			story := strings.Join(must(w.Explain(w.ctx, viewer, string(run.ID)))(t).Summary, "\n")
			if !strings.Contains(story, row.told) || row.told == "" && strings.Contains(story, "asked for a budget") {
				t.Errorf("the story lacks %q:\n%s", row.told, story)
			}
		})
	}
}
