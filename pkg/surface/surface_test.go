package surface_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/surface"
	"github.com/holdfast-io/holdfast/pkg/surface/surfacetest"
)

func TestAClaimIsBelievedForAWhileInBothDirectionsOfTheClock(t *testing.T) {
	a := surface.Attempt{}.Begin("r1", clocktest.T0)
	for _, row := range []struct {
		after   time.Duration
		claimed bool
	}{{0, true}, {surface.ClaimFor - 1, true}, {surface.ClaimFor, false}, {-surface.ClaimFor + 1, true}, {-surface.ClaimFor, false}} {
		if got := a.Claimed(clocktest.T0.Add(row.after)); got != row.claimed {
			t.Errorf("after %s claimed is %t", row.after, got)
		}
	}
	if (surface.Attempt{}).Claimed(clocktest.T0) || !(surface.Attempt{}).Open(clocktest.T0) {
		t.Error("an attempt that nobody began is claimed")
	}
	if surface.TryFor >= surface.ClaimFor {
		t.Error("a try may outlive its claim")
	}
}

func TestATryLooksForEveryRunThatAnEarlierClaimMayHaveStarted(t *testing.T) {
	w := surfacetest.New(t)
	work := surface.Work{Bot: "probe"}
	who, ask := launch.Machine(launch.SurfaceBoard, "acme"), work.Request("acme", launch.SurfaceBoard)
	a := surface.Attempt{}
	for range 3 { // three processes die: the second one had launched
		a = a.Begin(w.Runs.NewID(w.Clock.Now()), w.Clock.Now())
		if len(a.Before) == 1 {
			if v := surface.Try(t.Context(), w.Gate, w.Runs, who, surface.Attempt{Claim: a.Claim}, ask); !v.Launched() {
				t.Fatalf("%+v", v)
			}
		}
	}
	second := a.Before[1]
	if v := surface.Try(t.Context(), w.Gate, w.Runs, who, a, ask); v.Run != second || len(w.All()) != 1 {
		t.Errorf("%+v with %d runs, want run %s", v, len(w.All()), second)
	}
}

func TestAVerdictIsOneOfLaunchedTransientAndPermanent(t *testing.T) {
	for name, row := range map[string]struct {
		verdict              surface.Verdict
		transient, permanent bool
		reason               string
	}{
		"a run":         {surface.Verdict{Run: "r"}, false, false, ""},
		"capacity":      {surface.Verdict{Denial: holdfast.Denial{Reason: holdfast.DenyConcurrency}}, true, false, "concurrency_cap_exceeded"},
		"a reservation": {surface.Verdict{Denial: holdfast.Denial{Reason: holdfast.DenyConcurrency, Cause: holdfast.CauseReserved}}, true, false, "concurrency_cap_exceeded"},
		"suspended":     {surface.Verdict{Denial: holdfast.Denial{Reason: holdfast.DenyTeamSuspended}}, false, true, "team_suspended"},
		"an outage":     {surface.Verdict{Err: errors.New("cut")}, true, false, surface.ReasonUnavailable},
		"a bad request": {surface.Verdict{Err: &holdfast.InvalidError{Field: "inputs", Problem: "no"}}, false, true, surface.ReasonInvalid},
	} {
		v := row.verdict
		refusal := v.Refusal(clocktest.T0)
		if v.Transient() != row.transient || v.Permanent() != row.permanent || refusal.Reason != row.reason || refusal.Transient != row.transient && v.Run == "" {
			t.Errorf("%s: transient %t, permanent %t, %+v", name, v.Transient(), v.Permanent(), refusal)
		}
	}
}

func TestABackoffGrowsToItsMostHearsTheGateAndSpreads(t *testing.T) {
	b := surface.Backoff{First: 10 * time.Second, Most: 5 * time.Minute}
	for _, row := range []struct {
		tries     int
		hint      time.Duration
		low, high time.Duration
	}{
		{1, 0, 10 * time.Second, 13 * time.Second},
		{3, 0, 40 * time.Second, 50 * time.Second},
		{1, time.Minute, time.Minute, 75 * time.Second},
		{40, 0, 5 * time.Minute, 375 * time.Second},
		{1, 720 * time.Hour, 5 * time.Minute, 375 * time.Second},
	} {
		different := map[time.Duration]bool{}
		for _, key := range []string{"a", "b", "c", "d"} {
			wait := b.Wait(row.tries, row.hint, key)
			if wait < row.low || wait > row.high || wait != b.Wait(row.tries, row.hint, key) {
				t.Errorf("try %d with hint %s waits %s", row.tries, row.hint, wait)
			}
			different[wait] = true
		}
		if len(different) < 3 {
			t.Errorf("try %d: four keys wait only %d different times", row.tries, len(different))
		}
	}
}
