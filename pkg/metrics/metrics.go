// Package metrics has the Prometheus series, and fills the event structs of the
// packages that have something to count. No series has a team, a bot, a run or a
// subject as a label: what has an owner is in the decisions and in the capacity
// views, where its owner alone can see it.
package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
)

// Metrics is a registry of its own with every series of a process. All its methods
// may be called from any number of goroutines; none of them blocks.
type Metrics struct {
	registry *prometheus.Registry

	admitted, denied, failedOpen     *prometheus.CounterVec
	allocations, expired, fallback   *prometheus.CounterVec
	policyUnavailable, settingFailed *prometheus.CounterVec
	sweptEntries, sweptRuns, near    *prometheus.CounterVec
	runChanges, attempts, deliveries *prometheus.CounterVec

	ledgerErrors, undoFailed, settleFailed prometheus.Counter
	sweepPasses, sweepQuiet, sweepFailed   prometheus.Counter
	repaired, archived, fenced             prometheus.Counter
	decisionsDropped, decisionsFailed      prometheus.Counter
	refreshFailed, disagreements           *prometheus.CounterVec

	outstanding, runs    *prometheus.GaugeVec
	queueDepth, streams  prometheus.Gauge
	gateSeconds, ledgerS *prometheus.HistogramVec

	surfaces    *prometheus.CounterVec
	missed      prometheus.Counter
	deadLetters prometheus.Gauge
}

// latency is the buckets of the histograms, in seconds: from a memory write to a
// store that is nearly away.
func latency() []float64 {
	return []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
}

// ReasonLabels are the values of the label "reason" of holdfast_launch_denied_total:
// every reason of the gate, and the cause that stands in for one when only a
// reservation stood in the way.
func ReasonLabels() []string {
	var labels []string
	for _, reason := range holdfast.DenyReasons() {
		labels = append(labels, string(reason))
	}
	return append(labels, string(holdfast.CauseReserved))
}

// Axes are the values of the label "axis".
func Axes() []holdfast.Axis {
	return []holdfast.Axis{holdfast.AxisSlots, holdfast.AxisRuns, holdfast.AxisUSD, holdfast.AxisFiveHour, holdfast.AxisWeek, holdfast.AxisInFlight}
}

