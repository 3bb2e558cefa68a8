package ledgertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// modelRows play random verbs and compare every answer with a plain model.
func modelRows() []Row {
	fixed := func(seed uint64) func(context.Context, Harness) error {
		return func(ctx context.Context, h Harness) error { return modelled(ctx, h, seed) }
	}
	return []Row{
		{"model: random verbs, seed 1", fixed(1)},
		{"model: random verbs, seed 2", fixed(2)},
		{"model: random verbs, seed 3", fixed(3)},
		{"model: random verbs, a seed of the moment", func(ctx context.Context, h Harness) error { return modelled(ctx, h, rand.Uint64()) }},
	}
}

func modelled(ctx context.Context, h Harness, seed uint64) error {
	random := rand.New(rand.NewPCG(seed, 1))
	if err := Steps(ctx, h, 600, random.IntN); err != nil {
		return fmt.Errorf("seed %d: %w", seed, err)
	}
	return nil
}

// Steps plays n random verbs with honest and hostile numbers over a fresh store and
// compares every answer with a model that knows no counters: it adds up its entries
// anew for each judgement. choose(k) picks a number from 0 to k-1.
func Steps(ctx context.Context, h Harness, n int, choose func(int) int) error {
	store, err := h.Open()
	if err != nil {
		return err
	}
	m := &model{script: newScript(ctx, store), h: h, choose: choose, entries: map[holdfast.AllocationID]*modelEntry{}}
	for i := range n {
		what := m.step()
		if m.script.err == nil && i%20 == 19 {
			m.script.sound()
		}
		if m.script.err != nil {
			return fmt.Errorf("after %d verbs, at %s: %w", i, what, m.script.err)
		}
	}
	m.script.sound()
	return m.script.err
}

type model struct {
	*script
	h       Harness
	choose  func(int) int
	entries map[holdfast.AllocationID]*modelEntry
	order   []holdfast.AllocationID
	refused []capacityledger.Ask
}

type modelEntry struct {
	ask      capacityledger.Ask
	subject  holdfast.Subject
	amount   int64
	by       map[int]int64
	attempt  int
	sequence int64
	expires  time.Time
	closed   bool
}

func (e *modelEntry) spent() int64 {
	var sum int64
	for _, n := range e.by {
		sum += n
	}
	return sum
}

func (e *modelEntry) outstanding() int64 {
	if e.closed {
		return 0
	}
	return max(0, e.amount-e.spent())
}

var modelSubjects = []holdfast.Subject{slots, dollars, units, holdfast.TeamSubject("globex", holdfast.AxisUSD, "2026-03")}

// sums adds up a subject's entries: settled and outstanding, of all or of one holder.
func (m *model) sums(subject holdfast.Subject, holder holdfast.Identity) (settled, outstanding int64) {
	for _, e := range m.entries {
		if e.subject == subject && (holder.IsZero() || holder == e.ask.Holder) {
			settled += e.spent()
			outstanding += e.outstanding()
		}
	}
	return settled, outstanding
}

// allowance is what an ask must get; 0 is a refusal.
func (m *model) allowance(ask capacityledger.Ask, subject holdfast.Subject) int64 {
	requested := ask.Requested.Int()
	if ask.Terms.Cap.None() || ask.Unjudged {
		return requested
	}
	settled, outstanding := m.sums(subject, holdfast.Identity{})
	free := ask.Terms.Cap.Max().Int() - settled - outstanding
	left := ask.Terms.Cap.Max().Int()
	for _, r := range ask.Terms.Reserved {
		promised := min(r.Amount.Int(), left)
		left -= promised
		if r.Holder == ask.Holder {
			continue
		}
		used, has := m.sums(subject, r.Holder)
		if subject.Axis == holdfast.AxisUSD {
			has += used
		}
		free -= max(0, promised-has)
	}
	switch {
	case free <= 0:
		return 0
	case subject.Axis != holdfast.AxisUSD && requested > free:
		return 0
	case min(requested, free) < ask.Minimum.Int():
		return 0
	}
	return min(requested, free)
}

func (m *model) step() string {
	verbs := []struct {
		name   string
		weight int
		play   func()
	}{
		{"reserve", 8, m.reserveNew}, {"reserve again", 3, m.reserveAgain}, {"renew", 6, m.renewAny}, {"settle", 5, m.settleAny},
		{"release", 3, m.releaseAny}, {"lower", 2, m.lowerAny}, {"expire", 2, m.expireSome}, {"advance", 3, m.advance},
		{"repair", 1, func() { repairAll(m.script) }}, {"crash", 1, func() { m.reopen(m.h) }},
	}
	total := 0
	for _, v := range verbs {
		total += v.weight
	}
	at := m.choose(total)
	for _, v := range verbs {
		if at -= v.weight; at < 0 {
			m.steps++
			v.play()
			for _, subject := range modelSubjects {
				settled, outstanding := m.sums(subject, holdfast.Identity{})
				got := m.totals(subject)
				m.check(got == [2]int64{settled, outstanding}, "%s has %v, want %d + %d", subject, got, settled, outstanding)
			}
			return v.name
		}
	}
	return ""
}

