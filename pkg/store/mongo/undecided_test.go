package mongo_test

import (
	"errors"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/store/mongo"
)

// What was granted as it was asked, by a process that died before it vouched, is not
// made smaller because of what came later and does not count for good, or was not
// bound by the same rules: then nobody can tell.
func TestAGrantIsNotMadeSmallerByWhatItCouldNotForesee(t *testing.T) {
	t.Parallel() // it waits more than it works
	granted := ask(2, dollars, review, 12, 3)
	unjudged := func(a capacityledger.Ask) capacityledger.Ask { a.Unjudged = true; return a }
	other := ask(3, dollars, feature, 20, 4) // on terms under which it fits
	for _, c := range []struct {
		name  string
		later func(living, dying *process)
	}{
		{"the same ask, recorded unjudged and in flight", func(_, dying *process) { dying.inFlight(unjudged(granted)) }},
		{"another one, recorded unjudged and in flight", func(_, dying *process) { dying.inFlight(unjudged(ask(3, dollars, feature, 12, 4))) }},
		{"another one, left in flight unjudged and adopted", func(living, dying *process) {
			dying.inFlight(unjudged(ask(3, dollars, feature, 12, 4)))
			living.gets(unjudged(ask(3, dollars, feature, 12, 4)), 4)
		}},
		{"another one, left in flight on other terms and adopted", func(living, dying *process) {
			dying.inFlight(other)
			living.gets(other, 4)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			all := silent(t, 4)
			first := ask(1, dollars, feature, 12, 7)
			all[0].gets(first, 7)
			all[0].confirm(first)
			all[1].gets(granted, 3)
			c.later(all[0], all[3])
			if got, denial, err := all[2].ledger.Reserve(t.Context(), granted); !errors.Is(err, capacityledger.ErrUnavailable) || denial.Denied() {
				t.Errorf("it got %d (%s), %v; nobody can tell", got.Amount.Int(), denial.Public, err)
			}
			all[1].gets(granted, 3)
		})
	}
}

func TestAGrantIsNotMadeSmallerByWhatIsGrantedInTheSameWrite(t *testing.T) {
	t.Parallel() // it waits more than it works
	three := silent(t, 3)
	first, granted := ask(1, dollars, feature, 12, 7), ask(2, dollars, review, 12, 3)
	three[0].gets(first, 7)
	three[0].confirm(first)
	three[1].gets(granted, 3)
	answers, err := mongo.AdmitTogether(t.Context(), three[2].store, three[2].clock.Now(), ask(3, dollars, feature, 20, 4), granted)
	if err != nil || answers[0].Allocation.Amount.Int() != 4 {
		t.Fatalf("%+v, %v", answers, err)
	}
	if got := answers[1]; !errors.Is(got.Err, capacityledger.ErrUnavailable) || got.Allocation.ID != "" {
		t.Errorf("it got %d, %v; nobody can tell", got.Allocation.Amount.Int(), got.Err)
	}
	three[1].gets(granted, 3)
}

// An ask that was recorded unjudged may be a replay that goes again, and what travelled
// in its write was judged without it. So nothing behind it was refused because of it.
func TestAnAskInFlightIsNotLeftOutBecauseOfOneThatNobodyJudged(t *testing.T) {
	t.Parallel() // it waits more than it works
	for name, limit := range map[string]holdfast.Limit{"unjudged": ask(2, dollars, review, 12, 3).Terms.Cap, "without a cap": holdfast.NoLimit} {
		t.Run(name, func(t *testing.T) {
			both := processes(t, 2)
			mine, other := both[0], both[1]
			first, second := ask(1, dollars, feature, 12, 4), ask(2, dollars, review, 12, 3)
			for _, a := range []capacityledger.Ask{first, second} {
				other.gets(a, a.Requested.Int())
				other.confirm(a)
			}
			again := second
			again.Unjudged, again.Terms.Cap = !limit.None(), limit
			other.inFlight(again)
			granted := ask(3, dollars, feature, 12, 5) // 7 are held, so it fits where the replay does not count
			granted.Minimum = granted.Requested
			other.inFlight(granted)
			mine.gets(ask(4, dollars, review, 12, 2), 0)
		})
	}
}
