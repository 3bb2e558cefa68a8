package mongo_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/store/mongo"
)

var (
	slots   = holdfast.TeamSubject("acme", holdfast.AxisSlots, "")
	dollars = holdfast.TeamSubject("acme", holdfast.AxisUSD, "2026-03")
	review  = holdfast.PlatformBot("review-pr")
	feature = holdfast.PlatformBot("feature-dev")
)

// ask is the n-th run's ask; larger numbers are later runs.
func ask(n int, subject holdfast.Subject, holder holdfast.Identity, limit, requested int64, reserved ...capacityledger.Reserved) capacityledger.Ask {
	run := holdfast.RunID(fmt.Sprintf("01JQ00Z000%016d", n))
	unit := subject.Axis.Unit()
	return capacityledger.Ask{
		ID: holdfast.NewAllocationID(run, subject, 0), Run: run, Holder: holder,
		Terms:     capacityledger.Terms{Cap: holdfast.AtMost(holdfast.AmountOf(unit, limit)), Reserved: reserved},
		Requested: holdfast.AmountOf(unit, requested), Expires: clocktest.T0.Add(30 * time.Second),
	}
}

func reserved(subject holdfast.Subject, holder holdfast.Identity, n int64) capacityledger.Reserved {
	return capacityledger.Reserved{Holder: holder, Amount: holdfast.AmountOf(subject.Axis.Unit(), n)}
}

// process is one process: a store with its ledger.
type process struct {
	t      testing.TB
	store  *mongo.Store
	ledger *capacityledger.Ledger
	clock  *clocktest.Manual
}

func processes(t testing.TB, count int) []*process {
	t.Helper()
	return newDatabases(t).processes(count)
}

// silent are processes that vouch for nothing, as if each died right after its grants.
func silent(t testing.TB, count int) []*process {
	t.Helper()
	d := newDatabases(t)
	d.vouchAfter = -1
	return d.processes(count)
}

func (d *databases) processes(count int) []*process {
	t := d.t
	t.Helper()
	stores, err := d.together(count)
	if err != nil {
		t.Fatal(err)
	}
	clock := clocktest.New()
	var out []*process
	for _, store := range stores {
		out = append(out, &process{t, store, capacityledger.New(store.Ledger(), capacityledger.Options{Clock: clock}), clock})
	}
	return out
}

// gets demands what an ask gets; 0 is a refusal.
func (p *process) gets(ask capacityledger.Ask, want int64) capacityledger.Allocation {
	p.t.Helper()
	a, denial, err := p.ledger.Reserve(p.t.Context(), ask)
	if err != nil || denial.Denied() != (want == 0) || a.Amount.Int() != want {
		p.t.Errorf("%s got %d (%s, %v), want %d", ask.ID, a.Amount.Int(), denial.Public, err, want)
	}
	return a
}

// holds demands the totals, and that the record is sound.
func (p *process) holds(subject holdfast.Subject, settled, outstanding int64) {
	p.t.Helper()
	b, err := p.ledger.Outstanding(p.t.Context(), subject)
	if err != nil || b.Settled != settled || b.Outstanding != outstanding {
		p.t.Errorf("%s has %d + %d, %v; want %d + %d", subject, b.Settled, b.Outstanding, err, settled, outstanding)
	}
	if err := ledgertest.Invariants(p.t.Context(), p.store.Ledger()); err != nil {
		p.t.Error(err)
	}
}

// watched is a process whose commands are counted and whose wire can be cut.
func watched(t *testing.T) (*process, *wire, *databases) {
	t.Helper()
	d := newDatabases(t)
	first, err := d.fresh()
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{}
	last := func(o *options.ClientOptions) { o.SetDialer(w).SetMonitor(w.monitor()) }
	store, err := mongo.OpenWith(t.Context(), server(t), mongo.Options{Database: mongo.DatabaseOf(first).Name(), KeepClosed: long, KeepRecords: long, VouchAfter: -1}, last)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	d.of[store] = mongo.DatabaseOf(first).Name()
	clock := clocktest.New()
	return &process{t, store, capacityledger.New(store.Ledger(), capacityledger.Options{Clock: clock}), clock}, w, d
}

