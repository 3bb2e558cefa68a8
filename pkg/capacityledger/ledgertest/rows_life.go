package ledgertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// lifeRows are how an allocation lives and ends.
func lifeRows() []Row {
	return []Row{
		{"reserve and settle ten times the cap, nothing sticks (D9)", play(tenTimesTheCap)},
		{"an allocation closes once, whoever comes second (E2)", play(closesOnce)},
		{"closes are by id and never by inference (D12)", play(closedByID)},
		{"attempts: per attempt the highest spend counts", play(attempts)},
		{"a superseded attempt is recorded and closes nothing (E4)", play(supersededAttempt)},
		{"a superseded attempt does not extend", play(supersededDoesNotExtend)},
		{"a shorter expiry is taken over too", play(shorterExpiry)},
		{"spend above the allowance is recorded in full", play(aboveAllowance)},
		{"a settle after an expiry is recorded once", play(lateSettle)},
		{"a renewal after a close records its spend and says closed", play(renewAfterClose)},
		{"expiry closes what is over, charges nothing, and leaves the rest", play(expiryClosesDue)},
		{"a renewal between the sweep's reading and its close wins", play(renewalBeatsSweep)},
		{"what was taken over is not withdrawn, and the other way round", play(takenOver)},
		{"the record alone is enough to close it (D7)", play(recordAloneSuffices)},
		{"what the dead held comes back, what the living settled stays (D1)", play(deadAndLiving)},
		{"a spend to the last micro-dollar leaves zero (I1, I4)", play(toTheLastMicroDollar)},
		{"a launch that is denied on one subject leaves nothing on the others (C5)", play(deniedOnTheLast)},
		{"each dead holder's slot comes back at its own expiry, whatever the traffic (D2)", play(ownExpiry)},
		{"settle, release and expiry at once make one close (E1)", threeClosers},
		{"after a crash the holders are the same and the cap still holds (F7)", reopenKeepsHolders},
		{"after a crash the names are found again (F8)", reopenFindsNames},
		{"after a crash closes, attempts and archives are known", reopenKeepsHistory},
	}
}

func tenTimesTheCap(s *script) {
	for range 30 {
		a := s.grant(s.ask(slots, feature, at(slots, 3), 1), 1)
		s.settle(a.ID, 1, 0, true)
	}
	for range 30 {
		a := s.grant(s.ask(slots, feature, at(slots, 3), 1), 1)
		s.release(a.ID, true)
	}
	for range 3 {
		s.grant(s.ask(slots, feature, at(slots, 3), 1), 1)
	}
}

func closesOnce(s *script) {
	kept := s.grant(s.ask(dollars, review, at(dollars, usd(50)), usd(15)), usd(15))
	a := s.grant(s.ask(dollars, feature, at(dollars, usd(50)), usd(20)), usd(20))
	s.settle(a.ID, 1, usd(3), true)
	s.settle(a.ID, 1, usd(3), false)
	s.release(a.ID, false)
	s.settle(a.ID, 1, usd(3), false)
	s.check(s.get(a.ID).Outcome == capacityledger.Settled, "the first outcome is lost: %q", s.get(a.ID).Outcome)
	s.holds(dollars, usd(3), usd(15))
	s.release(kept.ID, true)
	s.settle(kept.ID, 1, usd(2), false)
	s.check(s.get(kept.ID).Outcome == capacityledger.Released, "the first outcome is lost: %q", s.get(kept.ID).Outcome)
	s.holds(dollars, usd(5), 0)
}

func closedByID(s *script) {
	first := s.grant(s.ask(slots, feature, at(slots, 2), 1), 1)
	second := s.grant(s.ask(slots, feature, at(slots, 2), 1), 1)
	refused := s.ask(slots, feature, at(slots, 2), 1)
	s.deny(refused, "", true)
	s.release(refused.ID, false) // it was refused and has nothing to give back
	s.holds(slots, 0, 2)
	s.settle(first.ID, 1, 0, true)
	s.settle(first.ID, 1, 0, false)
	s.holds(slots, 0, 1)
	s.check(s.get(second.ID).Outcome == capacityledger.Open, "the other was closed")
}

