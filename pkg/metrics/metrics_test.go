package metrics_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/metrics"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

// series reads every series of the product: name{label=value,…} and its value.
func series(t *testing.T, m *metrics.Metrics) map[string]float64 {
	t.Helper()
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		name, ours := strings.CutPrefix(family.GetName(), "holdfast_")
		if !ours {
			continue
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, pair := range metric.GetLabel() {
				labels = append(labels, pair.GetName()+"="+pair.GetValue())
			}
			key := name
			if len(labels) > 0 {
				key += "{" + strings.Join(labels, ",") + "}"
			}
			out[key] = value(metric)
		}
	}
	return out
}

func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return float64(m.Histogram.GetSampleCount())
}

// moved is what is not zero.
func moved(all map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for key, n := range all {
		if n != 0 {
			out[key] = n
		}
	}
	return out
}

func TestTheReasonsOfTheMetricAreThoseOfTheGate(t *testing.T) {
	var have []string
	for key := range series(t, metrics.New()) {
		if reason, ok := strings.CutPrefix(key, "launch_denied_total{reason="); ok {
			have = append(have, strings.TrimSuffix(reason, "}"))
		}
	}
	want := []string{string(holdfast.CauseReserved)}
	for _, reason := range holdfast.DenyReasons() {
		want = append(want, string(reason))
	}
	sort.Strings(have)
	sort.Strings(want)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
}

func TestADenialIsCountedUnderItsCauseElseItsReason(t *testing.T) {
	m := metrics.New()
	decided := m.Launch().Decided
	decided(decisions.Decision{Team: "acme"}, holdfast.Denial{Reason: holdfast.DenyConcurrency}, time.Millisecond)
	decided(decisions.Decision{Team: "acme"}, holdfast.Denial{Reason: holdfast.DenyConcurrency, Cause: holdfast.CauseReserved}, time.Millisecond)
	decided(decisions.Decision{Team: "acme"}, holdfast.Denial{Reason: "made-up"}, time.Millisecond)
	decided(decisions.Decision{Team: "acme", Surface: "rest", Admitted: true}, holdfast.Denial{}, time.Millisecond)
	decided(decisions.Decision{Team: "acme", Surface: "acme's own", Admitted: true}, holdfast.Denial{}, time.Millisecond)
	want := map[string]float64{
		"launch_denied_total{reason=concurrency_cap_exceeded}": 1, "launch_denied_total{reason=capacity_reserved}": 1, "launch_denied_total{reason=other}": 1,
		"launch_admitted_total{surface=rest}": 1, "launch_admitted_total{surface=other}": 1,
		"launch_gate_seconds{verdict=denied}": 3, "launch_gate_seconds{verdict=admitted}": 2,
	}
	if diff := cmp.Diff(want, moved(series(t, m))); diff != "" {
		t.Error(diff)
	}
}

