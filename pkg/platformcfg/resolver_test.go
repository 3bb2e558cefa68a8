package platformcfg_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
)

// source is a store of one value that can be made to fail, to panic or to hang.
type source struct {
	mu     sync.Mutex
	value  int
	found  bool
	err    error
	panics bool
	during func(context.Context) // called within a read, without the lock
	reads  int
}

func (s *source) set(change func(*source)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *source) read(ctx context.Context) (int, bool, error) {
	s.mu.Lock()
	s.reads++
	value, found, err, panics, during := s.value, s.found, s.err, s.panics, s.during
	s.mu.Unlock()
	if during != nil {
		during(ctx)
	}
	if panics {
		panic("the driver is broken")
	}
	return value, found, err
}

func (s *source) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// answer is what a lookup said, as text.
func answer(t *testing.T, r *platformcfg.Resolver[int]) string {
	t.Helper()
	value, state := r.Lookup(t.Context())
	return fmt.Sprintf("%d %s", value, state)
}

func is(t *testing.T, r *platformcfg.Resolver[int], want, when string) {
	t.Helper()
	if got := answer(t, r); got != want {
		t.Errorf("%s: %s, want %s", when, got, want)
	}
}

var errDown = errors.New("the store is down")

// ADR-155 §8: the four answers, and that only one of them is "nobody knows".
func TestTheFourAnswersAreFour(t *testing.T) {
	s, c := &source{err: errDown}, clocktest.New()
	var failures []platformcfg.State
	r := platformcfg.NewResolver(c, s.read, platformcfg.ResolverOptions{Failed: func(_ error, served platformcfg.State) { failures = append(failures, served) }})
	is(t, r, "0 never", "cold and unreadable")

	s.set(func(s *source) { s.err = nil })
	c.Advance(platformcfg.DefaultTTL)
	is(t, r, "0 absent", "read, and nothing is written")

	s.set(func(s *source) { s.value, s.found = 7, true })
	c.Advance(platformcfg.DefaultTTL)
	is(t, r, "7 fresh", "read, and something is written")

	s.set(func(s *source) { s.err = errDown })
	is(t, r, "7 fresh", "within its time nobody asks")
	c.Advance(platformcfg.DefaultTTL)
	is(t, r, "7 stale", "warm, and the next read fails")
	c.Advance(24 * time.Hour)
	is(t, r, "7 stale", "warm, and down for a day")

	s.set(func(s *source) { s.err, s.found, s.value = nil, false, 0 })
	c.Advance(platformcfg.DefaultTTL)
	is(t, r, "0 absent", "read again, and it is gone")

	s.set(func(s *source) { s.err = errDown })
	c.Advance(platformcfg.DefaultTTL)
	is(t, r, "0 stale", "what is known is that nothing was written")

	want := []platformcfg.State{platformcfg.Never, platformcfg.Stale, platformcfg.Stale, platformcfg.Stale}
	if diff := cmp.Diff(want, failures); diff != "" {
		t.Errorf("the failures that were told: %s", diff)
	}
	for state, known := range map[platformcfg.State]bool{platformcfg.Fresh: true, platformcfg.Stale: true, platformcfg.Absent: true, platformcfg.Never: false, "": false} {
		if state.Known() != known {
			t.Errorf("%q is known: %t, want %t", state, state.Known(), known)
		}
	}
}

func TestAReadIsServedForItsTimeAndAFailureRestsAsLong(t *testing.T) {
	s, c := &source{value: 1, found: true}, clocktest.New()
	r := platformcfg.NewResolver(c, s.read, platformcfg.ResolverOptions{TTL: 10 * time.Second})
	for range 5 {
		is(t, r, "1 fresh", "within its time")
	}
	c.Advance(10*time.Second - time.Millisecond)
	is(t, r, "1 fresh", "a moment before its end")
	if s.count() != 1 {
		t.Errorf("%d reads, want 1", s.count())
	}
	s.set(func(s *source) { s.err = errDown })
	c.Advance(time.Millisecond)
	for range 5 {
		is(t, r, "1 stale", "down")
	}
	if s.count() != 2 {
		t.Errorf("%d reads, want 2: a dead store is not asked by every launch", s.count())
	}
}

func TestAColdResolverTriesAgainSoon(t *testing.T) {
	s, c := &source{err: errDown}, clocktest.New()
	r := platformcfg.NewResolver(c, s.read, platformcfg.ResolverOptions{})
	is(t, r, "0 never", "down")
	s.set(func(s *source) { s.value, s.found, s.err = 3, true, nil })
	is(t, r, "0 never", "at once, without asking again")
	c.Advance(time.Second)
	is(t, r, "3 fresh", "a second later")
}

func TestAPanicOfTheStoreIsAFailedRead(t *testing.T) {
	s, c := &source{value: 1, found: true}, clocktest.New()
	var failed error
	r := platformcfg.NewResolver(c, s.read, platformcfg.ResolverOptions{Failed: func(err error, _ platformcfg.State) { failed = err }})
	is(t, r, "1 fresh", "at first")
	s.set(func(s *source) { s.panics = true })
	c.Advance(platformcfg.DefaultTTL)
	is(t, r, "1 stale", "it panics")
	if failed == nil {
		t.Error("nobody was told")
	}
}

