package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/store/embedded"
)

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

func openStore(t *testing.T, dir string, options embedded.Options) *embedded.Store {
	t.Helper()
	store, err := embedded.Open(t.Context(), dir, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func ledgerOver(store *embedded.Store) *capacityledger.Ledger {
	return capacityledger.New(store.Ledger(), capacityledger.Options{Clock: clocktest.New()})
}

var acmeSlots = holdfast.TeamSubject("acme", holdfast.AxisSlots, "")

// slotAsk asks for a slot of acme's, under the cap.
func slotAsk(n int, most holdfast.Slots) capacityledger.Ask {
	run := holdfast.RunID(fmt.Sprintf("01BA%06d", n))
	return capacityledger.Ask{
		ID: holdfast.NewAllocationID(run, acmeSlots, 0), Run: run, Holder: crashBot, Terms: capacityledger.Terms{Cap: holdfast.AtMost(holdfast.SlotAmount(most))},
		Requested: holdfast.SlotAmount(1), Expires: clocktest.T0.Add(time.Minute),
	}
}

// answer is what one ask of a batch got.
type answer struct {
	allocation capacityledger.Allocation
	denial     holdfast.Denial
	err        error
}

// together asks all at once, so that they are one batch of the writer.
func together(ctx context.Context, store *embedded.Store, ledger *capacityledger.Ledger, asks ...capacityledger.Ask) []answer {
	answers := make([]answer, len(asks))
	release := embedded.HoldLedger(store)
	var group sync.WaitGroup
	for i, ask := range asks {
		group.Go(func() {
			a := &answers[i]
			a.allocation, a.denial, a.err = ledger.Reserve(ctx, ask)
		})
		for embedded.Queued(store) < i+1 {
			runtime.Gosched()
		}
	}
	release()
	group.Wait()
	return answers
}

func TestFourAsksOfOneBatchAtACapOfThreeAreThreeGrants(t *testing.T) {
	store := openStore(t, t.TempDir(), embedded.Options{})
	ledger := ledgerOver(store)
	for i, a := range together(t.Context(), store, ledger, slotAsk(1, 3), slotAsk(2, 3), slotAsk(3, 3), slotAsk(4, 3)) {
		if refused := a.denial.Denied(); a.err != nil || refused != (i == 3) {
			t.Errorf("ask %d: refused %t, %v", i, refused, a.err)
		}
	}
}

func TestABatchThatReusesAForgottenIDAnswersItClosedAndGrantsTheOthers(t *testing.T) {
	dir := t.TempDir()
	before := openStore(t, dir, embedded.Options{})
	if _, denial, err := ledgerOver(before).Reserve(t.Context(), slotAsk(1, 3)); err != nil || denial.Denied() {
		t.Fatal(denial, err)
	}
	if closed, err := ledgerOver(before).Release(t.Context(), slotAsk(1, 3).ID); err != nil || !closed {
		t.Fatal(closed, err)
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	store := openStore(t, dir, embedded.Options{})
	ledger := ledgerOver(store)
	other := slotAsk(1, 3)
	other.Holder = holdfast.PlatformBot("docs-writer")
	answers := together(t.Context(), store, ledger, slotAsk(2, 3), slotAsk(1, 3), slotAsk(3, 3), other, slotAsk(4, 3), slotAsk(5, 3))
	for i, want := range []error{nil, capacityledger.ErrClosed, nil, capacityledger.ErrMismatch, nil, nil} {
		if !errors.Is(answers[i].err, want) {
			t.Errorf("ask %d: %v, want %v", i, answers[i].err, want)
		}
	}
	if !answers[5].denial.Denied() || answers[4].denial.Denied() {
		t.Errorf("three slots were granted otherwise than to the first three: %+v", answers)
	}
	if err := ledgertest.Invariants(t.Context(), store.Ledger()); err != nil {
		t.Error(err)
	}
}

func TestARefusedAskOfAForgottenIDIsAnsweredClosed(t *testing.T) {
	dir := t.TempDir()
	before := openStore(t, dir, embedded.Options{})
	ledger := ledgerOver(before)
	for n := range 2 {
		if _, denial, err := ledger.Reserve(t.Context(), slotAsk(n, 2)); err != nil || denial.Denied() {
			t.Fatal(denial, err)
		}
	}
	if _, err := ledger.Release(t.Context(), slotAsk(0, 2).ID); err != nil {
		t.Fatal(err)
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	ledger = ledgerOver(openStore(t, dir, embedded.Options{}))
	if _, denial, err := ledger.Reserve(t.Context(), slotAsk(0, 1)); !errors.Is(err, capacityledger.ErrClosed) {
		t.Errorf("%q, %v", denial.Reason, err)
	}
}

// failWrites makes every statement that changes a row fail on the writer's
// connection, or lets them succeed again.
func failWrites(t *testing.T, store *embedded.Store, fail bool) {
	t.Helper()
	for i, event := range []string{"INSERT ON main.allocations", "UPDATE ON main.allocations", "INSERT ON main.subjects", "UPDATE ON main.subjects"} {
		statement := fmt.Sprintf("DROP TRIGGER IF EXISTS temp.fail_%d", i)
		if fail {
			statement = fmt.Sprintf("CREATE TEMP TRIGGER IF NOT EXISTS fail_%d BEFORE %s BEGIN SELECT RAISE(ABORT, 'the test says no'); END", i, event)
		}
		if err := embedded.OnWriter(store, statement); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAFailedWriteIsUnavailableAndMovesNothing plays random steps of which half
// cannot write. Each step either happens or fails as unavailable and leaves everything
// as it was, in memory and in the file.
func TestAFailedWriteIsUnavailableAndMovesNothing(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dir := t.TempDir()
	store := openStore(t, dir, embedded.Options{})
	script := newScript(store, seed)
	random := rand.New(rand.NewPCG(seed, 3))
	failures := 0
	for range 150 {
		fail := random.IntN(2) == 0
		failWrites(t, store, fail)
		before := script.picture(t, store)
		err := script.step(t.Context())
		switch {
		case errors.Is(err, capacityledger.ErrUnavailable):
			failures++
			if diff := cmp.Diff(before, script.picture(t, store), vocabulary); diff != "" {
				t.Fatalf("the failed step moved something:\n%s", diff)
			}
		case err != nil && !expected(err):
			t.Fatal(err)
		case fail && !cmp.Equal(before, script.picture(t, store), vocabulary):
			t.Fatal("a step that could not write was acknowledged")
		}
		if err := ledgertest.Invariants(t.Context(), store.Ledger()); err != nil {
			t.Fatal(err)
		}
	}
	if failures == 0 {
		t.Fatal("no write failed; the test has tested nothing")
	}
	copied := t.TempDir()
	if err := copyFiles(dir, copied); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(script.picture(t, store), script.picture(t, openStore(t, copied, embedded.Options{})), vocabulary); diff != "" {
		t.Errorf("memory and file are apart:\n%s", diff)
	}
}

// TestABatchThatFailsIsUndoneForAllOfItsCallers forces one batch of which only the
// last row cannot be written.
func TestABatchThatFailsIsUndoneForAllOfItsCallers(t *testing.T) {
	store := openStore(t, t.TempDir(), embedded.Options{})
	ledger := ledgerOver(store)
	statement := fmt.Sprintf("CREATE TEMP TRIGGER one BEFORE INSERT ON main.allocations WHEN new.id = '%s' BEGIN SELECT RAISE(ABORT, 'the test says no'); END", slotAsk(4, 9).ID)
	if err := embedded.OnWriter(store, statement); err != nil {
		t.Fatal(err)
	}
	for i, a := range together(t.Context(), store, ledger, slotAsk(1, 9), slotAsk(2, 9), slotAsk(3, 9), slotAsk(4, 9)) {
		if !errors.Is(a.err, capacityledger.ErrUnavailable) || a.denial.Denied() || a.allocation.ID != "" {
			t.Errorf("ask %d of the failed batch: %+v", i, a)
		}
	}
	balance, err := ledger.Outstanding(t.Context(), acmeSlots)
	if err != nil || balance.Outstanding != 0 || len(balance.Open) != 0 || len(balance.Holders) != 0 {
		t.Errorf("the failed batch left %+v, %v", balance, err)
	}
	for i, a := range together(t.Context(), store, ledger, slotAsk(1, 9), slotAsk(2, 9), slotAsk(3, 9)) {
		if a.err != nil || a.allocation.ID != slotAsk(i+1, 9).ID {
			t.Errorf("ask %d again: %+v", i, a)
		}
	}
}

// TestAFullDiskIsUnavailableUntilThereIsRoom lets the file grow no further.
func TestAFullDiskIsUnavailableUntilThereIsRoom(t *testing.T) {
	store := openStore(t, t.TempDir(), embedded.Options{})
	ledger := ledgerOver(store)
	if err := embedded.OnWriter(store, "PRAGMA max_page_count = 1"); err != nil {
		t.Fatal(err)
	}
	granted, full := 0, error(nil)
	for n := 0; n < 1000 && full == nil; n++ {
		_, denial, err := ledger.Reserve(t.Context(), slotAsk(n, 1000))
		if denial.Denied() {
			t.Fatalf("a full disk is answered with a denial: %s", denial.Public)
		}
		if full = err; err == nil {
			granted++
		}
	}
	if !errors.Is(full, capacityledger.ErrUnavailable) {
		t.Fatalf("after %d grants: %v", granted, full)
	}
	balance, err := ledger.Outstanding(t.Context(), acmeSlots)
	if err != nil || balance.Outstanding != int64(granted) {
		t.Errorf("%d are outstanding of %d granted: %v", balance.Outstanding, granted, err)
	}
	if err := embedded.OnWriter(store, "PRAGMA max_page_count = 1000000"); err != nil {
		t.Fatal(err)
	}
	if _, denial, err := ledger.Reserve(t.Context(), slotAsk(granted, 1000)); err != nil || denial.Denied() {
		t.Errorf("with room again: %v", err)
	}
	if err := ledgertest.Invariants(t.Context(), store.Ledger()); err != nil {
		t.Error(err)
	}
}

func TestAJudgeThatPanicsFailsItsBatchAndNotTheProcess(t *testing.T) {
	store := openStore(t, t.TempDir(), embedded.Options{})
	ledger := ledgerOver(store)
	if _, denial, err := ledger.Reserve(t.Context(), slotAsk(1, 3)); err != nil || denial.Denied() {
		t.Fatal(denial, err)
	}
	_, err := store.Ledger().Admit(t.Context(), clocktest.T0, acmeSlots, []capacityledger.Ask{slotAsk(2, 3)}, func(capacityledger.PostAdmit, capacityledger.Ask) capacityledger.Verdict { panic("judge") })
	if !errors.Is(err, capacityledger.ErrUnavailable) {
		t.Errorf("the panic is answered with %v", err)
	}
	balance, err := ledger.Outstanding(t.Context(), acmeSlots)
	if err != nil || balance.Outstanding != 1 || len(balance.Open) != 1 {
		t.Errorf("the panic left %+v, %v", balance, err)
	}
}

func TestACallerWhoLeavesIsToldSoAndTheWriteHappens(t *testing.T) {
	store := openStore(t, t.TempDir(), embedded.Options{})
	ledger := ledgerOver(store)
	ctx, cancel := context.WithCancel(t.Context())
	release := embedded.HoldLedger(store)
	failed := make(chan error, 1)
	go func() {
		_, _, err := ledger.Reserve(ctx, slotAsk(1, 3))
		failed <- err
	}()
	for embedded.Queued(store) == 0 {
		runtime.Gosched()
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) || !errors.Is(err, capacityledger.ErrUnavailable) {
		t.Errorf("the caller who left is told %v", err)
	}
	release()
	if _, err := ledger.Outstanding(t.Context(), acmeSlots); err != nil { // which comes behind it
		t.Fatal(err)
	}
	if a, err := ledger.Get(t.Context(), slotAsk(1, 3).ID); err != nil || a.Outcome != capacityledger.Open {
		t.Errorf("the write of a caller who left: %+v, %v", a, err)
	}
}
