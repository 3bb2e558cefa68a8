package launch

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
)

// RateLimiter limits how often a team launches. A bucket holds as many launches as
// the team has in a minute, and fills at that rate.
type RateLimiter interface {
	// Take takes one launch; when none is there it says how long until there is one.
	Take(ctx context.Context, team holdfast.TeamID, perMinute int64, now time.Time) (taken bool, wait time.Duration, err error)
	// Left is how many launches are there. It takes none.
	Left(ctx context.Context, team holdfast.TeamID, perMinute int64, now time.Time) (int64, error)
	// Give puts one back; a full bucket stays full.
	Give(ctx context.Context, team holdfast.TeamID, perMinute int64, now time.Time) error
}

// Buckets is a [RateLimiter] in this process. The zero value is ready; every bucket
// begins full.
type Buckets struct {
	mu      sync.Mutex
	buckets map[holdfast.TeamID]bucket
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

// filled is the team's bucket as it stands at an instant.
func (b *Buckets) filled(team holdfast.TeamID, perMinute int64, now time.Time) bucket {
	state, known := b.buckets[team]
	if !known {
		return bucket{perMinute * onePart, now}
	}
	return state.filled(perMinute, now)
}

func (b *Buckets) put(team holdfast.TeamID, state bucket) {
	if b.buckets == nil {
		b.buckets = map[holdfast.TeamID]bucket{}
	}
	b.buckets[team] = state
}

// Take implements [RateLimiter].
func (b *Buckets) Take(_ context.Context, team holdfast.TeamID, perMinute int64, now time.Time) (bool, time.Duration, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := b.filled(team, perMinute, now)
	if state.level < onePart {
		b.put(team, state)
		short := onePart - state.level
		return false, time.Duration((short+perMinute-1)/perMinute) * time.Millisecond, nil
	}
	state.level -= onePart
	b.put(team, state)
	return true, 0, nil
}

// Left implements [RateLimiter].
func (b *Buckets) Left(_ context.Context, team holdfast.TeamID, perMinute int64, now time.Time) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.filled(team, perMinute, now).level / onePart, nil
}

// Give implements [RateLimiter].
func (b *Buckets) Give(_ context.Context, team holdfast.TeamID, perMinute int64, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := b.filled(team, perMinute, now)
	state.level = min(perMinute*onePart, state.level+onePart)
	b.put(team, state)
	return nil
}
