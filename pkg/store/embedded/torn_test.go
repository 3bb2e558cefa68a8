package embedded_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/store/embedded"
)

// scriptedLedger does random things to a few subjects, one after another.
type scriptedLedger struct {
	ledger *capacityledger.Ledger
	clock  *clocktest.Manual
	random *rand.Rand
	ids    []holdfast.AllocationID
}

func newScript(store *embedded.Store, seed uint64) *scriptedLedger {
	clock := clocktest.New()
	return &scriptedLedger{ledger: capacityledger.New(store.Ledger(), capacityledger.Options{Clock: clock}), clock: clock, random: rand.New(rand.NewPCG(seed, 1))}
}

// step does the next thing and returns the error of the store, if that failed.
func (s *scriptedLedger) step(ctx context.Context) error {
	s.clock.Advance(time.Second)
	subject := crashSubjects()[s.random.IntN(4)]
	unit := subject.Axis.Unit()
	pick := func() holdfast.AllocationID { return s.ids[s.random.IntN(len(s.ids))] }
	amount := func(id holdfast.AllocationID) holdfast.Amount {
		of, err := id.Subject()
		if err != nil {
			panic(err)
		}
		if of.Axis == holdfast.AxisSlots {
			return holdfast.Amount{} // slots are never used up
		}
		return holdfast.AmountOf(of.Axis.Unit(), s.random.Int64N(50))
	}
	switch kind := s.random.IntN(6); {
	case kind < 3 || len(s.ids) == 0:
		run := holdfast.RunID(fmt.Sprintf("01SC%06d", len(s.ids)))
		ask := capacityledger.Ask{
			ID: holdfast.NewAllocationID(run, subject, 0), Run: run, Holder: holdfast.TeamBot("acme", holdfast.BotID(fmt.Sprintf("bot-%d", s.random.IntN(3)))),
			Terms:     capacityledger.Terms{Cap: holdfast.AtMost(holdfast.AmountOf(unit, 100))},
			Requested: holdfast.AmountOf(unit, 1+s.random.Int64N(20)), Expires: s.clock.Now().Add(time.Minute),
		}
		s.ids = append(s.ids, ask.ID)
		_, _, err := s.ledger.Reserve(ctx, ask)
		return err
	case kind == 3:
		id := pick()
		_, _, err := s.ledger.Renew(ctx, id, capacityledger.Renewal{Attempt: 1 + s.random.IntN(2), Sequence: s.random.Int64N(9), Spent: amount(id), Expires: s.clock.Now().Add(time.Minute)})
		return err
	case kind == 4:
		id := pick()
		_, err := s.ledger.Settle(ctx, id, capacityledger.Report{Attempt: 1 + s.random.IntN(2), Sequence: 9, Spent: amount(id)})
		return err
	default:
		_, err := s.ledger.Release(ctx, pick())
		return err
	}
}

// picture is everything that the ledger says of the script's subjects and ids.
type picture struct {
	Balances    []capacityledger.Balance
	Allocations map[holdfast.AllocationID]capacityledger.Allocation
}

func (s *scriptedLedger) picture(t *testing.T, store *embedded.Store) picture {
	t.Helper()
	p := picture{Allocations: map[holdfast.AllocationID]capacityledger.Allocation{}}
	for _, subject := range crashSubjects() {
		balance, err := store.Ledger().Balance(t.Context(), subject)
		if err != nil {
			t.Fatal(err)
		}
		p.Balances = append(p.Balances, balance)
	}
	for _, id := range s.ids {
		if a, err := store.Ledger().Get(t.Context(), id); err == nil {
			p.Allocations[id] = a
		}
	}
	return p
}

// vocabulary compares the unexported insides of the vocabulary's values; a balance
// without holders is one however its list is empty.
var vocabulary = cmp.Options{
	cmp.AllowUnexported(holdfast.Amount{}, holdfast.Limit{}, holdfast.Identity{}),
	cmp.Transformer("list", func(open []capacityledger.Allocation) []capacityledger.Allocation {
		return append([]capacityledger.Allocation(nil), open...)
	}),
	cmp.Transformer("holders", func(holders []capacityledger.Holding) []capacityledger.Holding {
		return append([]capacityledger.Holding(nil), holders...)
	}),
}

// TestATornLogLosesNothingThatWasSyncedBefore cuts or damages the write-ahead log at
// random bytes, as a loss of power in the middle of a write does. What then opens is
// a state that the ledger had, and no earlier one than the last that was whole.
func TestATornLogLosesNothingThatWasSyncedBefore(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dir := t.TempDir()
	store, err := embedded.Open(t.Context(), dir, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() // its files were copied
	wal := filepath.Join(dir, embedded.LedgerFile+"-wal")
	script := newScript(store, seed)
	pictures, sizes := []picture{script.picture(t, store)}, []int64{size(t, wal)}
	for range 60 {
		if err := script.step(t.Context()); err != nil && !expected(err) {
			t.Fatal(err)
		}
		pictures, sizes = append(pictures, script.picture(t, store)), append(sizes, size(t, wal))
	}
	whole := t.TempDir()
	if err := copyFiles(dir, whole); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(seed, 2))
	for try := range 30 {
		at := random.Int64N(sizes[len(sizes)-1] + 1)
		torn := t.TempDir()
		if err := copyFiles(whole, torn); err != nil {
			t.Fatal(err)
		}
		damage(t, filepath.Join(torn, embedded.LedgerFile+"-wal"), at, try%2 == 0)
		verifyPrefix(t, script, torn, at, pictures, sizes)
		if t.Failed() {
			t.Fatalf("try %d, at byte %d", try, at)
		}
	}
}

// expected says whether the error is an answer and not a failure.
func expected(err error) bool {
	return isAny(err, capacityledger.ErrClosed, capacityledger.ErrNotFound)
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// damage cuts the file at the byte, or turns the byte over.
func damage(t *testing.T, path string, at int64, cut bool) {
	t.Helper()
	if cut {
		if err := os.Truncate(path, at); err != nil {
			t.Fatal(err)
		}
		return
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if at < int64(len(content)) {
		content[at] ^= 0xff
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// verifyPrefix opens the damaged files and looks for the state among those that the
// ledger had: those from the last one that lay before the damage on.
func verifyPrefix(t *testing.T, script *scriptedLedger, dir string, at int64, pictures []picture, sizes []int64) {
	t.Helper()
	store, err := embedded.Open(t.Context(), dir, embedded.Options{})
	if err != nil {
		if at < sizes[0] {
			return // the log's own beginning, which holds the tables
		}
		t.Error(err)
		return
	}
	defer store.Close() // its folder goes away
	if err := ledgertest.Invariants(t.Context(), store.Ledger()); err != nil {
		t.Error(err)
	}
	got := script.picture(t, store)
	least := 0
	for i, s := range sizes {
		if s <= at {
			least = i
		}
	}
	if !slices.ContainsFunc(pictures[least:], func(p picture) bool { return cmp.Equal(p, got, vocabulary) }) {
		t.Errorf("the state is none of those from step %d on; against that one:\n%s", least, cmp.Diff(pictures[least], got, vocabulary))
	}
}
