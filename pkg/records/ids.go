package records

import (
	"crypto/rand"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// IDs makes time-ordered record ids (ULIDs). The ids of one IDs rise strictly, also
// within a millisecond and when the clock steps back. Its zero value is ready; it
// must not be copied after the first use.
type IDs struct {
	mu      sync.Mutex
	entropy *ulid.MonotonicEntropy
	last    uint64 // milliseconds of the last id
}

// Next is a new id of the instant.
func (g *IDs) Next(now time.Time) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.entropy == nil {
		g.entropy = ulid.Monotonic(rand.Reader, 0)
	}
	g.last = max(g.last, ulid.Timestamp(now))
	id, err := ulid.New(g.last, g.entropy)
	for err != nil { // the millisecond's numbers are used up
		g.last++
		id, err = ulid.New(g.last, g.entropy)
	}
	return id.String()
}

// FirstID is not above any id that [IDs] makes from the instant on: the lower bound
// of a list "since". Instants before 1970 are 1970.
func FirstID(since time.Time) string {
	var id ulid.ULID
	if since.Unix() > 0 {
		// The only error is a time past the year 10889.
		_ = id.SetTime(ulid.Timestamp(since))
	}
	return id.String()
}
