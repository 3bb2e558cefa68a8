package launch_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// trial makes one check of the gate refuse, and nothing else.
type trial struct {
	check  string
	reason holdfast.DenyReason
	spoil  func(*world, *launch.Request, *auth.Principal)
}

// trials are in the order of the gate.
func trials() []trial {
	return []trial{
		{"maintenance", holdfast.DenyMaintenance, func(w *world, _ *launch.Request, _ *auth.Principal) {
			w.maintenance(platformcfg.Maintenance{On: true, Message: "moving house"})
		}},
		{"membership", holdfast.DenyNoTeam, func(_ *world, _ *launch.Request, who *auth.Principal) { who.Team = "globex" }},
		{"role", holdfast.DenyRole, func(_ *world, _ *launch.Request, who *auth.Principal) { who.Role = auth.Viewer }},
		{"team", holdfast.DenyTeamSuspended, func(w *world, _ *launch.Request, _ *auth.Principal) {
			must(w.teams.Update(w.ctx, "acme", func(team *teams.Team) error { team.Suspended = true; return nil }))(w.t)
		}},
		{"repo-quota", holdfast.DenyRepoQuota, func(w *world, r *launch.Request, _ *auth.Principal) {
			r.Repo = "acme/widgets"
			floor, _ := w.settings.BudgetFloor.Lookup(w.ctx)
			floor.RepoQuotas = []budgetfloor.RepoQuota{{Repo: "acme/widgets", MonthlyUSD: ptr(usd(0))}}
			w.policy(floor)
		}},
		{"launch-rate", holdfast.DenyLaunchRate, func(w *world, _ *launch.Request, _ *auth.Principal) {
			must(w.teams.Update(w.ctx, "acme", func(team *teams.Team) error { team.Limits.LaunchesPerMinute = slots(0); return nil }))(w.t)
		}},
		{"resolution", holdfast.DenyUnknownBot, func(_ *world, r *launch.Request, _ *auth.Principal) { r.Bot = "nobody" }},
		{"concurrency", holdfast.DenyConcurrency, func(w *world, _ *launch.Request, _ *auth.Principal) {
			must(w.teams.Update(w.ctx, "acme", func(team *teams.Team) error { team.Limits.MaxConcurrentRuns = slots(0); return nil }))(w.t)
		}},
		{"monthly", holdfast.DenyMonthlyRuns, func(w *world, _ *launch.Request, _ *auth.Principal) {
			must(w.teams.Update(w.ctx, "acme", func(team *teams.Team) error { team.Limits.MonthlyRuns = slots(0); return nil }))(w.t)
		}},
		{"monthly", holdfast.DenyMonthlyUSD, func(w *world, _ *launch.Request, _ *auth.Principal) {
			must(w.teams.Update(w.ctx, "acme", func(team *teams.Team) error { team.Limits.MonthlyUSD = usdLimit(0.01); return nil }))(w.t)
		}},
	}
}

func TestTheGateHasTheDocumentedOrder(t *testing.T) {
	var want []string
	for _, trial := range trials() {
		want = append(want, trial.check)
	}
	want = slices.Compact(want)
	if diff := cmp.Diff(want, newWorld(t).Order()); diff != "" {
		t.Error(diff)
	}
}

// Every check refuses before every later one has a say.
func TestTheFirstFailingCheckWins(t *testing.T) {
	all := trials()
	for i, first := range all {
		t.Run(string(first.reason), func(t *testing.T) {
			w, r, who := newWorld(t), ask("probe"), member
			for _, trial := range all[i:] {
				trial.spoil(w, &r, &who)
			}
			_, denial, err := w.Launch(w.ctx, who, r)
			if err != nil || denial.Reason != first.reason {
				t.Errorf("denied %q, error %v; want %q", denial.Reason, err, first.reason)
			}
		})
	}
}

