package ledgertest

import (
	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

const held = holdfast.CauseReserved

// exampleRows are the documented examples of reservations.
func exampleRows() []Row {
	return []Row{
		{"example: cap 3, reserve 2: ordinary work gets 1, the holder 3", play(capThreeReserveTwo)},
		{"example: with the holder running its reserve, ordinary work takes the last slot", play(holderRunsItsReserve)},
		{"example: cap 2, reserve 2: ordinary work never runs", play(allReserved)},
		{"example: cap 50 dollars, reserve 30: what the holder spent is no longer withheld", play(reservedDollars)},
		{"example: reservations above the cap are served in the policy's order", play(reservedAboveCap)},
		{"example: asks of 30 and 30 on 50 dollars get 30 and 20", play(thirtyAndThirty)},
		{"example: a slot fills one reservation, not two", play(oneSlotOneReservation)},
		{"example: a team's bot and the platform's of the same name are two holders", play(sameNameTwoHolders)},
		{"example: a holder is never judged against its own reserve", play(ownReserve)},
		{"example: a denial for a reservation says so with its numbers", play(heldOutNumbers)},
	}
}

func capThreeReserveTwo(s *script) {
	limit, withheld := at(slots, 3), reserve(slots, review, 2)
	s.grant(s.ask(slots, feature, limit, 1, withheld), 1)
	s.deny(s.ask(slots, feature, limit, 1, withheld), held, true)
	s.grant(s.ask(slots, review, limit, 1, withheld), 1)
	s.grant(s.ask(slots, review, limit, 1, withheld), 1)
	s.deny(s.ask(slots, review, limit, 1, withheld), "", true)
	s.holds(slots, 0, 3)
	s.has(slots, review, 0, 2)

	alone := holdfast.TeamSubject("globex", holdfast.AxisSlots, "")
	for range 3 {
		s.grant(s.ask(alone, review, limit, 1, withheld), 1)
	}
	s.deny(s.ask(alone, feature, limit, 1, withheld), "", true)
}

func holderRunsItsReserve(s *script) {
	limit, withheld := at(slots, 3), reserve(slots, review, 2)
	s.grant(s.ask(slots, review, limit, 1, withheld), 1)
	s.grant(s.ask(slots, review, limit, 1, withheld), 1)
	last := s.grant(s.ask(slots, feature, limit, 1, withheld), 1)
	s.deny(s.ask(slots, feature, limit, 1, withheld), "", true)
	s.settle(last.ID, 1, 0, true)
	s.grant(s.ask(slots, feature, limit, 1, withheld), 1)
}

func allReserved(s *script) {
	limit, withheld := at(slots, 2), reserve(slots, review, 2)
	s.deny(s.ask(slots, feature, limit, 1, withheld), held, false)
	s.grant(s.ask(slots, review, limit, 1, withheld), 1)
	s.deny(s.ask(slots, feature, limit, 1, withheld), held, false)
	s.grant(s.ask(slots, review, limit, 1, withheld), 1)
	s.deny(s.ask(slots, feature, limit, 1, withheld), "", false)
}

func reservedDollars(s *script) {
	limit, withheld := at(dollars, usd(50)), reserve(dollars, review, usd(30))
	s.settle(s.grant(s.ask(dollars, review, limit, usd(30), withheld), usd(30)).ID, 1, usd(30), true)
	twenty := s.grant(s.ask(dollars, feature, limit, usd(40), withheld), usd(20))
	s.settle(twenty.ID, 1, 0, true)
	s.settle(s.grant(s.ask(dollars, review, limit, usd(15), withheld), usd(15)).ID, 1, usd(15), true)
	s.grant(s.ask(dollars, feature, limit, usd(40), withheld), usd(5))
	s.deny(s.ask(dollars, feature, limit, usd(40), withheld), "", true)
}

func reservedAboveCap(s *script) {
	a, b := reserve(slots, review, 2), reserve(slots, docs, 2)
	limit := at(slots, 3)
	s.deny(s.ask(slots, feature, limit, 1, a, b), held, false)
	s.grant(s.ask(slots, review, limit, 1, a, b), 1)
	s.grant(s.ask(slots, review, limit, 1, a, b), 1)
	s.deny(s.ask(slots, review, limit, 1, a, b), held, true)
	s.grant(s.ask(slots, docs, limit, 1, a, b), 1)
	s.deny(s.ask(slots, docs, limit, 1, a, b), "", true)
}

func thirtyAndThirty(s *script) {
	s.grant(s.ask(dollars, feature, at(dollars, usd(50)), usd(30)), usd(30))
	s.grant(s.ask(dollars, review, at(dollars, usd(50)), usd(30)), usd(20))
	s.deny(s.ask(dollars, docs, at(dollars, usd(50)), usd(30)), "", true)
	s.holds(dollars, 0, usd(50))
}

func oneSlotOneReservation(s *script) {
	// the platform and the team both reserve for the same bot
	limit, first, second := at(slots, 5), reserve(slots, review, 2), reserve(slots, review, 2)
	s.grant(s.ask(slots, review, limit, 1, first, second), 1)
	s.grant(s.ask(slots, feature, limit, 1, first, second), 1)
	s.deny(s.ask(slots, feature, limit, 1, first, second), held, true)
	s.grant(s.ask(slots, review, limit, 1, first, second), 1)
	s.grant(s.ask(slots, review, limit, 1, first, second), 1)
	s.grant(s.ask(slots, review, limit, 1, first, second), 1)
	s.holds(slots, 0, 5)
}

func sameNameTwoHolders(s *script) {
	ours := holdfast.TeamBot("acme", "review-pr")
	limit, withheld := at(slots, 3), reserve(slots, review, 2)
	s.grant(s.ask(slots, ours, limit, 1, withheld), 1)
	s.deny(s.ask(slots, ours, limit, 1, withheld), held, true)
	s.grant(s.ask(slots, review, limit, 1, withheld), 1)
	s.has(slots, ours, 0, 1)
	s.has(slots, review, 0, 1)
}

func ownReserve(s *script) {
	// two ordinary runs were there before the policy was
	s.grant(s.ask(slots, feature, at(slots, 3), 1), 1)
	s.grant(s.ask(slots, feature, at(slots, 3), 1), 1)
	s.deny(s.ask(slots, feature, at(slots, 3), 1, reserve(slots, review, 2)), held, true)
	s.grant(s.ask(slots, review, at(slots, 3), 1, reserve(slots, review, 2)), 1)
	s.grant(s.ask(dollars, feature, at(dollars, usd(50)), usd(25)), usd(25))
	s.grant(s.ask(dollars, review, at(dollars, usd(50)), usd(20), reserve(dollars, review, usd(30))), usd(20))
}

func heldOutNumbers(s *script) {
	limit := at(dollars, usd(50))
	s.grant(s.ask(dollars, feature, limit, usd(15)), usd(15))
	ask := s.ask(dollars, feature, limit, usd(10), reserve(dollars, review, usd(30)))
	ask.Minimum = holdfast.USDAmount(6 * holdfast.OneUSD)
	d := s.deny(ask, held, true)
	s.check(d.Withheld.Int() == usd(30) && d.Remaining.Int() == usd(5) && d.Minimum == ask.Minimum, "withheld %s, remaining %s", d.Withheld, d.Remaining)
	s.check(d.ResetAt.Equal(holdfast.MonthEnd(s.clock.Now())), "it resets at %s", d.ResetAt)
	s.check(len(d.Holders) == 2 && d.Holders[0].Holder == review && d.Holders[0].Reserved.Int() == usd(30), "holders %+v", d.Holders)
	s.check(d.MetricLabel() == string(held), "counted as %q", d.MetricLabel())
	_, preview, balance, err := s.ledger.Preview(s.ctx, ask)
	s.check(err == nil && preview.Public == d.Public && balance.Outstanding == usd(15), "the preview says %q, %v", preview.Public, err)
	_, err = s.store.Get(s.ctx, ask.ID)
	s.wants(err, capacityledger.ErrNotFound, "the preview took something")
}