func TestOneRoundTripAdmitsTwoRefuseOneCloses(t *testing.T) {
	p, w, _ := watched(t)
	p.gets(ask(1, slots, feature, 2, 1), 1) // the first ask of a subject makes its record
	for _, c := range []struct {
		name string
		do   func()
		want []string
	}{
		{"an admission", func() { p.gets(ask(2, slots, feature, 2, 1), 1) }, []string{"findAndModify"}},
		{"a refusal", func() { p.gets(ask(3, slots, feature, 2, 1), 0) }, []string{"findAndModify", "update"}},
		{"a close", func() {
			if closed, err := p.ledger.Settle(t.Context(), ask(2, slots, feature, 2, 1).ID, capacityledger.Report{Attempt: 1}); err != nil || !closed {
				t.Errorf("settle: %t, %v", closed, err)
			}
		}, []string{"update"}},
		{"an admission after a close", func() { p.gets(ask(4, slots, feature, 2, 1), 1) }, []string{"findAndModify"}},
		{"a replay of what is open", func() { p.gets(ask(4, slots, feature, 2, 1), 1) }, []string{"findAndModify", "update"}},
		{"a renewal", func() {
			if _, _, err := p.ledger.Renew(t.Context(), ask(4, slots, feature, 2, 1).ID, capacityledger.Renewal{Attempt: 1, Sequence: 1, Expires: p.clock.Now().Add(time.Hour)}); err != nil {
				t.Error(err)
			}
		}, []string{"update"}},
		{"a batch of four of which one is refused", func() {
			var asks []capacityledger.Ask
			for n := range 4 {
				checked, err := ask(10+n, dollars, feature, 3, 1).Checked()
				if err != nil {
					t.Fatal(err)
				}
				asks = append(asks, checked)
			}
			answers, err := p.store.Ledger().Admit(t.Context(), p.clock.Now(), dollars, asks, capacityledger.Judge)
			if err != nil || answers[2].Verdict.Refused || !answers[3].Verdict.Refused {
				t.Errorf("%+v, %v", answers, err)
			}
		}, []string{"insert", "findAndModify", "update"}},
		{"a partial grant", func() {
			p.gets(ask(20, holdfast.TeamSubject("acme", holdfast.AxisUSD, "2026-04"), feature, 3, 9), 3)
		}, []string{"insert", "findAndModify", "update"}},
	} {
		w.begin()
		c.do()
		if got := w.seen(); !slices.Equal(got, c.want) {
			t.Errorf("%s took %v, want %v", c.name, got, c.want)
		}
		if told := w.told(); len(told) != len(c.want) { // the driver's monitor says the same
			t.Errorf("%s took %v by the driver's monitor, want %v", c.name, told, c.want)
		}
	}
}

func TestALostReplyIsTheSameAskWhenItComesAgain(t *testing.T) {
	t.Parallel() // it waits more than it works
	for name, limit := range map[string]int64{"granted": 1, "refused": 0} {
		t.Run(name, func(t *testing.T) {
			p, w, _ := watched(t)
			p.gets(ask(1, slots, review, 1, 1), 1)
			a := ask(2, slots, feature, 1+limit, 1)
			w.cut(1, true)
			if _, denial, err := p.ledger.Reserve(t.Context(), a); !errors.Is(err, capacityledger.ErrUnavailable) || denial.Denied() {
				t.Fatalf("the reply was not lost: %v", err)
			}
			p.holds(slots, 0, 2) // the write arrived
			p.gets(a, limit)
			p.gets(a, limit)
			p.holds(slots, 0, 1+limit)
		})
	}
}

func TestWhatWasPushedAndNeverJudgedIsTakenBackByItsProcess(t *testing.T) {
	p, w, _ := watched(t)
	p.gets(ask(1, slots, review, 1, 1), 1)
	w.cut(1, true)
	if _, _, err := p.ledger.Reserve(t.Context(), ask(2, slots, feature, 1, 1)); !errors.Is(err, capacityledger.ErrUnavailable) {
		t.Fatalf("the reply was not lost: %v", err)
	}
	p.gets(ask(3, slots, feature, 1, 1), 0)
	p.holds(slots, 0, 1)
}

