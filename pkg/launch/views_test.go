package launch_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// A preview is what the launch then gets, and takes nothing.
func TestAPreviewIsWhatTheLaunchGets(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(4), MonthlyUSD: usdLimit(8), LaunchesPerMinute: slots(6)})
	w.policy(reviews(2, 2))
	for i, bot := range []string{"feature-dev", "feature-dev", "feature-dev", "review-pr", "review-pr", "review-pr", "probe"} {
		before := w.footprint()
		preview := must(w.Preview(w.ctx, member, ask(bot)))(t)
		if diff := cmp.Diff(before, w.footprint()); diff != "" {
			t.Fatalf("preview %d took something: %s", i, diff)
		}
		run, denial, err := w.Launch(w.ctx, member, ask(bot))
		if err != nil {
			t.Fatal(err)
		}
		if preview.Admitted == denial.Denied() || preview.Denial.Reason != denial.Reason || preview.Denial.Cause != denial.Cause || preview.Budget != run.Budget {
			t.Errorf("%d %s: previewed %v %q %s, launched %q %s", i, bot, preview.Admitted, preview.Denial.Reason, preview.Budget, denial.Reason, run.Budget)
		}
		if !denial.Denied() && preview.Identity != run.Identity {
			t.Errorf("previewed as %s, launched as %s", preview.Identity, run.Identity)
		}
	}
}

// A preview shows the arithmetic of every capacity check, also behind one that refuses.
func TestAPreviewShowsAllTheArithmetic(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(0), MonthlyUSD: usdLimit(8)})
	preview := must(w.Preview(w.ctx, member, ask("feature-dev")))(t)
	var names []string
	for _, c := range preview.Checks {
		names = append(names, c.Name+" "+string(c.Verdict))
	}
	want := []string{"maintenance pass", "membership pass", "role pass", "team pass", "repo-quota pass", "launch-rate pass", "resolution pass", "concurrency deny", "monthly pass", "monthly pass"}
	if diff := cmp.Diff(want, names); diff != "" || preview.Admitted || preview.Denial.Reason != holdfast.DenyConcurrency {
		t.Errorf("denied %q: %s", preview.Denial.Reason, diff)
	}
}

func TestTheBoardShowsWhoHoldsWhat(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(4), MonthlyUSD: usdLimit(50)})
	w.policy(reviews(2, 0))
	w.admitted(ask("review-pr"))
	w.admitted(ask("feature-dev"))
	views := must(w.Capacity(w.ctx, viewer, ""))(t)
	if len(views) != 3 {
		t.Fatalf("%d subjects, want slots, dollars and runs", len(views))
	}
	s := views[0]
	if s.Subject.String() != "team/acme/slots" || s.Outstanding.Int() != 2 || s.Withheld.Int() != 1 || s.Free.Max().Int() != 1 || !s.Over.IsZero() || s.NextExpiry.IsZero() {
		t.Errorf("slots are %+v", s)
	}
	got := map[string][3]int64{}
	for _, h := range s.Holders {
		got[h.Holder.String()] = [3]int64{h.Reserved.Int(), h.Outstanding.Int(), h.FreeFor.Max().Int()}
	}
	want := map[string][3]int64{"platform/review-pr": {2, 1, 2}, "platform/feature-dev": {0, 1, 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if runs := views[2]; !runs.Cap.None() || !runs.Free.None() || runs.Settled.Int() != 2 {
		t.Errorf("runs of the month are %+v", runs)
	}
}

// A lowered cap stops nobody; the overhang is shown, and free is never negative (B5).
func TestALoweredCapShowsTheOverhang(t *testing.T) {
	w := newWorld(t)
	for range 5 {
		w.admitted(ask("probe"))
	}
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(3)})
	view := must(w.CapacitySubject(w.ctx, member, holdfast.TeamSubject("acme", holdfast.AxisSlots, "")))(t)
	if view.Over.Int() != 2 || view.Free.Max().Int() != 0 || len(view.Entries) != 5 || view.Entries[0].Team != "acme" {
		t.Errorf("slots are %+v", view)
	}
	for range 10 {
		w.refused(ask("probe"), holdfast.DenyConcurrency)
	}
}

