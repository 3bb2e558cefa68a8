package orgusage_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/orgusage"
	"github.com/holdfast-io/holdfast/pkg/store/embedded"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

var (
	march = orgusage.MonthOf("acme", clocktest.T0)
	april = orgusage.MonthOf("acme", clocktest.T0.AddDate(0, 1, 0))
	bot   = holdfast.PlatformBot("feature-dev")
)

// counting is a counter over a store that can be made to fail.
type counting struct {
	*orgusage.Counter
	ledger *capacityledger.Ledger
	store  *ledgertest.Faulty
}

// each runs a test over both twins.
func each(t *testing.T, test func(t *testing.T, c counting)) {
	t.Helper()
	for name, open := range map[string]func(*testing.T) capacityledger.Store{
		"memory": func(*testing.T) capacityledger.Store { return memory.NewLedger() },
		"embedded": func(t *testing.T) capacityledger.Store {
			store, err := embedded.Open(t.Context(), t.TempDir(), embedded.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := store.Close(); err != nil {
					t.Error(err)
				}
			})
			return store.Ledger()
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := &ledgertest.Faulty{Store: open(t)}
			ledger := capacityledger.New(store, capacityledger.Options{Clock: clocktest.New()})
			test(t, counting{orgusage.New(ledger), ledger, store})
			if err := ledgertest.Invariants(context.Background(), store); err != nil {
				t.Error(err)
			}
		})
	}
}

func run(n int) holdfast.RunID { return holdfast.RunID(fmt.Sprintf("01JQ00Z000%016d", n)) }

func caller(n int, month orgusage.Month) orgusage.Caller {
	return orgusage.Caller{Run: run(n), Holder: bot, Month: month, Expires: clocktest.T0.Add(30 * time.Second)}
}

// terms are limits of runs and dollars; a negative one is none.
func terms(runs, dollars int64) orgusage.Terms {
	limit := func(a holdfast.Amount) capacityledger.Terms {
		if a.Int() < 0 {
			return capacityledger.Terms{Cap: holdfast.NoLimit}
		}
		return capacityledger.Terms{Cap: holdfast.AtMost(a)}
	}
	return orgusage.Terms{Runs: limit(holdfast.RunAmount(runs)), Dollars: limit(holdfast.USDAmount(holdfast.MicroUSD(dollars) * holdfast.OneUSD))}
}

// allow demands an answer; the empty reason is an admission.
func (c counting) allow(t *testing.T, caller orgusage.Caller, terms orgusage.Terms, want holdfast.DenyReason) {
	t.Helper()
	denial, err := c.AllowRun(t.Context(), caller, terms)
	if err != nil || denial.Reason != want {
		t.Errorf("refused for %q, %v; want %q", denial.Reason, err, want)
	}
}

func (c counting) spend(t *testing.T, n, attempt int, month orgusage.Month, dollars int64) {
	t.Helper()
	if err := c.AddSpend(t.Context(), orgusage.Spend{
		Run: run(n), Holder: bot, Month: month, Attempt: attempt, Total: holdfast.MicroUSD(dollars) * holdfast.OneUSD, Expires: clocktest.T0.Add(time.Minute),
	}); err != nil {
		t.Error(err)
	}
}

func (c counting) used(t *testing.T, month orgusage.Month, runs, dollars int64) {
	t.Helper()
	got, err := c.Usage(t.Context(), month)
	if want := (orgusage.Usage{Runs: runs, Spent: holdfast.MicroUSD(dollars) * holdfast.OneUSD}); err != nil || got != want {
		t.Errorf("%s used %+v, %v; want %+v", month.Period, got, err, want)
	}
}

func TestUnlimitedMonthStillCounts(t *testing.T) {
	each(t, func(t *testing.T, c counting) {
		for n := range 20 {
			c.allow(t, caller(n, march), terms(-1, -1), "")
		}
		c.spend(t, 1, 1, march, 7)
		c.used(t, march, 20, 7)
	})
}

