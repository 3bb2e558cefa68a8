package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
)

func idOf(n int, subject holdfast.Subject) holdfast.AllocationID {
	return holdfast.NewAllocationID(holdfast.RunID(fmt.Sprintf("01JQ00Z000%016d", n)), subject, 0)
}

func TestHistoryKeepsTheYoungestOnly(t *testing.T) {
	store := NewLedger()
	subject := holdfast.TeamSubject("acme", holdfast.AxisSlots, "")
	for n := range historyKept + 10 {
		a := capacityledger.Allocation{ID: idOf(n, subject)}
		store.history.put([]*capacityledger.Allocation{&a, &a})
	}
	if n := len(store.history.rows); n != historyKept {
		t.Errorf("%d are kept, want %d", n, historyKept)
	}
	for n, want := range map[int]bool{9: false, 10: true, historyKept + 9: true} {
		if got := store.history.get(idOf(n, subject)) != nil; got != want {
			t.Errorf("number %d is known: %t, want %t", n, got, want)
		}
	}
}

func TestHousekeepingDropsRecordsThatNobodyNeeds(t *testing.T) {
	store := NewLedger()
	clock := clocktest.New()
	ledger := capacityledger.New(store, capacityledger.Options{Clock: clock})
	refused, month, held := holdfast.TeamSubject("acme", holdfast.AxisSlots, ""), holdfast.TeamSubject("acme", holdfast.AxisUSD, "2026-03"), holdfast.TeamSubject("globex", holdfast.AxisUSD, "2026-03")
	reserve := func(n int, subject holdfast.Subject, limit holdfast.Limit) {
		t.Helper()
		id := idOf(n, subject)
		run, _, _, err := id.Parts()
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := ledger.Reserve(t.Context(), capacityledger.Ask{
			ID: id, Run: run, Holder: holdfast.PlatformBot("review-pr"), Terms: capacityledger.Terms{Cap: limit},
			Requested: holdfast.AmountOf(subject.Axis.Unit(), 5), Expires: clock.Now().Add(time.Minute),
		}); err != nil {
			t.Fatal(err)
		}
	}
	reserve(1, refused, holdfast.Limit{})
	reserve(2, month, holdfast.NoLimit)
	reserve(3, held, holdfast.NoLimit)
	if _, err := ledger.Settle(t.Context(), idOf(2, month), capacityledger.Report{Attempt: 1, Spent: holdfast.USDAmount(5)}); err != nil {
		t.Fatal(err)
	}
	left := func(want ...holdfast.Subject) {
		t.Helper()
		for range 4 { // small steps: each call goes on where the one before stopped
			if _, err := store.Repair(t.Context(), clock.Now(), 2); err != nil {
				t.Fatal(err)
			}
		}
		got, err := store.Subjects(t.Context(), "", 10)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("at %s there are %v, %v; want %v", clock.Now(), got, err, want)
		}
	}
	left(month, held) // the refusal left nothing worth a record
	clock.Advance(300 * 24 * time.Hour)
	left(month, held)
	clock.Advance(120 * 24 * time.Hour)
	left(held) // what is still open is never dropped
}
