package nats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast"
)

// Pool is a group of runners that executes runs of its own. Each has its own stream and
// its own consumer, so that runs which wait for one pool hold nobody else's up.
type Pool struct {
	Name string // empty and "default" are the pool of runs that name none
	// MaxAckPending is how many of its runs are in the hands of its runners; 0 is what
	// [Options.MaxAckPending] says. What NATS is told is always the resolved number.
	MaxAckPending int
}

// defaultPool is the pool that always exists; its names on the wire are those without a
// pool.
const defaultPool = "default"

// poolOf folds the names of the default pool, and all of them where one runner
// executes every pool's runs.
func (o Options) poolOf(pool string) string {
	if pool == defaultPool || o.OnePool {
		return ""
	}
	return pool
}

func (o Options) runStream(pool string) string {
	if pool = o.poolOf(pool); pool != "" {
		return runStream + "_POOL_" + pool
	}
	return runStream
}

// runSubject is the subject of a run's message. A pool's subjects have more words than
// those without a pool, so that no stream takes another's.
func (o Options) runSubject(pool string, run holdfast.RunID) string {
	if pool = o.poolOf(pool); pool != "" {
		return runSubjects + "pool." + pool + "." + string(run)
	}
	return runSubjects + string(run)
}

func (o Options) runnerGroup(pool string) string {
	if pool = o.poolOf(pool); pool != "" {
		return runnerGroup + "-pool-" + pool
	}
	return runnerGroup
}

// checkPool keeps out names that would change the subject they become a part of.
func checkPool(pool string) error {
	if pool == "" || holdfast.ValidName(pool) {
		return nil
	}
	return &holdfast.InvalidError{Field: "pool", Problem: fmt.Sprintf("%q is not a pool's name", holdfast.Clip(pool, 80)), Allowed: "1 to 63 lower case letters, digits and single dashes"}
}

// runStreamConfig is the stream of a pool's runs.
func (o Options) runStreamConfig(pool string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: o.runStream(pool), Description: strings.TrimSpace("runs to execute " + o.poolOf(pool)), Subjects: []string{o.runSubject(pool, "*")},
		Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, Duplicates: dedupWindow, MaxAge: o.MaxAge,
		// A new publication of a run takes the place of the former one, so that a run has
		// one message at most.
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardOld, Replicas: o.Replicas,
	}
}

// runConsumerConfig is the consumer of a pool's runners.
func (o Options) runConsumerConfig(pool Pool) jetstream.ConsumerConfig {
	most := pool.MaxAckPending
	orElse(&most, o.MaxAckPending)
	return jetstream.ConsumerConfig{
		Durable: o.runnerGroup(pool.Name), AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverAllPolicy,
		AckWait: o.Lease / 2, MaxAckPending: most, MaxDeliver: -1,
	}
}

// SetPools says which pools there are beside the default one, and makes their streams
// and consumers, or brings their ceilings up to date. What was said before asks NATS
// nothing. A pool that is left out keeps its stream, because runs may wait there; the
// default pool may be named for its ceiling.
func (b *Bus) SetPools(ctx context.Context, pools []Pool) error {
	for _, pool := range pools {
		if err := checkPool(pool.Name); err != nil {
			return err
		}
		if b.knows(pool) {
			continue
		}
		if err := b.makePool(ctx, pool); err != nil {
			return err
		}
	}
	return nil
}

// knows says whether the pool was made by this connection, as it is now.
func (b *Bus) knows(pool Pool) bool {
	b.pooling.Lock()
	defer b.pooling.Unlock()
	known, made := b.pools[b.options.poolOf(pool.Name)]
	return made && known == pool
}

func (b *Bus) makePool(ctx context.Context, pool Pool) error {
	if err := b.ensureStream(ctx, b.options.runStreamConfig(pool.Name)); err != nil {
		return fmt.Errorf("queue stream of pool %s: %w", pool.Name, err)
	}
	if _, err := b.js.CreateOrUpdateConsumer(ctx, b.options.runStream(pool.Name), b.options.runConsumerConfig(pool)); err != nil {
		return fmt.Errorf("queue consumer of pool %s: %w", pool.Name, err)
	}
	b.pooling.Lock()
	defer b.pooling.Unlock()
	b.pools[b.options.poolOf(pool.Name)] = pool
	return nil
}

// ensurePool makes what a pool needs before its first run is published here, and leaves
// the ceiling alone that another server gave it.
func (b *Bus) ensurePool(ctx context.Context, name string) error {
	pool := b.options.poolOf(name)
	b.pooling.Lock()
	_, made := b.pools[pool]
	b.pooling.Unlock()
	if made || pool == "" {
		return nil
	}
	if err := b.ensureStream(ctx, b.options.runStreamConfig(pool)); err != nil {
		return fmt.Errorf("queue stream of pool %s: %w", pool, err)
	}
	_, err := b.js.CreateConsumer(ctx, b.options.runStream(pool), b.options.runConsumerConfig(Pool{Name: pool}))
	if err != nil && !errors.Is(err, jetstream.ErrConsumerExists) {
		return fmt.Errorf("queue consumer of pool %s: %w", pool, err)
	}
	return nil
}

// knownPools are the pools that were said, the default one first.
func (b *Bus) knownPools() []Pool {
	b.pooling.Lock()
	defer b.pooling.Unlock()
	pools := []Pool{b.pools[""]}
	for _, name := range slices.Sorted(maps.Keys(b.pools)) {
		if name != "" {
			pools = append(pools, b.pools[name])
		}
	}
	return pools
}

// forgetPools makes the next [Bus.SetPools] look again: NATS lost what was made.
func (b *Bus) forgetPools() {
	b.pooling.Lock()
	defer b.pooling.Unlock()
	b.pools = map[string]Pool{}
}