// number is mostly small, and sometimes hostile.
func (m *model) number(unit int64) int64 {
	hostile := []int64{0, -1, math.MinInt64, math.MaxInt64, int64(holdfast.MaxUSD) + 1, int64(holdfast.MaxUSD)}
	if m.choose(12) == 0 {
		return hostile[m.choose(len(hostile))]
	}
	return unit * int64(1+m.choose(9))
}

func grainOf(subject holdfast.Subject) int64 {
	if subject.Axis == holdfast.AxisUSD {
		return int64(holdfast.OneUSD) / 2
	}
	return 1
}

func (m *model) reserveNew() {
	subject := modelSubjects[m.choose(len(modelSubjects))]
	holders := []holdfast.Identity{review, feature, docs}
	grain := grainOf(subject)
	limit := at(subject, grain*int64(m.choose(40)))
	if m.choose(8) == 0 {
		limit = holdfast.NoLimit
	}
	var reserved []capacityledger.Reserved
	for _, holder := range holders[:m.choose(3)] {
		reserved = append(reserved, reserve(subject, holder, grain*int64(m.choose(20))))
	}
	ask := m.ask(subject, holders[m.choose(3)], limit, m.number(grain), reserved...)
	ask.Expires = m.clock.Now().Add(time.Duration(m.choose(200_000)) * time.Millisecond)
	ask.Unjudged = m.choose(15) == 0
	if m.choose(3) == 0 {
		ask.Minimum = holdfast.AmountOf(ask.Requested.Unit(), min(ask.Requested.Int(), grain))
	}
	m.reserveOne(ask, subject)
}

func (m *model) reserveOne(ask capacityledger.Ask, subject holdfast.Subject) {
	a, denial, err := m.ledger.Reserve(m.ctx, ask)
	if bad := one(a, denial, err); bad != nil {
		m.fail("%w", bad)
	}
	requested, minimum := ask.Requested.Int(), ask.Minimum.Int()
	if requested <= 0 || requested > int64(holdfast.MaxUSD) || minimum < 0 {
		var invalid *holdfast.InvalidError
		m.check(errors.As(err, &invalid), "an ask of %d: %v", requested, err)
		return
	}
	want := m.allowance(ask, subject)
	m.check(err == nil && denial.Denied() == (want == 0) && a.Amount.Int() == want, "%d granted of %d (%s, %v), want %d", a.Amount.Int(), requested, denial.Public, err, want)
	if want == 0 {
		m.refused = append(m.refused, ask)
		return
	}
	m.entries[ask.ID] = &modelEntry{ask: ask, subject: subject, amount: want, by: map[int]int64{}, expires: ask.Expires}
	m.order = append(m.order, ask.ID)
}

// any picks a known entry; false when there is none.
func (m *model) any() (holdfast.AllocationID, *modelEntry, bool) {
	if len(m.order) == 0 {
		return "", nil, false
	}
	id := m.order[len(m.order)-1-m.choose(min(len(m.order), 30))]
	return id, m.entries[id], true
}

// reserveAgain asks a known id once more, as it was or spoilt, or a refused one.
func (m *model) reserveAgain() {
	if len(m.refused) > 0 && m.choose(3) == 0 {
		ask := m.refused[len(m.refused)-1]
		m.refused = m.refused[:len(m.refused)-1]
		subject, _ := ask.ID.Subject()
		m.reserveOne(ask, subject)
		return
	}
	id, e, ok := m.any()
	if !ok {
		return
	}
	ask := e.ask
	want := error(nil)
	if e.closed {
		want = capacityledger.ErrClosed
	}
	if m.choose(4) == 0 {
		ask.Holder, want = holdfast.TeamBot("acme", "somebody-else"), capacityledger.ErrMismatch
	}
	a, denial, err := m.ledger.Reserve(m.ctx, ask)
	m.check(errors.Is(err, want) && !denial.Denied(), "%s again: %v, want %v", id, err, want)
	if want == nil {
		m.check(a.Amount.Int() == e.amount, "%s again: %d, want %d", id, a.Amount.Int(), e.amount)
	}
}

