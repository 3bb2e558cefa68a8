package subject_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/store/internal/subject"
)

var month = holdfast.TeamSubject("acme", holdfast.AxisUSD, "2026-03")

var opaque = cmp.AllowUnexported(holdfast.Amount{}, holdfast.Identity{}, holdfast.Limit{})

// bench is a record with its calendar and a random hand.
type bench struct {
	t        *testing.T
	record   *subject.Record
	calendar *subject.Calendar
	random   *rand.Rand
	now      time.Time
	ids      []holdfast.AllocationID
}

func newBench(t *testing.T, seed uint64) *bench {
	calendar := subject.NewCalendar()
	return &bench{t: t, record: subject.New(month, calendar), calendar: calendar, random: rand.New(rand.NewPCG(seed, 0)), now: clocktest.T0}
}

func holder(n int) holdfast.Identity {
	return holdfast.PlatformBot(holdfast.BotID(fmt.Sprintf("bot-%d", n)))
}

func (b *bench) ask(n int64) *capacityledger.Ask {
	b.t.Helper()
	run := holdfast.RunID(fmt.Sprintf("01JQ00Z000%016d", len(b.ids)))
	ask, err := capacityledger.Ask{
		ID: holdfast.NewAllocationID(run, month, 0), Run: run, Holder: holder(b.random.IntN(30)),
		Terms:     capacityledger.Terms{Cap: holdfast.AtMost(holdfast.AmountOf(holdfast.UnitUSD, 500))},
		Requested: holdfast.AmountOf(holdfast.UnitUSD, n), Expires: b.now.Add(time.Duration(b.random.IntN(90_000)) * time.Millisecond),
	}.Checked()
	if err != nil {
		b.t.Fatal(err)
	}
	b.ids = append(b.ids, ask.ID)
	return &ask
}

func (b *bench) admit(n int64, j *subject.Journal) capacityledger.Admission {
	return b.record.Admit(b.now, b.ask(n), capacityledger.Judge, j)
}

// verb plays one random verb.
func (b *bench) verb(j *subject.Journal) {
	b.now = b.now.Add(time.Duration(b.random.IntN(3000)) * time.Millisecond)
	if len(b.ids) == 0 || b.random.IntN(3) == 0 {
		b.admit(int64(1+b.random.IntN(60)), j)
		return
	}
	id := b.ids[b.random.IntN(len(b.ids))]
	spent := holdfast.AmountOf(holdfast.UnitUSD, int64(b.random.IntN(70)))
	attempt, sequence := b.random.IntN(3), int64(b.random.IntN(4))
	switch b.random.IntN(3) {
	case 0:
		m := capacityledger.Moving{ID: id, Attempt: attempt, Sequence: sequence, Spent: spent, Expires: b.now.Add(time.Duration(b.random.IntN(90)) * time.Second)}
		b.record.Move(&m, j)
	case 1:
		m := capacityledger.Moving{ID: id, LowerTo: holdfast.AmountOf(holdfast.UnitUSD, int64(1+b.random.IntN(30)))}
		b.record.Move(&m, j)
	default:
		c := capacityledger.Closing{ID: id, Outcome: capacityledger.Settled, Attempt: attempt, Sequence: sequence, Spent: spent, IfAttempt: attempt}
		b.record.Close(b.now, &c, j)
	}
}

// state is everything that can be seen of the record.
type state struct {
	Balance      capacityledger.Balance
	Due          []capacityledger.Allocation
	Closed       []capacityledger.Allocation
	Open, Recent int
}

func (b *bench) state() state {
	s := state{Balance: b.record.Balance(), Due: b.calendar.Due(b.now.AddDate(1, 0, 0), capacityledger.Cursor{}, 10_000), Open: b.record.Open(), Recent: b.record.Recent()}
	for _, a := range b.record.Archive(b.now.AddDate(1, 0, 0), 10_000) {
		c := *a
		c.SpentBy = append([]capacityledger.AttemptSpend(nil), a.SpentBy...)
		s.Closed = append(s.Closed, c)
	}
	return s
}