func TestOneCallerReadsAndTheOthersAreServedWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{value: 1, found: true}
		r := platformcfg.NewResolver(clock.System{}, s.read, platformcfg.ResolverOptions{})
		is(t, r, "1 fresh", "at first")
		time.Sleep(platformcfg.DefaultTTL)
		release := make(chan struct{})
		s.set(func(s *source) { s.value, s.during = 2, func(context.Context) { <-release } })
		go func() { _, _ = r.Lookup(t.Context()) }()
		synctest.Wait()
		for range 10 {
			is(t, r, "1 fresh", "while one reads")
		}
		if s.count() != 2 {
			t.Errorf("%d reads, want 2", s.count())
		}
		close(release)
		synctest.Wait()
		is(t, r, "2 fresh", "afterwards")
	})
}

func TestBeforeTheFirstReadEverybodyWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{value: 5, found: true}
		s.during = func(context.Context) { time.Sleep(time.Second) }
		r := platformcfg.NewResolver(clock.System{}, s.read, platformcfg.ResolverOptions{})
		var right atomic.Int64
		var group sync.WaitGroup
		for range 64 {
			group.Go(func() {
				if value, state := r.Lookup(t.Context()); value == 5 && state == platformcfg.Fresh {
					right.Add(1)
				}
			})
		}
		group.Wait()
		if right.Load() != 64 || s.count() != 1 {
			t.Errorf("%d of 64 were answered fresh, by %d reads; want all, by 1", right.Load(), s.count())
		}
	})
}

func TestAWaiterMayGiveUpAndTheReadGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{value: 5, found: true}
		s.during = func(context.Context) { time.Sleep(2 * time.Second) }
		r := platformcfg.NewResolver(clock.System{}, s.read, platformcfg.ResolverOptions{})
		go func() { _, _ = r.Lookup(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, state := r.Lookup(ctx); state != platformcfg.Never {
			t.Errorf("the impatient caller was told %s, want never", state)
		}
		time.Sleep(2 * time.Second)
		is(t, r, "5 fresh", "afterwards")
	})
}

func TestACallerWhoHangsUpDoesNotFailTheReadForTheOthers(t *testing.T) {
	s := &source{value: 5, found: true}
	s.during = func(ctx context.Context) {
		if ctx.Err() != nil {
			s.set(func(s *source) { s.value = -1 })
		}
	}
	r := platformcfg.NewResolver(clocktest.New(), func(ctx context.Context) (int, bool, error) {
		value, found, err := s.read(ctx)
		return value, found, errors.Join(err, ctx.Err())
	}, platformcfg.ResolverOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if value, state := r.Lookup(ctx); value != 5 || state != platformcfg.Fresh {
		t.Errorf("%d %s, want 5 fresh", value, state)
	}
}

func TestAStoreThatHangsCostsTheBoundAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{value: 1, found: true}
		r := platformcfg.NewResolver(clock.System{}, func(ctx context.Context) (int, bool, error) {
			value, found, err := s.read(ctx)
			return value, found, errors.Join(err, ctx.Err())
		}, platformcfg.ResolverOptions{})
		is(t, r, "1 fresh", "at first")
		time.Sleep(platformcfg.DefaultTTL)
		s.set(func(s *source) { s.during = func(ctx context.Context) { <-ctx.Done() } })
		began := time.Now()
		is(t, r, "1 stale", "it hangs")
		if took := time.Since(began); took != platformcfg.DefaultBound {
			t.Errorf("it took %s, want %s", took, platformcfg.DefaultBound)
		}
	})
}

func TestAReadThatBeganBeforeAWriteIsDiscarded(t *testing.T) {
	s, c := &source{value: 1, found: true}, clocktest.New()
	r := platformcfg.NewResolver(c, s.read, platformcfg.ResolverOptions{})
	wrote := false
	s.during = func(context.Context) {
		if !wrote { // the value 1 is read already; now it is written and invalidated
			wrote = true
			s.set(func(s *source) { s.value = 2 })
			r.Invalidate()
		}
	}
	is(t, r, "2 fresh", "the write came in between")
	if s.count() != 2 {
		t.Errorf("%d reads, want 2", s.count())
	}
}

func TestAfterAWriteNobodyIsServedWhatWasBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{value: 1, found: true}
		r := platformcfg.NewResolver(clock.System{}, s.read, platformcfg.ResolverOptions{})
		is(t, r, "1 fresh", "at first")
		s.set(func(s *source) { s.value, s.during = 2, func(context.Context) { time.Sleep(time.Second) } })
		r.Invalidate()
		var right atomic.Int64
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				if value, _ := r.Lookup(t.Context()); value == 2 {
					right.Add(1)
				}
			})
		}
		group.Wait()
		if right.Load() != 8 {
			t.Errorf("%d of 8 got the value that was written", right.Load())
		}
		s.set(func(s *source) { s.err, s.during = errDown, nil })
		r.Invalidate()
		is(t, r, "2 stale", "when the read after a write fails, the last known is served")
	})
}
