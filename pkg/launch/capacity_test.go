package launch_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

func TestALaunchHoldsASlotARunOfTheMonthAndItsBudget(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(3), MonthlyUSD: usdLimit(50), MonthlyRuns: slots(10)})
	run := w.admitted(ask("review_pr"))
	w.held(1, 1, 0, 0, 1)
	if run.Status != runs.Queued || run.Budget != usd(1) || run.Identity != holdfast.PlatformBot("review-pr") || len(run.Holds) != 3 {
		t.Errorf("run is %+v", run)
	}
	message := w.queue.Message(run.ID)
	if message.Budget != run.Budget || message.Identity != run.Identity || message.Publication != 1 || message.Inputs["spend"] != "0.30" {
		t.Errorf("message is %+v", message)
	}
}

// A team without limits is never refused, and what it uses is recorded all the same.
func TestATeamWithoutLimitsIsRecorded(t *testing.T) {
	w := newWorld(t)
	for range 5 {
		w.admitted(ask("feature-dev"))
	}
	w.held(5, 15, 0, 0, 5)
}

// The exact rule: only what a holder does not hold yet is withheld (308).
func TestAReserveInUseWithholdsNothingMore(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(3)})
	w.policy(reviews(2, 0))
	w.admitted(ask("review-pr"))
	w.admitted(ask("review-pr"))
	w.admitted(ask("feature-dev"))
	denial := w.refused(ask("feature-dev"), holdfast.DenyConcurrency)
	if denial.Cause != "" {
		t.Errorf("the cause is %q, but nothing is reserved that is not in use", denial.Cause)
	}
}

func TestAReserveIsHeldForItsHolder(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(3)})
	w.policy(reviews(2, 0))
	w.admitted(ask("feature-dev"))
	if denial := w.refused(ask("feature-dev"), holdfast.DenyConcurrency); denial.Cause != holdfast.CauseReserved || len(denial.Holders) != 2 {
		t.Errorf("cause %q, holders %v", denial.Cause, denial.Holders)
	}
	w.admitted(ask("review-pr"))
	w.admitted(ask("review-pr"))
	w.refused(ask("review-pr"), holdfast.DenyConcurrency)
}

// A team's own bot of the holder's name is somebody else (ADR-155 §11).
func TestATeamsBotOfTheHoldersNameIsNotTheHolder(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(2)})
	w.policy(reviews(2, 0))
	w.admitted(ask("review-pr"))
	if _, _, err := w.bots.Put(w.ctx, w.clock.Now(), "acme", holdfast.Bot{Name: "review-pr", Lane: holdfast.LaneCommand, Command: []string{"true"}}, "test"); err != nil {
		t.Fatal(err)
	}
	if denial := w.refused(ask("review-pr"), holdfast.DenyConcurrency); denial.Cause != holdfast.CauseReserved {
		t.Errorf("cause %q", denial.Cause)
	}
}

func TestWithoutAPolicyNothingIsWithheld(t *testing.T) { // B7
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(8)})
	for range 8 {
		w.admitted(ask("probe"))
	}
	w.refused(ask("probe"), holdfast.DenyConcurrency)
}

// Every subject must admit, and all or none is taken.
func TestThePlatformsSlotsAreJudgedWithTheTeams(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(5)})
	w.limits(platformcfg.LimitsSetting{Platform: platformcfg.PlatformLimits{MaxConcurrentRuns: slots(2), MonthlyUSD: usdLimit(100)}})
	w.admitted(ask("probe"))
	w.admitted(ask("probe"))
	denial := w.refused(ask("probe"), holdfast.DenyConcurrency)
	if want := holdfast.PlatformSubject(holdfast.AxisSlots, ""); denial.Subject != want {
		t.Errorf("refused by %s, want %s", denial.Subject, want)
	}
	if got := w.slotsOf("acme"); got != 2 {
		t.Errorf("the team holds %d slots after the refusal, want 2", got)
	}
}