func TestAnAllocationIsCountedThroughItsLife(t *testing.T) {
	m, clock := metrics.New(), clocktest.New()
	ledger := capacityledger.New(m.Timed(memory.NewLedger(), func() func() time.Duration { return func() time.Duration { return time.Millisecond } }), capacityledger.Options{Clock: clock, Events: m.Ledger()})
	ctx := t.Context()
	reserve := func(run holdfast.RunID, subject holdfast.Subject, amount holdfast.Amount, most holdfast.Amount) holdfast.AllocationID {
		id := holdfast.NewAllocationID(run, subject, 0)
		_, _, err := ledger.Reserve(ctx, capacityledger.Ask{ID: id, Run: run, Holder: holdfast.PlatformBot("probe"), Requested: amount, Minimum: amount, Terms: capacityledger.Terms{Cap: holdfast.AtMost(most)}, Expires: clock.Now().Add(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	slots, dollars := holdfast.TeamSubject("acme", holdfast.AxisSlots, ""), holdfast.TeamSubject("acme", holdfast.AxisUSD, "2026-03")
	settled := reserve("R1", slots, holdfast.SlotAmount(1), holdfast.SlotAmount(1))
	reserve("R2", slots, holdfast.SlotAmount(1), holdfast.SlotAmount(1)) // denied
	released := reserve("R1", dollars, holdfast.USDAmount(2_500_000), holdfast.USDAmount(5_000_000))
	reserve("R2", dollars, holdfast.USDAmount(1_500_000), holdfast.USDAmount(5_000_000)) // expires
	if err := m.Refresh(ctx, metrics.Sources{Ledger: ledger}); err != nil {
		t.Fatal(err)
	}
	if got := series(t, m); got["capacity_outstanding{axis=usd}"] != 4 || got["capacity_outstanding{axis=slots}"] != 1 {
		t.Errorf("outstanding: %v dollars, %v slots", got["capacity_outstanding{axis=usd}"], got["capacity_outstanding{axis=slots}"])
	}
	if _, err := ledger.Settle(ctx, settled, capacityledger.Report{}); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Release(ctx, released); err != nil {
		t.Fatal(err)
	}
	clock.Advance(2 * time.Minute)
	if _, err := ledger.Expire(ctx, clock.Now(), 10); err != nil {
		t.Fatal(err)
	}
	if err := m.Refresh(ctx, metrics.Sources{Ledger: ledger}); err != nil {
		t.Fatal(err)
	}
	m.CapacityNear(holdfast.TeamSubject("acme", holdfast.AxisSlots, ""), 80)
	got := series(t, m)
	for key, want := range map[string]float64{
		"capacity_near_total{axis=slots,percent=80}": 1, "capacity_near_total{axis=slots,percent=95}": 0,
		"capacity_allocations_total{axis=slots,outcome=acquired}": 1, "capacity_allocations_total{axis=slots,outcome=denied}": 1,
		"capacity_allocations_total{axis=slots,outcome=settled}": 1, "capacity_allocations_total{axis=usd,outcome=acquired}": 2,
		"capacity_allocations_total{axis=usd,outcome=released}": 1, "capacity_allocations_total{axis=usd,outcome=expired}": 1,
		"capacity_expired_total{axis=usd}": 1, "capacity_expired_total{axis=slots}": 0,
		"capacity_outstanding{axis=usd}": 0, "capacity_outstanding{axis=slots}": 0,
		"capacity_ledger_seconds{operation=admit}": 4, "capacity_ledger_seconds{operation=close}": 3, "capacity_ledger_seconds{operation=due}": 1,
	} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
}

// A stale policy, or one that was never read, is one gauge that is not fresh.
func TestHowWellThePolicyIsKnownIsShownAtEachScrape(t *testing.T) {
	m, state := metrics.New(), platformcfg.Never
	m.Policy(func() platformcfg.State { return state })
	for _, state = range []platformcfg.State{platformcfg.Fresh, platformcfg.Stale, platformcfg.Absent, platformcfg.Never} {
		got := series(t, m)
		for _, each := range []platformcfg.State{platformcfg.Fresh, platformcfg.Stale, platformcfg.Absent, platformcfg.Never} {
			want := 0.0
			if each == state {
				want = 1
			}
			if value := got["policy_state{state="+string(each)+"}"]; value != want {
				t.Errorf("%s: the series of %s is %v", state, each, value)
			}
		}
	}
}

func TestEveryEventHasItsSeries(t *testing.T) {
	m := metrics.New()
	before := series(t, m)
	l, s, r := m.Launch(), m.Sweep(), m.Runner()
	l.RunChanged(runs.Run{Status: runs.Finished, Team: "acme"})
	l.FailedOpen("concurrency")
	l.LedgerFallback(holdfast.AxisUSD)
	l.LedgerFallback("team-acme")
	l.PolicyUnavailable("gate", platformcfg.Never)
	l.UndoFailed("slot of acme", errors.New("x"))
	l.SettleFailed("R", errors.New("x"))
	l.Swept("republish", 3)
	m.Ledger().Failed("reserve team/acme/slots", errors.New("x"))
	s.Expired(capacityledger.Allocation{})
	s.Extended(capacityledger.Allocation{})
	s.Left(capacityledger.Allocation{}, nil)
	s.Passed(capacityledger.PassResult{Quiet: true, Repaired: capacityledger.Repaired{Subjects: 2, Archived: 5}})
	s.Failed(errors.New("x"))
	r.Started(queue.RunMessage{Team: "acme"})
	r.Ended(queue.RunMessage{Team: "acme"}, queue.Report{Ending: queue.EndFinished})
	r.Fenced("R")
	m.SettingFailed("limits", errors.New("x"), platformcfg.Stale)
	m.DecisionsDropped(4)
	m.DecisionsFailed(errors.New("x"))
	m.DeliveryEnded("ack")
	want := map[string]float64{
		"run_changes_total{status=finished}": 1, "launch_failed_open_total{check=concurrency}": 1,
		"capacity_ledger_fallback_total{axis=usd}": 1, "capacity_ledger_fallback_total{axis=other}": 1,
		"policy_unavailable_total{arm=never,reader=gate}": 1, "launch_undo_failed_total": 1, "launch_settle_failed_total": 1,
		"run_sweeps_total{sweep=republish}": 3, "capacity_ledger_errors_total": 1,
		"capacity_sweep_entries_total{result=expired}": 1, "capacity_sweep_entries_total{result=extended}": 1, "capacity_sweep_entries_total{result=left}": 1,
		"capacity_sweep_passes_total": 1, "capacity_sweep_quiet_total": 1, "capacity_sweep_failed_total": 1, "capacity_repaired_total": 2, "capacity_archived_total": 5,
		"runner_attempts_total{ending=started}": 1, "runner_attempts_total{ending=finished}": 1, "runner_fenced_total": 1,
		"setting_read_failed_total{arm=stale,setting=limits}": 1, "decisions_dropped_total": 4, "decisions_failed_total": 1, "queue_deliveries_total{disposition=ack}": 1,
	}
	after := series(t, m)
	if diff := cmp.Diff(want, moved(after)); diff != "" {
		t.Error(diff)
	}
	if len(moved(before)) != 0 {
		t.Errorf("before anything happened: %v", moved(before))
	}
	for key := range after {
		for _, tenant := range []string{"acme", "team=", "bot=", "run=R", "subject="} {
			if strings.Contains(key, tenant) {
				t.Errorf("%s tells whose it is", key)
			}
		}
	}
}

func TestASourceThatFailsLeavesItsGaugeAndIsCounted(t *testing.T) {
	m, ctx := metrics.New(), t.Context()
	depth, failing := int64(7), error(nil)
	sources := metrics.Sources{QueueDepth: func(context.Context) (int64, error) { return depth, failing }, Streams: func() int { return 3 }}
	if err := m.Refresh(ctx, sources); err != nil {
		t.Fatal(err)
	}
	depth, failing = 0, errors.New("away")
	if err := m.Refresh(ctx, sources); !errors.Is(err, failing) {
		t.Errorf("the error is %v", err)
	}
	want := map[string]float64{"queue_messages": 7, "event_streams": 3, "metrics_refresh_failed_total{gauge=queue_messages}": 1}
	if diff := cmp.Diff(want, moved(series(t, m))); diff != "" {
		t.Error(diff)
	}
}

func TestRunsAreCountedByStatusWhileTheyAreNotOver(t *testing.T) {
	m, ctx := metrics.New(), t.Context()
	repository, err := runs.New(ctx, memory.NewRecords())
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range []runs.Status{runs.Queued, runs.Running, runs.Running, runs.Finished} {
		if _, err := repository.Insert(ctx, runs.Run{ID: repository.NewID(clocktest.T0), Team: "acme", Identity: holdfast.PlatformBot("probe"), Status: status}); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Refresh(ctx, metrics.Sources{Runs: repository}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{"runs{status=queued}": 1, "runs{status=running}": 2}, moved(series(t, m))); diff != "" {
		t.Error(diff)
	}
}

func TestThePageIsInTheTextFormat(t *testing.T) {
	answer := httptest.NewRecorder()
	metrics.New().Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	lines := strings.Split(answer.Body.String(), "\n")
	if answer.Code != 200 || !slices.Contains(lines, `holdfast_launch_denied_total{reason="capacity_reserved"} 0`) {
		t.Errorf("%d, %d lines", answer.Code, len(lines))
	}
}