func attempts(s *script) {
	a := s.grant(s.ask(dollars, feature, at(dollars, usd(50)), usd(20)), usd(20))
	until := s.clock.Now().Add(lease)
	s.renew(a.ID, 1, 1, usd(3), until)
	s.holds(dollars, usd(3), usd(17))
	s.renew(a.ID, 1, 2, usd(2), until) // less than was said before
	s.holds(dollars, usd(3), usd(17))
	s.renew(a.ID, 2, 1, usd(4), until) // another attempt counts from zero
	s.holds(dollars, usd(7), usd(13))
	s.renew(a.ID, 1, 3, usd(5), until) // the first one's late word
	s.holds(dollars, usd(9), usd(11))
	s.settle(a.ID, 2, usd(6), true)
	s.holds(dollars, usd(11), 0)
	s.check(s.get(a.ID).Spent.Int() == usd(11) && s.get(a.ID).Attempt == 2, "%+v", s.get(a.ID))
}

func supersededAttempt(s *script) {
	a := s.grant(s.ask(dollars, feature, at(dollars, usd(50)), usd(20)), usd(20))
	s.renew(a.ID, 1, 1, usd(1), s.clock.Now().Add(lease))
	s.renew(a.ID, 2, 1, 0, s.clock.Now().Add(lease))
	s.settle(a.ID, 1, usd(3), false)
	s.holds(dollars, usd(3), usd(17))
	s.check(s.get(a.ID).Outcome == capacityledger.Open, "a superseded attempt closed it")
	s.settle(a.ID, 2, usd(2), true)
	s.holds(dollars, usd(5), 0)
}

func supersededDoesNotExtend(s *script) {
	a := s.grant(s.ask(slots, feature, at(slots, 1), 1), 1)
	base := s.clock.Now()
	s.renew(a.ID, 2, 5, 0, base.Add(time.Minute))
	s.renew(a.ID, 1, 9, 0, base.Add(time.Hour))
	s.renew(a.ID, 2, 4, 0, base.Add(time.Hour))
	s.check(s.get(a.ID).ExpiresAt.Equal(base.Add(time.Minute)), "it expires at %s", s.get(a.ID).ExpiresAt)
	s.renew(a.ID, 2, 5, 0, base.Add(2*time.Minute)) // the same report said again
	s.check(s.get(a.ID).ExpiresAt.Equal(base.Add(2*time.Minute)), "it expires at %s", s.get(a.ID).ExpiresAt)
}

func shorterExpiry(s *script) {
	a := s.grant(s.ask(slots, feature, at(slots, 1), 1), 1)
	s.check(!a.Confirmed, "it is confirmed before anybody renewed it")
	base := s.clock.Now()
	s.renew(a.ID, 1, 1, 0, base.Add(time.Hour))
	b := s.renew(a.ID, 1, 2, 0, base.Add(time.Second))
	s.check(b.ExpiresAt.Equal(base.Add(time.Second)) && b.Confirmed, "it expires at %s, confirmed %t", b.ExpiresAt, b.Confirmed)
	s.expire(base.Add(time.Second), 10, 1)
	s.holds(slots, 0, 0)
}

func aboveAllowance(s *script) {
	a := s.grant(s.ask(dollars, feature, at(dollars, usd(10)), usd(4)), usd(4))
	s.renew(a.ID, 1, 1, usd(6), s.clock.Now().Add(lease))
	s.holds(dollars, usd(6), 0)
	s.grant(s.ask(dollars, feature, at(dollars, usd(10)), usd(9)), usd(4))
	s.settle(a.ID, 1, usd(12), true)
	s.holds(dollars, usd(12), usd(4))
	denial := s.deny(s.ask(dollars, feature, at(dollars, usd(10)), usd(1)), "", true)
	s.check(denial.Remaining.Int() == -usd(6), "remaining %s", denial.Remaining)
}

func lateSettle(s *script) {
	a := s.grant(s.ask(dollars, feature, at(dollars, usd(10)), usd(4)), usd(4))
	s.expire(far, 10, 1)
	s.holds(dollars, 0, 0)
	s.settle(a.ID, 1, usd(3), false)
	s.settle(a.ID, 1, usd(3), false)
	s.holds(dollars, usd(3), 0)
	s.check(s.get(a.ID).Outcome == capacityledger.Expired, "the outcome became %q", s.get(a.ID).Outcome)
}

func renewAfterClose(s *script) {
	a := s.grant(s.ask(dollars, feature, at(dollars, usd(10)), usd(4)), usd(4))
	s.release(a.ID, true)
	for range 2 {
		_, denial, err := s.ledger.Renew(s.ctx, a.ID, capacityledger.Renewal{Attempt: 1, Sequence: 3, Spent: holdfast.USDAmount(holdfast.OneUSD), Expires: far})
		s.check(errors.Is(err, capacityledger.ErrClosed) && !denial.Denied(), "renew a closed one: %v", err)
		s.holds(dollars, usd(1), 0)
		s.sound()
	}
}

