package launch

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
)

// RateKey names the bucket of a team or of an organisation.
type RateKey string

// TeamRate is a team's bucket.
func TeamRate(team holdfast.TeamID) RateKey { return RateKey(team) }

// OrgRate is an organisation's bucket. No team's name has a colon.
func OrgRate(org holdfast.OrgID) RateKey { return RateKey("org:" + string(org)) }

// RateLimiter limits how often a team or an organisation launches. A bucket holds as
// many launches as there are in a minute, and fills at that rate.
type RateLimiter interface {
	// Take takes one launch; when none is there it says how long until there is one.
	Take(ctx context.Context, key RateKey, perMinute int64, now time.Time) (taken bool, wait time.Duration, err error)
	// Left is how many launches are there. It takes none.
	Left(ctx context.Context, key RateKey, perMinute int64, now time.Time) (int64, error)
	// Give puts one back; a full bucket stays full.
	Give(ctx context.Context, key RateKey, perMinute int64, now time.Time) error
}

// Buckets is a [RateLimiter] in this process. The zero value is ready; every bucket
// begins full.
type Buckets struct {
	mu      sync.Mutex
	buckets map[RateKey]bucket
}

var _ RateLimiter = (*Buckets)(nil)

// bucket counts in parts of a launch, of which a rate of one per minute earns one
// in a millisecond, so that filling is exact.
type bucket struct {
	level int64
	at    time.Time
}

// onePart is how many parts make a launch: the milliseconds of a minute.
const onePart = int64(time.Minute / time.Millisecond)

// filled is a bucket as it stands at an instant. A clock that steps back fills
// nothing.
func (b bucket) filled(perMinute int64, now time.Time) bucket {
	passed := min(max(0, now.Sub(b.at)), time.Minute).Milliseconds()
	b.level = min(perMinute*onePart, b.level+passed*perMinute)
	if now.After(b.at) {
		b.at = now
	}
	return b
}

// wait is how long until a filled bucket has a launch; zero when it has one.
func (b bucket) wait(perMinute int64) time.Duration {
	short := max(0, onePart-b.level)
	return time.Duration((short+perMinute-1)/perMinute) * time.Millisecond
}

// filled is a key's bucket as it stands at an instant.
func (b *Buckets) filled(key RateKey, perMinute int64, now time.Time) bucket {
	state, known := b.buckets[key]
	if !known {
		return bucket{perMinute * onePart, now}
	}
	return state.filled(perMinute, now)
}

func (b *Buckets) put(key RateKey, state bucket) {
	if b.buckets == nil {
		b.buckets = map[RateKey]bucket{}
	}
	b.buckets[key] = state
}

// Take implements [RateLimiter].
func (b *Buckets) Take(_ context.Context, key RateKey, perMinute int64, now time.Time) (bool, time.Duration, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := b.filled(key, perMinute, now)
	if state.level < onePart {
		b.put(key, state)
		return false, state.wait(perMinute), nil
	}
	state.level -= onePart
	b.put(key, state)
	return true, 0, nil
}

// Left implements [RateLimiter].
func (b *Buckets) Left(_ context.Context, key RateKey, perMinute int64, now time.Time) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.filled(key, perMinute, now).level / onePart, nil
}

// Give implements [RateLimiter].
func (b *Buckets) Give(_ context.Context, key RateKey, perMinute int64, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := b.filled(key, perMinute, now)
	state.level = min(perMinute*onePart, state.level+onePart)
	b.put(key, state)
	return nil
}
