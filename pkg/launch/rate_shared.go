package launch

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/pkg/records"
)

// SharedBuckets is a [RateLimiter] that all replicas over one record store share: a
// bucket is one record, changed by compare and set. Every bucket begins full.
// The replicas' clocks may be apart: a bucket is filled up to the latest instant
// that any of them has shown, so it never fills twice for the same time.
type SharedBuckets struct {
	table *records.Table[sharedBucket]
	// One launch at a time changes a bucket from this process, so that only
	// replicas race and the bounded tries are enough for them.
	turns [64]sync.Mutex
	seed  maphash.Seed
}

var _ RateLimiter = (*SharedBuckets)(nil)

// sharedBucket is the record of a bucket.
type sharedBucket struct {
	Key   RateKey   `json:"key"`
	Level int64     `json:"level"`
	At    time.Time `json:"at"`
}

// NewSharedBuckets opens the buckets in db.
func NewSharedBuckets(ctx context.Context, db records.DB) (*SharedBuckets, error) {
	table, err := records.NewTable(ctx, db, records.Schema{Name: "launch_rates"}, func(b sharedBucket) string { return string(b.Key) }, nil)
	if err != nil {
		return nil, err
	}
	return &SharedBuckets{table: table, seed: maphash.MakeSeed()}, nil
}

// errNoToken ends an update of a bucket that has no launch to give.
var errNoToken = errors.New("the bucket has no launch")

// Take implements [RateLimiter].
func (s *SharedBuckets) Take(ctx context.Context, key RateKey, perMinute int64, now time.Time) (taken bool, wait time.Duration, err error) {
	var short time.Duration
	err = s.change(ctx, key, perMinute, now, func(b *bucket) error {
		if b.level < onePart {
			short = b.wait(perMinute)
			return errNoToken
		}
		b.level -= onePart
		return nil
	})
	switch {
	case errors.Is(err, errNoToken):
		return false, short, nil
	case err != nil:
		return false, 0, fmt.Errorf("launch rate of %s: %w", key, err)
	}
	return true, 0, nil
}

// Left implements [RateLimiter].
func (s *SharedBuckets) Left(ctx context.Context, key RateKey, perMinute int64, now time.Time) (int64, error) {
	v, err := s.table.Get(ctx, string(key))
	switch {
	case errors.Is(err, records.ErrNotFound):
		return perMinute, nil
	case err != nil:
		return 0, fmt.Errorf("launch rate of %s: %w", key, err)
	}
	return bucket{v.Value.Level, v.Value.At}.filled(perMinute, now).level / onePart, nil
}

// Give implements [RateLimiter].
func (s *SharedBuckets) Give(ctx context.Context, key RateKey, perMinute int64, now time.Time) error {
	err := s.change(ctx, key, perMinute, now, func(b *bucket) error {
		b.level = min(perMinute*onePart, b.level+onePart)
		return nil
	})
	if err != nil {
		return fmt.Errorf("launch rate of %s: %w", key, err)
	}
	return nil
}

// change edits a bucket as it stands at an instant, and makes it when it is the
// first launch. Lost races are tried again, a bounded number of times.
func (s *SharedBuckets) change(ctx context.Context, key RateKey, perMinute int64, now time.Time, edit func(*bucket) error) error {
	turn := &s.turns[maphash.String(s.seed, string(key))%uint64(len(s.turns))]
	turn.Lock()
	defer turn.Unlock()
	update := func() error {
		_, err := s.table.Update(ctx, string(key), func(stored *sharedBucket) error {
			b := bucket{stored.Level, stored.At}.filled(perMinute, now)
			if err := edit(&b); err != nil {
				return err
			}
			stored.Level, stored.At = b.level, b.at
			return nil
		})
		return err
	}
	err := update()
	if !errors.Is(err, records.ErrNotFound) {
		return err
	}
	_, err = s.table.Insert(ctx, sharedBucket{Key: key, Level: perMinute * onePart, At: now})
	if err != nil && !errors.Is(err, records.ErrExists) {
		return err
	}
	return update()
}