// A refusal leaves no slot, dollars, run of the month, launch of the rate, document
// or message, whichever check it came from; and nor does a preview of it.
func TestARefusedLaunchTakesNothing(t *testing.T) {
	for _, trial := range trials() {
		t.Run(string(trial.reason), func(t *testing.T) {
			w, r, who := newWorld(t), ask("probe"), member
			trial.spoil(w, &r, &who)
			before := w.footprint()
			preview, err := w.Preview(w.ctx, who, r)
			if err != nil || preview.Admitted || preview.Denial.Reason != trial.reason {
				t.Errorf("previewed as %+v, error %v", preview, err)
			}
			run, denial, err := w.Launch(w.ctx, who, r)
			if err != nil || denial.Reason != trial.reason || run.ID != "" {
				t.Fatalf("run %q, denied %q, error %v; want %q", run.ID, denial.Reason, err, trial.reason)
			}
			if denial.DecisionID == "" || denial.Public == "" {
				t.Errorf("the refusal has decision %q and says %q", denial.DecisionID, denial.Public)
			}
			if diff := cmp.Diff(before, w.footprint()); diff != "" {
				t.Errorf("it left something behind: %s", diff)
			}
		})
	}
}

func TestARefusalBeforeTheResolutionCostsNone(t *testing.T) {
	for _, trial := range trials() {
		if trial.check == "resolution" {
			break
		}
		t.Run(trial.check, func(t *testing.T) {
			w, r, who := newWorld(t), ask("probe"), member
			trial.spoil(w, &r, &who)
			if _, denial, err := w.Launch(w.ctx, who, r); !denial.Denied() || err != nil {
				t.Fatalf("denied %q, error %v", denial.Reason, err)
			}
			if w.resolved != 0 {
				t.Errorf("the bot was looked up %d times", w.resolved)
			}
		})
	}
}

func TestABadRequestTakesNothingAndNamesItsField(t *testing.T) {
	for field, spoil := range map[string]func(*launch.Request){
		"team":           func(r *launch.Request) { r.Team = "no/team" },
		"bot":            func(r *launch.Request) { r.Bot = "" },
		"repo":           func(r *launch.Request) { r.Repo = "a\nb" },
		"budget_usd":     func(r *launch.Request) { r.BudgetUSD = ptr(usd(0)) },
		"min_budget_usd": func(r *launch.Request) { r.BudgetUSD, r.MinBudgetUSD = ptr(usd(1)), ptr(usd(2)) },
		"pool":           func(r *launch.Request) { r.Pool = "gpu" },
		"inputs.nonsense": func(r *launch.Request) {
			r.Inputs = map[string]string{"nonsense": "x"}
		},
		"inputs.needed": func(r *launch.Request) { r.Bot = "needy" },
	} {
		t.Run(field, func(t *testing.T) {
			w := newWorld(t)
			_, _, err := w.bots.Put(w.ctx, w.clock.Now(), "acme", holdfast.Bot{
				Name: "needy", Lane: holdfast.LaneCommand, Command: []string{"x", "{{needed}}"}, Inputs: map[string]holdfast.BotInput{"needed": {Required: true}},
			}, "test")
			if err != nil {
				t.Fatal(err)
			}
			before := w.footprint()
			r := ask("probe")
			spoil(&r)
			_, denial, err := w.Launch(w.ctx, member, r)
			var bad *holdfast.InvalidError
			if !errors.As(err, &bad) || bad.Field != field || bad.Allowed == "" || denial.Denied() {
				t.Errorf("denied %q, error %v; want an invalid %s that says what is allowed", denial.Reason, err, field)
			}
			if diff := cmp.Diff(before, w.footprint()); diff != "" {
				t.Errorf("it left something behind: %s", diff)
			}
		})
	}
}

func TestALaneThatThisBuildDoesNotRunIsARefusal(t *testing.T) {
	w := newWorld(t)
	if _, _, err := w.bots.Put(w.ctx, w.clock.Now(), "", holdfast.Bot{Name: "thinker", Lane: holdfast.LaneClaw, Prompt: "think"}, "test"); err != nil {
		t.Fatal(err)
	}
	before := w.footprint()
	w.refused(ask("thinker"), holdfast.DenyLane)
	if diff := cmp.Diff(before, w.footprint()); diff != "" {
		t.Error(diff)
	}
}

