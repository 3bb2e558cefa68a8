// Package clock is where the time comes from. Rules never read a clock: they get
// the instant as an argument. What must read one is given a [Clock].
package clock

import "time"

// Clock says what time it is.
type Clock interface {
	// Now is the present in UTC, cut to the millisecond, which is the grain that
	// every store keeps.
	Now() time.Time
}

// System is the machine's clock.
type System struct{}

var _ Clock = System{}

// Now implements [Clock].
func (System) Now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