// New registers every series. Counters whose labels are known begin at zero, so that
// a rate over them sees the first event too.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "holdfast_" + name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	counter := func(name, help string) prometheus.Counter { return counters(name, help).WithLabelValues() }
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "holdfast_" + name, Help: help}, labels)
		m.registry.MustRegister(g)
		return g
	}
	histograms := func(name, help string, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "holdfast_" + name, Help: help, Buckets: latency()}, labels)
		m.registry.MustRegister(h)
		return h
	}

	m.admitted = counters("launch_admitted_total", "Launches that the gate admitted, by where they came from.", "surface")
	m.denied = counters("launch_denied_total", "Launches that the gate refused; capacity_reserved when only a reservation stood in the way.", "reason")
	m.failedOpen = counters("launch_failed_open_total", "Checks that could not be made and let a launch through.", "check")
	m.gateSeconds = histograms("launch_gate_seconds", "How long the gate took to judge a launch.", "verdict")
	m.undoFailed = counter("launch_undo_failed_total", "Things that a failed launch took and could not give back; their lease ends them.")
	m.settleFailed = counter("launch_settle_failed_total", "Ended runs whose allocations could not be closed at once; a sweep closes them.")
	m.runChanges = counters("run_changes_total", "New states of run documents, by the status that they came to.", "status")
	m.sweptRuns = counters("run_sweeps_total", "Runs that a sweep put right, by sweep.", "sweep")

	m.outstanding = gauges("capacity_outstanding", "What is promised and not used yet, over all subjects of an axis, in its unit (dollars, slots, runs, percent).", "axis")
	m.allocations = counters("capacity_allocations_total", "Allocations by what became of the ask: acquired or denied, and of the acquired: settled, released, expired.", "axis", "outcome")
	m.expired = counters("capacity_expired_total", "Allocations that nobody renewed and whose holder was dead.", "axis")
	m.near = counters("capacity_near_total", "Subjects whose balance passed 80 or 95 percent of its cap on the way up, as this process saw it.", "axis", "percent")
	m.fallback = counters("capacity_ledger_fallback_total", "Asks that were judged on the run documents because the ledger was away.", "axis")
	m.ledgerErrors = counter("capacity_ledger_errors_total", "Calls of the ledger that failed.")
	m.ledgerS = histograms("capacity_ledger_seconds", "How long a call of the ledger's store took.", "operation")
	m.sweptEntries = counters("capacity_sweep_entries_total", "Entries that were due, by what the sweep did: extended because their holder lives, left because nobody knows.", "result")
	m.sweepPasses = counter("capacity_sweep_passes_total", "Passes of the sweep over the ledger.")
	m.sweepQuiet = counter("capacity_sweep_quiet_total", "Passes that swept nothing because of a recent start or outage.")
	m.sweepFailed = counter("capacity_sweep_failed_total", "Passes that could not be finished.")
	m.repaired = counter("capacity_repaired_total", "Records whose counters differed from their entries and were mended.")
	m.disagreements = counters("store_disagreements_total", "Subjects of which a start found that the ledger and the run documents disagree, by the store that lost something.", "lost")
	m.archived = counter("capacity_archived_total", "Closed allocations that moved to the history.")

	m.policyUnavailable = counters("policy_unavailable_total", "Readings of the policy that were stale or never made.", "reader", "arm")
	m.settingFailed = counters("setting_read_failed_total", "Readings of a setting that failed, and what was served.", "setting", "arm")

	m.surfaces = counters("surface_tries_total", "Launches that something tried by itself, by what became of them.", "surface", "outcome")
	m.missed = counter("schedule_missed_ticks_total", "Ticks of schedules that came while no server could launch.")
	m.deadLetters = gauges("queue_dead_letters", "Messages that no runner could take, waiting for an operator.").WithLabelValues()

	m.runs = gauges("runs", "Runs that are not over, by status.", "status")
	m.queueDepth = gauges("queue_messages", "Messages that wait for a runner or are in the hands of one.").WithLabelValues()
	m.deliveries = counters("queue_deliveries_total", "Deliveries to a runner, by how they ended.", "disposition")
	m.attempts = counters("runner_attempts_total", "Attempts that this process's runner began and ended.", "ending")
	m.fenced = counter("runner_fenced_total", "Attempts that were stopped because no renewal was acknowledged in time.")
	m.streams = gauges("event_streams", "Open event streams.").WithLabelValues()
	m.decisionsDropped = counter("decisions_dropped_total", "Decisions that are lost: too many waited, or a team had too many.")
	m.decisionsFailed = counter("decisions_failed_total", "Writes or prunings of decisions that failed; they are tried again.")
	m.refreshFailed = counters("metrics_refresh_failed_total", "Gauges that could not be read.", "gauge")
	m.begin()
	return m
}

// Policy shows at each scrape how well the policy of reservations is known: 1 for the
// state that it is in. It is called once.
func (m *Metrics) Policy(state func() platformcfg.State) {
	for _, each := range []platformcfg.State{platformcfg.Fresh, platformcfg.Stale, platformcfg.Absent, platformcfg.Never} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "holdfast_policy_state", Help: "1 for how well the policy of reservations is known: stale and never are in doubt.",
			ConstLabels: prometheus.Labels{"state": string(each)},
		}, func() float64 {
			if state() == each {
				return 1
			}
			return 0
		}))
	}
}

// begin makes the series whose labels are known beforehand.
func (m *Metrics) begin() {
	for _, label := range ReasonLabels() {
		m.denied.WithLabelValues(label)
	}
	for _, axis := range Axes() {
		for _, outcome := range []string{acquired, refused, "settled", "released", "expired"} {
			m.allocations.WithLabelValues(string(axis), outcome)
		}
		m.expired.WithLabelValues(string(axis))
		m.fallback.WithLabelValues(string(axis))
		for _, percent := range []string{"80", "95"} {
			m.near.WithLabelValues(string(axis), percent)
		}
	}
	for _, reader := range []string{"gate", "walk"} {
		for _, arm := range []platformcfg.State{platformcfg.Stale, platformcfg.Never} {
			m.policyUnavailable.WithLabelValues(reader, string(arm))
		}
	}
	for _, result := range []string{"expired", "extended", "left"} {
		m.sweptEntries.WithLabelValues(result)
	}
	for _, lost := range []launch.Lost{launch.LostLedger, launch.LostRecords} {
		m.disagreements.WithLabelValues(string(lost))
	}
}

// The outcomes of an ask that are no outcome of an allocation.
const (
	acquired = "acquired"
	refused  = "denied"
)

// Handler answers in the text format of Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Gatherer reads every series, as tests and other exporters need.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }
