package nats

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/pkg/queue"
)

// Endings is the table of how work ends.
func Endings() map[queue.Disposition]string {
	table := map[queue.Disposition]string{}
	for d, e := range endings() {
		table[d] = string(e)
	}
	return table
}

// PublishRaw puts bytes on a run's or a report's subject.
func (b *Bus) PublishRaw(t *testing.T, subject string, body []byte) {
	t.Helper()
	if _, err := b.js.Publish(t.Context(), subject, body); err != nil {
		t.Fatal(err)
	}
}

// The subjects of a run.
const (
	RunSubjects    = runSubjects
	ReportSubjects = reportSubjects
	ClaimSubject   = claimSubject
)

// RunsLeft is how many run messages the queue holds.
func (b *Bus) RunsLeft(t *testing.T) int { return b.left(t, runStream) }

// ReportsLeft is how many reports the queue holds.
func (b *Bus) ReportsLeft(t *testing.T) int { return b.left(t, reportStream) }

func (b *Bus) left(t *testing.T, stream string) int {
	t.Helper()
	s, err := b.js.Stream(context.WithoutCancel(t.Context()), stream)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	return int(info.State.Msgs)
}

// Consumer is the runners' consumer as the server has it.
func (b *Bus) Consumer(t *testing.T) *jetstream.ConsumerInfo {
	t.Helper()
	c, err := b.js.Consumer(t.Context(), runStream, runnerGroup)
	if err != nil {
		t.Fatal(err)
	}
	return c.CachedInfo()
}

// RequestRaw asks on the claims' subject with any bytes.
func (b *Bus) RequestRaw(t *testing.T, body []byte) string {
	t.Helper()
	m, err := b.nc.RequestWithContext(t.Context(), claimSubject, body)
	if err != nil {
		t.Fatal(err)
	}
	return string(m.Data)
}

// PoolConsumer is the consumer of a pool's runners as the server has it.
func (b *Bus) PoolConsumer(t *testing.T, pool string) *jetstream.ConsumerInfo {
	t.Helper()
	c, err := b.js.Consumer(t.Context(), b.options.runStream(pool), b.options.runnerGroup(pool))
	if err != nil {
		t.Fatal(err)
	}
	return c.CachedInfo()
}

// LosePool removes what a pool has in NATS.
func (b *Bus) LosePool(t *testing.T, pool string) {
	t.Helper()
	if err := b.js.DeleteStream(t.Context(), b.options.runStream(pool)); err != nil {
		t.Fatal(err)
	}
}