// TestACutAtAnyCommandLosesNothing plays a history with the wire cut at each of its
// commands in turn, before and after the server did it. The caller asks again, or goes
// away and another process goes on: nothing acknowledged is lost, and nothing is held
// when all has expired.
func TestACutAtAnyCommandLosesNothing(t *testing.T) {
	t.Parallel() // it waits more than it works
	for _, after := range []bool{false, true} {
		for _, again := range []bool{true, false} {
			for n := 1; ; n++ {
				p, w, d := watched(t)
				w.cut(n, after)
				acknowledged := cutHistory(p, again)
				cut := len(w.seen()) >= n
				w.begin()
				store, err := d.again(p.store)
				if err != nil {
					t.Fatal(err)
				}
				other := &process{t, store, capacityledger.New(store.Ledger(), capacityledger.Options{Clock: p.clock}), p.clock}
				for id, outcome := range acknowledged {
					a, err := other.ledger.Get(t.Context(), id)
					if err != nil || a.Outcome != outcome {
						t.Errorf("cut at %d, after %t: %s is %q, %v; want %q", n, after, id, a.Outcome, err, outcome)
					}
				}
				if again {
					other.holds(dollars, 5, 8)
				}
				p.clock.Advance(time.Hour)
				if _, err := other.ledger.Expire(t.Context(), p.clock.Now(), 100); err != nil {
					t.Error(err)
				}
				b, err := other.ledger.Outstanding(t.Context(), dollars)
				if err != nil || b.Outstanding != 0 {
					t.Errorf("cut at %d, after %t: %d outstanding in the end, %v", n, after, b.Outstanding, err)
				}
				if err := ledgertest.Invariants(t.Context(), store.Ledger()); err != nil {
					t.Errorf("cut at %d, after %t: %v", n, after, err)
				}
				if !cut || t.Failed() {
					break
				}
			}
		}
	}
}

// cutHistory plays a history and lists what was acknowledged.
func cutHistory(p *process, again bool) map[holdfast.AllocationID]capacityledger.Outcome {
	known := map[holdfast.AllocationID]capacityledger.Outcome{}
	first, second, third := ask(1, dollars, feature, 20, 9), ask(2, dollars, review, 20, 15), ask(3, dollars, feature, 20, 4)
	reserve := func(a capacityledger.Ask) func() error {
		return func() error {
			got, _, err := p.ledger.Reserve(p.t.Context(), a)
			if err == nil && got.ID != "" {
				known[a.ID] = capacityledger.Open
			}
			return err
		}
	}
	settle := func(a capacityledger.Ask, spent int64) func() error {
		return func() error {
			_, err := p.ledger.Settle(p.t.Context(), a.ID, capacityledger.Report{Attempt: 1, Sequence: 9, Spent: holdfast.AmountOf(holdfast.UnitUSD, spent)})
			if delete(known, a.ID); err == nil { // else it may be either
				known[a.ID] = capacityledger.Settled
			}
			return err
		}
	}
	for _, verb := range []func() error{
		reserve(first), reserve(second), reserve(third), // 9, then 11 of 15, then nothing
		func() error {
			_, _, err := p.ledger.Renew(p.t.Context(), first.ID, capacityledger.Renewal{Attempt: 1, Sequence: 1, Spent: holdfast.AmountOf(holdfast.UnitUSD, 3), Expires: p.clock.Now().Add(time.Minute)})
			return err
		},
		settle(first, 5),
		func() error {
			return p.ledger.Lower(p.t.Context(), []capacityledger.Correction{{ID: second.ID, Amount: holdfast.AmountOf(holdfast.UnitUSD, 8)}})
		},
	} {
		err := verb()
		if again && errors.Is(err, capacityledger.ErrUnavailable) {
			err = verb()
		}
		if again && err != nil {
			p.t.Error(err)
		}
	}
	return known
}

func TestAReportWhileAClosedIDIsAskedAgainIsAReportOnTheClose(t *testing.T) {
	for _, archived := range []bool{false, true} {
		both := processes(t, 2)
		a := ask(1, dollars, feature, 9, 4)
		both[0].gets(a, 4)
		if _, err := both[0].ledger.Release(t.Context(), a.ID); err != nil {
			t.Fatal(err)
		}
		if archived {
			both[0].clock.Advance(time.Hour)
			both[0].repair()
		}
		both[0].inFlight(a) // a try that its process is about to take back
		_, _, err := both[1].ledger.Renew(t.Context(), a.ID, capacityledger.Renewal{Attempt: 1, Sequence: 1, Spent: holdfast.AmountOf(holdfast.UnitUSD, 3), Expires: both[1].clock.Now().Add(time.Hour)})
		if !errors.Is(err, capacityledger.ErrClosed) {
			t.Errorf("archived %t: the renewal says %v", archived, err)
		}
		if got, err := both[1].ledger.Get(t.Context(), a.ID); err != nil || got.Outcome != capacityledger.Released || got.Spent.Int() != 3 {
			t.Errorf("archived %t: it is %q with %d spent, %v", archived, got.Outcome, got.Spent.Int(), err)
		}
		if err := mongo.TakeBack(t.Context(), both[0].store, a.ID); err != nil {
			t.Fatal(err)
		}
		both[1].holds(dollars, 3, 0)
	}
}
