package mongo_test

import (
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/store/mongo"
)

// inFlight records an ask that its process has not judged yet.
func (p *process) inFlight(ask capacityledger.Ask) {
	p.t.Helper()
	if err := mongo.PushAs(p.t.Context(), p.store, p.clock.Now(), ask); err != nil {
		p.t.Fatal(err)
	}
}

// confirm renews an allocation as its run does.
func (p *process) confirm(ask capacityledger.Ask) {
	p.t.Helper()
	if _, _, err := p.ledger.Renew(p.t.Context(), ask.ID, capacityledger.Renewal{Attempt: 1, Sequence: 1, Expires: p.clock.Now().Add(time.Minute)}); err != nil {
		p.t.Fatal(err)
	}
}

// settle ends an allocation that spent so much.
func (p *process) settle(ask capacityledger.Ask, spent int64) {
	p.t.Helper()
	if closed, err := p.ledger.Settle(p.t.Context(), ask.ID, capacityledger.Report{Attempt: 1, Spent: holdfast.AmountOf(ask.Requested.Unit(), spent)}); err != nil || !closed {
		p.t.Errorf("settle %s: %t, %v", ask.ID, closed, err)
	}
}

func TestAnAskInFlightThatCannotHaveBeenGrantedDoesNotCount(t *testing.T) {
	both := processes(t, 2)
	mine, other := both[0], both[1]
	first := ask(1, slots, feature, 3, 1)
	other.gets(first, 1)
	other.confirm(first)
	other.inFlight(ask(2, slots, feature, 1, 1)) // under a cap that is full: it is being refused
	mine.gets(ask(3, slots, review, 3, 1), 1)
	mine.gets(ask(4, slots, review, 3, 1), 1)
	mine.gets(ask(5, slots, review, 3, 1), 0)
}

func TestOfAsksInFlightTogetherNotMoreCountThanFit(t *testing.T) {
	both := processes(t, 2)
	mine, other := both[0], both[1]
	withheld := reserved(slots, review, 2)
	for n := range 10 {
		other.inFlight(ask(1+n, slots, []holdfast.Identity{feature, holdfast.PlatformBot("docs")}[n%2], 3, 1, withheld))
	}
	mine.gets(ask(11, slots, review, 3, 1, withheld), 1)
	mine.gets(ask(12, slots, review, 3, 1, withheld), 1)
	mine.gets(ask(13, slots, feature, 3, 1, withheld), 0) // one of the ten may have the third
	mine.gets(ask(14, slots, review, 3, 1, withheld), 0)

	usd := reserved(dollars, review, 30)
	for n := range 5 {
		other.inFlight(ask(20+n, dollars, feature, 50, 15, usd))
	}
	mine.gets(ask(30, dollars, review, 50, 30, usd), 30)
	mine.gets(ask(31, dollars, review, 50, 10, usd), 0)
}

func TestAskOnOtherTermsIsCountedAsItIs(t *testing.T) {
	both := processes(t, 2)
	for n := range 3 {
		both[1].inFlight(ask(1+n, slots, feature, 3, 1))
	}
	both[0].gets(ask(9, slots, review, 4, 1), 1)
	both[0].gets(ask(10, slots, review, 4, 1), 0)
}

