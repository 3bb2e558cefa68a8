package node

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/metrics"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/queue/nats"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/server"
)

// watcher tells the metrics, the event stream and the log what the parts do. The
// parts know none of the three.
type watcher struct {
	metrics *metrics.Metrics
	broker  *server.Broker
	log     *slog.Logger
	// changed is told every subject whose balance moved; it is set before anything
	// moves.
	changed func(holdfast.Subject)
	// launching is nil until there is a service: a connection may be lost before.
	launching atomic.Pointer[launch.Service]
}

// outage is told that a store or the queue was away until now: holders could not
// renew.
func (w *watcher) outage() {
	if s := w.launching.Load(); s != nil {
		s.NoteOutage()
	}
}

func newWatcher(broker *server.Broker, log *slog.Logger) *watcher {
	return &watcher{metrics: metrics.New(), broker: broker, log: log, changed: func(holdfast.Subject) {}}
}

func (w *watcher) ledger() capacityledger.Events {
	counted := w.metrics.Ledger()
	return capacityledger.Events{
		Reserved: func(a capacityledger.Allocation) { counted.Reserved(a); w.changed(a.Subject) },
		Denied:   counted.Denied,
		Closed:   func(a capacityledger.Allocation) { counted.Closed(a); w.changed(a.Subject) },
		Failed: func(operation string, err error) {
			if errors.Is(err, context.Canceled) { // as an exec's last renewal, when its command ends: it says nothing of the ledger
				w.log.Debug("nobody waited any more for the ledger to "+operation, "error", err)
				return
			}
			counted.Failed(operation, err)
			w.log.Warn("the ledger could not "+operation, "error", err)
			if errors.Is(err, capacityledger.ErrUnavailable) {
				w.outage()
			}
		},
	}
}

func (w *watcher) launch() launch.Events {
	told := w.metrics.Launch()
	counted := told.RunChanged
	told.RunChanged = func(run runs.Run) {
		counted(run)
		onWire := server.RunOnWire(run)
		w.broker.Publish(api.Event{Type: server.EventRun, Team: string(run.Team), Run: &onWire})
	}
	return told
}

func (w *watcher) sweep() capacityledger.SweepEvents {
	told := w.metrics.Sweep()
	counted, left, failed := told.Expired, told.Left, told.Failed
	told.Expired = func(a capacityledger.Allocation) {
		counted(a)
		w.changed(a.Subject)
		w.log.Info("expired what nobody renewed", "allocation", a.ID, "amount", a.Amount.String())
	}
	told.Left = func(a capacityledger.Allocation, err error) {
		left(a, err)
		w.log.Warn("left an overdue allocation open: nothing is known of its holder", "allocation", a.ID, "error", err)
	}
	told.Failed = func(err error) {
		failed(err)
		w.log.Warn("a sweep failed and goes on with the next pass", "error", err)
	}
	return told
}

func (w *watcher) settings(ttl time.Duration) platformcfg.Options {
	return platformcfg.Options{TTL: ttl, Failed: func(family string, err error, served platformcfg.State) {
		w.metrics.SettingFailed(family, err, served)
		w.log.Warn("a setting could not be read", "setting", family, "served", served, "error", err)
	}}
}

func (w *watcher) decisions() decisions.Options {
	return decisions.Options{
		Recorded: func(d decisions.Decision) {
			onWire := server.DecisionOnWire(d)
			w.broker.Publish(api.Event{Type: server.EventDecision, Team: string(d.Team), Decision: &onWire})
		},
		Dropped: w.metrics.DecisionsDropped,
		Failed: func(err error) {
			w.metrics.DecisionsFailed(err)
			w.log.Warn("decisions wait to be written", "error", err)
		},
	}
}

func (w *watcher) queue() nats.Events {
	return nats.Events{Ended: w.metrics.DeliveryEnded} // the queue itself logs what it cannot read or apply
}
