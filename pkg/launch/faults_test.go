package launch_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// K1: a policy that cannot be read, one that is not there, one that is stale and one
// that is wrong are four observations at the gate, for an ordinary launch at the cap
// less the reserve.
func TestAFailedReadIsNotNoPolicy(t *testing.T) {
	full := func() *world {
		w := newWorld(t)
		w.team("acme", teams.Limits{MaxConcurrentRuns: slots(2)})
		return w
	}
	observed := func(w *world) string {
		run, denial, err := w.Launch(w.ctx, member, ask("probe"))
		return fmt.Sprintf("%d holds, unheld %q, denied %q %q, error %v, never %d, stale %d, open %d", len(run.Holds), run.Unheld, denial.Reason, denial.Cause, err,
			w.count("policy never: gate"), w.count("policy stale: gate"), w.count("failed open: policy"))
	}
	cold := full()
	cold.db.set(func(c, _, id string) error {
		if c == "settings" && id == "budget-floor" {
			return errors.New("down")
		}
		return nil
	})
	warm := full()
	warm.policy(reviews(2, 0))
	warm.refused(ask("probe"), holdfast.DenyConcurrency)
	warm.clock.Advance(time.Minute)
	warm.db.fail("settings", "get")
	wrong := full()
	wrong.policy(reviews(2, 0))
	stored := must(wrong.settings.BudgetFloor.Read(wrong.ctx))(t).Value
	stored.Reservations = append(stored.Reservations, stored.Reservations...)
	if _, err := wrong.settings.BudgetFloor.Write(wrong.ctx, stored, "test"); err == nil {
		t.Error("a policy that reserves twice for one was written")
	}
	for name, c := range map[string]struct {
		w    *world
		want string
	}{
		"cold and unreadable": {cold, `0 holds, unheld "policy_never_read", denied "" "", error <nil>, never 1, stale 0, open 1`},
		"warm and unreadable": {warm, `0 holds, unheld "", denied "concurrency_cap_exceeded" "capacity_reserved", error <nil>, never 0, stale 1, open 0`},
		"not there":           {full(), `3 holds, unheld "", denied "" "", error <nil>, never 0, stale 0, open 0`},
		"wrong, and refused":  {wrong, `0 holds, unheld "", denied "concurrency_cap_exceeded" "capacity_reserved", error <nil>, never 0, stale 0, open 0`},
	} {
		if got := observed(c.w); got != c.want {
			t.Errorf("%s:\n%s; want\n%s", name, got, c.want)
		}
	}
}

// J5: a team's bot, another team's and the platform's of one name are three tallies,
// and none of them uses up another's reserve.
func TestOneNameIsThreeTallies(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{})
	w.team("globex", teams.Limits{})
	w.team("initech", teams.Limits{})
	w.own("acme", "review")
	w.own("globex", "review")
	w.own("", "review")
	w.limits(platformcfg.LimitsSetting{Platform: platformcfg.PlatformLimits{MaxConcurrentRuns: slots(5)}})
	w.policy(budgetfloor.Policy{Reservations: []budgetfloor.Reservation{{Bot: "review", ConcurrentRuns: 3}}})
	for _, team := range []holdfast.TeamID{"acme", "globex"} {
		if _, denial := w.launchAs(operator, askOf(string(team), "review")); denial.Denied() {
			t.Fatalf("%s is denied %q", team, denial.Reason)
		}
	}
	if _, denial := w.launchAs(operator, askOf("acme", "review")); denial.Cause != holdfast.CauseReserved {
		t.Errorf("a team's bot on the platform's band is denied %q because of %q", denial.Reason, denial.Cause)
	}
	for range 3 {
		if identity, denial := w.launchAs(operator, askOf("initech", "review")); denial.Denied() || identity != holdfast.PlatformBot("review") {
			t.Errorf("%s is denied %q", identity, denial.Reason)
		}
	}
	tallies := map[holdfast.Identity]int64{}
	for _, h := range w.balance(holdfast.PlatformSubject(holdfast.AxisSlots, "")).Holders {
		tallies[h.Holder] = h.Outstanding
	}
	want := map[holdfast.Identity]int64{holdfast.TeamBot("acme", "review"): 1, holdfast.TeamBot("globex", "review"): 1, holdfast.PlatformBot("review"): 3}
	if fmt.Sprint(tallies) != fmt.Sprint(want) {
		t.Errorf("the tallies are %v, want %v", tallies, want)
	}
}