func TestEmptyMonthIsZero(t *testing.T) {
	each(t, func(t *testing.T, c counting) { c.used(t, march, 0, 0) })
}

func TestRunCapDeniesWithoutTakingAUnit(t *testing.T) {
	each(t, func(t *testing.T, c counting) {
		for n := range 2 {
			c.allow(t, caller(n, march), terms(2, -1), "")
		}
		for range 3 {
			c.allow(t, caller(9, march), terms(2, -1), holdfast.DenyMonthlyRuns)
			c.used(t, march, 2, 0)
		}
		c.allow(t, caller(1, march), terms(2, -1), "") // it has its unit already
		c.used(t, march, 2, 0)
	})
}

func TestCostCapDeniesAtEqualityAndTakesNoUnit(t *testing.T) {
	each(t, func(t *testing.T, c counting) {
		c.spend(t, 1, 1, march, 9)
		c.allow(t, caller(1, march), terms(-1, 10), "")
		c.spend(t, 2, 1, march, 1)
		c.allow(t, caller(2, march), terms(-1, 10), holdfast.DenyMonthlyUSD)
		c.used(t, march, 1, 10)
		c.allow(t, caller(3, march), terms(1, 10), holdfast.DenyMonthlyRuns) // the runs are judged first
	})
}

// The run is under way on the unit that the first call was told of.
func TestARunThatIsAskedForTwiceKeepsTheUnitOfTheFirst(t *testing.T) {
	each(t, func(t *testing.T, c counting) {
		c.allow(t, caller(1, march), terms(3, 10), "")
		c.allow(t, caller(1, march), terms(3, 10), "")
		c.used(t, march, 1, 0)
		c.spend(t, 2, 1, march, 10)
		c.allow(t, caller(1, march), terms(3, 10), holdfast.DenyMonthlyUSD)
		c.used(t, march, 1, 10)
		if kept, err := c.KeepRun(t.Context(), caller(1, march).Run, march); !kept || err != nil {
			t.Errorf("kept %t, %v", kept, err)
		}
	})
}

// Promised money counts as money: the arm that reads reported spend alone would let
// this run in.
func TestCostCapCountsWhatIsPromised(t *testing.T) {
	each(t, func(t *testing.T, c counting) {
		_, denial, err := c.ledger.Reserve(t.Context(), capacityledger.Ask{
			ID: holdfast.NewAllocationID(run(1), march.Dollars(), 0), Run: run(1), Holder: bot, Terms: terms(-1, 10).Dollars,
			Requested: holdfast.USDAmount(10 * holdfast.OneUSD), Expires: clocktest.T0.Add(time.Minute),
		})
		if err != nil || denial.Denied() {
			t.Fatalf("%s %v", denial.Public, err)
		}
		c.allow(t, caller(2, march), terms(-1, 10), holdfast.DenyMonthlyUSD)
		c.spend(t, 1, 1, march, 4) // the same dollars, not four more
		got, err := c.Usage(t.Context(), march)
		if want := (orgusage.Usage{Spent: 4 * holdfast.OneUSD, Promised: 6 * holdfast.OneUSD}); err != nil || got != want {
			t.Errorf("used %+v, %v; want %+v", got, err, want)
		}
	})
}

func TestMonthsAndTeamsAreApart(t *testing.T) {
	each(t, func(t *testing.T, c counting) {
		other := orgusage.MonthOf("globex", clocktest.T0)
		for n, month := range []orgusage.Month{march, april, other} {
			c.allow(t, caller(n, month), terms(1, -1), "")
			c.spend(t, n, 1, month, 3)
		}
		for _, month := range []orgusage.Month{march, april, other} {
			c.used(t, month, 1, 3)
		}
	})
}

