package launch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/botsource"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/surface/surfacetest"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// windowed reserves 20 % of five hours and 10 % of the week for the platform's
// review-pr, under caps of 80 and 90 %.
func windowed(w *world) {
	w.policy(budgetfloor.Policy{Reservations: []budgetfloor.Reservation{{Bot: "review-pr", FiveHourPercent: 20, WeekPercent: 10}}})
	surfacetest.Write(w.t, w.settings.UsageCaps, platformcfg.UsageCaps{FiveHourPercent: 80, WeekPercent: 90}, func(c *platformcfg.UsageCaps, at time.Time) { c.UpdatedAt = at })
}

func workload(identity holdfast.Identity) launch.Workload {
	return launch.WorkloadOf(botsource.Resolved{Identity: identity, Bot: holdfast.Bot{Name: identity.Bot()}})
}

// ceilings is what the walk judges a workload by, as text.
func (w *world) ceilings(identity holdfast.Identity) string {
	w.t.Helper()
	p, err := w.WindowPolicy(w.ctx, workload(identity), "run")
	if err != nil {
		w.t.Fatal(err)
	}
	text := string(p.State)
	for _, c := range p.Windows {
		text += fmt.Sprintf(" %s %d/%d %v", c.Axis, c.Effective, c.Deployment, c.HeldOut)
	}
	return text
}

// The walk's reader has the four arms of the gate's (257-261), and they are told
// apart: warm and unreadable keeps holding, cold and unreadable holds nothing and
// says so, and nothing written is neither.
func TestTheWalksPolicyHasFourArms(t *testing.T) {
	holder, other, homonym := holdfast.PlatformBot("review-pr"), holdfast.PlatformBot("feature-dev"), holdfast.TeamBot("acme", "review-pr")
	const whole, lowered = " five_hour 8000/8000 false week 9000/9000 false", " five_hour 6000/8000 false week 8000/9000 false"
	w := newWorld(t)
	windowed(w)
	want := func(when string, identity holdfast.Identity, text string) {
		t.Helper()
		if got := w.ceilings(identity); got != text {
			t.Errorf("%s, %s: %s; want %s", when, identity, got, text)
		}
	}
	want("fresh", holder, "fresh"+whole)
	want("fresh", other, "fresh"+lowered)
	want("fresh", homonym, "fresh"+lowered)

	w.clock.Advance(time.Minute)
	w.db.fail("settings", "")
	want("stale", holder, "stale"+whole)
	want("stale", other, "stale"+lowered)
	if n := w.count("policy stale: walk"); n != 2 || w.count("failed open: policy") != 0 {
		t.Errorf("the stale arm was counted %d times, and failed open %d times", n, w.count("failed open: policy"))
	}

	cold := newWorld(t)
	windowed(cold)
	cold.coldPolicy()
	cold.db.set(func(c, _, id string) error {
		if c == "settings" && id == "budget-floor" {
			return errors.New("down")
		}
		return nil
	})
	w = cold
	want("never", other, "never"+whole)
	if w.count("policy never: walk") != 1 || w.count("failed open: policy") != 1 {
		t.Error("the cold arm was not counted")
	}

	w = newWorld(t)
	surfacetest.Write(w.t, w.settings.UsageCaps, platformcfg.UsageCaps{FiveHourPercent: 80, WeekPercent: 90}, func(c *platformcfg.UsageCaps, at time.Time) { c.UpdatedAt = at })
	want("absent", other, "absent"+whole)
	if w.count("policy never: walk")+w.count("policy stale: walk")+w.count("failed open: policy") != 0 {
		t.Error("nothing written was counted as nothing known")
	}
}

// coldPolicy makes the settings those of a process that has read nothing yet.
func (w *world) coldPolicy() {
	w.t.Helper()
	w.settings = must(platformcfg.New(w.ctx, w.db, w.clock, platformcfg.Options{}))(w.t)
	w.Service = w.replica()
}

// A window that is off is not re-armed by a reservation (296), and one that others
// reserved whole is refused, which is not a ceiling of "not enforced" (295).
func TestAReservationNeitherArmsAWindowNorOpensOne(t *testing.T) {
	w := newWorld(t)
	w.policy(budgetfloor.Policy{Reservations: []budgetfloor.Reservation{{Bot: "review-pr", FiveHourPercent: 80, WeekPercent: 80}}})
	surfacetest.Write(w.t, w.settings.UsageCaps, platformcfg.UsageCaps{FiveHourPercent: 80, WeekPercent: 80, WeekMode: platformcfg.ModeOff}, func(c *platformcfg.UsageCaps, at time.Time) { c.UpdatedAt = at })
	const want = "fresh five_hour 0/8000 true week 0/0 false"
	if got := w.ceilings(holdfast.PlatformBot("feature-dev")); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A deployment's cap that nobody knows is an error for the walk, never no cap.
func TestUsageCapsThatWereNeverReadAreAnError(t *testing.T) {
	w := newWorld(t)
	w.db.fail("settings", "")
	if _, err := w.WindowPolicy(w.ctx, workload(holdfast.PlatformBot("probe")), "run"); !errors.Is(err, launch.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
}

// Both arms say in the log what became of the reserve.
func TestAPolicyInDoubtIsLogged(t *testing.T) {
	var out bytes.Buffer
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(3)})
	w.policy(reviews(1, 0))
	service := must(launch.New(launch.Deps{
		Ledger: w.ledger, Runs: w.runs, Teams: w.teams, Bots: botsource.NewResolver(w.bots, botsource.Options{}), Settings: w.settings, Decisions: w.decisions, Audit: w.audit, Queue: w.queue,
	}, launch.Options{Clock: w.clock, Log: slog.New(slog.NewTextHandler(&out, nil))}))(t)
	launched := func() {
		t.Helper()
		if _, denial, err := service.Launch(w.ctx, member, ask("probe")); err != nil || denial.Denied() {
			t.Fatalf("denied %q, error %v", denial.Reason, err)
		}
	}
	launched()
	if out.Len() != 0 {
		t.Errorf("a fresh policy logs %s", out.String())
	}
	w.clock.Advance(time.Minute)
	w.db.fail("settings", "")
	launched()
	if text := out.String(); !strings.Contains(text, "last known of it stays reserved") || !strings.Contains(text, "reader=gate") {
		t.Errorf("the log says %s", text)
	}
}

// How well the policy is known can be read without reading it: since when, and why
// not better.
func TestTheStandingOfThePolicySaysSinceWhenAndWhy(t *testing.T) {
	w := newWorld(t)
	floor := w.settings.BudgetFloor
	standing := func() string {
		s := floor.Standing()
		return fmt.Sprintf("%s %v %v", s.State, s.AsOf.Sub(w.clock.Now()), s.Err)
	}
	if s := floor.Standing(); s.State != platformcfg.Never || !s.AsOf.IsZero() || s.InDoubt() {
		t.Errorf("before the first read it is %+v", s)
	}
	w.admitted(ask("probe"))
	if diff := cmp.Diff("absent 0s <nil>", standing()); diff != "" {
		t.Error(diff)
	}
	w.clock.Advance(time.Minute)
	w.db.fail("settings", "get")
	floor.Lookup(context.WithoutCancel(w.ctx))
	if s := floor.Standing(); s.State != platformcfg.Stale || w.clock.Now().Sub(s.AsOf) != time.Minute || !s.InDoubt() {
		t.Errorf("when the store is away it is %+v", s)
	}
}