// report is a random report on an entry; valid says whether the ledger may take it.
func (m *model) report(e *modelEntry) (attempt int, sequence, spent int64, valid bool) {
	attempt, sequence = m.choose(4), int64(m.choose(6))
	if m.choose(25) == 0 {
		attempt = -1
	}
	if m.choose(2) == 0 {
		spent = m.number(grainOf(e.subject))
	}
	return attempt, sequence, spent, attempt >= 0 && spent >= 0 && spent <= int64(holdfast.MaxUSD) && (spent == 0 || e.subject.Axis != holdfast.AxisSlots)
}

func (e *modelEntry) told(attempt int, spent int64) {
	if spent > e.by[attempt] {
		e.by[attempt] = spent
	}
}

// newest says whether the report is not behind, and takes it over then.
func (e *modelEntry) newest(attempt int, sequence int64) bool {
	if attempt < e.attempt || attempt == e.attempt && sequence < e.sequence {
		return false
	}
	e.attempt, e.sequence = attempt, sequence
	return true
}

func (m *model) renewAny() {
	id, e, ok := m.any()
	if !ok {
		return
	}
	attempt, sequence, spent, valid := m.report(e)
	expires := m.clock.Now().Add(time.Duration(m.choose(300)-60) * time.Second)
	a, denial, err := m.ledger.Renew(m.ctx, id, capacityledger.Renewal{Attempt: attempt, Sequence: sequence, Expires: expires, Spent: holdfast.AmountOf(e.subject.Axis.Unit(), spent)})
	m.check(!denial.Denied(), "a renewal was denied")
	if !valid {
		var invalid *holdfast.InvalidError
		m.check(errors.As(err, &invalid), "renew with attempt %d and %d spent: %v", attempt, spent, err)
		return
	}
	e.told(attempt, spent)
	if e.closed {
		m.check(errors.Is(err, capacityledger.ErrClosed), "renew a closed one: %v", err)
		return
	}
	if e.newest(attempt, sequence) {
		e.expires = expires
	}
	m.check(err == nil && a.ExpiresAt.Equal(e.expires) && a.Spent.Int() == e.spent(), "renew %s: expires %s, spent %d, %v; want %s, %d", id, a.ExpiresAt, a.Spent.Int(), err, e.expires, e.spent())
}

func (m *model) settleAny() {
	id, e, ok := m.any()
	if !ok {
		return
	}
	attempt, sequence, spent, valid := m.report(e)
	closed, err := m.ledger.Settle(m.ctx, id, capacityledger.Report{Attempt: attempt, Sequence: sequence, Spent: holdfast.AmountOf(e.subject.Axis.Unit(), spent)})
	if !valid {
		m.check(err != nil && !closed, "settle with attempt %d and %d spent: %v", attempt, spent, err)
		return
	}
	e.told(attempt, spent)
	want := !e.closed && (attempt == 0 || attempt >= e.attempt)
	m.check(err == nil && closed == want, "settle %s: closed %t, %v; want %t", id, closed, err, want)
	e.closed = e.closed || want
}

func (m *model) releaseAny() {
	id, e, ok := m.any()
	if !ok {
		return
	}
	closed, err := m.ledger.Release(m.ctx, id)
	m.check(err == nil && closed == !e.closed, "release %s: closed %t, %v; want %t", id, closed, err, !e.closed)
	e.closed = true
}

func (m *model) lowerAny() {
	id, e, ok := m.any()
	if !ok {
		return
	}
	to := m.number(grainOf(e.subject))
	err := m.ledger.Lower(m.ctx, []capacityledger.Correction{{ID: id, Amount: holdfast.AmountOf(e.subject.Axis.Unit(), to)}})
	switch {
	case to <= 0:
		m.check(err != nil, "%s was lowered to %d", id, to)
	case e.closed:
		m.check(errors.Is(err, capacityledger.ErrClosed), "lower a closed one: %v", err)
	default:
		m.check(err == nil, "lower %s: %v", id, err)
		e.amount = min(e.amount, to)
	}
}

func (m *model) expireSome() {
	now, limit := m.clock.Now(), 1+m.choose(10)
	var want []holdfast.AllocationID
	for id, e := range m.entries {
		if !e.closed && !e.expires.After(now) {
			want = append(want, id)
		}
	}
	slices.SortFunc(want, func(a, b holdfast.AllocationID) int {
		return cmp.Or(m.entries[a].expires.Compare(m.entries[b].expires), cmp.Compare(a, b))
	})
	want = want[:min(limit, len(want))]
	gone, err := m.ledger.Expire(m.ctx, now, limit)
	var got []holdfast.AllocationID
	for _, a := range gone {
		got = append(got, a.ID)
	}
	m.check(err == nil && slices.Equal(got, want), "expired %v, %v; want %v", got, err, want)
	for _, id := range want {
		m.entries[id].closed = true
	}
}

func (m *model) advance() { m.clock.Advance(time.Duration(m.choose(60_000)) * time.Millisecond) }
