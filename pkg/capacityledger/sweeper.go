package capacityledger

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock"
)

// Liveness is what is known of an allocation's holder. The zero value is "unknown",
// which never closes anything.
type Liveness uint8

// The three answers.
const (
	LivenessUnknown Liveness = iota
	Alive
	Dead
)

// LivenessFunc says whether the holder of an allocation whose lease ran out is
// still alive. An error is counted and means unknown.
type LivenessFunc func(context.Context, Allocation) (Liveness, error)

// SweepEvents are told what a pass did, after it is certain. Nil fields are no-ops.
type SweepEvents struct {
	Expired  func(Allocation)
	Extended func(Allocation)
	// Left is told of an entry that is due and stays open because nothing is known of
	// its holder or this build does not know its kind; err says more where there is more.
	Left   func(a Allocation, err error)
	Passed func(PassResult)
	Failed func(error)
}

// SweeperOptions configure a [Sweeper]. The zero value of each is its default; a
// negative Skew or Quiet is none.
type SweeperOptions struct {
	Clock      clock.Clock
	Every      time.Duration // 15 s between passes
	Batch      int           // 200 entries are read and closed at once
	PassBudget time.Duration // 10 s for one pass; the next goes on where it stopped
	Lease      time.Duration // 120 s by which an entry of a live holder is extended
	Skew       time.Duration // 15 s by which a lease must be over, for clocks that differ
	Quiet      time.Duration // nothing is swept for that long after the start or an outage; the lease
	Events     SweepEvents
}

// PassResult says what one pass did.
type PassResult struct {
	Closed   int
	Extended int
	Left     int
	Quiet    bool // the pass swept nothing, because of a recent start or outage
	More     bool // the pass ran out of its budget
	Repaired Repaired
}

// Sweeper gives back what dead holders still hold. Every replica may run one: a
// close is conditional on the entry being open with the expiry that was read, so any
// number of passes make one close. It charges nothing.
type Sweeper struct {
	ledger   *Ledger
	liveness LivenessFunc
	options  SweeperOptions

	passing sync.Mutex // one pass at a time

	mu     sync.Mutex
	quiet  time.Time // nothing is swept before it
	cursor Cursor    // where the last pass ran out of its budget
}

// NewSweeper is a sweeper over the ledger. Its quiet time begins now.
func NewSweeper(ledger *Ledger, liveness LivenessFunc, options SweeperOptions) (*Sweeper, error) {
	if ledger == nil || liveness == nil {
		return nil, errors.New("a sweeper needs a ledger and a liveness function")
	}
	if options.Clock == nil {
		options.Clock = ledger.clock
	}
	if options.Batch <= 0 {
		options.Batch = 200
	}
	options.Every = fallback(options.Every, 15*time.Second)
	options.PassBudget = fallback(options.PassBudget, 10*time.Second)
	options.Lease = fallback(options.Lease, 120*time.Second)
	options.Skew = max(0, fallback(options.Skew, 15*time.Second))
	options.Quiet = max(0, fallback(options.Quiet, options.Lease))
	s := &Sweeper{ledger: ledger, liveness: liveness, options: options}
	s.NoteOutage(options.Clock.Now())
	return s, nil
}

func fallback(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// NoteOutage tells that the store or the queue was unreachable until now: holders
// could not renew, so nothing is swept for the quiet time.
func (s *Sweeper) NoteOutage(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until := now.Add(s.options.Quiet); until.After(s.quiet) {
		s.quiet = until
	}
}

// Quiet says whether nothing is swept now, because of a recent start or outage. Who
// holds somebody dead for a silence asks after reading what says so: an outage may have
// ended while it was read.
func (s *Sweeper) Quiet() bool {
	now := s.options.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.quiet)
}

// Run makes a pass every period until ctx ends, and then returns nil. What goes
// wrong in a pass is told to Events.Failed and tried again in the next.
func (s *Sweeper) Run(ctx context.Context) error {
	ticker := time.NewTicker(s.options.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if _, err := s.Pass(ctx); err != nil && ctx.Err() == nil && s.options.Events.Failed != nil {
				s.options.Events.Failed(err)
			}
		}
	}
}

// Pass sweeps once: the entries whose lease is over, oldest first, until none is
// left or the budget is used, and then the housekeeping.
func (s *Sweeper) Pass(ctx context.Context) (PassResult, error) {
	s.passing.Lock()
	defer s.passing.Unlock()
	now := s.options.Clock.Now()
	s.mu.Lock()
	cursor := s.cursor
	s.mu.Unlock()

	result := PassResult{Quiet: s.Quiet()}
	var err error
	if !result.Quiet {
		cursor, err = s.walk(ctx, now.Add(-s.options.Skew), cursor, true, &result)
		s.mu.Lock()
		s.cursor = cursor
		s.mu.Unlock()
	}
	if err == nil {
		result.Repaired, err = s.ledger.store.Repair(ctx, now, s.options.Batch)
		err = s.noted(err)
	}
	if s.options.Events.Passed != nil {
		s.options.Events.Passed(result)
	}
	return result, err
}

// farFuture is after every expiry.
var farFuture = time.Date(9000, time.January, 1, 0, 0, 0, 0, time.UTC)

