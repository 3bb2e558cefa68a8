package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
)

func run(t *testing.T, in Input) Result {
	t.Helper()
	result, err := Run(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func slots(n int64) holdfast.CountLimit {
	return holdfast.CountLimit{LimitSetting: holdfast.LimitTo(n)}
}

func usd(m holdfast.MicroUSD) holdfast.USDLimit {
	return holdfast.USDLimit{LimitSetting: holdfast.LimitTo(int64(m))}
}

// policyOf reserves for the platform's bot "review".
func policyOf(r budgetfloor.Reservation) budgetfloor.Policy {
	r.Bot, r.Tier = "review", holdfast.TierPlatform
	return budgetfloor.Policy{Reservations: []budgetfloor.Reservation{r}}
}

var review, feature = holdfast.PlatformBot("review"), holdfast.PlatformBot("feature")

// storm has two features at once, a third a minute later, then a review.
const storm = "submitted_at,team,bot,duration_s,cost_usd\n" +
	"2026-03-01T09:00:00Z,a,feature,3600,4\n" +
	"2026-03-01T09:00:00Z,b,feature,3600,4\n" +
	"2026-03-01T09:01:00Z,a,feature,3600,4\n" +
	"2026-03-01T09:10:00Z,b,review,600,1\n"

func TestAReserveOfSlotsHasTwoSides(t *testing.T) {
	caps := Caps{Platform: PlatformCaps{MaxConcurrentRuns: slots(2)}}
	result := run(t, Input{Trace: read(t, storm, ReadOptions{}), Policy: policyOf(budgetfloor.Reservation{ConcurrentRuns: 1}), Caps: &caps})
	want := []Difference{
		{Identity: review, Gained: 1, GainedUSD: 1_000_000},
		{Identity: feature, Lost: 1, LostUSD: 4_000_000},
	}
	if diff := cmp.Diff(want, result.Difference, compareIdentities); diff != "" {
		t.Error(diff)
	}
	without, with := result.Scenario(ScenarioWithout), result.Scenario(ScenarioWith)
	if got := without.Totals; got.Admitted != 2 || got.Refused[holdfast.DenyConcurrency] != 2 || got.HeldOut != 0 || without.PeakRuns != 2 {
		t.Errorf("without: %+v", got)
	}
	if got := with.Totals; got.Admitted != 2 || got.Refused[holdfast.DenyConcurrency] != 2 || got.HeldOut != 2 || got.SpentUSD != 5_000_000 {
		t.Errorf("with: %+v", got)
	}
	// One slot over seventy minutes, of which the review used ten.
	reserve := []Reserve{{Identity: review, Axis: holdfast.AxisSlots, Capped: true, Subjects: 1, Unit: "slot_hours", Reserved: "1.0", Idle: "0.9", IdlePercent: 84}}
	if diff := cmp.Diff(reserve, with.Reserves, compareIdentities); diff != "" {
		t.Error(diff)
	}
	if gained, lost := result.Both(); gained != 1 || lost != 1 {
		t.Errorf("both sides are %d and %d", gained, lost)
	}
}

func TestARunGivesItsCapacityBackWhenItEnds(t *testing.T) {
	caps := Caps{Platform: PlatformCaps{MaxConcurrentRuns: slots(1)}}
	text := "time,team,bot,duration_s,cost_usd\n2026-03-01T09:00:00Z,a,x,60,1\n2026-03-01T09:00:59Z,a,x,60,1\n2026-03-01T09:01:00Z,a,x,60,1\n"
	got := run(t, Input{Trace: read(t, text, ReadOptions{}), Caps: &caps}).Scenario(ScenarioWithout).Totals
	if got.Admitted != 2 || got.Refused[holdfast.DenyConcurrency] != 1 {
		t.Errorf("at the end of the first run there is room and before it there is none: %+v", got)
	}
}

func TestDollarsOfAMonthAreGrantedInPartAndCutTheRunShort(t *testing.T) {
	caps := Caps{Teams: map[string]TeamCaps{"*": {MonthlyUSD: usd(5_000_000)}}}
	text := "time,team,bot,duration_s,cost_usd\n2026-03-01T09:00:00Z,a,x,100,4\n2026-03-02T09:00:00Z,a,x,100,4\n2026-03-03T09:00:00Z,a,x,100,4\n2026-04-01T00:00:00Z,a,x,100,4\n2026-04-01T00:00:00Z,b,x,100,4\n"
	result := run(t, Input{Trace: read(t, text, ReadOptions{}), Policy: policyOf(budgetfloor.Reservation{MonthlyUSD: 2_000_000}), Caps: &caps})
	without, with := result.Scenario(ScenarioWithout), result.Scenario(ScenarioWith)
	if got := without.Totals; got.Admitted != 4 || got.CutShort != 1 || got.SpentUSD != 13_000_000 || got.Refused[holdfast.DenyMonthlyUSD] != 1 {
		t.Errorf("without: %+v", got)
	}
	if f := without.fates[1]; f.end.Sub(f.start) != 25*time.Second {
		t.Errorf("a quarter of the money pays for a quarter of the time, not %s", f.end.Sub(f.start))
	}
	if got := with.Totals; got.SpentUSD != 9_000_000 || got.CutShort != 3 || got.HeldOut != 2 {
		t.Errorf("with: %+v", got)
	}
	// Two dollars in two months of two teams, all idle.
	if r := with.Reserves[0]; r.Subjects != 4 || r.Reserved != "8.000000" || r.Idle != "8.000000" || r.IdlePercent != 100 {
		t.Errorf("the reserve is %+v", r)
	}
}

func TestAWindowIsJudgedByTheLedgerAndOpensWithItsFirstRun(t *testing.T) {
	caps := Caps{Windows: Windows{FiveHour: &WindowCap{USD: 10_000_000}}}
	text := "time,team,bot,duration_s,cost_usd\n" +
		"2026-03-01T09:00:00Z,a,feature,60,8\n" + // 80 %: with 25 % reserved it does not fit
		"2026-03-01T10:00:00Z,a,feature,60,3\n" + // 30 %: fits only beside nothing
		"2026-03-01T11:00:00Z,a,review,60,2\n" +
		"2026-03-01T14:00:00Z,a,feature,60,7\n" // a new window
	result := run(t, Input{Trace: read(t, text, ReadOptions{}), Policy: policyOf(budgetfloor.Reservation{FiveHourPercent: 25}), Caps: &caps})
	without, with := result.Scenario(ScenarioWithout), result.Scenario(ScenarioWith)
	if diff := cmp.Diff([]Window{
		{Axis: holdfast.AxisFiveHour, Opens: at("2026-03-01T09:00:00Z"), Closes: at("2026-03-01T14:00:00Z"), USD: 10_000_000, UsedUSD: 10_000_000, Percent: "100.00", Runs: 2, Refused: 1},
		{Axis: holdfast.AxisFiveHour, Opens: at("2026-03-01T14:00:00Z"), Closes: at("2026-03-01T19:00:00Z"), USD: 10_000_000, UsedUSD: 7_000_000, Percent: "70.00", Runs: 1},
	}, without.Windows); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Window{
		{Axis: holdfast.AxisFiveHour, Opens: at("2026-03-01T10:00:00Z"), Closes: at("2026-03-01T15:00:00Z"), USD: 10_000_000, UsedUSD: 5_000_000, Percent: "50.00", Runs: 2, Refused: 1},
	}, with.Windows); diff != "" {
		t.Error(diff)
	}
	if got := with.Totals; got.HeldOut != 1 || got.Refused[holdfast.DenyWindowExhausted] != 2 {
		t.Errorf("with: %+v; the run of 80 %% fits but for the reserve, that of 70 %% not even then", got)
	}
	if r := with.Reserves[0]; r.Axis != holdfast.AxisFiveHour || r.Reserved != "2.500000" || r.Idle != "0.500000" {
		t.Errorf("the reserve is %+v", r)
	}
}

func TestAnEarlierCheckIsNamedBeforeAFullWindow(t *testing.T) {
	caps := Caps{Platform: PlatformCaps{MaxConcurrentRuns: slots(1)}, Windows: Windows{Week: &WindowCap{USD: 5_000_000}}}
	text := "time,team,bot,duration_s,cost_usd\n2026-03-01T09:00:00Z,a,x,600,4\n2026-03-01T09:01:00Z,a,x,60,4\n2026-03-01T10:00:00Z,a,x,60,4\n"
	got := run(t, Input{Trace: read(t, text, ReadOptions{}), Caps: &caps}).Scenario(ScenarioWithout).Totals.Refused
	if diff := cmp.Diff(map[holdfast.DenyReason]int{holdfast.DenyConcurrency: 1, holdfast.DenyWindowExhausted: 1}, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheLaunchRateIsJudgedOnTheTracesClock(t *testing.T) {
	caps := Caps{Teams: map[string]TeamCaps{"a": {LaunchesPerMinute: slots(2)}}}
	text := "time,team,bot,duration_s,cost_usd\n2026-03-01T09:00:00Z,a,x,1,1\n2026-03-01T09:00:00Z,a,x,1,1\n2026-03-01T09:00:00Z,a,x,1,1\n2026-03-01T09:00:00Z,b,x,1,1\n2026-03-01T09:05:00Z,a,x,1,1\n"
	got := run(t, Input{Trace: read(t, text, ReadOptions{}), Caps: &caps}).Scenario(ScenarioWithout).Totals
	if got.Admitted != 4 || got.Refused[holdfast.DenyLaunchRate] != 1 {
		t.Errorf("%+v", got)
	}
}

func TestPatienceWaitsAndWhoStillWaitsAtTheEndIsNotRefused(t *testing.T) {
	caps := Caps{Platform: PlatformCaps{MaxConcurrentRuns: slots(1)}}
	text := "time,team,bot,duration_s,cost_usd\n" +
		"2026-03-01T09:00:00Z,a,x,300,1\n" +
		"2026-03-01T09:04:00Z,a,x,300,1\n" + // waits a minute
		"2026-03-01T09:04:30Z,a,x,30,1\n" + // would wait past the end of the trace
		"2026-03-01T09:05:00Z,a,y,300,1\n"
	result := run(t, Input{Trace: read(t, text, ReadOptions{}), Caps: &caps, Patience: time.Hour})
	got := result.Scenario(ScenarioWithout).Totals
	if got.Admitted+got.AllRefused()+got.Waiting != got.Asked || got.Waiting == 0 || got.AllRefused() != 0 || got.WaitedS == 0 {
		t.Errorf("%+v", got)
	}
	impatient := run(t, Input{Trace: read(t, text, ReadOptions{}), Caps: &caps}).Scenario(ScenarioWithout).Totals
	if impatient.Waiting != 0 || impatient.AllRefused() != 2 {
		t.Errorf("without patience: %+v", impatient)
	}
	var text2 bytes.Buffer
	if err := result.Text(&text2); err != nil || !strings.Contains(text2.String(), "waited") {
		t.Errorf("the text does not say that anybody waited: %v", err)
	}
}

func TestAnotherPolicyIsComparedWithTheFirst(t *testing.T) {
	caps := Caps{Platform: PlatformCaps{MaxConcurrentRuns: slots(2)}}
	other := budgetfloor.Policy{}
	result := run(t, Input{Trace: read(t, storm, ReadOptions{}), Policy: policyOf(budgetfloor.Reservation{ConcurrentRuns: 1}), Against: &other, Caps: &caps})
	if len(result.Scenarios) != 3 || result.Scenarios[2].Name != ScenarioAgainst {
		t.Fatalf("%d scenarios", len(result.Scenarios))
	}
	want := []Difference{{Identity: feature, Gained: 1, GainedUSD: 4_000_000}, {Identity: review, Lost: 1, LostUSD: 1_000_000}}
	if diff := cmp.Diff(want, result.AgainstDifference, compareIdentities); diff != "" {
		t.Error(diff)
	}
}

func TestAReserveThatHoldsNothingIsWarnedOf(t *testing.T) {
	caps := Caps{Platform: PlatformCaps{MaxConcurrentRuns: slots(2)}}
	policy := budgetfloor.Policy{Reservations: []budgetfloor.Reservation{{Bot: "nobody", Tier: holdfast.TierPlatform, MonthlyUSD: 1}}}
	warnings := strings.Join(run(t, Input{Trace: read(t, storm, ReadOptions{}), Policy: policy, Caps: &caps}).Warnings, "\n")
	for _, words := range []string{"no row of the trace is platform/nobody", "reserves dollars of the month, and nothing caps that"} {
		if !strings.Contains(warnings, words) {
			t.Errorf("no warning says %q: %s", words, warnings)
		}
	}
	// A reserve of all there is shuts everybody else out: no window ever opens, and the
	// window is capped all the same.
	caps.Windows.Week = &WindowCap{USD: 1_000_000_000}
	all := policyOf(budgetfloor.Reservation{ConcurrentRuns: 2, WeekPercent: 10})
	text := "submitted_at,team,bot,duration_s,cost_usd\n2026-03-01T09:00:00Z,a,feature,3600,4\n"
	result := run(t, Input{Trace: read(t, text, ReadOptions{}), Policy: all, Caps: &caps})
	if len(result.Warnings) != 1 || len(result.Scenario(ScenarioWith).Windows) != 0 {
		t.Errorf("warnings %q", result.Warnings)
	}
}

func TestAQuotaOfARepositoryIsJudged(t *testing.T) {
	caps, one := Caps{}, holdfast.OneUSD
	policy := budgetfloor.Policy{RepoQuotas: []budgetfloor.RepoQuota{{Repo: "acme/site", MonthlyUSD: &one}}}
	text := "time,team,bot,repo,duration_s,cost_usd\n2026-03-01T09:00:00Z,a,x,acme/site,60,1\n2026-03-02T09:00:00Z,a,x,acme/site,60,1\n2026-03-02T09:00:00Z,a,x,acme/other,60,1\n"
	with := run(t, Input{Trace: read(t, text, ReadOptions{}), Policy: policy, Caps: &caps}).Scenario(ScenarioWith).Totals
	if with.Refused[holdfast.DenyRepoQuota] != 1 || with.Admitted != 2 {
		t.Errorf("with: %+v", with)
	}
}

// tight caps every axis, so that a replay of the fleet refuses for every reason.
func tight() *Caps {
	seventy := 70
	return &Caps{
		Platform: PlatformCaps{MaxConcurrentRuns: slots(4), MonthlyUSD: usd(500 * holdfast.OneUSD)},
		Teams:    map[string]TeamCaps{"*": {MaxConcurrentRuns: slots(2), MonthlyUSD: usd(150 * holdfast.OneUSD), MonthlyRuns: slots(20)}},
		Windows:  Windows{FiveHour: &WindowCap{USD: 150 * holdfast.OneUSD, CapPercent: &seventy}, Week: &WindowCap{USD: 5000 * holdfast.OneUSD}},
	}
}

func TestEveryLaunchHasOneFateAndNothingIsHeldInTheEnd(t *testing.T) {
	ctx := context.Background()
	for _, patience := range []time.Duration{0, 30 * time.Minute} {
		in := Input{Trace: read(t, fleet(300, 2), ReadOptions{}), Policy: fleetPolicy, Patience: patience}
		clock := &movedClock{now: in.Trace.From()}
		e, err := newEngine(ctx, in, *tight(), plan{name: ScenarioWith, policy: in.Policy}, clock)
		if err != nil {
			t.Fatal(err)
		}
		scenario, err := e.replay(ctx)
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		for _, b := range scenario.ByBot {
			if b.Admitted+b.AllRefused()+b.Waiting != b.Asked {
				t.Errorf("%s: %+v does not add up", b.Identity, b.Count)
			}
			asked += b.Asked
		}
		if asked != len(in.Trace.Rows) || scenario.Totals.Asked != asked {
			t.Errorf("%d of %d rows were asked", asked, len(in.Trace.Rows))
		}
		if len(scenario.Totals.Refused) < 3 || scenario.PeakRuns > 4 {
			t.Errorf("the caps do not bite: %+v, peak %d", scenario.Totals, scenario.PeakRuns)
		}
		subjects, err := e.gate.ledger.Subjects(ctx, "", 1000)
		if err != nil || len(subjects) == 0 {
			t.Fatal(err, len(subjects))
		}
		var platform int64
		for _, s := range subjects {
			balance, err := e.gate.ledger.Outstanding(ctx, s)
			if err != nil || balance.Outstanding != 0 || len(balance.Open) != 0 {
				t.Errorf("%s still holds %d in %d entries (%v)", s, balance.Outstanding, len(balance.Open), err)
			}
			if s.Kind == holdfast.KindPlatform && s.Axis == holdfast.AxisUSD {
				platform += balance.Settled
			}
		}
		if platform != int64(scenario.Totals.SpentUSD) {
			t.Errorf("the ledger settled %d, the scenario spent %d", platform, scenario.Totals.SpentUSD)
		}
	}
}

func TestTheSameInputGivesTheSameBytes(t *testing.T) {
	once := func() (text, doc []byte) {
		trace := read(t, fleet(200, 2), ReadOptions{})
		result := run(t, Input{Trace: trace, Policy: fleetPolicy, Against: &budgetfloor.Policy{}, Caps: tight(), Patience: 10 * time.Minute})
		var b bytes.Buffer
		if err := result.Text(&b); err != nil {
			t.Fatal(err)
		}
		doc, err := json.Marshal(result)
		if err != nil {
			t.Fatal(err)
		}
		return b.Bytes(), doc
	}
	text, doc := once()
	for range 3 {
		again, docAgain := once()
		if !bytes.Equal(text, again) || !bytes.Equal(doc, docAgain) {
			t.Fatal("two replays of one input differ")
		}
	}
}

func TestTheJSONHasTheNamesOfTheProduct(t *testing.T) {
	caps := Caps{Platform: PlatformCaps{MaxConcurrentRuns: slots(2)}, Windows: Windows{FiveHour: &WindowCap{USD: 50_000_000}}}
	doc, err := json.Marshal(run(t, Input{Trace: read(t, storm, ReadOptions{}), Policy: policyOf(budgetfloor.Reservation{ConcurrentRuns: 1}), Caps: &caps}))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`{"trace":{"files":["ops.csv"],"rows":4,"skipped":0,"from":"2026-03-01T09:00:00Z","to":"2026-03-01T10:01:00Z"`, `"assumptions":["columns used:`,
		`"caps":{"platform":{"max_concurrent_runs":2},"windows":{"five_hour":{"usd":50}},"derived":false}`, `"scenarios":[{"name":"without","totals":{"asked":4`,
		`"by_bot":[{"identity":"platform/feature","asked":3,"admitted":2,"refused":{"concurrency_cap_exceeded":1},"held_out":0,"waiting":0,"cut_short":0,"spent_usd":8,"waited_s":0}`,
		`"windows":[{"axis":"five_hour","opens":"2026-03-01T09:00:00Z"`, `"difference":[{"identity":"platform/review","gained":1,"lost":0,`,
	} {
		if !strings.Contains(string(doc), part) {
			t.Errorf("%s is missing in %s", part, doc)
		}
	}
}

func TestACancelledReplayEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, Input{Trace: read(t, storm, ReadOptions{})}); err == nil {
		t.Error("a replay whose context has ended answers")
	}
}