// The operator's token passes membership and role; everything else judges it.
func TestTheOperatorIsJudgedLikeEverybodyElse(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(1)})
	if _, denial, err := w.Launch(w.ctx, operator, ask("probe")); denial.Denied() || err != nil {
		t.Fatalf("denied %q, error %v", denial.Reason, err)
	}
	if _, denial, err := w.Launch(w.ctx, operator, ask("probe")); denial.Reason != holdfast.DenyConcurrency || err != nil {
		t.Errorf("denied %q, error %v", denial.Reason, err)
	}
	r := ask("probe")
	r.Team = "nowhere"
	if _, denial, err := w.Launch(w.ctx, operator, r); denial.Reason != holdfast.DenyUnknownTeam || err != nil {
		t.Errorf("denied %q, error %v", denial.Reason, err)
	}
	if _, denial, err := w.Launch(w.ctx, member, r); denial.Reason != holdfast.DenyNoTeam || err != nil {
		t.Errorf("denied %q, error %v; whether a foreign team exists must not show", denial.Reason, err)
	}
}

func TestAMaintenanceFenceLiftsItself(t *testing.T) {
	w := newWorld(t)
	w.maintenance(platformcfg.Maintenance{On: true, Until: w.clock.Now().Add(time.Hour)})
	if denial := w.refused(ask("probe"), holdfast.DenyMaintenance); denial.RetryAfter != time.Hour || !denial.Retryable {
		t.Errorf("retry after %s (%v), want an hour", denial.RetryAfter, denial.Retryable)
	}
	w.clock.Advance(time.Hour)
	w.admitted(ask("probe"))
}

func TestALaunchRateComesBackWithTime(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{LaunchesPerMinute: slots(2)})
	w.admitted(ask("probe"))
	w.admitted(ask("probe"))
	denial := w.refused(ask("probe"), holdfast.DenyLaunchRate)
	if denial.RetryAfter != 30*time.Second || !denial.Retryable {
		t.Errorf("retry after %s, want 30s", denial.RetryAfter)
	}
	w.clock.Advance(denial.RetryAfter - time.Millisecond)
	w.refused(ask("probe"), holdfast.DenyLaunchRate)
	w.clock.Advance(time.Millisecond)
	w.admitted(ask("probe"))
}

func TestEveryLaunchIsDecidedWithItsArithmetic(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(3)})
	w.policy(reviews(2, 0))
	run := w.admitted(ask("feature_dev"))
	denial := w.refused(ask("feature-dev"), holdfast.DenyConcurrency)
	if denial.Cause != holdfast.CauseReserved || denial.Withheld.Int() != 2 || denial.Remaining.Int() != 0 {
		t.Errorf("denied with cause %q, %s withheld, %s remaining", denial.Cause, denial.Withheld, denial.Remaining)
	}
	if err := w.decisions.Flush(w.ctx); err != nil {
		t.Fatal(err)
	}
	yes := must(w.decisions.Get(w.ctx, run.DecisionID))(t)
	var names []string
	for _, c := range yes.Checks {
		names = append(names, c.Name)
	}
	if diff := cmp.Diff(w.Order(), slices.Compact(names)); diff != "" || !yes.Admitted || yes.Run != run.ID || yes.Budget != run.Budget {
		t.Errorf("decision %+v: %s", yes, diff)
	}
	no := must(w.decisions.Get(w.ctx, denial.DecisionID))(t)
	last := no.Checks[len(no.Checks)-1]
	want := &decisions.Figures{Cap: ptr(int64(3)), Requested: 1, Minimum: 1, Outstanding: 1, Withheld: 2}
	if diff := cmp.Diff(want, last.Figures); diff != "" || no.Admitted || no.Reason != holdfast.DenyConcurrency {
		t.Errorf("decision %+v: %s", no, diff)
	}
}

// What judges before the resolution has no way to an identity: its types carry none.
func TestACallerCheckCannotSeeAnIdentity(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type, string)
	walk = func(typ reflect.Type, path string) {
		if typ == reflect.TypeFor[holdfast.Identity]() {
			t.Errorf("%s is an identity", path)
		}
		if seen[typ] {
			return
		}
		seen[typ] = true
		switch typ.Kind() {
		case reflect.Struct:
			for i := range typ.NumField() {
				walk(typ.Field(i).Type, path+"."+typ.Field(i).Name)
			}
		case reflect.Pointer, reflect.Slice, reflect.Array:
			walk(typ.Elem(), path)
		case reflect.Map:
			walk(typ.Key(), path)
			walk(typ.Elem(), path)
		}
	}
	for _, typ := range launch.CallerCheckTypes() {
		walk(typ, typ.Name())
	}
	if len(seen) < 10 {
		t.Errorf("only %d types were looked at", len(seen))
	}
}
