package ledgertest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// storeRows are what the seam itself promises.
func storeRows() []Row {
	return []Row{
		{"store: a subject that nobody asked is empty and no error", play(emptySubject)},
		{"store: an entry is kept as it was asked", play(entryAsAsked)},
		{"store: the judge sees the ask already counted", play(judgeSeesPostAdmit)},
		{"store: a batch is judged one after the other", play(batchInOrder)},
		{"store: due entries come by expiry and id, bounded and after the cursor", play(dueInOrder)},
		{"store: subjects come in text order after the one named", play(subjectsInOrder)},
		{"store: what is returned belongs to the caller", play(returnedIsTheCallers)},
		{"store: a caller who has gone is answered an error, not a denial", play(cancelledCaller)},
		{"store: moving and closing what was never recorded says so", play(neverRecorded)},
		{"store: housekeeping archives closes and forgets nothing", play(archivedCloses)},
		{"store: an archived close takes a late report once", play(lateReportOnArchived)},
	}
}

func emptySubject(s *script) {
	s.holds(slots, 0, 0)
	balance, err := s.store.Balance(s.ctx, slots)
	s.check(err == nil && balance.Subject == slots && len(balance.Open) == 0 && balance.NextExpiry.IsZero(), "the balance is %+v, %v", balance, err)
	due, err := s.store.Due(s.ctx, far, capacityledger.Cursor{}, 10)
	s.check(err == nil && len(due) == 0, "due: %v, %v", due, err)
	s.release(holdfast.NewAllocationID(runID(1), slots, 0), false)
	s.holds(slots, 0, 0)
}

func entryAsAsked(s *script) {
	ask := s.ask(dollars, docs, at(dollars, usd(50)), usd(30), reserve(dollars, review, usd(5)))
	ask.Minimum = holdfast.USDAmount(2 * holdfast.OneUSD)
	a := s.grant(ask, usd(30))
	want := capacityledger.Allocation{
		ID: ask.ID, Subject: dollars, Holder: docs, Run: ask.Run, Requested: ask.Requested, Minimum: ask.Minimum,
		Amount: ask.Requested, Spent: holdfast.USDAmount(0), AcquiredAt: s.clock.Now(), ExpiresAt: ask.Expires, Cap: ask.Terms.Cap, Nonce: a.Nonce,
	}
	s.check(a.Nonce != "", "the entry has no nonce")
	for what, got := range map[string]capacityledger.Allocation{"reserve": a, "get": s.get(ask.ID)} {
		s.check(equal(got, want), "%s: %s", what, cmp.Diff(want, got, opaque))
	}
	s.settle(ask.ID, 1, usd(4), true)
	want.Outcome, want.ClosedAt, want.Attempt = capacityledger.Settled, s.clock.Now(), 1
	want.Spent, want.SpentBy = holdfast.USDAmount(4*holdfast.OneUSD), []capacityledger.AttemptSpend{{Attempt: 1, Spent: holdfast.USDAmount(4 * holdfast.OneUSD)}}
	got := s.get(ask.ID)
	s.check(equal(got, want), "closed: %s", cmp.Diff(want, got, opaque))
}

// opaque lets cmp look into the vocabulary's values.
var opaque = cmp.AllowUnexported(holdfast.Amount{}, holdfast.Identity{}, holdfast.Limit{})

func equal(a, b capacityledger.Allocation) bool { return cmp.Equal(a, b, opaque) }

func judgeSeesPostAdmit(s *script) {
	s.grant(s.ask(units, review, at(units, 9), 3), 3)
	ask, err := s.ask(units, feature, at(units, 9), 4).Checked()
	s.check(err == nil, "%v", err)
	var seen capacityledger.PostAdmit
	judge := func(post capacityledger.PostAdmit, a capacityledger.Ask) capacityledger.Verdict {
		seen = capacityledger.PostAdmit{Settled: post.Settled, Outstanding: post.Outstanding, Holders: slices.Clone(post.Holders)}
		return capacityledger.Judge(post, a)
	}
	answers, err := s.store.Admit(s.ctx, s.clock.Now(), units, []capacityledger.Ask{ask}, judge)
	s.check(err == nil && len(answers) == 1 && !answers[0].Verdict.Refused, "%v, %v", answers, err)
	s.check(seen.Settled == 0 && seen.Outstanding == 7, "the judge saw %d + %d, want 0 + 7", seen.Settled, seen.Outstanding)
	held := map[holdfast.Identity]int64{}
	for _, h := range seen.Holders {
		held[h.Holder] = h.Outstanding
	}
	s.check(held[review] == 3 && held[feature] == 4, "the judge saw %v", held)
	s.sound()
}

