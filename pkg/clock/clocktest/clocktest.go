// Package clocktest has a clock that is moved by hand.
package clocktest

import (
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/pkg/clock"
)

// T0 is where a [Manual] clock begins unless it is told otherwise.
var T0 = time.Date(2026, time.March, 10, 12, 0, 0, 0, time.UTC)

// Manual stands still until it is moved. Its zero value stands at the zero time;
// [New] makes one that stands at [T0].
type Manual struct {
	mu  sync.Mutex
	now time.Time
}

var _ clock.Clock = (*Manual)(nil)

// New is a clock that stands at T0.
func New() *Manual { return &Manual{now: T0} }

// At is a clock that stands at t.
func At(t time.Time) *Manual { return &Manual{now: t} }

// Now implements [clock.Clock].
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// Advance moves the clock by d, backwards when d is negative.
func (m *Manual) Advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = m.now.Add(d)
}

// Set puts the clock at t.
func (m *Manual) Set(t time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = t
}
