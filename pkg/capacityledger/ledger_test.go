package capacityledger_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

func ask(n int, subject holdfast.Subject, holder holdfast.Identity, limit, requested int64) capacityledger.Ask {
	run := holdfast.RunID("01JQ00Z000" + strings.Repeat("0", 15) + string(rune('0'+n)))
	unit := subject.Axis.Unit()
	return capacityledger.Ask{
		ID: holdfast.NewAllocationID(run, subject, 0), Run: run, Holder: holder,
		Terms:     capacityledger.Terms{Cap: holdfast.AtMost(holdfast.AmountOf(unit, limit))},
		Requested: holdfast.AmountOf(unit, requested), Expires: clocktest.T0.Add(30 * time.Second),
	}
}

// reserveAll asks in order and tells which were granted.
func reserveAll(t *testing.T, ledger *capacityledger.Ledger, asks ...capacityledger.Ask) []int64 {
	t.Helper()
	var granted []int64
	for _, a := range asks {
		allocation, denial, err := ledger.Reserve(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		if denial.Denied() == (allocation.ID != "") {
			t.Fatalf("%s: both or neither: %+v, %+v", a.ID, allocation, denial)
		}
		granted = append(granted, allocation.Amount.Int())
	}
	return granted
}

func TestLedgerWithCapNAdmitsExactlyN(t *testing.T) {
	ledger := capacityledger.New(memory.NewLedger(), capacityledger.Options{Clock: clocktest.New()})
	got := reserveAll(t, ledger, ask(1, slots, feature, 3, 1), ask(2, slots, feature, 3, 1), ask(3, slots, review, 3, 1), ask(4, slots, docs, 3, 1))
	if want := [4]int64{1, 1, 1, 0}; [4]int64(got) != want {
		t.Errorf("granted %v, want %v", got, want)
	}
}

func TestLedgerGivesTwoAskersOfOneRemainderDifferentParts(t *testing.T) {
	ledger := capacityledger.New(memory.NewLedger(), capacityledger.Options{Clock: clocktest.New()})
	got := reserveAll(t, ledger, ask(1, dollars, feature, 50, 30), ask(2, dollars, review, 50, 30), ask(3, dollars, docs, 50, 30))
	if want := [3]int64{30, 20, 0}; [3]int64(got) != want {
		t.Errorf("granted %v, want %v", got, want)
	}
}

func TestLedgerResumeLeavesTheRunsOwnRemainderOut(t *testing.T) {
	ledger := capacityledger.New(memory.NewLedger(), capacityledger.Options{Clock: clocktest.New()})
	a := ask(1, dollars, feature, 50, 50)
	reserveAll(t, ledger, a)
	renewed, denial, err := ledger.Renew(t.Context(), a.ID, capacityledger.Renewal{Attempt: 1, Expires: clocktest.T0.Add(time.Hour), Terms: &a.Terms})
	if err != nil || denial.Denied() || !renewed.ExpiresAt.Equal(clocktest.T0.Add(time.Hour)) {
		t.Errorf("the run was refused by its own allocation: %s %v", denial.Public, err)
	}
}

func TestLedgerRefusedResumeStillRecordsWhatWasSpent(t *testing.T) {
	store := memory.NewLedger()
	ledger := capacityledger.New(store, capacityledger.Options{Clock: clocktest.New()})
	a, other := ask(1, dollars, feature, 50, 20), ask(2, dollars, review, 50, 30)
	reserveAll(t, ledger, a, other)
	if _, err := ledger.Settle(t.Context(), other.ID, capacityledger.Report{Attempt: 1, Spent: holdfast.USDAmount(60)}); err != nil {
		t.Fatal(err)
	}
	_, denial, err := ledger.Renew(t.Context(), a.ID, capacityledger.Renewal{Attempt: 1, Spent: holdfast.USDAmount(5), Expires: clocktest.T0.Add(time.Hour), Terms: &a.Terms})
	if err != nil || !denial.Denied() {
		t.Fatalf("refused %t, %v", denial.Denied(), err)
	}
	got, err := ledger.Get(t.Context(), a.ID)
	if err != nil || got.Spent.Int() != 5 || !got.ExpiresAt.Equal(a.Expires) {
		t.Errorf("spent %d until %s, %v; want 5 and the old expiry", got.Spent.Int(), got.ExpiresAt, err)
	}
}

// Whatever fails, one and only one of allocation, denial and error is set.
func TestLedgerNeverReturnsTwoOfTheThree(t *testing.T) {
	for _, after := range []bool{false, true} {
		for call := range 3 {
			faulty := &ledgertest.Faulty{Store: memory.NewLedger()}
			ledger := capacityledger.New(faulty, capacityledger.Options{Clock: clocktest.New()})
			faulty.Fail(call, after)
			full := ask(1, dollars, feature, 50, 50)
			for _, a := range []capacityledger.Ask{full, full, ask(2, dollars, feature, 50, 1), {}, ask(3, dollars, feature, 50, -1)} {
				allocation, denial, err := ledger.Reserve(t.Context(), a)
				one(t, "reserve", allocation, denial, err)
			}
			for _, terms := range []*capacityledger.Terms{nil, &full.Terms, {Cap: holdfast.AtMost(holdfast.USDAmount(0))}} {
				faulty.Fail(call, after)
				allocation, denial, err := ledger.Renew(t.Context(), full.ID, capacityledger.Renewal{Attempt: 1, Spent: holdfast.USDAmount(2), Expires: clocktest.T0, Terms: terms})
				one(t, "renew", allocation, denial, err)
			}
		}
	}
}

func one(t *testing.T, verb string, a capacityledger.Allocation, d holdfast.Denial, err error) {
	t.Helper()
	set := 0
	for _, is := range []bool{a.ID != "" && !errors.Is(err, capacityledger.ErrClosed), d.Denied(), err != nil} {
		if is {
			set++
		}
	}
	if set != 1 {
		t.Errorf("%s: %d of the three are set: %+v, %+v, %v", verb, set, a, d, err)
	}
}

func TestLedgerTellsItsObserversWhatIsCertain(t *testing.T) {
	var reserved, denied, closed, failed int
	faulty := &ledgertest.Faulty{Store: memory.NewLedger()}
	ledger := capacityledger.New(faulty, capacityledger.Options{Clock: clocktest.New(), Events: capacityledger.Events{
		Reserved: func(capacityledger.Allocation) { reserved++ },
		Denied:   func(capacityledger.Ask, holdfast.Denial) { denied++ },
		Closed:   func(capacityledger.Allocation) { closed++ },
		Failed:   func(string, error) { failed++ },
	}})
	first := ask(1, slots, feature, 1, 1)
	reserveAll(t, ledger, first, first, ask(2, slots, feature, 1, 1))
	for range 2 {
		if _, err := ledger.Release(t.Context(), first.ID); err != nil {
			t.Fatal(err)
		}
	}
	faulty.Fail(1, true)
	if _, err := ledger.Outstanding(t.Context(), slots); !errors.Is(err, capacityledger.ErrUnavailable) {
		t.Fatalf("the outage was not answered: %v", err)
	}
	if got, want := [4]int{reserved, denied, closed, failed}, [4]int{1, 1, 1, 1}; got != want {
		t.Errorf("reserved, denied, closed, failed: %v, want %v", got, want)
	}
}

func TestLedgerReleaseOfAnUnknownAllocationIsNoErrorButAnOutageIs(t *testing.T) {
	faulty := &ledgertest.Faulty{Store: memory.NewLedger()}
	ledger := capacityledger.New(faulty, capacityledger.Options{Clock: clocktest.New()})
	id := ask(1, slots, feature, 1, 1).ID
	if closed, err := ledger.Release(t.Context(), id); closed || err != nil {
		t.Errorf("an unknown one: closed %t, %v", closed, err)
	}
	faulty.Fail(1, false)
	if closed, err := ledger.Release(t.Context(), id); closed || !errors.Is(err, capacityledger.ErrUnavailable) {
		t.Errorf("an outage: closed %t, %v", closed, err)
	}
}

func TestDenialSaysInWordsWhatItWasJudgedBy(t *testing.T) {
	ledger := capacityledger.New(memory.NewLedger(), capacityledger.Options{Clock: clocktest.New()})
	holding := ask(1, dollars, feature, 50_000_000, 15_000_000)
	reserveAll(t, ledger, holding)
	held := ask(2, dollars, feature, 50_000_000, 10_000_000)
	held.Minimum = held.Requested
	held.Terms.Reserved = []capacityledger.Reserved{reserved(dollars, review, 30_000_000)}
	slot := ask(3, slots, feature, 0, 1)
	for _, c := range []struct {
		ask  capacityledger.Ask
		want string
	}{
		{held, "team/acme/usd@2026-03 is full for this bot: the cap is $50.00, $15.00 promised, $30.00 reserved for others; $10.00 asked; it fits when runs settle below their budget, or from 2026-04-01T00:00:00Z on"},
		{slot, "team/acme/slots is full for this bot: the cap is 0 slots, 0 slots promised; 1 slot asked; this ask can never fit, ask for less or raise the cap"},
	} {
		_, denial, err := ledger.Reserve(t.Context(), c.ask)
		if err != nil || denial.Public != c.want {
			t.Errorf("it says %q, %v; want %q", denial.Public, err, c.want)
		}
	}
}

func TestLedgerAnswersACallerThatHasGoneWithAnError(t *testing.T) {
	ledger := capacityledger.New(memory.NewLedger(), capacityledger.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, denial, err := ledger.Reserve(ctx, ask(1, slots, feature, 1, 1))
	if denial.Denied() || !errors.Is(err, context.Canceled) || !errors.Is(err, capacityledger.ErrUnavailable) {
		t.Errorf("denied %t, %v", denial.Denied(), err)
	}
}
