package ledgertest

import (
	"context"
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

func reopenKeepsHolders(ctx context.Context, h Harness) error {
	for n := int64(1); n <= 3; n++ {
		store, err := h.Open()
		if err != nil {
			return err
		}
		s := newScript(ctx, store)
		for range n {
			s.grant(s.ask(slots, docs, at(slots, n), 1), 1)
			s.grant(s.ask(dollars, review, at(dollars, usd(9)), usd(2)), usd(2))
		}
		before, _ := s.store.Balance(ctx, slots)
		s.reopen(h)
		after, err := s.store.Balance(ctx, slots)
		s.check(err == nil && cmp.Equal(before, after, opaque), "the balance became %s", cmp.Diff(before, after, opaque))
		s.deny(s.ask(slots, feature, at(slots, n), 1), "", true)
		s.settle(before.Open[0].ID, 1, 0, true)
		s.grant(s.ask(slots, feature, at(slots, n), 1), 1)
		s.has(dollars, review, 0, usd(2)*n)
		if s.err != nil {
			return fmt.Errorf("%d holders: %w", n, s.err)
		}
	}
	return nil
}

func reopenFindsNames(ctx context.Context, h Harness) error {
	store, err := h.Open()
	if err != nil {
		return err
	}
	s := newScript(ctx, store)
	window := holdfast.Subject{Kind: holdfast.KindAccount, ID: "sha256:Ab.C_d|e", Axis: holdfast.AxisFiveHour, Period: "1762000000"}
	var ids []holdfast.AllocationID
	for _, holder := range []holdfast.Identity{review, docs, holdfast.TeamBot("a-9", "b-1"), holdfast.TeamBot("acme", "review-pr")} {
		ids = append(ids, s.grant(s.ask(window, holder, holdfast.NoLimit, 100), 100).ID)
	}
	s.reopen(h)
	for _, id := range ids {
		s.renew(id, 1, 1, 0, s.clock.Now().Add(lease))
	}
	s.has(window, holdfast.TeamBot("acme", "review-pr"), 0, 100)
	s.has(window, review, 0, 100)
	for _, id := range ids {
		s.release(id, true)
	}
	s.holds(window, 0, 0)
	return s.err
}

func reopenKeepsHistory(ctx context.Context, h Harness) error {
	store, err := h.Open()
	if err != nil {
		return err
	}
	s := newScript(ctx, store)
	first, second, third := s.ask(dollars, feature, at(dollars, usd(50)), usd(20)), s.ask(dollars, feature, at(dollars, usd(50)), usd(20)), s.ask(dollars, review, at(dollars, usd(50)), usd(4))
	s.grant(first, usd(20))
	s.grant(second, usd(20))
	s.settle(first.ID, 1, usd(5), true)
	s.clock.Advance(20 * time.Minute)
	repairAll(s)
	s.renew(second.ID, 1, 4, usd(1), s.clock.Now().Add(lease))
	s.renew(second.ID, 2, 1, usd(2), s.clock.Now().Add(lease))
	s.grant(third, usd(4))
	s.settle(third.ID, 3, usd(3), true)
	s.reopen(h)
	s.holds(dollars, usd(11), usd(17))
	for _, ask := range []capacityledger.Ask{first, third} {
		s.refuse(ask, capacityledger.ErrClosed)
		s.check(s.get(ask.ID).Outcome == capacityledger.Settled, "it is %q", s.get(ask.ID).Outcome)
	}
	s.settle(first.ID, 1, usd(5), false)
	s.settle(third.ID, 3, usd(3), false)
	s.settle(second.ID, 1, usd(1), false)
	s.holds(dollars, usd(11), usd(17))
	s.settle(first.ID, 2, usd(1), false)
	s.settle(second.ID, 2, usd(2), true)
	s.holds(dollars, usd(12), 0)
	s.reopen(h)
	s.holds(dollars, usd(12), 0)
	s.has(dollars, feature, usd(9), 0)
	s.refuse(second, capacityledger.ErrClosed)
	return s.err
}
