// Package history checks that a twin of the ledger behaves, under concurrent callers,
// as if their calls came one after another: linearizability. It lets a few clients
// play a short random script against one subject, forces their calls to overlap,
// loses some replies, writes down what was asked and answered when, and has
// porcupine look for an order of the calls that a plain sequential model explains.
// A history without such an order is a bug of the twin.
//
// A seed fixes what the clients ask. How the machine interleaves them it does not
// fix, so a history that fails is printed and saved whole.
package history

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// Promise is what a twin says of itself under concurrent asks.
type Promise int

const (
	// Exact is the promise of a twin that judges inside its critical section: every
	// history has an order in which every answer is the model's.
	Exact Promise = iota
	// NeverTooMuch is the promise of a twin whose refused asks are seen by others until
	// they are taken back: nothing is granted above what the model allows, less only
	// beside asks in flight, and no refusal rests on asks in flight alone. A history
	// that breaks only the last of these is counted as spurious, not as illegal. Such
	// a twin is used as the product uses it: an ask under way has not lapsed yet, and
	// nobody but its askers speaks of its id before one of them was told of the grant.
	NeverTooMuch
)

// Short is how many histories a twin plays unless [EnvHistories] says otherwise.
const Short = 2_000

// EnvHistories and EnvSeed are the environment's say in [Run].
const (
	EnvHistories = "HOLDFAST_TEST_HISTORIES"
	EnvSeed      = "HOLDFAST_TEST_SEED"
)

// Options say what to play.
type Options struct {
	// Open opens an empty store. It is called once for every Each histories.
	Open func() (capacityledger.Store, error)
	// Another opens what the store has once more, as another process does. Each
	// client then has its own; nil: they share the one.
	Another func(capacityledger.Store) (capacityledger.Store, error)
	// Hold is up to how long an ask is held up between its judgement and what the
	// twin does next; 0 lets others go first and does not wait for any time.
	Hold      time.Duration
	Promise   Promise
	Histories int    // 0: Short
	Seed      uint64 // 0: one of the moment
	Parallel  int    // histories at once, which do not share a subject; 0: 4
	Each      int    // 0: 1,000
}

// Report says what was played.
type Report struct {
	Seed       uint64
	Histories  int
	Operations int
	Reserves   int
	Granted    int
	Refused    int
	Lost       int // replies
	Overlapped int // reserves that had another reserve beside them
	Spurious   int // refusals that only asks in flight explain
	Undecided  int // asks of one id by two at once, of which one was told that nothing is known
	Unknown    int // histories that were too wide to be checked
}

func (r Report) String() string {
	return fmt.Sprintf("seed %d: %d histories, %d operations, %d reserves (%d granted, %d refused, %d beside another), %d replies lost, %d spurious refusals, %d undecided asks",
		r.Seed, r.Histories, r.Operations, r.Reserves, r.Granted, r.Refused, r.Overlapped, r.Lost, r.Spurious, r.Undecided)
}

// IllegalError is a history that no order explains.
type IllegalError struct {
	Seed   uint64
	Number int    // of the history, from 0
	Text   string // what was asked and answered, by the time of the call
	Page   string // the file with the drawing of it
}

func (e *IllegalError) Error() string {
	return fmt.Sprintf("seed %d, history %d: no order of these calls explains their answers (drawn in %s)\n%s", e.Seed, e.Number, e.Page, e.Text)
}

// Run plays as many histories as the environment says and fails the test on an
// illegal one, on one that could not be checked, and when hardly any calls met.
func Run(t *testing.T, o Options) Report {
	t.Helper()
	fromEnvironment(t, EnvHistories, func(n uint64) { o.Histories = int(n) }) // a person's own number
	fromEnvironment(t, EnvSeed, func(n uint64) { o.Seed = n })
	report, err := Check(t.Context(), o)
	t.Log(report)
	switch {
	case err != nil:
		t.Fatal(err)
	case report.Unknown > 0:
		t.Errorf("%d histories could not be checked", report.Unknown)
	case report.Overlapped < report.Reserves/10:
		t.Errorf("only %d of %d reserves met another: this shows nothing", report.Overlapped, report.Reserves)
	}
	return report
}

func fromEnvironment(t *testing.T, name string, set func(uint64)) {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	set(n)
}

// Check plays the histories. The error is an [*IllegalError], or that of a store that
// could not be opened or failed by itself.
func Check(ctx context.Context, o Options) (Report, error) {
	if o.Histories == 0 {
		o.Histories = Short
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64()>>1 | 1
	}
	if o.Parallel == 0 {
		o.Parallel = 4
	}
	if o.Each == 0 {
		o.Each = 1_000
	}
	report := Report{Seed: o.Seed}
	for begin := 0; begin < o.Histories; begin += o.Each {
		store, err := o.Open()
		if err != nil {
			return report, err
		}
		stores := []capacityledger.Store{store}
		for o.Another != nil && len(stores) < clients {
			another, err := o.Another(store)
			if err != nil {
				return report, err
			}
			stores = append(stores, another)
		}
		if err := batch(ctx, stores, o, begin, min(o.Histories, begin+o.Each), &report); err != nil {
			return report, err
		}
	}
	return report, nil
}

// batch plays the histories from begin up to end over one set of stores, in parallel, and
// ends with the first that fails.
func batch(ctx context.Context, stores []capacityledger.Store, o Options, begin, end int, report *Report) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var mu sync.Mutex
	next := begin
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, next <= end && ctx.Err() == nil
	}
	var workers sync.WaitGroup
	for range o.Parallel {
		workers.Go(func() {
			for n, ok := take(); ok; n, ok = take() {
				played, err := one(ctx, stores, o, n)
				mu.Lock()
				report.add(played)
				mu.Unlock()
				if err != nil {
					stop(err)
					return
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

func (r *Report) add(o Report) {
	r.Histories += o.Histories
	r.Operations += o.Operations
	r.Reserves += o.Reserves
	r.Granted += o.Granted
	r.Refused += o.Refused
	r.Lost += o.Lost
	r.Overlapped += o.Overlapped
	r.Spurious += o.Spurious
	r.Undecided += o.Undecided
	r.Unknown += o.Unknown
}

// one plays and judges one history.
func one(ctx context.Context, stores []capacityledger.Store, o Options, n int) (Report, error) {
	plan := newPlan(o, n)
	operations, err := play(ctx, stores, plan)
	if err != nil {
		return Report{}, fmt.Errorf("seed %d, history %d: %w", o.Seed, n, err)
	}
	return judge(plan, operations, o, n)
}