// What spans teams is shown to everybody, and other teams' bots only as a total.
func TestATeamSeesItsOwnAndTotalsOfTheRest(t *testing.T) {
	w := newWorld(t)
	w.team("globex", teams.Limits{})
	w.limits(platformcfg.LimitsSetting{Platform: platformcfg.PlatformLimits{MaxConcurrentRuns: slots(4)}})
	w.policy(budgetfloor.Policy{Reservations: []budgetfloor.Reservation{
		{Bot: "secret", Tier: holdfast.TierTeam, Team: "globex", ConcurrentRuns: 1},
		{Bot: "other", Tier: holdfast.TierTeam, Team: "globex", ConcurrentRuns: 1},
	}})
	for _, team := range []holdfast.TeamID{"acme", "globex"} {
		if _, _, err := w.bots.Put(w.ctx, w.clock.Now(), team, holdfast.Bot{Name: "secret", Lane: holdfast.LaneCommand, Command: []string{"true"}}, "test"); err != nil {
			t.Fatal(err)
		}
	}
	r := ask("secret")
	w.admitted(r)
	r.Team = "globex"
	if _, denial, err := w.Launch(w.ctx, stranger, r); err != nil || denial.Denied() {
		t.Fatalf("denied %q, error %v", denial.Reason, err)
	}
	all := holdfast.PlatformSubject(holdfast.AxisSlots, "")
	names := func(who auth.Principal) string {
		view := must(w.CapacitySubject(w.ctx, who, all))(t)
		var out []string
		for _, h := range view.Holders {
			out = append(out, h.Holder.String()+"="+h.Outstanding.String())
		}
		if (len(view.Entries) > 0) != who.Operator {
			t.Errorf("%s sees %d entries", who.Name, len(view.Entries))
		}
		return strings.Join(out, " ")
	}
	if got, want := names(operator), "team:globex/secret=1 slot team:globex/other=0 slots team:acme/secret=1 slot"; got != want {
		t.Errorf("the operator sees %q, want %q", got, want)
	}
	if got, want := names(member), "team:acme/secret=1 slot =1 slot"; got != want {
		t.Errorf("a team sees %q, want %q", got, want)
	}
	w.admitted(ask("secret"))
	denial := w.refused(ask("secret"), holdfast.DenyConcurrency)
	for _, h := range denial.Holders {
		if h.Holder.Team() == "globex" {
			t.Errorf("the refusal names %s", h.Holder)
		}
	}
	if _, err := w.Capacity(w.ctx, member, "globex"); !errors.Is(err, launch.ErrNotFound) {
		t.Errorf("another team's board: %v", err)
	}
	if _, err := w.CapacitySubject(w.ctx, member, holdfast.TeamSubject("globex", holdfast.AxisSlots, "")); !errors.Is(err, launch.ErrNotFound) {
		t.Errorf("another team's subject: %v", err)
	}
	if views := must(w.Capacity(w.ctx, operator, ""))(t); len(views) != 7 {
		t.Errorf("the operator sees %d subjects, want three of each team and the platform's", len(views))
	}
}

func TestARefusalIsExplainedWithTheWayOut(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(3), MonthlyUSD: usdLimit(4)})
	w.policy(reviews(2, 0))
	run := w.admitted(ask("feature-dev"))
	held := w.refused(ask("feature-dev"), holdfast.DenyConcurrency)
	w.policy(budgetfloor.Policy{})
	w.clock.Advance(31e9)
	r := ask("feature-dev")
	r.MinBudgetUSD = ptr(usd(2))
	poor := w.refused(r, holdfast.DenyMonthlyUSD)
	if err := w.decisions.Flush(w.ctx); err != nil {
		t.Fatal(err)
	}

	e := must(w.Explain(w.ctx, viewer, held.DecisionID))(t)
	if want := "raise the cap of team/acme/slots from 3 slots to 4 slots, or reserve 1 slot less for others (or lend it out: holdfast policy suspend)"; e.Change != want || e.Until == "" || len(e.Capacity) != 1 {
		t.Errorf("change %q, until %q", e.Change, e.Until)
	}
	e = must(w.Explain(w.ctx, viewer, poor.DecisionID))(t)
	if want := "raise the cap of team/acme/usd@2026-03 from $4.00 to $5.00, or accept $1.00 (min_budget_usd)"; e.Change != want || !e.Earliest.Equal(holdfast.MonthEnd(w.clock.Now())) {
		t.Errorf("change %q, earliest %s", e.Change, e.Earliest)
	}
	e = must(w.Explain(w.ctx, viewer, string(run.ID)))(t)
	story := strings.Join(e.Summary, "\n")
	for _, part := range []string{"asked to launch platform/feature-dev", "admitted as run", "it was queued"} {
		if !strings.Contains(story, part) {
			t.Errorf("the story lacks %q:\n%s", part, story)
		}
	}
	if e.Run == nil || e.Decision == nil || len(e.Capacity) != 3 {
		t.Errorf("explained with %+v", e)
	}
	for _, id := range []string{string(run.ID), held.DecisionID, "nothing"} {
		if _, err := w.Explain(w.ctx, stranger, id); !errors.Is(err, launch.ErrNotFound) {
			t.Errorf("a stranger asks for %s: %v", id, err)
		}
	}
}