// N2, K5: what the board shows as free is what the preview says remains and what the
// launch is judged by, in any state.
func TestTheBoardThePreviewAndTheGateAgree(t *testing.T) {
	const seed = 155
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, seed))
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(6), MonthlyUSD: usdLimit(40), LaunchesPerMinute: slots(600)})
	w.organisation("eu", teams.Limits{MaxConcurrentRuns: slots(7), MonthlyUSD: usdLimit(30)}, "acme", "globex")
	w.policy(budgetfloor.Policy{Reservations: []budgetfloor.Reservation{{Bot: "review-pr", ConcurrentRuns: 2, MonthlyUSD: usd(6)}}})
	var live []holdfast.RunID
	verdicts := map[bool]int{}
	for range 300 {
		team, bot := []string{"acme", "globex"}[random.IntN(2)], []string{"probe", "feature-dev", "review-pr"}[random.IntN(3)]
		r := askOf(team, bot)
		preview := must(w.Preview(w.ctx, operator, r))(t)
		free := map[holdfast.Subject]holdfast.Limit{}
		for _, view := range must(w.Capacity(w.ctx, operator, team))(t) {
			free[view.Subject] = view.Free
		}
		for _, check := range preview.Checks {
			if check.Figures == nil || bot == "review-pr" || check.Figures.Cap == nil {
				continue
			}
			if shown := free[check.Subject]; shown.Max().Int() != max(0, check.Figures.Remaining) {
				t.Fatalf("the board shows %s free on %s, the preview %d", shown, check.Subject, check.Figures.Remaining)
			}
		}
		run, denial, err := w.Launch(w.ctx, operator, r)
		if err != nil || denial.Denied() == preview.Admitted || denial.Subject != preview.Denial.Subject || (preview.Admitted && run.Budget != preview.Budget) {
			t.Fatalf("previewed %v with %s (%s), launched with %s, denied %q on %s, error %v", preview.Admitted, preview.Budget, preview.Denial.Subject, run.Budget, denial.Reason, denial.Subject, err)
		}
		verdicts[denial.Denied()]++
		if run.ID != "" {
			live = append(live, run.ID)
		}
		if len(live) > 0 && random.IntN(3) > 0 {
			at := random.IntN(len(live))
			grant := w.started(live[at])
			w.apply(w.ended(live[at], grant.Attempt, float64(random.IntN(80))/100, queue.EndFinished))
			live = append(live[:at], live[at+1:]...)
		}
		w.clock.Advance(time.Second)
	}
	if verdicts[true] < 30 || verdicts[false] < 30 {
		t.Errorf("only %d were refused and %d admitted", verdicts[true], verdicts[false])
	}
}

// 295: a cap that others hold whole denies, on every axis; it never becomes "no
// limit", and no grant is of nothing.
func TestACapThatIsHeldWholeDenies(t *testing.T) {
	for name, c := range map[string]struct {
		limits teams.Limits
		policy budgetfloor.Policy
		reason holdfast.DenyReason
	}{
		"slots":   {teams.Limits{MaxConcurrentRuns: slots(2)}, reviews(2, 0), holdfast.DenyConcurrency},
		"dollars": {teams.Limits{MonthlyUSD: usdLimit(6)}, reviews(0, 6), holdfast.DenyMonthlyUSD},
		"runs":    {teams.Limits{MonthlyRuns: slots(0)}, budgetfloor.Policy{}, holdfast.DenyMonthlyRuns},
	} {
		w := newWorld(t)
		w.team("acme", c.limits)
		w.policy(c.policy)
		if denial := w.refused(ask("probe"), c.reason); denial.Remaining.Int() > 0 {
			t.Errorf("%s: %s remains", name, denial.Remaining)
		}
		w.held(0, 0, 0, 0, 0)
	}
}

// 297: what could not be given back is told, and its lease gives it back.
func TestACompensationThatFailsIsToldAndRepaired(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(1), MonthlyRuns: slots(0)})
	w.store.fail("close", holdfast.AxisSlots)
	w.refused(ask("probe"), holdfast.DenyMonthlyRuns)
	if w.count("undo failed") != 1 || w.slotsOf("acme") != 1 {
		t.Fatalf("told %d times, %d slots held", w.count("undo failed"), w.slotsOf("acme"))
	}
	w.store.set(nil)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(1)})
	w.refused(ask("probe"), holdfast.DenyConcurrency)
	w.clock.Advance(time.Minute)
	w.sweep()
	w.admitted(ask("probe"))
}

// 301: the last report of a run, delivered again and by several at once, settles
// once.
func TestARedeliveredEndSettlesOnce(t *testing.T) {
	w := newWorld(t)
	w.organisation("eu", teams.Limits{MonthlyUSD: usdLimit(9)}, "acme")
	run := w.admitted(ask("feature-dev"))
	grant := w.started(run.ID)
	end := w.ended(run.ID, grant.Attempt, 1.5, queue.EndFinished)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			if err := w.Apply(w.ctx, end); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	w.held(0, 0, 1.5, 0, 1)
	if b := w.balance(holdfast.OrgSubject("eu", holdfast.AxisUSD, w.month())); b.Settled != int64(usd(1.5)) || b.Outstanding != 0 {
		t.Errorf("the organisation has %+v", b)
	}
}

// 302: one launch that is made twice at once, as by a delivery that came twice, is one
// run. The losers give their rate tokens back exactly once, and nothing of what the
// winner holds.
func TestOneRunLaunchedTwiceAtOnceIsOneRun(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(3), MonthlyUSD: usdLimit(9), MonthlyRuns: slots(9)})
	service, rates := w.rated()
	r := ask("feature-dev")
	r.Run = w.runs.NewID(w.clock.Now())
	const callers = 16
	var mu sync.Mutex
	var wait sync.WaitGroup
	won := 0
	for range callers {
		wait.Go(func() {
			run, denial, err := service.Launch(w.ctx, auth.Principal{Name: "webhook", Team: "acme", Role: auth.Member}, r)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && !denial.Denied() && run.ID == r.Run:
				won++
			case denial.Denied():
				t.Errorf("denied %q", denial.Reason)
			}
		})
	}
	wait.Wait()
	if won != 1 || rates.taken != callers || rates.back != callers-1 {
		t.Errorf("%d won; %d tokens taken, %d given back", won, rates.taken, rates.back)
	}
	w.held(1, 3, 0, 0, 1)
	run := w.status(r.Run, runs.Queued, "")
	for _, hold := range run.Holds {
		if a, err := w.ledger.Get(w.ctx, hold.ID); err != nil || (a.Outcome != capacityledger.Open && hold.Subject.Axis != holdfast.AxisRuns) {
			t.Errorf("%s is %+v, error %v", hold.ID, a, err)
		}
	}
	if messages := w.queue.All(); len(messages) != 1 {
		t.Errorf("%d messages", len(messages))
	}
	w.finished(run, 2)
	w.held(0, 0, 2, 0, 1)
}

// 142: a quota that is a share is of the reservation of that tier, where one name is
// reserved in both.
func TestAShareIsOfTheReservationOfItsTier(t *testing.T) {
	w := newWorld(t)
	w.policy(budgetfloor.Policy{
		Reservations: []budgetfloor.Reservation{
			{Bot: "review-pr", MonthlyUSD: usd(100)},
			{Bot: "review-pr", Tier: holdfast.TierTeam, Team: "acme", MonthlyUSD: usd(4)},
		},
		RepoQuotas: []budgetfloor.RepoQuota{
			{Repo: "acme/wide", ReserveSharePercent: 50, ShareOf: &budgetfloor.ShareOf{Bot: "review-pr"}},
			{Repo: "acme/narrow", ReserveSharePercent: 50, ShareOf: &budgetfloor.ShareOf{Bot: "review-pr", Tier: holdfast.TierTeam, Team: "acme"}},
		},
	})
	in := func(repo string) launch.Request { r := ask("feature-dev"); r.Repo = repo; return r }
	w.admitted(in("acme/narrow")) // 3 dollars are promised of 2
	if denial := w.refused(in("acme/narrow"), holdfast.DenyRepoQuota); denial.Cap.Max().Int() != int64(usd(2)) {
		t.Errorf("the share is %s, want $2.00", denial.Cap)
	}
	w.admitted(in("acme/wide"))
	w.admitted(in("acme/wide"))
}