func TestUndoPutsEverythingBackExactly(t *testing.T) {
	seed := rand.Uint64()
	b := newBench(t, seed)
	j := &subject.Journal{}
	for round := range 300 {
		before := b.state()
		for range 1 + b.random.IntN(12) {
			b.verb(j)
		}
		if round%2 == 0 {
			known := len(b.ids)
			j.Undo()
			if diff := cmp.Diff(before, b.state(), opaque); diff != "" {
				t.Fatalf("seed %d, round %d (-before +undone):\n%s", seed, round, diff)
			}
			b.ids = b.ids[:known]
		} else {
			j.Keep()
		}
		if !j.Empty() {
			t.Fatalf("seed %d: the journal is not empty after its end", seed)
		}
		if b.record.Mend(nil) {
			t.Fatalf("seed %d, round %d: the counters differ from the entries", seed, round)
		}
	}
}

func TestUndoKeepsWhatTheHistoryGaveBackInBetween(t *testing.T) {
	b := newBench(t, 1)
	j := &subject.Journal{}
	closed := b.admit(5, nil).Allocation
	closed.ID, closed.Outcome, closed.ClosedAt = holdfast.NewAllocationID("01JQ00Z0000000000000000077", month, 0), capacityledger.Expired, b.now
	b.admit(5, j)
	b.record.Put(closed)
	c := capacityledger.Moving{ID: closed.ID, Attempt: 1, Spent: holdfast.AmountOf(holdfast.UnitUSD, 3)}
	if moved := b.record.Move(&c, j); moved.Err != nil || b.record.Settled() != 3 {
		t.Fatalf("%+v, %d settled", moved, b.record.Settled())
	}
	j.Undo()
	got, ok := b.record.Get(closed.ID)
	if !ok || got.Spent.Int() != 0 || b.record.Recent() != 1 || b.record.Settled() != 0 || b.record.Open() != 1 {
		t.Errorf("known %t, spent %s, %d recent, %d settled, %d open", ok, got.Spent, b.record.Recent(), b.record.Settled(), b.record.Open())
	}
}

func TestJournalNamesWhatChangedOnce(t *testing.T) {
	b := newBench(t, 1)
	old := b.admit(20, nil).Allocation
	j := &subject.Journal{}
	made := b.admit(30, j).Allocation
	for sequence := range int64(3) {
		m := capacityledger.Moving{ID: old.ID, Attempt: 1, Sequence: sequence, Spent: holdfast.AmountOf(holdfast.UnitUSD, 1+sequence)}
		b.record.Move(&m, j)
	}
	c := capacityledger.Closing{ID: made.ID, Outcome: capacityledger.Released}
	b.record.Close(b.now, &c, j)
	got := map[holdfast.AllocationID]bool{}
	j.Entries(func(c subject.Change) {
		if _, twice := got[c.Allocation.ID]; twice {
			t.Errorf("%s is named twice", c.Allocation.ID)
		}
		got[c.Allocation.ID] = c.Fresh
	})
	if want := map[holdfast.AllocationID]bool{old.ID: false, made.ID: true}; !cmp.Equal(got, want) {
		t.Errorf("changed: %v, want %v", got, want)
	}
	records := 0
	j.Changed(func(r *subject.Record, before []capacityledger.Holding) {
		records++
		if r != b.record || len(before) != 1 || before[0].Outstanding != 20 {
			t.Errorf("%s had %+v", r.Subject(), before)
		}
	})
	if records != 1 {
		t.Errorf("%d records changed, want 1", records)
	}
	j.Keep()

	b.record.Admit(b.now, b.ask(10_000), func(capacityledger.PostAdmit, capacityledger.Ask) capacityledger.Verdict {
		return capacityledger.Verdict{Refused: true}
	}, j)
	j.Changed(func(*subject.Record, []capacityledger.Holding) { t.Error("a refusal changed something") })
	j.Entries(func(subject.Change) { t.Error("a refusal made an entry") })
	j.Undo()
}