func expiryClosesDue(s *script) {
	base := s.clock.Now()
	var ids []holdfast.AllocationID
	for i := range 6 {
		ask := s.ask(dollars, feature, holdfast.NoLimit, usd(1))
		ask.Expires = base.Add(time.Duration(i+1) * time.Minute)
		ids = append(ids, s.grant(ask, usd(1)).ID)
	}
	s.renew(ids[0], 1, 1, usd(1)/2, base.Add(time.Minute))
	s.expire(base.Add(time.Minute-time.Millisecond), 10, 0)
	s.expire(base.Add(4*time.Minute), 3, 3)
	s.holds(dollars, usd(1)/2, usd(3))
	s.expire(base.Add(4*time.Minute), 3, 1)
	s.expire(base.Add(4*time.Minute), 3, 0)
	s.holds(dollars, usd(1)/2, usd(2))
	s.check(s.get(ids[0]).Outcome == capacityledger.Expired && s.get(ids[5]).Outcome == capacityledger.Open, "the wrong ones expired")
}

func renewalBeatsSweep(s *script) {
	a := s.grant(s.ask(slots, feature, at(slots, 1), 1), 1)
	s.clock.Advance(2 * lease)
	due, err := s.store.Due(s.ctx, s.clock.Now(), capacityledger.Cursor{}, 10)
	s.check(err == nil && len(due) == 1, "due: %v, %v", due, err)
	s.renew(a.ID, 1, 1, 0, s.clock.Now().Add(lease))
	closed, err := s.store.Close(s.ctx, s.clock.Now(), []capacityledger.Closing{{ID: a.ID, Outcome: capacityledger.Expired, IfExpires: a.ExpiresAt}})
	s.check(err == nil && !closed[0].Closed && closed[0].Allocation.Outcome == capacityledger.Open, "%+v, %v", closed, err)
	s.holds(slots, 0, 1)
}

// takenOver: two callers ask under one id. One was granted it and the other found it.
func takenOver(s *script) {
	twice := func(ask capacityledger.Ask) (granted, found capacityledger.Allocation) {
		granted, first, _, err := s.ledger.ReserveJudged(s.ctx, ask)
		s.check(err == nil && !first.Replayed && granted.ID == ask.ID, "the first: %+v, %+v, %v", granted, first, err)
		found, second, _, err := s.ledger.ReserveJudged(s.ctx, ask)
		s.check(err == nil && second.Replayed && found.ID == ask.ID && found.ExpiresAt.Equal(granted.ExpiresAt), "the second: %+v, %+v, %v", found, second, err)
		return granted, found
	}
	withdraw := func(a capacityledger.Allocation, want bool) {
		closed, err := s.ledger.Withdraw(s.ctx, a)
		s.check(err == nil && closed == want, "withdraw: %t, %v", closed, err)
	}
	granted, found := twice(s.ask(slots, feature, at(slots, 1), 1))
	err := s.ledger.TakeOver(s.ctx, found, granted.ExpiresAt) // of the same instant, on purpose
	s.check(err == nil, "take over: %v", err)
	withdraw(granted, false)
	s.holds(slots, 0, 1)
	s.release(granted.ID, true)

	granted, found = twice(s.ask(dollars, feature, at(dollars, usd(9)), usd(5)))
	err = s.ledger.Lower(s.ctx, []capacityledger.Correction{{ID: granted.ID, Amount: holdfast.USDAmount(holdfast.MicroUSD(usd(2)))}})
	s.check(err == nil, "lower: %v", err)
	withdraw(granted, true)
	err = s.ledger.TakeOver(s.ctx, found, far)
	s.check(errors.Is(err, capacityledger.ErrClosed), "take over what was withdrawn: %v", err)
	withdraw(granted, false)
	s.holds(slots, 0, 0)
	s.holds(dollars, 0, 0)
}

func recordAloneSuffices(s *script) {
	s.grant(s.ask(dollars, docs, at(dollars, usd(9)), usd(9)), usd(9))
	closed, err := s.ledger.Expire(s.ctx, far, 10)
	if err != nil || len(closed) != 1 {
		s.fail("%v, %v", closed, err)
		return
	}
	s.check(closed[0].Subject == dollars && closed[0].Holder == docs && closed[0].Amount.Int() == usd(9) && closed[0].Outcome == capacityledger.Expired, "%+v", closed[0])
	s.holds(dollars, 0, 0)
}