func batchInOrder(s *script) {
	var asks []capacityledger.Ask
	for range 4 {
		ask, err := s.ask(slots, feature, at(slots, 3), 1).Checked()
		s.check(err == nil, "%v", err)
		asks = append(asks, ask)
	}
	answers, err := s.store.Admit(s.ctx, s.clock.Now(), slots, asks, capacityledger.Judge)
	if err != nil || len(answers) != 4 {
		s.fail("%d answers, %v", len(answers), err)
		return
	}
	for i, a := range answers {
		s.check(a.Err == nil && a.Verdict.Refused == (i == 3), "ask %d of the batch: refused %t, %v", i, a.Verdict.Refused, a.Err)
	}
	s.check(answers[3].Balance.Outstanding == 3, "the refusal rests on %d outstanding, want 3", answers[3].Balance.Outstanding)
	s.holds(slots, 0, 3)
	s.sound()
	twice := []capacityledger.Ask{asks[0], asks[3], asks[0]}
	answers, err = s.store.Admit(s.ctx, s.clock.Now(), slots, twice, capacityledger.Judge)
	s.check(err == nil && answers[0].Replayed && answers[1].Verdict.Refused && answers[2].Replayed, "replays in a batch: %+v, %v", answers, err)
	s.holds(slots, 0, 3)
}

func dueInOrder(s *script) {
	base := s.clock.Now()
	var want []holdfast.AllocationID
	for i := range 25 {
		ask := s.ask([]holdfast.Subject{slots, units, pool}[i%3], feature, holdfast.NoLimit, 1)
		ask.Expires = base.Add(time.Duration(25-i/2) * 400 * time.Millisecond)
		s.grant(ask, 1)
		want = append(want, ask.ID)
	}
	entries := map[holdfast.AllocationID]capacityledger.Allocation{}
	for _, id := range want {
		entries[id] = s.get(id)
	}
	slices.SortFunc(want, func(a, b holdfast.AllocationID) int {
		if c := entries[a].ExpiresAt.Compare(entries[b].ExpiresAt); c != 0 {
			return c
		}
		return slices.Compare([]byte(a), []byte(b))
	})
	now := base.Add(8 * time.Second)
	due := 0
	for _, id := range want {
		if !entries[id].ExpiresAt.After(now) {
			due++
		}
	}
	var got []holdfast.AllocationID
	cursor := capacityledger.Cursor{}
	for range 10 {
		page, err := s.store.Due(s.ctx, now, cursor, 4)
		if err != nil {
			s.fail("%w", err)
			return
		}
		s.check(len(page) <= 4, "%d entries, the limit was 4", len(page))
		for _, a := range page {
			got = append(got, a.ID)
			cursor = capacityledger.Cursor{Expires: a.ExpiresAt, ID: a.ID}
		}
	}
	s.check(slices.Equal(got, want[:due]), "due:\n%v, want\n%v", got, want[:due])
}

func subjectsInOrder(s *script) {
	all := []holdfast.Subject{pool, slots, units, dollars, holdfast.PlatformSubject(holdfast.AxisSlots, ""), holdfast.TeamSubject("acme-2", holdfast.AxisSlots, "")}
	for _, subject := range all {
		s.grant(s.ask(subject, feature, holdfast.NoLimit, 1), 1)
	}
	slices.SortFunc(all, func(a, b holdfast.Subject) int { return slices.Compare([]byte(a.String()), []byte(b.String())) })
	first, err := s.store.Subjects(s.ctx, "", 4)
	s.check(err == nil && slices.Equal(first, all[:4]), "the first four: %v, %v", first, err)
	rest, err := s.store.Subjects(s.ctx, all[3].String(), 4)
	s.check(err == nil && slices.Equal(rest, all[4:]), "the rest: %v, %v", rest, err)
}

