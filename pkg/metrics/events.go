package metrics

import (
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runner"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// other stands in for a word that is no constant of this build, so that nothing from
// outside ever becomes a label.
const other = "other"

// axisLabel is an axis as a label.
func axisLabel(a holdfast.Axis) string {
	if slices.Contains(Axes(), a) {
		return string(a)
	}
	return other
}

// Ledger counts what a ledger does.
func (m *Metrics) Ledger() capacityledger.Events {
	return capacityledger.Events{
		Reserved: func(a capacityledger.Allocation) {
			m.allocations.WithLabelValues(axisLabel(a.Subject.Axis), acquired).Inc()
		},
		Denied: func(ask capacityledger.Ask, _ holdfast.Denial) {
			m.allocations.WithLabelValues(axisLabel(ask.Subject().Axis), refused).Inc()
		},
		Closed: func(a capacityledger.Allocation) {
			m.allocations.WithLabelValues(axisLabel(a.Subject.Axis), string(a.Outcome)).Inc()
			if a.Outcome == capacityledger.Expired {
				m.expired.WithLabelValues(axisLabel(a.Subject.Axis)).Inc()
			}
		},
		Failed: func(string, error) { m.ledgerErrors.Inc() },
	}
}

// CapacityNear counts a subject that passed a mark, in percent of its cap.
func (m *Metrics) CapacityNear(subject holdfast.Subject, percent int) {
	m.near.WithLabelValues(axisLabel(subject.Axis), strconv.Itoa(percent)).Inc()
}

// Sweep counts what the sweep over the ledger does.
func (m *Metrics) Sweep() capacityledger.SweepEvents {
	return capacityledger.SweepEvents{
		Expired:  func(capacityledger.Allocation) { m.sweptEntries.WithLabelValues("expired").Inc() },
		Extended: func(capacityledger.Allocation) { m.sweptEntries.WithLabelValues("extended").Inc() },
		Left:     func(capacityledger.Allocation, error) { m.sweptEntries.WithLabelValues("left").Inc() },
		Passed: func(r capacityledger.PassResult) {
			m.sweepPasses.Inc()
			if r.Quiet {
				m.sweepQuiet.Inc()
			}
			m.repaired.Add(float64(r.Repaired.Subjects))
			m.archived.Add(float64(r.Repaired.Archived))
		},
		Failed: func(error) { m.sweepFailed.Inc() },
	}
}

// Launch counts what the gate and its sweeps do.
func (m *Metrics) Launch() launch.Events {
	return launch.Events{
		Decided: func(d decisions.Decision, denial holdfast.Denial, took time.Duration) {
			if denial.Denied() {
				m.gateSeconds.WithLabelValues(refused).Observe(took.Seconds())
				m.denied.WithLabelValues(reasonLabel(denial)).Inc()
				return
			}
			m.gateSeconds.WithLabelValues("admitted").Observe(took.Seconds())
			m.admitted.WithLabelValues(surfaceLabel(d.Surface)).Inc()
		},
		RunChanged: func(r runs.Run) { m.runChanges.WithLabelValues(string(r.Status)).Inc() },
		FailedOpen: func(check string) { m.failedOpen.WithLabelValues(check).Inc() },
		LedgerFallback: func(a holdfast.Axis) {
			m.fallback.WithLabelValues(axisLabel(a)).Inc()
		},
		PolicyUnavailable: func(reader string, state platformcfg.State) {
			m.policyUnavailable.WithLabelValues(reader, string(state)).Inc()
		},
		UndoFailed:   func(string, error) { m.undoFailed.Inc() },
		SettleFailed: func(holdfast.RunID, error) { m.settleFailed.Inc() },
		Swept:        func(sweep string, n int) { m.sweptRuns.WithLabelValues(sweep).Add(float64(n)) },
	}
}

func reasonLabel(d holdfast.Denial) string {
	if label := d.MetricLabel(); slices.Contains(ReasonLabels(), label) {
		return label
	}
	return other
}

// surfaceLabel is a surface as a label. Surfaces are words of the gate and not of
// callers; its list keeps it so.
func surfaceLabel(surface string) string {
	if slices.Contains(launch.Surfaces(), launch.Surface(surface)) {
		return surface
	}
	return other
}

// Runner counts what this process's runner does.
func (m *Metrics) Runner() runner.Events {
	return runner.Events{
		Started: func(queue.RunMessage) { m.attempts.WithLabelValues("started").Inc() },
		Ended: func(_ queue.RunMessage, r queue.Report) {
			m.attempts.WithLabelValues(string(r.Ending)).Inc()
		},
		Fenced: func(holdfast.RunID) { m.fenced.Inc() },
	}
}

// SettingFailed counts readings of a setting that failed; it fits
// platformcfg.Options.
func (m *Metrics) SettingFailed(family string, _ error, served platformcfg.State) {
	m.settingFailed.WithLabelValues(family, string(served)).Inc()
}

// StoreDisagrees counts a subject on which the ledger and the run documents disagree.
func (m *Metrics) StoreDisagrees(lost launch.Lost) {
	m.disagreements.WithLabelValues(string(lost)).Inc()
}

// DecisionsDropped counts decisions that are lost; it fits decisions.Options.
func (m *Metrics) DecisionsDropped(n int) { m.decisionsDropped.Add(float64(n)) }

// DecisionsFailed counts writes of decisions that failed; it fits decisions.Options.
func (m *Metrics) DecisionsFailed(error) { m.decisionsFailed.Inc() }

// DeliveryEnded counts deliveries of the queue by how they ended.
func (m *Metrics) DeliveryEnded(disposition string) {
	m.deliveries.WithLabelValues(disposition).Inc()
}