// The smallest allowance becomes the budget, and the larger ones are corrected down
// to it (C9).
func TestThePartialGrantIsTheBudgetEverywhere(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MonthlyUSD: usdLimit(50)})
	w.limits(platformcfg.LimitsSetting{Platform: platformcfg.PlatformLimits{MonthlyUSD: usdLimit(20)}})
	r := ask("probe")
	if _, _, err := w.bots.Put(w.ctx, w.clock.Now(), "", holdfast.Bot{Name: "big", Lane: holdfast.LaneCommand, Command: []string{"true"}}, "test"); err != nil {
		t.Fatal(err)
	}
	r.Bot, r.BudgetUSD = "big", ptr(usd(30))
	run := w.admitted(r)
	if run.Budget != usd(20) || w.queue.Message(run.ID).Budget != usd(20) {
		t.Errorf("budget %s, message %s, want $20", run.Budget, w.queue.Message(run.ID).Budget)
	}
	w.held(1, 20, 0, 0, 1)
	for _, hold := range run.Holds {
		if hold.Subject.Axis == holdfast.AxisUSD && hold.Amount != int64(usd(20)) {
			t.Errorf("%s holds %d", hold.Subject, hold.Amount)
		}
	}
	if denial := w.refused(r, holdfast.DenyMonthlyUSD); denial.Subject.Kind != holdfast.KindPlatform {
		t.Errorf("refused by %s", denial.Subject)
	}
	w.held(1, 20, 0, 0, 1)
}

func TestTwoAsksOfOneMomentShareTheMoney(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MonthlyUSD: usdLimit(5)})
	first, second := w.admitted(ask("feature-dev")), w.admitted(ask("feature-dev"))
	if first.Budget != usd(3) || second.Budget != usd(2) {
		t.Errorf("budgets %s and %s, want 3 and 2", first.Budget, second.Budget)
	}
	w.refused(ask("feature-dev"), holdfast.DenyMonthlyUSD)
}

// The ask is never of nothing (C4): the least of what is set, else the default.
func TestTheAskIsResolvedByRule(t *testing.T) {
	for name, row := range map[string]struct {
		bot, budget, deflt, ceiling, want float64
	}{
		"nothing is set":                {want: 5},
		"the run's":                     {budget: 2, want: 2},
		"the bot's":                     {bot: 4, want: 4},
		"the smaller of both":           {bot: 4, budget: 7, want: 4},
		"the platform's default":        {deflt: 0.5, want: 0.5},
		"the ceiling cuts the run's":    {budget: 9, ceiling: 6, want: 6},
		"the ceiling cuts the default":  {ceiling: 2, want: 2},
		"a high ceiling raises nothing": {ceiling: 80, want: 5},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			bot := holdfast.Bot{Name: "worker", Lane: holdfast.LaneCommand, Command: []string{"true"}}
			limits := platformcfg.LimitsSetting{}
			r := ask("worker")
			if row.bot > 0 {
				bot.BudgetUSD = ptr(usd(row.bot))
			}
			if row.budget > 0 {
				r.BudgetUSD = ptr(usd(row.budget))
			}
			if row.deflt > 0 {
				limits.DefaultRunUSD = ptr(usd(row.deflt))
			}
			if row.ceiling > 0 {
				limits.MaxRunUSD = ptr(usd(row.ceiling))
			}
			w.limits(limits)
			if _, _, err := w.bots.Put(w.ctx, w.clock.Now(), "", bot, "test"); err != nil {
				t.Fatal(err)
			}
			if run := w.admitted(r); run.Budget != usd(row.want) {
				t.Errorf("budget %s, want %s", run.Budget, usd(row.want))
			}
		})
	}
}

func TestAGrantBelowTheMinimumIsARefusal(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MonthlyUSD: usdLimit(3.2)})
	w.admitted(ask("feature-dev")) // 3 of 3.20
	w.refused(ask("feature-dev"), holdfast.DenyMonthlyUSD)
	r := ask("feature-dev")
	r.MinBudgetUSD = ptr(usd(0.1))
	if run := w.admitted(r); run.Budget != usd(0.2) {
		t.Errorf("budget %s, want 0.20", run.Budget)
	}
}

// Two services over one ledger race for the last reserved slot; whichever's write
// lands first, exactly one gets it (197, 198).
func TestTwoServersRaceForTheLastSlot(t *testing.T) {
	for _, first := range []int{0, 1} {
		t.Run([]string{"the first asker lands first", "the second asker lands first"}[first], func(t *testing.T) {
			w := newWorld(t)
			w.team("acme", teams.Limits{MaxConcurrentRuns: slots(3)})
			w.policy(reviews(2, 0))
			w.admitted(ask("review-pr"))
			w.admitted(ask("feature-dev")) // one slot is left, and it is reserved for review-pr
			servers := []*launch.Service{w.replica(), w.replica()}

			// Both asks are at the store before either is let through.
			arrived, landed := make(chan chan struct{}), make(chan struct{})
			w.store.set(func(op string, subjects ...holdfast.Subject) error {
				if op == "admit" && subjects[0].Axis == holdfast.AxisSlots {
					pass := make(chan struct{})
					arrived <- pass
					<-pass
				}
				return nil
			})
			admitted := make([]bool, 2)
			ids := make([]holdfast.RunID, 2)
			var racers sync.WaitGroup
			waiting := make([]chan struct{}, 2)
			for i, server := range servers {
				racers.Go(func() {
					run, denial, err := server.Launch(w.ctx, member, ask("review-pr"))
					if err != nil {
						t.Error(err)
					}
					admitted[i], ids[i] = !denial.Denied(), run.ID
					landed <- struct{}{}
				})
				waiting[i] = <-arrived
			}
			close(waiting[first])
			<-landed
			close(waiting[1-first])
			<-landed
			racers.Wait()
			w.store.set(nil)
			if !admitted[first] || admitted[1-first] {
				t.Errorf("admitted %v; the one that landed first is %d", admitted, first)
			}
			if got := w.slotsOf("acme"); got != 3 {
				t.Errorf("%d slots are held, want 3", got)
			}
		})
	}
}

func TestACapOfNAdmitsExactlyNOf64(t *testing.T) {
	const n, callers = 7, 64
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(n), MonthlyUSD: usdLimit(1000)})
	servers := []*launch.Service{w.Service, w.replica()}
	var group sync.WaitGroup
	var mu sync.Mutex
	admitted, refused := 0, 0
	for i := range callers {
		group.Go(func() {
			_, denial, err := servers[i%2].Launch(w.ctx, member, ask("feature-dev"))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Error(err)
			case denial.Reason == holdfast.DenyConcurrency:
				refused++
			case !denial.Denied():
				admitted++
			}
		})
	}
	group.Wait()
	if admitted != n || refused != callers-n {
		t.Errorf("%d admitted and %d refused of %d, cap %d", admitted, refused, callers, n)
	}
	w.held(n, 3*n, 0, 0, n)
}

// C1: refused by one limit, charged by none.
func TestALaunchRefusedOnSlotsGivesBackItsRateToken(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{LaunchesPerMinute: slots(2), MaxConcurrentRuns: slots(1), MonthlyRuns: slots(2)})
	first := w.admitted(ask("probe"))
	for range 5 {
		w.refused(ask("probe"), holdfast.DenyConcurrency)
	}
	grant := w.started(first.ID)
	w.apply(w.ended(first.ID, grant.Attempt, 0.01, queue.EndFinished))
	w.admitted(ask("probe"))
}

// C5: dollars refused after slots and the run of the month were taken.
func TestALaunchRefusedOnDollarsGivesBackSlotAndRun(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MonthlyUSD: usdLimit(3)})
	first := w.admitted(ask("feature-dev"))
	w.refused(ask("feature-dev"), holdfast.DenyMonthlyUSD)
	w.held(1, 3, 0, 0, 1)
	grant := w.started(first.ID)
	w.apply(w.ended(first.ID, grant.Attempt, 1, queue.EndFinished))
	w.held(0, 0, 1, 0, 1)
	w.admitted(ask("feature-dev"))
}

// 199: what a refused launch took goes back at once; no sweep is waited for.
func TestARollbackReleasesTheSlot(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(1)})
	w.db.fail("runs", "insert")
	if _, _, err := w.Launch(w.ctx, member, ask("probe")); !errors.Is(err, launch.ErrUnavailable) {
		t.Fatalf("error %v", err)
	}
	if got := w.slotsOf("acme"); got != 0 {
		t.Fatalf("%d slots stay held after the rollback", got)
	}
	w.db.set(nil)
	w.admitted(ask("probe"))
}