func returnedIsTheCallers(s *script) {
	ask := s.ask(dollars, feature, holdfast.NoLimit, usd(5))
	s.grant(ask, usd(5))
	a := s.renew(ask.ID, 1, 1, usd(1), s.clock.Now().Add(lease))
	balance, err := s.store.Balance(s.ctx, dollars)
	if err != nil || len(balance.Open) != 1 || len(a.SpentBy) != 1 || len(balance.Holders) != 1 {
		s.fail("%+v %+v %v", a, balance, err)
		return
	}
	a.SpentBy[0].Spent = holdfast.USDAmount(0)
	balance.Holders[0].Outstanding = 99
	balance.Open[0].SpentBy[0].Attempt = 7
	s.renew(ask.ID, 1, 2, usd(1), s.clock.Now().Add(lease))
	s.holds(dollars, usd(1), usd(4))
	s.has(dollars, feature, usd(1), usd(4))
}

func cancelledCaller(s *script) {
	ask := s.ask(slots, feature, at(slots, 1), 1)
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	a, denial, err := s.ledger.Reserve(ctx, ask)
	if bad := one(a, denial, err); bad != nil {
		s.fail("%w", bad)
	}
	s.check(errors.Is(err, capacityledger.ErrUnavailable), "%v, want unavailable", err)
	s.grant(ask, 1) // whatever became of the first try, it is the same ask
	s.holds(slots, 0, 1)
}

func neverRecorded(s *script) {
	id := holdfast.NewAllocationID(runID(7), slots, 0)
	_, denial, err := s.ledger.Renew(s.ctx, id, capacityledger.Renewal{Expires: s.clock.Now()})
	s.check(errors.Is(err, capacityledger.ErrNotFound) && !denial.Denied(), "renew: %v", err)
	_, err = s.ledger.Settle(s.ctx, id, capacityledger.Report{})
	s.check(errors.Is(err, capacityledger.ErrNotFound), "settle: %v", err)
	_, err = s.ledger.Get(s.ctx, id)
	s.check(errors.Is(err, capacityledger.ErrNotFound), "get: %v", err)
	err = s.ledger.Lower(s.ctx, []capacityledger.Correction{{ID: id, Amount: holdfast.SlotAmount(1)}})
	s.check(errors.Is(err, capacityledger.ErrNotFound), "lower: %v", err)
	s.release(id, false)
}

// repairAll keeps house until nothing is left to archive, and says how much there was.
func repairAll(s *script) (archived int) {
	for range 50 {
		done, err := s.store.Repair(s.ctx, s.clock.Now(), 1000)
		if err != nil {
			s.fail("repair: %w", err)
			return archived
		}
		s.check(done.Subjects == 0, "housekeeping mended %d subjects", done.Subjects)
		if done.Archived == 0 {
			break
		}
		archived += done.Archived
	}
	s.sound()
	return archived
}

func archivedCloses(s *script) {
	var asks []capacityledger.Ask
	for range 230 {
		ask := s.ask(units, feature, holdfast.NoLimit, 1)
		asks = append(asks, ask)
		a, denial, err := s.ledger.Reserve(s.ctx, ask)
		s.check(one(a, denial, err) == nil && err == nil, "%v", err)
		_, err = s.ledger.Settle(s.ctx, ask.ID, capacityledger.Report{Attempt: 1, Spent: holdfast.RunAmount(1)})
		s.check(err == nil, "%v", err)
	}
	repairAll(s)
	s.clock.Advance(20 * time.Minute)
	repairAll(s)
	s.holds(units, 230, 0)
	for _, ask := range []capacityledger.Ask{asks[0], asks[100], asks[229]} {
		s.check(s.get(ask.ID).Outcome == capacityledger.Settled, "an archived close is %q", s.get(ask.ID).Outcome)
		s.refuse(ask, capacityledger.ErrClosed)
	}
	other := asks[0]
	other.Holder = review
	s.refuse(other, capacityledger.ErrMismatch)
}

func lateReportOnArchived(s *script) {
	ask := s.ask(dollars, feature, at(dollars, usd(50)), usd(20))
	s.grant(ask, usd(20))
	s.clock.Advance(time.Hour)
	s.expire(s.clock.Now(), 10, 1)
	s.clock.Advance(20 * time.Minute)
	archived := repairAll(s)
	s.check(archived == 1, "%d closes were archived, want the one", archived)
	s.holds(dollars, 0, 0)
	for range 2 {
		s.settle(ask.ID, 1, usd(7), false)
		s.holds(dollars, usd(7), 0)
		repairAll(s)
	}
	s.settle(ask.ID, 1, usd(9), false)
	s.holds(dollars, usd(9), 0)
	s.check(s.get(ask.ID).Outcome == capacityledger.Expired, "the outcome became %q", s.get(ask.ID).Outcome)
}
