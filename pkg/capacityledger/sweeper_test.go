package capacityledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

// sweeping is a ledger on a clock moved by hand, whose holders live as a map says;
// who is not in it is dead.
type sweeping struct {
	t        *testing.T
	clock    *clocktest.Manual
	store    *ledgertest.Faulty
	ledger   *capacityledger.Ledger
	liveness map[holdfast.RunID]capacityledger.Liveness
	runs     int
}

func newSweeping(t *testing.T) *sweeping {
	s := &sweeping{t: t, clock: clocktest.New(), store: &ledgertest.Faulty{Store: memory.NewLedger()}, liveness: map[holdfast.RunID]capacityledger.Liveness{}}
	s.ledger = capacityledger.New(s.store, capacityledger.Options{Clock: s.clock})
	return s
}

func (s *sweeping) alive(_ context.Context, a capacityledger.Allocation) (capacityledger.Liveness, error) {
	if l, ok := s.liveness[a.Run]; ok {
		return l, nil
	}
	return capacityledger.Dead, nil
}

// sweeper is one without a quiet time.
func (s *sweeping) sweeper(options capacityledger.SweeperOptions) *capacityledger.Sweeper {
	s.t.Helper()
	if options.Quiet == 0 {
		options.Quiet = -1
	}
	sweeper, err := capacityledger.NewSweeper(s.ledger, s.alive, options)
	if err != nil {
		s.t.Fatal(err)
	}
	return sweeper
}

// hold reserves one unit with half a minute of lease.
func (s *sweeping) hold(subject holdfast.Subject) capacityledger.Allocation {
	s.t.Helper()
	s.runs++
	run := holdfast.RunID(fmt.Sprintf("01JQ00Z000%016d", s.runs))
	a, denial, err := s.ledger.Reserve(s.t.Context(), capacityledger.Ask{
		ID: holdfast.NewAllocationID(run, subject, 0), Run: run, Holder: feature, Terms: capacityledger.Terms{Cap: holdfast.NoLimit},
		Requested: holdfast.AmountOf(subject.Axis.Unit(), 1), Expires: s.clock.Now().Add(30 * time.Second),
	})
	if err != nil || denial.Denied() {
		s.t.Fatalf("%s %v", denial.Public, err)
	}
	return a
}