// Reclaim closes every open entry whose holder is dead, whatever its expiry says,
// and ends the quiet time: for a process that knows at its start that its former
// self is dead and with it whatever it ran. Live and unknown holders keep theirs.
func (s *Sweeper) Reclaim(ctx context.Context) (PassResult, error) {
	s.passing.Lock()
	defer s.passing.Unlock()
	var result PassResult
	cursor := Cursor{}
	for {
		var err error
		result.More = false
		if cursor, err = s.walk(ctx, farFuture, cursor, false, &result); err != nil {
			return result, err
		}
		if !result.More {
			break
		}
	}
	s.mu.Lock()
	s.quiet = time.Time{}
	s.mu.Unlock()
	return result, nil
}

// walk goes through what is due until nothing is left or the budget is used, and
// says where it stopped; the zero cursor when it came to the end.
func (s *Sweeper) walk(ctx context.Context, until time.Time, cursor Cursor, extend bool, result *PassResult) (Cursor, error) {
	start := s.options.Clock.Now()
	for {
		asked := s.options.Clock.Now()
		due, err := s.ledger.store.Due(ctx, until, cursor, s.options.Batch)
		if err != nil {
			return cursor, s.noted(s.ledger.failed("sweep", err))
		}
		if len(due) == 0 {
			return Cursor{}, nil
		}
		dead, alive := s.judged(ctx, due, extend, result)
		if extend && s.interrupted(asked) {
			result.Quiet = true
			return cursor, nil
		}
		if err := s.apply(ctx, dead, alive, result); err != nil {
			return cursor, s.noted(err)
		}
		last := due[len(due)-1]
		cursor = Cursor{Expires: last.ExpiresAt, ID: last.ID}
		if len(due) < s.options.Batch {
			return Cursor{}, nil
		}
		if s.options.Clock.Now().Sub(start) >= s.options.PassBudget {
			result.More = true
			return cursor, nil
		}
	}
}

// interrupted says whether an outage ended since then: one that was told, or one that
// this sweeper sat out itself. Stores that are away may let a call wait and then answer
// it; whoever waited for half of the quiet time could not renew either.
func (s *Sweeper) interrupted(since time.Time) bool {
	if now := s.options.Clock.Now(); s.options.Quiet > 0 && now.Sub(since) > s.options.Quiet/2 {
		s.NoteOutage(now)
	}
	return s.Quiet()
}

// judged asks for each entry whether its holder lives, and says which are closed and
// which are extended.
func (s *Sweeper) judged(ctx context.Context, due []Allocation, extend bool, result *PassResult) (dead []Allocation, alive []Moving) {
	now := s.options.Clock.Now()
	for _, a := range due {
		liveness, err := LivenessUnknown, error(nil)
		if known(a.Subject) {
			liveness, err = s.liveness(ctx, a)
		}
		switch {
		case err == nil && liveness == Dead:
			dead = append(dead, a)
		case err == nil && liveness == Alive:
			if extend {
				alive = append(alive, Moving{ID: a.ID, Attempt: a.Attempt, Sequence: a.Sequence, Expires: now.Add(s.options.Lease)})
			}
		default:
			result.Left++
			if s.options.Events.Left != nil {
				s.options.Events.Left(a, err)
			}
		}
	}
	return dead, alive
}

// apply closes the dead and extends the living.
func (s *Sweeper) apply(ctx context.Context, dead []Allocation, alive []Moving, result *PassResult) error {
	now := s.options.Clock.Now()
	closed, err := s.ledger.expire(ctx, now, dead)
	if err != nil {
		return err
	}
	result.Closed += len(closed)
	if s.options.Events.Expired != nil {
		for _, a := range closed {
			s.options.Events.Expired(a)
		}
	}
	return s.extend(ctx, now, alive, result)
}

// extend pushes the expiry of entries whose holder lives and could not renew.
func (s *Sweeper) extend(ctx context.Context, now time.Time, alive []Moving, result *PassResult) error {
	if len(alive) == 0 {
		return nil
	}
	moved, err := s.ledger.store.Move(ctx, now, alive)
	if err != nil {
		return s.ledger.failed("sweep", err)
	}
	for i, m := range moved {
		if m.Err != nil || m.Allocation.Outcome != Open || !m.Allocation.ExpiresAt.Equal(alive[i].Expires) {
			continue // closed in between, or its holder has renewed it by now
		}
		result.Extended++
		if s.options.Events.Extended != nil {
			s.options.Events.Extended(m.Allocation)
		}
	}
	return nil
}

// noted begins the quiet time anew when the store could not be reached.
func (s *Sweeper) noted(err error) error {
	if errors.Is(err, ErrUnavailable) {
		s.NoteOutage(s.options.Clock.Now())
	}
	return err
}

// known says whether this build knows the subject's kind and axis. Others were
// written by a newer replica, which is the one to close them.
func known(subject holdfast.Subject) bool {
	switch subject.Kind {
	case holdfast.KindTeam, holdfast.KindOrg, holdfast.KindAccount, holdfast.KindDonor, holdfast.KindRunnerPool, holdfast.KindPlatform:
		return subject.Axis.Unit() != holdfast.UnitNone
	}
	return false
}