func TestThePartOfADurationIsExactForLargeNumbers(t *testing.T) {
	for _, row := range []struct {
		d           time.Duration
		part, whole holdfast.MicroUSD
		want        time.Duration
	}{
		{100 * time.Second, 1, 4, 25 * time.Second},
		{maxDuration, holdfast.MaxUSD - 1, holdfast.MaxUSD, maxDuration - 8*time.Microsecond},
		{maxDuration, holdfast.MaxUSD / 2, holdfast.MaxUSD, maxDuration / 2},
		{0, 1, 2, 0},
	} {
		if got := partOf(row.d, row.part, row.whole); got != row.want.Truncate(time.Millisecond) {
			t.Errorf("partOf(%s, %d, %d) = %s, want %s", row.d, row.part, row.whole, got, row.want)
		}
	}
}

func TestAWindowsShareRoundsUpAndNeverOverflows(t *testing.T) {
	for _, row := range []struct {
		usd, cost holdfast.MicroUSD
		want      holdfast.BasisPoints
	}{
		{10_000_000, 1_000_000, 1000}, {10_000_000, 1, 1}, {10_000_000, 1_000_001, 1001}, {10_000_000, 20_000_000, 20_000}, {holdfast.MaxUSD, holdfast.MaxUSD - 1, 10_000},
		{1, holdfast.MaxUSD, holdfast.BasisPoints(holdfast.MaxUSD)},
	} {
		w := window{cap: WindowCap{USD: row.usd}}
		if got := w.share(row.cost, true); got != row.want {
			t.Errorf("of %s a run of %s asks %d, want %d", row.usd, row.cost, got, row.want)
		}
	}
}

func TestTooManyRunsAtOnceAreBadInputAndNoCrash(t *testing.T) {
	var b strings.Builder
	b.WriteString("time,team,duration_s\n")
	for i := range holdfast.MaxOpenPerSubject + 1 {
		fmt.Fprintf(&b, "2026-03-01T09:00:00Z,a,%d\n", 60+i%7)
	}
	_, err := Run(context.Background(), Input{Trace: read(t, b.String(), ReadOptions{}), Caps: &Caps{}})
	if _, ok := errors.AsType[*holdfast.InvalidError](err); !ok || !strings.Contains(err.Error(), "at once") {
		t.Errorf("error %v", err)
	}
}