func (s *sweeping) pass(sweeper *capacityledger.Sweeper) capacityledger.PassResult {
	s.t.Helper()
	result, err := sweeper.Pass(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	if err := ledgertest.Invariants(s.t.Context(), s.store); err != nil {
		s.t.Fatal(err)
	}
	return result
}

func (s *sweeping) outstanding(subject holdfast.Subject) int64 {
	s.t.Helper()
	b, err := s.ledger.Outstanding(s.t.Context(), subject)
	if err != nil {
		s.t.Fatal(err)
	}
	return b.Outstanding
}

func TestSweeperGivesBackWhatWasAbandoned(t *testing.T) {
	s := newSweeping(t)
	sweeper := s.sweeper(capacityledger.SweeperOptions{Skew: -1})
	s.hold(slots)
	s.hold(dollars)
	s.clock.Advance(31 * time.Second)
	if r := s.pass(sweeper); r.Closed != 2 {
		t.Errorf("closed %d, want 2", r.Closed)
	}
	if s.outstanding(slots) != 0 || s.outstanding(dollars) != 0 {
		t.Errorf("%d and %d are still out", s.outstanding(slots), s.outstanding(dollars))
	}
	if b, _ := s.ledger.Outstanding(t.Context(), dollars); b.Settled != 0 {
		t.Errorf("the sweep charged %d", b.Settled)
	}
}

func TestSweeperLeavesWhatIsNotDue(t *testing.T) {
	s := newSweeping(t)
	sweeper := s.sweeper(capacityledger.SweeperOptions{Skew: 15 * time.Second})
	s.hold(slots)
	s.clock.Advance(10 * time.Second)
	s.hold(slots)
	for _, c := range []struct {
		advance time.Duration
		left    int64
	}{{19 * time.Second, 2}, {15*time.Second + 999*time.Millisecond, 2}, {time.Millisecond, 1}, {10 * time.Second, 0}} {
		s.clock.Advance(c.advance)
		s.pass(sweeper)
		if got := s.outstanding(slots); got != c.left {
			t.Errorf("at %s: %d are out, want %d", s.clock.Now().Sub(clocktest.T0), got, c.left)
		}
	}
}

func TestSweeperExtendsTheLivingAndLeavesTheUnknown(t *testing.T) {
	s := newSweeping(t)
	var extended, left []holdfast.RunID
	sweeper := s.sweeper(capacityledger.SweeperOptions{Skew: -1, Lease: time.Minute, Events: capacityledger.SweepEvents{
		Extended: func(a capacityledger.Allocation) { extended = append(extended, a.Run) },
		Left:     func(a capacityledger.Allocation, _ error) { left = append(left, a.Run) },
	}})
	living, unknown, dead := s.hold(slots), s.hold(slots), s.hold(slots)
	s.liveness[living.Run], s.liveness[unknown.Run] = capacityledger.Alive, capacityledger.LivenessUnknown
	s.clock.Advance(time.Minute)
	if r := s.pass(sweeper); r.Closed != 1 || r.Extended != 1 || r.Left != 1 {
		t.Errorf("closed %d, extended %d, left %d; want one each", r.Closed, r.Extended, r.Left)
	}
	if diff := cmp.Diff([][]holdfast.RunID{{living.Run}, {unknown.Run}}, [][]holdfast.RunID{extended, left}); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	a, err := s.ledger.Get(t.Context(), living.ID)
	if err != nil || !a.ExpiresAt.Equal(s.clock.Now().Add(time.Minute)) {
		t.Errorf("the living one expires at %s, %v", a.ExpiresAt, err)
	}
	if a, _ := s.ledger.Get(t.Context(), dead.ID); a.Outcome != capacityledger.Expired {
		t.Errorf("the dead one is %q", a.Outcome)
	}
	if r := s.pass(sweeper); r.Left != 1 || r.Closed+r.Extended != 0 {
		t.Errorf("the next pass: %+v, want the unknown one tried again", r)
	}
	delete(s.liveness, unknown.Run)
	if r := s.pass(sweeper); r.Closed != 1 {
		t.Errorf("once it is known to be dead: %+v", r)
	}
}

func TestSweeperTakesAFailingLivenessForUnknown(t *testing.T) {
	s := newSweeping(t)
	gone := errors.New("the run store is away")
	var told error
	sweeper, err := capacityledger.NewSweeper(s.ledger, func(context.Context, capacityledger.Allocation) (capacityledger.Liveness, error) {
		return capacityledger.Dead, gone
	}, capacityledger.SweeperOptions{Quiet: -1, Skew: -1, Events: capacityledger.SweepEvents{Left: func(_ capacityledger.Allocation, err error) { told = err }}})
	if err != nil {
		t.Fatal(err)
	}
	s.hold(slots)
	s.clock.Advance(time.Minute)
	if r := s.pass(sweeper); r.Left != 1 || r.Closed != 0 || !errors.Is(told, gone) {
		t.Errorf("%+v, told %v", r, told)
	}
}

func TestSweeperLeavesKindsAndAxesThatItDoesNotKnow(t *testing.T) {
	s := newSweeping(t)
	sweeper := s.sweeper(capacityledger.SweeperOptions{Skew: -1})
	s.hold(holdfast.Subject{Kind: "galaxy", ID: "acme", Axis: holdfast.AxisSlots})
	s.hold(slots)
	s.clock.Advance(time.Minute)
	if r := s.pass(sweeper); r.Left != 1 || r.Closed != 1 {
		t.Errorf("%+v, want one left and one closed", r)
	}
}

func TestSweeperGetsPastABatchOfUntouchables(t *testing.T) {
	s := newSweeping(t)
	sweeper := s.sweeper(capacityledger.SweeperOptions{Skew: -1, Batch: 4})
	for range 9 {
		s.liveness[s.hold(slots).Run] = capacityledger.LivenessUnknown
	}
	s.clock.Advance(time.Second)
	for range 3 {
		s.hold(slots)
	}
	s.clock.Advance(time.Minute)
	if r := s.pass(sweeper); r.Left != 9 || r.Closed != 3 {
		t.Errorf("%+v, want nine left and three closed", r)
	}
}

// A pass that runs out of its budget goes on where it stopped.
func TestSweeperGoesOnWhereItsBudgetEnded(t *testing.T) {
	s := newSweeping(t)
	slow := func(ctx context.Context, a capacityledger.Allocation) (capacityledger.Liveness, error) {
		s.clock.Advance(time.Second)
		return s.alive(ctx, a)
	}
	for range 6 {
		s.liveness[s.hold(slots).Run] = capacityledger.LivenessUnknown
	}
	s.hold(slots)
	s.clock.Advance(time.Minute)
	sweeper, err := capacityledger.NewSweeper(s.ledger, slow, capacityledger.SweeperOptions{Quiet: -1, Skew: -1, Batch: 2, PassBudget: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	first, second, third := s.pass(sweeper), s.pass(sweeper), s.pass(sweeper)
	if !first.More || first.Left != 4 || second.More || second.Left != 2 || second.Closed != 1 || third.Left != 4 {
		t.Errorf("the passes were %+v, %+v, %+v", first, second, third)
	}
}

func TestSweeperIsQuietAfterItsStartAndAfterAnOutage(t *testing.T) {
	s := newSweeping(t)
	sweeper := s.sweeper(capacityledger.SweeperOptions{Skew: -1, Lease: 2 * time.Minute, Quiet: 2 * time.Minute})
	expect := func(when string, closed int, quiet bool) {
		t.Helper()
		if r := s.pass(sweeper); r.Closed != closed || r.Quiet != quiet {
			t.Errorf("%s: closed %d, quiet %t; want %d, %t", when, r.Closed, r.Quiet, closed, quiet)
		}
	}
	s.hold(slots)
	s.clock.Advance(2*time.Minute - time.Millisecond)
	expect("before a lease is over", 0, true)
	s.clock.Advance(time.Millisecond)
	expect("a lease after the start", 1, false)

	s.hold(slots)
	s.clock.Advance(time.Minute)
	sweeper.NoteOutage(s.clock.Now())
	expect("after an outage of the queue", 0, true)
	s.clock.Advance(2 * time.Minute)
	s.store.Fail(1, false)
	if _, err := sweeper.Pass(t.Context()); !errors.Is(err, capacityledger.ErrUnavailable) {
		t.Errorf("the pass over a store that is away: %v", err)
	}
	expect("after an outage of the store", 0, true)
	sweeper.NoteOutage(clocktest.T0) // older news shorten nothing
	s.clock.Advance(2 * time.Minute)
	expect("a lease after the outage", 1, false)
}

func TestReclaimClosesTheDeadWhateverTheirExpiry(t *testing.T) {
	s := newSweeping(t)
	sweeper := s.sweeper(capacityledger.SweeperOptions{Batch: 2, Quiet: time.Hour})
	external, unknown := s.hold(slots), s.hold(slots)
	s.liveness[external.Run], s.liveness[unknown.Run] = capacityledger.Alive, capacityledger.LivenessUnknown
	for range 5 {
		s.hold(slots)
	}
	r, err := sweeper.Reclaim(t.Context())
	if err != nil || r.Closed != 5 || r.Left != 1 || r.Extended != 0 {
		t.Errorf("%+v, %v; want five closed and the unknown one left", r, err)
	}
	if a, _ := s.ledger.Get(t.Context(), external.ID); a.Outcome != capacityledger.Open || !a.ExpiresAt.Equal(external.ExpiresAt) {
		t.Errorf("the living one became %q until %s", a.Outcome, a.ExpiresAt)
	}
	if s.pass(sweeper).Quiet {
		t.Error("it is quiet although it knows who is dead")
	}
}

// A renewal that comes between the sweep's reading and its close wins.
func TestSweeperClosesOnlyWithTheExpiryThatItRead(t *testing.T) {
	s := newSweeping(t)
	a := s.hold(slots)
	renewing := func(ctx context.Context, found capacityledger.Allocation) (capacityledger.Liveness, error) {
		_, _, err := s.ledger.Renew(ctx, found.ID, capacityledger.Renewal{Attempt: 1, Sequence: 1, Expires: s.clock.Now().Add(time.Minute)})
		return capacityledger.Dead, err
	}
	sweeper, err := capacityledger.NewSweeper(s.ledger, renewing, capacityledger.SweeperOptions{Quiet: -1, Skew: -1})
	if err != nil {
		t.Fatal(err)
	}
	s.clock.Advance(time.Minute)
	if r := s.pass(sweeper); r.Closed != 0 {
		t.Errorf("closed %d", r.Closed)
	}
	if got, _ := s.ledger.Get(t.Context(), a.ID); got.Outcome != capacityledger.Open {
		t.Errorf("the renewed one is %q", got.Outcome)
	}
}

func TestTwoConcurrentPassesMakeOneCloseEach(t *testing.T) {
	s := newSweeping(t)
	var mu sync.Mutex
	closes := map[holdfast.AllocationID]int{}
	observer := capacityledger.SweepEvents{Expired: func(a capacityledger.Allocation) {
		mu.Lock()
		defer mu.Unlock()
		closes[a.ID]++
	}}
	for range 500 {
		s.hold(slots)
		s.hold(dollars)
	}
	s.clock.Advance(time.Minute)
	var passes sync.WaitGroup
	for range 2 {
		sweeper := s.sweeper(capacityledger.SweeperOptions{Skew: -1, Batch: 50, Events: observer})
		passes.Go(func() {
			if _, err := sweeper.Pass(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	passes.Wait()
	for id, n := range closes {
		if n != 1 {
			t.Errorf("%s was closed %d times", id, n)
		}
	}
	if len(closes) != 1000 || s.outstanding(slots)+s.outstanding(dollars) != 0 {
		t.Errorf("%d were closed, %d and %d are out", len(closes), s.outstanding(slots), s.outstanding(dollars))
	}
}

func TestSweeperRunsEveryPeriodUntilItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := capacityledger.New(memory.NewLedger(), capacityledger.Options{Clock: clock.System{}})
		passes := 0
		sweeper, err := capacityledger.NewSweeper(ledger, func(context.Context, capacityledger.Allocation) (capacityledger.Liveness, error) {
			return capacityledger.Dead, nil
		}, capacityledger.SweeperOptions{Events: capacityledger.SweepEvents{Passed: func(capacityledger.PassResult) { passes++ }}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- sweeper.Run(ctx) }()
		time.Sleep(46 * time.Second)
		synctest.Wait()
		if passes != 3 {
			t.Errorf("%d passes in 46 s, want 3", passes)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestSweeperNeedsALivenessFunction(t *testing.T) {
	if _, err := capacityledger.NewSweeper(newSweeping(t).ledger, nil, capacityledger.SweeperOptions{}); err == nil {
		t.Error("a sweeper that knows nothing of who lives was made")
	}
}

// slow is a store that lets every look for what is due wait, as one that is away and
// comes back does, and then answers.
type slow struct {
	capacityledger.Store
	wait func()
}

func (s slow) Due(ctx context.Context, now time.Time, after capacityledger.Cursor, limit int) ([]capacityledger.Allocation, error) {
	s.wait()
	return s.Store.Due(ctx, now, after, limit)
}

func TestAPassThatWaitedForTheStoreSweepsNobody(t *testing.T) {
	const quiet = 2 * time.Minute
	for name, c := range map[string]struct {
		waits  time.Duration
		told   bool
		closed int
	}{
		"for a moment":                                  {waits: quiet / 2, closed: 1},
		"for as long as a renewal must not":             {waits: quiet/2 + time.Millisecond},
		"for a moment, and others found the store away": {waits: time.Second, told: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSweeping(t)
			var sweeper *capacityledger.Sweeper
			waits, told := c.waits, c.told
			s.ledger = capacityledger.New(slow{s.store, func() {
				s.clock.Advance(waits)
				if told {
					sweeper.NoteOutage(s.clock.Now())
				}
			}}, capacityledger.Options{Clock: s.clock})
			sweeper = s.sweeper(capacityledger.SweeperOptions{Skew: -1, Lease: quiet, Quiet: quiet})
			s.hold(slots)
			s.clock.Advance(quiet)
			if r := s.pass(sweeper); r.Closed != c.closed || r.Quiet != (c.closed == 0) {
				t.Errorf("it closed %d, quiet %t; want %d", r.Closed, r.Quiet, c.closed)
			}
			waits, told = 0, false
			s.clock.Advance(quiet)
			if r := s.pass(sweeper); r.Closed != 1-c.closed || r.Quiet {
				t.Errorf("a quiet time later it closed %d, quiet %t; want %d", r.Closed, r.Quiet, 1-c.closed)
			}
		})
	}
}