func TestMonthTurnsAtItsFirstInstantInUTC(t *testing.T) {
	east := time.FixedZone("UTC+14", 14*3600)
	for _, c := range []struct {
		at   time.Time
		want string
	}{
		{time.Date(2026, time.March, 31, 23, 59, 59, 999_000_000, time.UTC), "2026-03"},
		{time.Date(2026, time.April, 1, 0, 0, 0, 0, time.UTC), "2026-04"},
		{time.Date(2026, time.April, 1, 13, 59, 0, 0, east), "2026-03"},
		{time.Date(2028, time.February, 29, 12, 0, 0, 0, time.UTC), "2028-02"},
	} {
		if got := orgusage.MonthOf("acme", c.at).Period; got != c.want {
			t.Errorf("%s is in %s, want %s", c.at, got, c.want)
		}
	}
}

func TestSpendAccumulatesAndCountsOnce(t *testing.T) {
	each(t, func(t *testing.T, c counting) {
		c.spend(t, 1, 1, march, 2)
		c.spend(t, 1, 1, march, 2) // said again
		c.spend(t, 1, 1, march, 3) // the same attempt went on
		c.spend(t, 1, 2, march, 4)
		c.spend(t, 2, 1, march, 1)
		c.spend(t, 3, 1, march, 0)
		c.used(t, march, 0, 8)
	})
}

func TestReleasedRunComesBackAndAKeptOneStays(t *testing.T) {
	each(t, func(t *testing.T, c counting) {
		c.allow(t, caller(1, march), terms(2, -1), "")
		c.allow(t, caller(2, march), terms(2, -1), "")
		if kept, err := c.KeepRun(t.Context(), run(2), march); !kept || err != nil {
			t.Errorf("kept %t, %v", kept, err)
		}
		for n, want := range []bool{false, true, false} { // never taken, taken, kept
			for range 2 {
				released, err := c.ReleaseRun(t.Context(), run(n), march)
				if err != nil || released != want {
					t.Errorf("run %d: released %t, %v; want %t", n, released, err, want)
				}
				want = false
			}
		}
		c.used(t, march, 1, 0)
		c.allow(t, caller(3, march), terms(2, -1), "")
	})
}

func TestSixtyFourCallersOnACapOfTenAdmitExactlyTen(t *testing.T) {
	each(t, func(t *testing.T, c counting) {
		var admitted atomic.Int64
		var callers sync.WaitGroup
		for n := range 64 {
			callers.Go(func() {
				denial, err := c.AllowRun(t.Context(), caller(n, march), terms(10, 100))
				if err != nil {
					t.Error(err)
				}
				if !denial.Denied() {
					admitted.Add(1)
				}
			})
		}
		callers.Wait()
		if n := admitted.Load(); n != 10 {
			t.Errorf("%d were admitted, want 10", n)
		}
		c.used(t, march, 10, 0)
	})
}

func TestUnreachableStoreIsAnErrorAndTakesNothing(t *testing.T) {
	each(t, func(t *testing.T, c counting) {
		for call := 1; call <= 2; call++ {
			c.store.Fail(call, false)
			denial, err := c.AllowRun(t.Context(), caller(call, march), terms(1, 10))
			if denial.Denied() || !errors.Is(err, capacityledger.ErrUnavailable) {
				t.Errorf("call %d: refused %t, %v", call, denial.Denied(), err)
			}
			c.used(t, march, 0, 0)
		}
		c.store.FailRange(2, 3, false) // the money and the way back
		if denial, err := c.AllowRun(t.Context(), caller(3, march), terms(1, 10)); denial.Denied() || err == nil {
			t.Errorf("refused %t, %v", denial.Denied(), err)
		}
		c.used(t, march, 1, 0) // until it lapses
		if closed, err := c.ledger.Expire(t.Context(), clocktest.T0.Add(time.Minute), 10); err != nil || len(closed) != 1 {
			t.Errorf("%v, %v", closed, err)
		}
		c.used(t, march, 0, 0)
	})
}
