package ledgertest

import (
	"math"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// ledgerRows are what the ledger promises over every twin.
func ledgerRows() []Row {
	return []Row{
		{"from above: ask N+1 is refused", play(fromAbove)},
		{"from below: with a cap of N, N asks are admitted", play(fromBelow)},
		{"resume: a run with an open allocation is not refused by itself", play(resumeNotRefusedByItself)},
		{"resume: dollars are judged without the run's own remainder", play(resumeJudgedOnDollars)},
		{"a denial leaves nothing and is not remembered", play(denialNotRemembered)},
		{"a partial grant is written back", play(partialGrant)},
		{"below its minimum an ask on dollars is refused", play(minimumOnDollars)},
		{"without a cap everything is granted and recorded", play(noCapIsRecorded)},
		{"a cap of zero grants nothing, and says that retrying is useless", play(capOfZero)},
		{"an ask above the cap never fits and says so (B1)", play(neverFits)},
		{"unconfigured reservations withhold nothing (B7)", play(nothingReserved)},
		{"a lowered cap stops nobody and admits nobody (B5)", play(loweredCap)},
		{"an ask of nothing is bad input and holds nothing (C4)", play(askOfNothing)},
		{"bad input names its field and moves nothing", play(badInput)},
		{"the same id again is the same ask", play(replay)},
		{"the same id for another ask is a mismatch", play(mismatch)},
		{"a closed id answers closed and never grants anew", play(closedID)},
		{"an unjudged ask is recorded above the cap", play(unjudged)},
		{"work that is promised and not started counts (A5)", play(promisedCounts)},
		{"a step never waits for the slot that it holds (B2)", play(ownSlot)},
		{"a subject has at most 5,000 open entries", openLimit},
		{"a total that cannot be counted is an error and moves nothing", play(overflow)},
		{"teams and months are apart", play(apart)},
		{"a correction lowers and never raises", play(corrections)},
	}
}

func fromAbove(s *script) {
	for _, subject := range []holdfast.Subject{slots, units, pool} {
		for range 3 {
			s.grant(s.ask(subject, feature, at(subject, 3), 1), 1)
		}
		for range 3 {
			s.deny(s.ask(subject, feature, at(subject, 3), 1), "", true)
		}
		s.holds(subject, 0, 3)
	}
}

func fromBelow(s *script) {
	for n := int64(1); n <= 4; n++ {
		subject := holdfast.TeamSubject(holdfast.TeamID("t"+string(rune('0'+n))), holdfast.AxisSlots, "")
		for range n {
			s.grant(s.ask(subject, feature, at(subject, n), 1), 1)
		}
		s.deny(s.ask(subject, feature, at(subject, n), 1), "", true)
		s.holds(subject, 0, n)
	}
	s.grant(s.ask(dollars, feature, at(dollars, usd(10)), usd(10)), usd(10))
	s.holds(dollars, 0, usd(10))
}

func resumeNotRefusedByItself(s *script) {
	slot := s.grant(s.ask(slots, feature, at(slots, 1), 1), 1)
	s.resume(slot.ID, capacityledger.Terms{Cap: at(slots, 1)}, true)
	s.holds(slots, 0, 1)
	money := s.grant(s.ask(dollars, feature, at(dollars, usd(10)), usd(10)), usd(10))
	s.resume(money.ID, capacityledger.Terms{Cap: at(dollars, usd(10))}, true)
	s.holds(dollars, 0, usd(10))
	s.renew(money.ID, 1, 2, usd(4), s.clock.Now().Add(lease))
	s.resume(money.ID, capacityledger.Terms{Cap: at(dollars, usd(10))}, true)
	s.holds(dollars, usd(4), usd(6))
}

func resumeJudgedOnDollars(s *script) {
	mine := s.grant(s.ask(dollars, feature, at(dollars, usd(10)), usd(4)), usd(4))
	other := s.grant(s.ask(dollars, review, at(dollars, usd(10)), usd(6)), usd(6))
	s.settle(other.ID, 1, usd(11), true) // spent beyond its allowance
	s.resume(mine.ID, capacityledger.Terms{Cap: at(dollars, usd(10))}, false)
	s.resume(mine.ID, capacityledger.Terms{Cap: at(dollars, usd(12))}, true)
	s.resume(mine.ID, capacityledger.Terms{Cap: at(dollars, usd(12)), Reserved: []capacityledger.Reserved{reserve(dollars, docs, usd(1))}}, false)
	s.holds(dollars, usd(11), usd(4))
}

func denialNotRemembered(s *script) {
	first := s.grant(s.ask(slots, feature, at(slots, 1), 1), 1)
	refused := s.ask(slots, review, at(slots, 1), 1)
	denial := s.deny(refused, "", true)
	s.check(denial.Cap == at(slots, 1) && denial.Remaining.Int() == 0 && denial.Requested.Int() == 1 && denial.Public != "", "the denial is %+v", denial)
	s.check(len(denial.Holders) == 1 && denial.Holders[0].Holder == feature && denial.Holders[0].Outstanding.Int() == 1, "its holders are %+v", denial.Holders)
	s.settle(first.ID, 1, 0, true)
	s.grant(refused, 1)
}

func partialGrant(s *script) {
	s.settle(s.grant(s.ask(dollars, feature, at(dollars, usd(100)), usd(95)), usd(95)).ID, 1, usd(95), true)
	a := s.grant(s.ask(dollars, review, at(dollars, usd(100)), usd(20)), usd(5))
	s.holds(dollars, usd(95), usd(5))
	s.has(dollars, review, 0, usd(5))
	s.deny(s.ask(dollars, feature, at(dollars, usd(100)), usd(1)), "", true)
	s.settle(a.ID, 1, usd(2), true)
	s.holds(dollars, usd(97), 0)
	s.grant(s.ask(dollars, feature, at(dollars, usd(100)), usd(9)), usd(3))
}

func minimumOnDollars(s *script) {
	s.grant(s.ask(dollars, feature, at(dollars, usd(10)), usd(7)), usd(7))
	ask := s.ask(dollars, feature, at(dollars, usd(10)), usd(5))
	ask.Minimum = holdfast.USDAmount(4 * holdfast.OneUSD)
	s.deny(ask, "", true)
	ask.Minimum = holdfast.USDAmount(3 * holdfast.OneUSD)
	s.grant(ask, usd(3))
}

func noCapIsRecorded(s *script) {
	s.grant(s.ask(slots, feature, holdfast.NoLimit, 1, reserve(slots, review, 5)), 1)
	s.grant(s.ask(dollars, feature, holdfast.NoLimit, usd(1_000_000)), usd(1_000_000))
	s.holds(slots, 0, 1)
	s.holds(dollars, 0, usd(1_000_000))
}

func capOfZero(s *script) {
	for _, subject := range []holdfast.Subject{slots, units, dollars} {
		s.deny(s.ask(subject, feature, at(subject, 0), 1), "", false)
		var none holdfast.Limit // the zero limit allows nothing
		s.deny(s.ask(subject, feature, none, 1), "", false)
		s.holds(subject, 0, 0)
	}
}

func neverFits(s *script) {
	s.deny(s.ask(units, feature, at(units, 10), 100), "", false)
	s.holds(units, 0, 0)
	s.grant(s.ask(units, feature, at(units, 10), 10), 10)
	ask := s.ask(dollars, feature, at(dollars, usd(10)), usd(100))
	ask.Minimum = ask.Requested
	s.deny(ask, "", false)
	s.deny(s.ask(units, feature, at(units, 10), 6, reserve(units, review, 5)), "", false)
	s.deny(s.ask(units, feature, at(units, 10), 5, reserve(units, review, 5)), "", true)
}

func nothingReserved(s *script) {
	for i := range 8 {
		s.grant(s.ask(slots, []holdfast.Identity{feature, review, docs}[i%3], at(slots, 8), 1), 1)
	}
	s.deny(s.ask(slots, review, at(slots, 8), 1), "", true)
}

func loweredCap(s *script) {
	var held []holdfast.AllocationID
	for range 5 {
		held = append(held, s.grant(s.ask(slots, feature, at(slots, 5), 1), 1).ID)
	}
	for range 10 {
		denial := s.deny(s.ask(slots, feature, at(slots, 3), 1), "", true)
		s.check(denial.Remaining.Int() == -2, "remaining %d, want the overhang of 2", denial.Remaining.Int())
	}
	for _, id := range held {
		s.renew(id, 1, 1, 0, s.clock.Now().Add(lease))
	}
	for _, id := range held[:2] {
		s.settle(id, 1, 0, true)
	}
	s.deny(s.ask(slots, feature, at(slots, 3), 1), "", true)
	s.settle(held[2], 1, 0, true)
	s.grant(s.ask(slots, feature, at(slots, 3), 1), 1)
	s.deny(s.ask(slots, feature, at(slots, 3), 1), "", true)
}

func bad(field string) error { return &holdfast.InvalidError{Field: field} }

func askOfNothing(s *script) {
	for _, n := range []int64{0, -1, math.MinInt64} {
		s.refuse(s.ask(dollars, feature, at(dollars, usd(10)), n), bad("requested"))
		s.refuse(s.ask(slots, feature, at(slots, 10), n), bad("requested"))
	}
}

func badInput(s *script) {
	good := s.ask(dollars, feature, at(dollars, usd(10)), usd(1))
	for _, c := range []struct {
		field string
		spoil func(*capacityledger.Ask)
	}{
		{"allocation", func(a *capacityledger.Ask) { a.ID = "nonsense" }},
		{"allocation", func(a *capacityledger.Ask) { a.Run = runID(999) }},
		{"subject", func(a *capacityledger.Ask) {
			a.ID = holdfast.NewAllocationID(a.Run, holdfast.Subject{Kind: "team", ID: "acme", Axis: "moons"}, 0)
		}},
		{"holder", func(a *capacityledger.Ask) { a.Holder = holdfast.Identity{} }},
		{"requested", func(a *capacityledger.Ask) { a.Requested = holdfast.SlotAmount(1) }},
		{"requested", func(a *capacityledger.Ask) { a.Requested = holdfast.USDAmount(holdfast.MaxUSD + 1) }},
		{"requested", func(a *capacityledger.Ask) { a.Requested = holdfast.USDAmount(math.MaxInt64) }},
		{"minimum", func(a *capacityledger.Ask) { a.Minimum = holdfast.USDAmount(2 * holdfast.OneUSD) }},
		{"minimum", func(a *capacityledger.Ask) { a.Minimum = holdfast.USDAmount(-1) }},
		{"minimum", func(a *capacityledger.Ask) { a.Minimum = holdfast.SlotAmount(1) }},
		{"cap", func(a *capacityledger.Ask) { a.Terms.Cap = at(slots, 3) }},
		{"cap", func(a *capacityledger.Ask) { a.Terms.Cap = at(dollars, -1) }},
		{"expires", func(a *capacityledger.Ask) { a.Expires = time.Time{} }},
		{"reserved", func(a *capacityledger.Ask) {
			a.Terms.Reserved = []capacityledger.Reserved{reserve(slots, review, 1)}
		}},
	} {
		ask := good
		c.spoil(&ask)
		s.refuse(ask, bad(c.field))
	}
	s.grant(good, usd(1))
	for _, spent := range []int64{-1, int64(holdfast.MaxUSD) + 1, math.MaxInt64} {
		_, err := s.ledger.Settle(s.ctx, good.ID, capacityledger.Report{Attempt: 1, Spent: holdfast.AmountOf(holdfast.UnitUSD, spent)})
		s.wants(err, bad("spent"), "settle")
	}
	_, err := s.ledger.Settle(s.ctx, good.ID, capacityledger.Report{Attempt: -1})
	s.wants(err, bad("attempt"), "settle")
	slot := s.grant(s.ask(slots, feature, at(slots, 1), 1), 1)
	_, err = s.ledger.Settle(s.ctx, slot.ID, capacityledger.Report{Attempt: 1, Spent: holdfast.SlotAmount(1)})
	s.wants(err, bad("spent"), "settle a slot as used up")
	s.holds(dollars, 0, usd(1))
	s.holds(slots, 0, 1)
}

func replay(s *script) {
	ask := s.ask(dollars, feature, at(dollars, usd(10)), usd(20))
	first := s.grant(ask, usd(10))
	ask.Terms.Cap = at(dollars, usd(3)) // a changed limit is no mismatch
	ask.Expires = ask.Expires.Add(lease)
	for range 3 {
		again := s.grant(ask, usd(10))
		s.check(equal(first, again), "the replay answered another entry")
	}
	s.holds(dollars, 0, usd(10))
}

func mismatch(s *script) {
	ask := s.ask(dollars, feature, at(dollars, usd(10)), usd(2))
	s.grant(ask, usd(2))
	for _, spoil := range []func(*capacityledger.Ask){
		func(a *capacityledger.Ask) { a.Holder = review },
		func(a *capacityledger.Ask) { a.Requested = holdfast.USDAmount(3 * holdfast.OneUSD) },
		func(a *capacityledger.Ask) { a.Minimum = holdfast.USDAmount(holdfast.OneUSD) },
	} {
		other := ask
		spoil(&other)
		s.refuse(other, capacityledger.ErrMismatch)
	}
	s.holds(dollars, 0, usd(2))
}

func closedID(s *script) {
	settled, released, expired := s.ask(units, feature, at(units, 9), 1), s.ask(units, feature, at(units, 9), 1), s.ask(units, feature, at(units, 9), 1)
	for _, ask := range []capacityledger.Ask{settled, released, expired} {
		s.grant(ask, 1)
	}
	s.settle(settled.ID, 1, 1, true)
	s.release(released.ID, true)
	s.expire(far, 10, 1)
	for _, ask := range []capacityledger.Ask{settled, released, expired} {
		s.refuse(ask, capacityledger.ErrClosed)
		s.release(ask.ID, false)
	}
	s.holds(units, 1, 0)
	anew := settled
	anew.ID = holdfast.NewAllocationID(settled.Run, units, 1)
	s.grant(anew, 1)
}

func unjudged(s *script) {
	s.grant(s.ask(slots, feature, at(slots, 1), 1), 1)
	adopted := s.ask(slots, review, at(slots, 1), 1)
	adopted.Unjudged = true
	s.grant(adopted, 1)
	s.holds(slots, 0, 2)
	denial := s.deny(s.ask(slots, feature, at(slots, 1), 1), "", true)
	s.check(denial.Remaining.Int() == -1, "remaining %d, want -1", denial.Remaining.Int())
}

func promisedCounts(s *script) {
	for range 10 {
		s.grant(s.ask(pool, feature, at(pool, 10), 1), 1) // queued; no runner has it yet
	}
	s.deny(s.ask(pool, feature, at(pool, 10), 1), "", true)
}

func ownSlot(s *script) {
	ask := s.ask(slots, feature, at(slots, 1), 1)
	s.grant(ask, 1)
	s.renew(ask.ID, 1, 1, 0, s.clock.Now().Add(lease))
	s.grant(ask, 1)
	s.holds(slots, 0, 1)
	s.deny(s.ask(slots, feature, at(slots, 1), 1), "", true)
}

func overflow(s *script) {
	most := int64(holdfast.MaxUSD)
	var err error
	for entries := 0; entries < 300 && err == nil && s.err == nil; entries++ { // few attempts each: an entry keeps them all
		ask := s.ask(dollars, feature, holdfast.NoLimit, most)
		if _, _, err = s.ledger.Reserve(s.ctx, ask); err != nil {
			break
		}
		for attempt := 1; attempt <= 60 && err == nil; attempt++ {
			_, err = s.ledger.Settle(s.ctx, ask.ID, capacityledger.Report{Attempt: attempt, Spent: holdfast.AmountOf(holdfast.UnitUSD, most)})
		}
		s.sound()
	}
	s.wants(err, capacityledger.ErrOverflow, "settling billions over and over")
	before := s.totals(dollars)
	s.refuse(s.ask(dollars, feature, holdfast.NoLimit, most), capacityledger.ErrOverflow)
	s.deny(s.ask(dollars, feature, at(dollars, most), 1), "", true)
	s.check(s.totals(dollars) == before, "the totals moved")
	s.sound()
}

func apart(s *script) {
	next := holdfast.TeamSubject("acme", holdfast.AxisUSD, "2026-04")
	other := holdfast.TeamSubject("globex", holdfast.AxisUSD, "2026-03")
	for _, subject := range []holdfast.Subject{dollars, next, other} {
		a := s.grant(s.ask(subject, feature, at(subject, usd(20)), usd(20)), usd(20))
		s.settle(a.ID, 1, usd(18), true)
	}
	for _, subject := range []holdfast.Subject{dollars, next, other} {
		s.holds(subject, usd(18), 0)
	}
}

func corrections(s *script) {
	a := s.grant(s.ask(dollars, feature, at(dollars, usd(10)), usd(8)), usd(8))
	lower := func(n int64) error {
		err := s.ledger.Lower(s.ctx, []capacityledger.Correction{{ID: a.ID, Amount: holdfast.AmountOf(holdfast.UnitUSD, n)}})
		s.sound()
		return err
	}
	s.check(lower(usd(5)) == nil, "lowering failed")
	s.holds(dollars, 0, usd(5))
	s.check(lower(usd(9)) == nil, "a correction upwards is no error")
	s.holds(dollars, 0, usd(5))
	s.renew(a.ID, 1, 1, usd(4), s.clock.Now().Add(lease))
	s.check(lower(usd(2)) == nil, "lowering below the spend failed")
	s.holds(dollars, usd(4), 0)
	s.wants(lower(0), bad("amount"), "lower to nothing")
	s.wants(lower(-1), bad("amount"), "lower below zero")
	s.grant(s.ask(dollars, feature, at(dollars, usd(10)), usd(8)), usd(6))
	s.settle(a.ID, 1, usd(4), true)
	s.wants(lower(usd(1)), capacityledger.ErrClosed, "lower what is closed")
}