// C2: the publish fails, or the document cannot be inserted, with or without having
// been written. Everything is back before the launch returns.
func TestALaunchThatCannotBeQueuedLeavesNothing(t *testing.T) {
	for name, fail := range map[string]func(*world){
		"the publish fails": func(w *world) {
			w.queue.publish = func(queue.RunMessage) error { return errors.New("away") }
		},
		"the insert fails": func(w *world) { w.db.fail("runs", "insert") },
		"the insert's answer is lost": func(w *world) {
			w.db.set(func(collection, op, _ string) error {
				if collection == "runs" && op == "insert" {
					return errAfter
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.team("acme", teams.Limits{MaxConcurrentRuns: slots(1), LaunchesPerMinute: slots(1), MonthlyRuns: slots(1)})
			fail(w)
			if _, _, err := w.Launch(w.ctx, member, ask("probe")); !errors.Is(err, launch.ErrUnavailable) {
				t.Fatalf("error %v", err)
			}
			w.held(0, 0, 0, 0, 0)
			w.db.set(nil)
			w.queue.publish = nil
			if err := w.runs.WalkActive(w.ctx, func(run runs.Run) error { return errors.New(string(run.ID) + " is still active") }); err != nil {
				t.Error(err)
			}
			w.admitted(ask("probe"))
		})
	}
}

// C2: a document of another run is under the id; it must not be touched.
func TestAnInsertConflictSparesTheOtherRun(t *testing.T) {
	w := newWorld(t)
	w.db.set(func(collection, op, id string) error {
		if collection == "runs" && op == "insert" {
			w.db.set(nil)
			other := runs.Run{ID: holdfast.RunID(id), Team: "globex", Identity: holdfast.PlatformBot("probe"), Status: runs.Queued}
			must(w.runs.Insert(w.ctx, other))(t)
		}
		return nil
	})
	if _, _, err := w.Launch(w.ctx, member, ask("probe")); err == nil {
		t.Fatal("the launch succeeded over another run's document")
	}
	w.held(0, 0, 0, 0, 0)
	list, _, err := w.runs.List(w.ctx, runs.Filter{})
	if err != nil || len(list) != 1 || list[0].Status != runs.Queued || list[0].Team != "globex" {
		t.Errorf("documents %+v, error %v", list, err)
	}
}

// The caller hangs up in the middle: the unwinding outlives the request.
func TestAHungUpCallerLeavesNothing(t *testing.T) {
	w := newWorld(t)
	ctx, hangUp := context.WithCancel(w.ctx)
	w.queue.publish = func(queue.RunMessage) error { hangUp(); return ctx.Err() }
	if _, _, err := w.Launch(ctx, member, ask("probe")); err == nil {
		t.Fatal("the launch succeeded")
	}
	w.held(0, 0, 0, 0, 0)
}

// C3, 309: the ledger fails on one axis. What was taken goes back, the documents are
// judged with every reserve in full, it is logged and counted, and the run says so.
func TestTheLedgerFailingFallsBackOnTheDocuments(t *testing.T) {
	for _, axis := range []holdfast.Axis{holdfast.AxisSlots, holdfast.AxisRuns, holdfast.AxisUSD} {
		t.Run(string(axis), func(t *testing.T) {
			w := newWorld(t)
			w.team("acme", teams.Limits{MaxConcurrentRuns: slots(4), MonthlyUSD: usdLimit(10), MonthlyRuns: slots(10)})
			w.policy(reviews(2, 0))
			w.admitted(ask("review-pr"))
			w.store.fail("admit", axis)
			run := w.admitted(ask("feature-dev"))
			if run.Unheld != launch.UnheldLedger || len(run.Holds) != 0 || run.Budget != usd(3) {
				t.Errorf("run holds %v, unheld %q, budget %s", run.Holds, run.Unheld, run.Budget)
			}
			if w.count("fallback: "+string(axis)) == 0 {
				t.Error("the fallback was not counted")
			}
			w.held(1, 1, 0, 0, 1) // review-pr's alone

			// Two of four slots are in use, two are reserved: the conservative rule
			// refuses, although review-pr uses one of its own.
			denial := w.refused(ask("feature-dev"), holdfast.DenyConcurrency)
			if denial.Cause != holdfast.CauseReserved || !strings.Contains(denial.Public, "documents") {
				t.Errorf("cause %q: %s", denial.Cause, denial.Public)
			}
		})
	}
}

// The error itself never denies, and what cannot be judged at all is an error.
func TestLedgerAndDocumentsFailingIsUnavailable(t *testing.T) {
	w := newWorld(t)
	before := w.footprint()
	w.store.set(func(op string, _ ...holdfast.Subject) error {
		if op == "admit" {
			return capacityledger.ErrUnavailable
		}
		return nil
	})
	w.db.fail("runs", "")
	_, denial, err := w.Launch(w.ctx, member, ask("probe"))
	if denial.Denied() || !errors.Is(err, launch.ErrUnavailable) {
		t.Errorf("denied %q, error %v", denial.Reason, err)
	}
	w.db.set(nil)
	if after := w.footprint(); after != before {
		t.Errorf("it left %s", after)
	}
}

// An answer that was lost after the write is given back blindly.
func TestALostAnswerOfTheLedgerLeavesNothing(t *testing.T) { // C6
	w := newWorld(t)
	w.store.set(func(op string, subjects ...holdfast.Subject) error {
		if op == "admit" && subjects[0].Axis == holdfast.AxisSlots {
			return errors.Join(errAfter, capacityledger.ErrUnavailable)
		}
		return nil
	})
	w.admitted(ask("probe"))
	w.store.set(nil)
	w.held(0, 0, 0, 0, 0)
}

// 307: a run that no allocation explains counts, once a sweep has seen it, and its
// end gives back what was recorded for it.
func TestAnUnheldRunIsAdoptedAboveTheCap(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(2)})
	w.store.fail("admit", holdfast.AxisSlots)
	unheld := w.admitted(ask("feature-dev"))
	w.store.set(nil)
	w.admitted(ask("probe"))
	w.admitted(ask("probe")) // the ledger knows of two
	w.sweep()
	w.held(3, 3.1, 0, 0, 3)
	w.refused(ask("probe"), holdfast.DenyConcurrency)
	w.sweep()
	w.held(3, 3.1, 0, 0, 3) // adopted once
	grant := w.started(unheld.ID)
	w.apply(w.ended(unheld.ID, grant.Attempt, 2, queue.EndFinished))
	w.held(2, 0.1, 2, 0, 3)
}

