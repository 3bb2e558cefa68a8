package metrics

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// Stopwatch starts to measure on a monotonic clock and returns what tells how long
// it has been.
type Stopwatch func() func() time.Duration

// Timed is the store with the time of each call in the histogram
// holdfast_capacity_ledger_seconds. A nil stopwatch gives the store back as it is.
func (m *Metrics) Timed(store capacityledger.Store, stopwatch Stopwatch) capacityledger.Store {
	if stopwatch == nil {
		return store
	}
	return &timed{store: store, start: stopwatch, metrics: m}
}

type timed struct {
	store   capacityledger.Store
	start   Stopwatch
	metrics *Metrics
}

var _ capacityledger.Store = (*timed)(nil)

// measure is deferred with what start returned.
func (t *timed) measure(operation string) func() {
	took := t.start()
	return func() { t.metrics.ledgerS.WithLabelValues(operation).Observe(took().Seconds()) }
}

// Admit implements capacityledger.Store.
func (t *timed) Admit(ctx context.Context, now time.Time, subject holdfast.Subject, asks []capacityledger.Ask, judge capacityledger.JudgeFunc) ([]capacityledger.Admission, error) {
	defer t.measure("admit")()
	return t.store.Admit(ctx, now, subject, asks, judge)
}

// Move implements capacityledger.Store.
func (t *timed) Move(ctx context.Context, now time.Time, movings []capacityledger.Moving) ([]capacityledger.Moved, error) {
	defer t.measure("move")()
	return t.store.Move(ctx, now, movings)
}

// Close implements capacityledger.Store.
func (t *timed) Close(ctx context.Context, now time.Time, closings []capacityledger.Closing) ([]capacityledger.Closed, error) {
	defer t.measure("close")()
	return t.store.Close(ctx, now, closings)
}

// Balance implements capacityledger.Store.
func (t *timed) Balance(ctx context.Context, subject holdfast.Subject) (capacityledger.Balance, error) {
	defer t.measure("balance")()
	return t.store.Balance(ctx, subject)
}

// Get implements capacityledger.Store.
func (t *timed) Get(ctx context.Context, id holdfast.AllocationID) (capacityledger.Allocation, error) {
	defer t.measure("get")()
	return t.store.Get(ctx, id)
}

// Subjects implements capacityledger.Store.
func (t *timed) Subjects(ctx context.Context, after string, limit int) ([]holdfast.Subject, error) {
	defer t.measure("subjects")()
	return t.store.Subjects(ctx, after, limit)
}

// Due implements capacityledger.Store.
func (t *timed) Due(ctx context.Context, now time.Time, after capacityledger.Cursor, limit int) ([]capacityledger.Allocation, error) {
	defer t.measure("due")()
	return t.store.Due(ctx, now, after, limit)
}

// Repair implements capacityledger.Store.
func (t *timed) Repair(ctx context.Context, now time.Time, limit int) (capacityledger.Repaired, error) {
	defer t.measure("repair")()
	return t.store.Repair(ctx, now, limit)
}
