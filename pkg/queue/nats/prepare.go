package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock"
)

// ErrMissing: a stream or a consumer of the queue is not there: it was never made, or
// NATS lost its data. [Bus.Prepare] makes it.
var ErrMissing = errors.New("a part of the queue is missing")

// Prepare makes the streams and consumers where they are missing, and brings those
// that exist to this connection's settings. Any number of servers may do so at once,
// again and again: what is there keeps its messages.
func (b *Bus) Prepare(ctx context.Context) error {
	for _, c := range streams(b.options) {
		if err := b.ensureStream(ctx, c); err != nil {
			return fmt.Errorf("queue stream %s: %w", c.Name, err)
		}
	}
	pools := b.knownPools()
	b.forgetPools()
	for _, pool := range pools {
		if err := b.makePool(ctx, pool); err != nil {
			return err
		}
	}
	for stream, c := range consumers(b.options) {
		if stream == runStream {
			continue // it is a pool's, with the pool's ceiling
		}
		if _, err := b.js.CreateOrUpdateConsumer(ctx, stream, c); err != nil {
			return fmt.Errorf("queue consumer %s: %w", c.Durable, err)
		}
	}
	return nil
}

// ensureStream makes a stream; making one that is there as it should be changes
// nothing, whoever was first.
func (b *Bus) ensureStream(ctx context.Context, c jetstream.StreamConfig) error {
	_, err := b.js.CreateStream(ctx, c)
	if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return err
	}
	if _, err := b.js.UpdateStream(ctx, c); err != nil {
		return fmt.Errorf("it exists with other settings, which cannot be changed to these: %w", err)
	}
	return nil
}

// Check asks NATS for every stream and consumer, and says by how much the clock of
// NATS is ahead of this machine's (negative: behind), as far as the time that the
// asking took can tell. The error matches [ErrMissing] when one is not there.
func (b *Bus) Check(ctx context.Context, c clock.Clock) (skew time.Duration, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for _, config := range streams(b.options) {
		asked := c.Now()
		stream, err := b.js.Stream(ctx, config.Name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return 0, fmt.Errorf("%w: stream %s", ErrMissing, config.Name)
		case err != nil:
			return 0, fmt.Errorf("queue stream %s: %w", config.Name, err)
		}
		skew = apart(stream.CachedInfo().TimeStamp, asked, c.Now())
	}
	wanted := consumers(b.options)
	for _, pool := range b.knownPools() {
		wanted[b.options.runStream(pool.Name)] = b.options.runConsumerConfig(pool)
	}
	for stream, config := range wanted {
		_, err := b.js.Consumer(ctx, stream, config.Durable)
		switch {
		case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
			return 0, fmt.Errorf("%w: consumer %s", ErrMissing, config.Durable)
		case err != nil:
			return 0, fmt.Errorf("queue consumer %s: %w", config.Durable, err)
		}
	}
	return skew, nil
}

// apart is how far an instant lies outside of the interval in which it was asked for.
func apart(there, asked, got time.Time) time.Duration {
	switch {
	case there.IsZero():
		return 0
	case there.Before(asked):
		return there.Sub(asked)
	case there.After(got):
		return there.Sub(got)
	}
	return 0
}

// Attach is [Bus.Prepare] of a runner, which makes nothing: it waits until a server
// has made what runners need, and refuses a lease that does not fit the servers'. A
// runner that believed in a longer one would go on when its capacity belongs to
// others.
func (b *Bus) Attach(ctx context.Context) error {
	for failures := uint64(0); ; failures++ {
		consumer, err := b.js.Consumer(ctx, b.options.runStream(b.options.Pool), b.options.runnerGroup(b.options.Pool))
		if err == nil {
			return b.fits(consumer.CachedInfo().Config)
		}
		b.options.Log.Info("waiting for a server to make the queue", "err", err)
		if !pause(ctx, grow(pullRetry, pullRetryMost, failures)) {
			return fmt.Errorf("no server has made the queue: %w", err)
		}
	}
}

// fits holds the consumer that servers made against this runner's settings.
func (b *Bus) fits(config jetstream.ConsumerConfig) error {
	lease := 2 * config.AckWait
	switch {
	case config.AckPolicy != jetstream.AckExplicitPolicy:
		return fmt.Errorf("the consumer %s is not one that Holdfast made", b.options.runnerGroup(b.options.Pool))
	case b.options.Lease > lease:
		return &holdfast.InvalidError{
			Field: "lease", Problem: fmt.Sprintf("%v is longer than the lease of the servers, %v", b.options.Lease, lease), Allowed: fmt.Sprintf("at most %v", lease),
		}
	}
	return nil
}
