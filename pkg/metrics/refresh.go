package metrics

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// Sources are what the gauges are read from; nil fields leave their gauge at zero.
type Sources struct {
	Ledger *capacityledger.Ledger
	Runs   *runs.Repository
	// QueueDepth is how many messages wait or are worked on.
	QueueDepth func(context.Context) (int64, error)
	// DeadLetters is how many messages wait for an operator.
	DeadLetters func(context.Context) (int64, error)
	// Streams is how many event streams are open.
	Streams func() int
}

// Run reads the gauges every period (zero: 30 s) until the context ends. They are
// read on their own time and not at the scrape, so that a scraper cannot load the
// stores. A source that fails leaves its gauge as it was and is counted.
func (m *Metrics) Run(ctx context.Context, sources Sources, every time.Duration) error {
	if every <= 0 {
		every = 30 * time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		_ = m.Refresh(ctx, sources)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Refresh reads the gauges once.
func (m *Metrics) Refresh(ctx context.Context, sources Sources) error {
	var failed []error
	note := func(gauge string, err error) {
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", gauge, err))
			m.refreshFailed.WithLabelValues(gauge).Inc()
		}
	}
	if sources.Ledger != nil {
		note("capacity_outstanding", m.refreshOutstanding(ctx, sources.Ledger))
	}
	if sources.Runs != nil {
		note("runs", m.refreshRuns(ctx, sources.Runs))
	}
	if sources.DeadLetters != nil {
		depth, err := sources.DeadLetters(ctx)
		if err == nil {
			m.deadLetters.Set(float64(depth))
		}
		note("queue_dead_letters", err)
	}
	if sources.QueueDepth != nil {
		depth, err := sources.QueueDepth(ctx)
		if err == nil {
			m.queueDepth.Set(float64(depth))
		}
		note("queue_messages", err)
	}
	if sources.Streams != nil {
		m.streams.Set(float64(sources.Streams()))
	}
	return errors.Join(failed...)
}

// maxSubjects bounds how many subjects one reading visits.
const maxSubjects = 20_000

// refreshOutstanding sums what is promised over the subjects of each axis.
func (m *Metrics) refreshOutstanding(ctx context.Context, ledger *capacityledger.Ledger) error {
	sums := map[holdfast.Axis]int64{}
	after := ""
	for seen := 0; seen < maxSubjects; {
		page, err := ledger.Subjects(ctx, after, 500)
		if err != nil {
			return err
		}
		for _, subject := range page {
			balance, err := ledger.Outstanding(ctx, subject)
			if err != nil {
				return err
			}
			sums[subject.Axis] += balance.Outstanding
		}
		if len(page) < 500 {
			break
		}
		seen += len(page)
		after = page[len(page)-1].String()
	}
	for _, axis := range Axes() {
		m.outstanding.WithLabelValues(string(axis)).Set(float64(sums[axis]) / grain(axis))
	}
	return nil
}

// grain is how many of the ledger's units are one of the gauge's.
func grain(axis holdfast.Axis) float64 {
	switch axis.Unit() {
	case holdfast.UnitUSD:
		return float64(holdfast.OneUSD)
	case holdfast.UnitPercent:
		return 100
	case holdfast.UnitSlots, holdfast.UnitRuns, holdfast.UnitNone:
	}
	return 1
}

// refreshRuns counts the runs that are not over.
func (m *Metrics) refreshRuns(ctx context.Context, repository *runs.Repository) error {
	for _, status := range runs.Statuses() {
		if status.Ended() {
			continue
		}
		n, err := repository.Count(ctx, status)
		if err != nil {
			return err
		}
		m.runs.WithLabelValues(string(status)).Set(float64(n))
	}
	return nil
}