func deadAndLiving(s *script) {
	var all []capacityledger.Allocation
	for range 100 {
		all = append(all, s.grant(s.ask(dollars, feature, at(dollars, usd(100)), usd(1)), usd(1)))
	}
	for _, a := range all[30:] {
		s.settle(a.ID, 1, usd(1)/5, true)
	}
	s.holds(dollars, usd(14), usd(30))
	s.clock.Advance(2 * lease)
	s.expire(s.clock.Now(), 200, 30)
	s.holds(dollars, usd(14), 0)
	s.grant(s.ask(dollars, feature, at(dollars, usd(100)), usd(90)), usd(86))
}

func toTheLastMicroDollar(s *script) {
	limit := at(dollars, 14_000_000)
	for i := range 200 {
		a := s.grant(s.ask(dollars, feature, limit, 70_000), 70_000)
		s.settle(a.ID, 1, 70_000, true)
		if i == 198 {
			s.holds(dollars, 13_930_000, 0)
		}
	}
	s.holds(dollars, 14_000_000, 0)
	d := s.deny(s.ask(dollars, feature, limit, 1), "", true)
	s.check(d.Remaining.Int() == 0, "remaining %s", d.Remaining)
}

func deniedOnTheLast(s *script) {
	window := holdfast.Subject{Kind: holdfast.KindAccount, ID: "fp-1", Axis: holdfast.AxisFiveHour, Period: "1773147600"}
	busy := s.grant(s.ask(slots, review, at(slots, 1), 1), 1)
	launch := func(admitted bool) {
		share := s.grant(s.ask(window, feature, at(window, 8000), 2000), 2000)
		money := s.grant(s.ask(dollars, feature, at(dollars, usd(10)), usd(10)), usd(10))
		slot := s.ask(slots, feature, at(slots, 1), 1)
		if !admitted {
			s.deny(slot, "", true)
			s.release(money.ID, true)
			s.release(share.ID, true)
			return
		}
		s.settle(s.grant(slot, 1).ID, 1, 0, true)
		s.settle(money.ID, 1, usd(1), true)
		s.settle(share.ID, 1, 0, true)
	}
	launch(false)
	s.holds(window, 0, 0)
	s.holds(dollars, 0, 0)
	s.settle(busy.ID, 1, 0, true)
	launch(true)
	s.holds(window, 0, 0)
	s.holds(dollars, usd(1), 0)
	s.holds(slots, 0, 0)
}

func ownExpiry(s *script) {
	start := s.clock.Now()
	for i := range 10 {
		ask := s.ask(slots, feature, at(slots, 10), 1)
		ask.Expires = start.Add(time.Duration(i+1) * time.Second)
		s.grant(ask, 1)
	}
	for i := range 10 {
		s.deny(s.ask(slots, review, at(slots, 10), 1), "", true)
		s.clock.Advance(time.Second)
		s.expire(s.clock.Now(), 200, 1)
		living := s.ask(slots, review, at(slots, 10), 1)
		living.Expires = start.Add(time.Hour)
		s.grant(living, 1)
		s.has(slots, feature, 0, int64(9-i))
	}
}

// threeClosers races the three ways to close over and over.
func threeClosers(ctx context.Context, h Harness) error {
	store, err := h.Open()
	if err != nil {
		return err
	}
	s := newScript(ctx, store)
	s.grant(s.ask(dollars, review, at(dollars, usd(50)), usd(15)), usd(15))
	for range 50 {
		ask := s.ask(dollars, feature, at(dollars, usd(50)), usd(20))
		ask.Expires = s.clock.Now()
		a := s.grant(ask, usd(20))
		var mu sync.Mutex
		closes := 0
		count := func(closed bool, err error) error {
			mu.Lock()
			defer mu.Unlock()
			if closed {
				closes++
			}
			return err
		}
		err := together(
			func() error { return count(s.ledger.Settle(ctx, a.ID, capacityledger.Report{Attempt: 1})) },
			func() error { return count(s.ledger.Release(ctx, a.ID)) },
			func() error {
				gone, err := s.ledger.Expire(ctx, s.clock.Now(), 10)
				return count(len(gone) > 0, err)
			},
		)
		s.check(err == nil && closes == 1, "%d closes, %v", closes, err)
		s.holds(dollars, 0, usd(15))
		s.sound()
	}
	return s.err
}