func TestMendCountsTheEntriesAgain(t *testing.T) {
	b := newBench(t, 1)
	b.admit(20, nil)
	b.admit(30, nil)
	want := b.state()
	for _, damage := range []func(){
		func() { b.record.Damage(holder(0), 7, 0) },
		func() { b.record.Damage(holder(99), 0, 4) },
		func() { b.record.Damage(want.Balance.Holders[0].Holder, -20, -20) },
	} {
		damage()
		if !b.record.Mend(nil) {
			t.Error("the damage was not noticed")
		}
		if diff := cmp.Diff(want, b.state(), opaque); diff != "" {
			t.Errorf("mended (-want +got):\n%s", diff)
		}
	}
	if b.record.Mend(nil) {
		t.Error("a sound record was mended")
	}
}

func TestCalendarKeepsNothingOfWhatIsClosed(t *testing.T) {
	b := newBench(t, 1)
	for range 5000 {
		b.now = b.now.Add(time.Second)
		a := b.admit(1, nil)
		if a.Err != nil || a.Verdict.Refused {
			t.Fatalf("%+v", a)
		}
		c := capacityledger.Closing{ID: a.Allocation.ID, Outcome: capacityledger.Released}
		b.record.Close(b.now, &c, nil)
	}
	if n := b.calendar.Seconds(); n > 100 {
		t.Errorf("the calendar has %d seconds of 5,000 closed entries", n)
	}
	if due := b.calendar.Due(b.now.AddDate(1, 0, 0), capacityledger.Cursor{}, 10); len(due) != 0 {
		t.Errorf("due: %v", due)
	}
}

func TestArchiveTakesTheOldAndTheSurplus(t *testing.T) {
	b := newBench(t, 1)
	closeOne := func() {
		a := b.admit(1, nil)
		c := capacityledger.Closing{ID: a.Allocation.ID, Outcome: capacityledger.Released}
		b.record.Close(b.now, &c, nil)
	}
	for range 150 {
		closeOne()
	}
	if n := len(b.record.Archive(b.now.Add(subject.RecentFor-1), 1000)); n != 0 {
		t.Errorf("%d of 150 young ones", n)
	}
	b.now = b.now.Add(time.Minute)
	for range 100 {
		closeOne()
	}
	if n := len(b.record.Archive(b.now, 1000)); n != 50 {
		t.Errorf("%d of 250 young ones, want the surplus of 50", n)
	}
	at := clocktest.T0.Add(subject.RecentFor)
	if n := len(b.record.Archive(at, 1000)); n != 150 {
		t.Errorf("%d when 150 are old, want 150", n)
	}
	if n := len(b.record.Archive(at, 20)); n != 20 {
		t.Errorf("%d, the limit was 20", n)
	}
	oldest := b.record.Archive(at, 150)
	b.record.Forget(150)
	if b.record.Recent() != 100 || b.record.Has(oldest[0].ID) {
		t.Errorf("%d recent, the oldest known %t", b.record.Recent(), b.record.Has(oldest[0].ID))
	}
}

func TestTotalsStopBeforeTheyOverflow(t *testing.T) {
	record := subject.New(month, nil)
	record.Restore(subject.MaxTotal-10, 0, []capacityledger.Holding{{Holder: holder(1), Settled: subject.MaxTotal - 10}})
	b := newBench(t, 1)
	b.record = record
	ask := b.ask(11)
	ask.Terms.Cap = holdfast.NoLimit
	if a := record.Admit(b.now, ask, capacityledger.Judge, nil); a.Err == nil || record.Outstanding() != 0 {
		t.Errorf("%+v, %d outstanding", a, record.Outstanding())
	}
	ask = b.ask(10)
	ask.Terms.Cap = holdfast.NoLimit
	if a := record.Admit(b.now, ask, capacityledger.Judge, nil); a.Err != nil {
		t.Errorf("%v", a.Err)
	}
}