func TestAfterAnOverspendAsksOfBeforeAreCountedAsTheyAre(t *testing.T) {
	both := processes(t, 2)
	mine, other := both[0], both[1]
	granted := ask(2, dollars, feature, 50, 10)
	granted.Minimum = granted.Requested
	spender := ask(1, dollars, review, 50, 40)
	other.gets(spender, 40)
	other.inFlight(granted) // fits, so it may have been granted
	if _, _, err := other.ledger.Renew(t.Context(), spender.ID, capacityledger.Renewal{Attempt: 1, Sequence: 1, Spent: holdfast.AmountOf(holdfast.UnitUSD, 45), Expires: other.clock.Now().Add(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	// With 45 spent it would not fit any more, but it was judged before that: 55 are held.
	mine.gets(ask(3, dollars, feature, 57, 5), 2)
	mine.gets(ask(4, dollars, feature, 57, 5), 0)
	mine.holds(dollars, 45, 12)
	// An ask of after it, and after a launch lease, is judged by what it met again.
	mine.clock.Advance(31 * time.Second)
	late := ask(5, dollars, feature, 57, 5)
	mine.inFlight(late)
	if _, err := mine.ledger.Release(t.Context(), ask(3, dollars, feature, 57, 5).ID); err != nil {
		t.Fatal(err)
	}
	mine.gets(ask(6, dollars, feature, 57, 9), 0) // the late one may have it now
}

func TestARefusalThatRestsOnAsksInFlightIsAskedAgain(t *testing.T) {
	both := processes(t, 2)
	mine, other := both[0], both[1]
	blocking := ask(1, slots, feature, 1, 1)
	other.inFlight(blocking)
	done := make(chan error, 1)
	go func() {
		time.Sleep(40 * time.Millisecond) // the asker has its 250 ms; however late this is, it must not be refused for nothing before
		done <- mongo.TakeBack(t.Context(), other.store, blocking.ID)
	}()
	_, denial, err := mine.ledger.Reserve(t.Context(), ask(2, slots, review, 1, 1))
	if taken := <-done; err != nil || taken != nil {
		t.Fatal(err, taken)
	}
	if denial.Denied() { // a slow machine: the wait was over before the other was back
		mine.gets(ask(2, slots, review, 1, 1), 1)
	}
	mine.holds(slots, 0, 1)
	mine.gets(ask(3, slots, review, 1, 1), 0)
}

func TestAReplayInAnotherProcessIsTheSameAsk(t *testing.T) {
	t.Parallel() // it waits more than it works
	for _, c := range []struct {
		name    string
		prepare func(other *process, a capacityledger.Ask)
		ask     capacityledger.Ask
		want    int64
		err     error
	}{
		{"of what was granted and confirmed", func(p *process, a capacityledger.Ask) { p.gets(a, 1); p.confirm(a) }, ask(2, slots, feature, 3, 1), 1, nil},
		{"of what was granted", func(p *process, a capacityledger.Ask) { p.gets(a, 1) }, ask(2, slots, feature, 3, 1), 1, nil},
		{"of what was granted in part", func(p *process, a capacityledger.Ask) { p.gets(a, 5) }, ask(2, dollars, feature, 5, 9), 5, nil},
		{"of what was left undecided and fits", func(p *process, a capacityledger.Ask) { p.inFlight(a) }, ask(2, slots, feature, 3, 1), 1, nil},
		{"of what was left undecided and fits in part", func(p *process, a capacityledger.Ask) { p.inFlight(a) }, ask(2, dollars, feature, 5, 9), 5, nil},
		{"of what was left undecided and cannot have been granted", func(p *process, a capacityledger.Ask) {
			first := ask(1, slots, review, 1, 1)
			p.gets(first, 1)
			p.confirm(first)
			p.inFlight(a)
		}, ask(2, slots, feature, 1, 1), 0, nil},
		{"of what was left undecided behind another such", func(p *process, a capacityledger.Ask) {
			p.inFlight(ask(1, slots, review, 1, 1))
			p.inFlight(a)
		}, ask(2, slots, feature, 1, 1), 0, capacityledger.ErrUnavailable},
		{"of what was closed", func(p *process, a capacityledger.Ask) {
			p.gets(a, 1)
			if _, err := p.ledger.Release(p.t.Context(), a.ID); err != nil {
				p.t.Fatal(err)
			}
		}, ask(2, slots, feature, 3, 1), 0, capacityledger.ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			both := processes(t, 2)
			c.prepare(both[1], c.ask)
			for range 2 {
				a, denial, err := both[0].ledger.Reserve(t.Context(), c.ask)
				if !errors.Is(err, c.err) || denial.Denied() != (c.want == 0 && c.err == nil) || a.Amount.Int() != c.want {
					t.Fatalf("it got %d (%s), %v; want %d, %v", a.Amount.Int(), denial.Public, err, c.want, c.err)
				}
			}
			if c.want > 0 {
				both[1].gets(c.ask, c.want) // and so says the process that had it
			}
		})
	}
}

// What was granted before something happened that nobody could foresee may not fit any
// more; asked again in another process it is still what it was.
func TestAReplayAfterAShakeIsTheSameAsk(t *testing.T) {
	t.Parallel() // it waits more than it works
	for _, c := range []struct {
		name  string
		shake func(other *process, granted func())
	}{
		{"an adoption that spent", func(p *process, granted func()) {
			granted()
			adopted := ask(3, dollars, review, 10, 8)
			adopted.Unjudged = true
			p.gets(adopted, 8)
			p.settle(adopted, 8)
		}},
		{"more that was granted on other terms", func(p *process, granted func()) {
			granted()
			p.gets(ask(3, dollars, review, 20, 8), 8)
			p.settle(ask(3, dollars, review, 20, 8), 8)
		}},
		{"an overspend", func(p *process, granted func()) {
			p.gets(ask(1, dollars, review, 10, 1), 1)
			granted()
			p.settle(ask(1, dollars, review, 10, 1), 8)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			both := processes(t, 2)
			a := ask(2, dollars, feature, 10, 9)
			c.shake(both[1], func() { both[1].gets(a, 9) })
			both[0].gets(a, 9)
			both[1].gets(a, 9)
		})
	}
}

// An ask that was refused, and whose asker has not taken it back for long, is not
// adopted beside what was granted because it was refused.
func TestWhatWasRefusedIsNotAdoptedBesideWhatWasGrantedInItsPlace(t *testing.T) {
	t.Parallel() // it waits more than it works
	three := silent(t, 3)
	first, refused, second := ask(1, dollars, feature, 10, 8), ask(2, dollars, feature, 10, 9), ask(3, dollars, feature, 10, 2)
	refused.Minimum = holdfast.AmountOf(holdfast.UnitUSD, 5)
	three[0].gets(first, 8)
	three[0].confirm(first)
	three[1].inFlight(refused) // 2 are left
	three[0].gets(second, 2)
	if _, err := three[0].ledger.Release(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	if got, denial, err := three[2].ledger.Reserve(t.Context(), refused); !errors.Is(err, capacityledger.ErrUnavailable) || denial.Denied() {
		t.Errorf("it got %d (%s), %v; nobody but the others can tell", got.Amount.Int(), denial.Public, err)
	}
	three[0].holds(dollars, 0, 11) // what is in flight counts
	three[0].confirm(second)
	three[2].gets(refused, 8)
	three[0].holds(dollars, 0, 10)
}

// An ask whose process died before it judged it is not taken for granted because the
// subject went above its cap for other reasons later.
func TestWhatNobodyJudgedIsNotGrantedAfterAShake(t *testing.T) {
	t.Parallel() // it waits more than it works
	three := processes(t, 3)
	first, left, second := ask(1, dollars, feature, 10, 8), ask(2, dollars, feature, 10, 9), ask(3, dollars, feature, 10, 2)
	left.Minimum = left.Requested
	three[0].gets(first, 8)
	three[0].confirm(first)
	three[1].inFlight(left) // 2 are left, so it would have been refused
	three[0].gets(second, 2)
	three[0].settle(first, 9) // 1 more than it was granted
	if got, denial, err := three[2].ledger.Reserve(t.Context(), left); !errors.Is(err, capacityledger.ErrUnavailable) || denial.Denied() {
		t.Errorf("it got %d (%s), %v; nobody can tell", got.Amount.Int(), denial.Public, err)
	}
	three[0].holds(dollars, 9, 11)
	// Its lease brings it back.
	three[2].clock.Advance(time.Minute)
	if _, err := three[2].ledger.Expire(t.Context(), three[2].clock.Now(), 10); err != nil {
		t.Fatal(err)
	}
	three[0].holds(dollars, 9, 0)
}

// A process vouches for what it granted, also when it is closed in good order, so that
// another one can tell what stands in its way and needs not wait.
func TestAProcessVouchesForWhatItGranted(t *testing.T) {
	t.Parallel() // it waits more than it works
	both := processes(t, 2)
	vouched := func(n int) bool {
		t.Helper()
		for _, e := range both[0].document(slots)["open"].(bson.A) {
			e := e.(bson.D)
			fields := map[string]any{}
			for _, f := range e {
				fields[f.Key] = f.Value
			}
			if id, _ := fields["id"].(string); id == string(ask(n, slots, feature, 9, 1).ID) {
				return fields["n"] != nil
			}
		}
		t.Fatalf("there is no entry %d", n)
		return false
	}
	for n := range 3 {
		both[0].gets(ask(n, slots, feature, 9, 1), 1)
	}
	if closed, err := both[1].ledger.Release(t.Context(), ask(0, slots, feature, 9, 1).ID); err != nil || !closed {
		t.Fatal(closed, err)
	}
	for deadline := time.Now().Add(patience); !vouched(1) || !vouched(2); {
		if time.Now().After(deadline) {
			t.Fatal("nobody vouches")
		}
		time.Sleep(5 * time.Millisecond)
	}
	both[0].holds(slots, 0, 2)
	if closed, err := both[0].ledger.Release(t.Context(), ask(1, slots, feature, 9, 1).ID); err != nil || !closed {
		t.Error(closed, err)
	}
	both[1].gets(ask(7, slots, feature, 9, 1), 1)
	if err := both[1].store.Close(); err != nil {
		t.Fatal(err)
	}
	if !vouched(7) {
		t.Error("a store that was closed in good order left its grant undecided")
	}
}