// Only a policy that was never read lets a launch pass without an allocation; it is
// counted on its own, and the run is adopted.
func TestAPolicyThatWasNeverReadAdmitsWithoutAnAllocation(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(0)})
	w.db.set(func(collection, _, id string) error {
		if collection == "settings" && id == "budget-floor" {
			return errors.New("unreadable")
		}
		return nil
	})
	run := w.admitted(ask("probe"))
	if run.Unheld != launch.UnheldPolicy || len(run.Holds) != 0 || run.Budget != usd(0.05) {
		t.Errorf("run is %+v", run)
	}
	if w.count("policy never: gate") != 1 || w.count("failed open: policy") != 1 {
		t.Errorf("counted %v", w.counts)
	}
	w.sweep()
	w.held(1, 0.05, 0, 0, 1)
}

func TestAStalePolicyKeepsHoldingItsReserve(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(2)})
	w.policy(reviews(2, 0))
	w.refused(ask("feature-dev"), holdfast.DenyConcurrency)
	w.db.set(func(collection, _, id string) error {
		if collection == "settings" && id == "budget-floor" {
			return errors.New("unreadable")
		}
		return nil
	})
	w.clock.Advance(time.Minute)
	w.refused(ask("feature-dev"), holdfast.DenyConcurrency)
	if w.count("policy stale: gate") == 0 {
		t.Error("the stale policy was not counted")
	}
}

// A cap that was never read is not the absence of a cap.
func TestLimitsThatWereNeverReadAreUnavailable(t *testing.T) {
	w := newWorld(t)
	w.db.set(func(collection, _, id string) error {
		if collection == "settings" && id == "limits" {
			return errors.New("unreadable")
		}
		return nil
	})
	if _, denial, err := w.Launch(w.ctx, member, ask("probe")); denial.Denied() || !errors.Is(err, launch.ErrUnavailable) {
		t.Errorf("denied %q, error %v", denial.Reason, err)
	}
}

func TestARepositorysQuotaCountsWhatIsPromisedToIt(t *testing.T) {
	w := newWorld(t)
	floor := reviews(0, 0)
	floor.Reservations = nil
	floor.RepoQuotas = append(floor.RepoQuotas, repoQuota("acme/widgets", 3))
	w.policy(floor)
	r := ask("feature-dev")
	r.Repo = "https://github.com/Acme/Widgets.git"
	w.admitted(r)
	w.refused(r, holdfast.DenyRepoQuota)
	r.Repo = "acme/gadgets"
	w.admitted(r)
}
