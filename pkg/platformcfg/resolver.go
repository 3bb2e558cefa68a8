package platformcfg

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/pkg/clock"
)

// State is the readiness with which a value was read (ADR-155 §8). There are four
// answers, because "nothing was written" and "nobody knows what was written" call
// for different things.
type State string

// The states. The zero value is none.
const (
	// Fresh: the last read succeeded and found a value.
	Fresh State = "fresh"
	// Stale: the last read failed; the value is the last one known.
	Stale State = "stale"
	// Absent: the last read succeeded and found that nothing was ever written.
	Absent State = "absent"
	// Never: no read has succeeded yet.
	Never State = "never"
)

// Known says whether the value is what was written, as far as anybody knew.
func (s State) Known() bool { return s == Fresh || s == Stale || s == Absent }

// Defaults of [ResolverOptions].
const (
	DefaultTTL   = 30 * time.Second
	DefaultBound = 3 * time.Second
	// coldRetry is how soon a resolver that has never succeeded tries again.
	coldRetry = time.Second
)

// ResolverOptions of a [Resolver]. The zero value is the defaults.
type ResolverOptions struct {
	TTL   time.Duration // how long a read is served; zero: DefaultTTL
	Bound time.Duration // how long one read may take; zero: DefaultBound
	// Failed is told of a read that failed, and what is served for it: Stale or
	// Never. Nil tells nobody.
	Failed func(error, State)
}

func (o ResolverOptions) withDefaults() ResolverOptions {
	if o.TTL <= 0 {
		o.TTL = DefaultTTL
	}
	if o.Bound <= 0 {
		o.Bound = DefaultBound
	}
	if o.Failed == nil {
		o.Failed = func(error, State) {}
	}
	return o
}

// Resolver caches one value of a store and says how well it knows it. One caller
// at a time reads, outside the lock and detached from its own cancellation; the
// others are served what is known meanwhile, or wait where nothing is.
type Resolver[T any] struct {
	read    func(context.Context) (value T, found bool, err error)
	clock   clock.Clock
	options ResolverOptions

	mu         sync.Mutex
	value      T
	state      State
	due        time.Time     // when the value must be read again
	generation uint64        // bumped by Invalidate
	dirty      bool          // the value is older than a write: nobody is served it unasked
	reading    chan struct{} // closed when the read under way is over; nil: none is
	asOf       time.Time     // when a read succeeded last
	failure    error         // why the last read failed; nil: it did not
}

// Standing is how well a value is known, without the value.
type Standing struct {
	State State
	// AsOf is when the value was read from the store; zero for one that never was.
	AsOf time.Time
	// Err is why the last read failed; nil where it did not, and before the first.
	Err error
}

// InDoubt says that what is served may not be what is written: the last read failed.
func (s Standing) InDoubt() bool { return s.Err != nil }

// Standing says how well the value is known that a [Resolver.Lookup] would be served
// now. It reads nothing.
func (r *Resolver[T]) Standing() Standing {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Standing{State: r.state, AsOf: r.asOf, Err: r.failure}
}

// NewResolver caches what read answers. read gets a bounded context; found says
// whether anything is written.
func NewResolver[T any](clock clock.Clock, read func(context.Context) (value T, found bool, err error), options ResolverOptions) *Resolver[T] {
	return &Resolver[T]{read: read, clock: clock, options: options.withDefaults(), state: Never}
}

// Lookup is the value and how well it is known. It never fails: what cannot be read
// is served stale, or as the zero value in the state [Never]. A caller who waits for
// the first read, or for the read after a write, may give up with ctx; it is then
// served what is known.
func (r *Resolver[T]) Lookup(ctx context.Context) (T, State) {
	for {
		r.mu.Lock()
		switch {
		case !r.clock.Now().Before(r.due) && r.reading == nil:
			r.refresh(ctx) // unlocks
			continue
		case r.reading == nil || (r.state != Never && !r.dirty):
			value, state := r.value, r.state
			r.mu.Unlock()
			return value, state
		}
		over := r.reading
		r.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.value, r.state
		}
	}
}

// refresh reads once. It is called with the lock held and returns without it.
func (r *Resolver[T]) refresh(ctx context.Context) {
	over := make(chan struct{})
	r.reading = over
	generation := r.generation
	r.mu.Unlock()

	value, found, err := r.readOnce(ctx)

	r.mu.Lock()
	r.reading = nil
	failed := Never
	if r.generation == generation { // else a write came in between: read again
		r.settle(value, found, err)
		failed = r.state
	}
	r.mu.Unlock()
	close(over)
	if err != nil {
		r.options.Failed(err, failed)
	}
}

// settle takes the outcome of a read. A failure keeps the value and rests as long
// as a success does, so that a dead store is not hammered; a cold one is asked
// again sooner.
func (r *Resolver[T]) settle(value T, found bool, err error) {
	rest := r.options.TTL
	r.failure = err
	if err == nil {
		r.asOf = r.clock.Now()
	}
	switch {
	case err != nil && r.state == Never:
		rest = min(rest, coldRetry)
	case err != nil:
		r.state = Stale
	case found:
		r.value, r.state = value, Fresh
	default:
		var nothing T
		r.value, r.state = nothing, Absent
	}
	r.dirty = false
	r.due = r.clock.Now().Add(rest)
}

// readOnce reads under its own bound: the caller who happens to read must not fail
// the others by hanging up. A panic of the store is an error of this read.
func (r *Resolver[T]) readOnce(ctx context.Context) (value T, found bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.options.Bound)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("read panicked: %v", p)
		}
	}()
	return r.read(ctx)
}

// Invalidate makes the next lookup read, and discards a read that is under way: it
// may have begun before the write. The value stays, for when that read fails.
func (r *Resolver[T]) Invalidate() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation++
	r.due = time.Time{}
	r.dirty = true
}
