package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
)

// The subjects and holders of the suite.
var (
	slots   = holdfast.TeamSubject("acme", holdfast.AxisSlots, "")
	dollars = holdfast.TeamSubject("acme", holdfast.AxisUSD, "2026-03")
	units   = holdfast.TeamSubject("acme", holdfast.AxisRuns, "2026-03")
	pool    = holdfast.Subject{Kind: holdfast.KindRunnerPool, ID: "pool-1", Axis: holdfast.AxisInFlight}

	review  = holdfast.PlatformBot("review-pr")
	feature = holdfast.PlatformBot("feature-dev")
	docs    = holdfast.TeamBot("acme", "docs-writer")
)

const lease = 2 * time.Minute

func usd(n int64) int64 { return n * int64(holdfast.OneUSD) }

// script plays steps against one store and stops at the first that goes wrong.
// After each step the invariants are checked.
type script struct {
	ctx    context.Context //nolint:containedctx // a script lives as long as its row
	store  capacityledger.Store
	ledger *capacityledger.Ledger
	clock  *clocktest.Manual
	runs   int
	steps  int
	err    error
}

// play opens a store, plays the steps and says what went wrong.
func play(steps func(*script)) func(context.Context, Harness) error {
	return func(ctx context.Context, h Harness) error {
		store, err := h.Open()
		if err != nil {
			return err
		}
		s := newScript(ctx, store)
		steps(s)
		return s.err
	}
}

func newScript(ctx context.Context, store capacityledger.Store) *script {
	s := &script{ctx: ctx, store: store, clock: clocktest.New()}
	s.ledger = capacityledger.New(store, capacityledger.Options{Clock: s.clock})
	return s
}

// runID is the id of the n-th run, a well-formed ULID.
func runID(n int) holdfast.RunID { return holdfast.RunID(fmt.Sprintf("01JQ00Z000%016d", n)) }

// ask is a new run's ask with a minute of lease.
func (s *script) ask(subject holdfast.Subject, holder holdfast.Identity, limit holdfast.Limit, requested int64, reserved ...capacityledger.Reserved) capacityledger.Ask {
	s.runs++
	return askOf(runID(s.runs), subject, holder, limit, requested, s.clock.Now().Add(lease), reserved...)
}

func askOf(run holdfast.RunID, subject holdfast.Subject, holder holdfast.Identity, limit holdfast.Limit, requested int64, expires time.Time, reserved ...capacityledger.Reserved) capacityledger.Ask {
	return capacityledger.Ask{
		ID: holdfast.NewAllocationID(run, subject, 0), Run: run, Holder: holder,
		Terms:     capacityledger.Terms{Cap: limit, Reserved: reserved},
		Requested: holdfast.AmountOf(subject.Axis.Unit(), requested), Expires: expires,
	}
}

// at is the limit of n on the subject.
func at(subject holdfast.Subject, n int64) holdfast.Limit {
	return holdfast.AtMost(holdfast.AmountOf(subject.Axis.Unit(), n))
}

func reserve(subject holdfast.Subject, holder holdfast.Identity, n int64) capacityledger.Reserved {
	return capacityledger.Reserved{Holder: holder, Amount: holdfast.AmountOf(subject.Axis.Unit(), n)}
}

// fail stops the script; the first call wins.
func (s *script) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("step %d: "+format, append([]any{s.steps}, args...)...)
	}
}

// check demands a condition.
func (s *script) check(ok bool, format string, args ...any) {
	if !ok {
		s.fail(format, args...)
	}
}

// step begins a step; false when the script has failed already.
func (s *script) step() bool {
	s.steps++
	return s.err == nil
}

// sound ends a step.
func (s *script) sound() {
	if s.err == nil {
		if err := Invariants(s.ctx, s.store); err != nil {
			s.fail("invariants: %w", err)
		}
	}
}

// one demands that exactly one of the three results is set.
func one(a capacityledger.Allocation, d holdfast.Denial, err error) error {
	set := 0
	for _, is := range []bool{a.ID != "", d.Denied(), err != nil} {
		if is {
			set++
		}
	}
	if set != 1 {
		return fmt.Errorf("%d of the three results are set: %q, %q, %v", set, a.ID, d.Reason, err) //nolint:errorlint // the results are shown, not passed on
	}
	return nil
}

// grant demands that the ask gets so much.
func (s *script) grant(ask capacityledger.Ask, want int64) capacityledger.Allocation {
	if !s.step() {
		return capacityledger.Allocation{}
	}
	a, denial, err := s.ledger.Reserve(s.ctx, ask)
	if bad := one(a, denial, err); bad != nil {
		s.fail("reserve %s: %w", ask.ID, bad)
	}
	switch {
	case err != nil:
		s.fail("reserve %s: %w", ask.ID, err)
	case denial.Denied():
		s.fail("reserve %s was refused: %s", ask.ID, denial.Public)
	case a.Amount.Int() != want || a.ID != ask.ID || a.Holder != ask.Holder || a.Run != ask.Run:
		s.fail("reserve %s: %d granted to %s (%s), want %d", ask.ID, a.Amount.Int(), a.Holder, a.ID, want)
	}
	s.sound()
	return a
}

// deny demands that the ask is refused and leaves nothing.
func (s *script) deny(ask capacityledger.Ask, cause holdfast.Cause, retryable bool) holdfast.Denial {
	if !s.step() {
		return holdfast.Denial{}
	}
	subject, err := ask.ID.Subject()
	if err != nil {
		s.fail("%w", err)
		return holdfast.Denial{}
	}
	before := s.totals(subject)
	a, denial, err := s.ledger.Reserve(s.ctx, ask)
	if bad := one(a, denial, err); bad != nil {
		s.fail("reserve %s: %w", ask.ID, bad)
	}
	switch {
	case err != nil:
		s.fail("reserve %s: %w", ask.ID, err)
	case !denial.Denied():
		s.fail("reserve %s was granted %d", ask.ID, a.Amount.Int())
	case denial.Cause != cause || denial.Retryable != retryable || denial.Reason != subject.Axis.DenyReason():
		s.fail("refused with reason %q, cause %q, retryable %t; want cause %q, retryable %t", denial.Reason, denial.Cause, denial.Retryable, cause, retryable)
	case denial.Settled.Int() != before[0] || denial.Outstanding.Int() != before[1] || denial.Subject != subject:
		s.fail("the refusal speaks of %d + %d on %s, want %d + %d", denial.Settled.Int(), denial.Outstanding.Int(), denial.Subject, before[0], before[1])
	case s.totals(subject) != before:
		s.fail("the refusal left %v of %v", s.totals(subject), before)
	}
	if _, err := s.store.Get(s.ctx, ask.ID); s.err == nil && !errors.Is(err, capacityledger.ErrNotFound) {
		s.fail("the refusal left an entry: %v", err)
	}
	s.sound()
	return denial
}

// refuse demands an error of the ask, and that nothing moved.
func (s *script) refuse(ask capacityledger.Ask, want error) {
	if !s.step() {
		return
	}
	subject, _ := ask.ID.Subject()
	before := s.totals(subject)
	a, denial, err := s.ledger.Reserve(s.ctx, ask)
	if bad := one(a, denial, err); bad != nil {
		s.fail("reserve %s: %w", ask.ID, bad)
	}
	s.wants(err, want, "reserve")
	s.check(s.totals(subject) == before, "the error left %v of %v", s.totals(subject), before)
	s.sound()
}

// wants demands an error: an *InvalidError's field, or a sentinel.
func (s *script) wants(err, want error, what string) {
	var invalid, wanted *holdfast.InvalidError
	if errors.As(want, &wanted) {
		if !errors.As(err, &invalid) || invalid.Field != wanted.Field {
			s.fail("%s: %v, want a bad %s", what, err, wanted.Field)
		}
		return
	}
	s.check(errors.Is(err, want), "%s: %v, want %v", what, err, want)
}

// totals is settled and outstanding.
func (s *script) totals(subject holdfast.Subject) [2]int64 {
	b, err := s.store.Balance(s.ctx, subject)
	if err != nil {
		s.fail("%w", err)
	}
	return [2]int64{b.Settled, b.Outstanding}
}

// holds demands the totals of a subject.
func (s *script) holds(subject holdfast.Subject, settled, outstanding int64) {
	if s.step() {
		got := s.totals(subject)
		s.check(got == [2]int64{settled, outstanding}, "%s has %d + %d, want %d + %d", subject, got[0], got[1], settled, outstanding)
	}
}

// has demands a holder's part of a subject.
func (s *script) has(subject holdfast.Subject, holder holdfast.Identity, settled, outstanding int64) {
	if !s.step() {
		return
	}
	b, err := s.store.Balance(s.ctx, subject)
	if err != nil {
		s.fail("%w", err)
	}
	var got capacityledger.Holding
	for _, h := range b.Holders {
		if h.Holder == holder {
			got = h
		}
	}
	s.check(got.Settled == settled && got.Outstanding == outstanding, "%s has %d + %d of %s, want %d + %d", holder, got.Settled, got.Outstanding, subject, settled, outstanding)
}

// settle demands that a settle closes the allocation, or does not.
func (s *script) settle(id holdfast.AllocationID, attempt int, spent int64, closed bool) {
	if !s.step() {
		return
	}
	subject, _ := id.Subject()
	got, err := s.ledger.Settle(s.ctx, id, capacityledger.Report{Attempt: attempt, Spent: holdfast.AmountOf(subject.Axis.Unit(), spent)})
	if err != nil {
		s.fail("settle %s: %w", id, err)
	}
	s.check(got == closed, "settle %s: closed %t, want %t", id, got, closed)
	s.sound()
}

// release demands that a release closes the allocation, or does not.
func (s *script) release(id holdfast.AllocationID, closed bool) {
	if !s.step() {
		return
	}
	got, err := s.ledger.Release(s.ctx, id)
	if err != nil {
		s.fail("release %s: %w", id, err)
	}
	s.check(got == closed, "release %s: closed %t, want %t", id, got, closed)
	s.sound()
}

// renew demands that a renewal succeeds.
func (s *script) renew(id holdfast.AllocationID, attempt int, sequence, spent int64, expires time.Time) capacityledger.Allocation {
	if !s.step() {
		return capacityledger.Allocation{}
	}
	subject, _ := id.Subject()
	a, denial, err := s.ledger.Renew(s.ctx, id, capacityledger.Renewal{
		Attempt: attempt, Sequence: sequence, Expires: expires, Spent: holdfast.AmountOf(subject.Axis.Unit(), spent),
	})
	if bad := one(a, denial, err); bad != nil {
		s.fail("renew %s: %w", id, bad)
	}
	if err != nil || denial.Denied() {
		s.fail("renew %s: %v %s", id, err, denial.Public)
	}
	s.sound()
	return a
}

// resume demands that a resume is admitted, or refused.
func (s *script) resume(id holdfast.AllocationID, terms capacityledger.Terms, admitted bool) {
	if !s.step() {
		return
	}
	a, denial, err := s.ledger.Renew(s.ctx, id, capacityledger.Renewal{Attempt: 1, Sequence: 1, Expires: s.clock.Now().Add(lease), Terms: &terms})
	if bad := one(a, denial, err); bad != nil {
		s.fail("resume %s: %w", id, bad)
	}
	if err != nil {
		s.fail("resume %s: %w", id, err)
	}
	s.check(denial.Denied() != admitted, "resume %s: refused %t (%s), want %t", id, denial.Denied(), denial.Public, !admitted)
	s.sound()
}

// expire demands how many entries an expiry closes.
func (s *script) expire(now time.Time, limit, want int) {
	if !s.step() {
		return
	}
	closed, err := s.ledger.Expire(s.ctx, now, limit)
	if err != nil {
		s.fail("expire: %w", err)
	}
	s.check(len(closed) == want, "%d entries expired, want %d", len(closed), want)
	s.sound()
}

// get demands that something is known of the allocation.
func (s *script) get(id holdfast.AllocationID) capacityledger.Allocation {
	if !s.step() {
		return capacityledger.Allocation{}
	}
	a, err := s.store.Get(s.ctx, id)
	if err != nil {
		s.fail("%w", err)
	}
	return a
}

// reopen goes on with what the store left behind when its process died.
func (s *script) reopen(h Harness) {
	if !s.step() {
		return
	}
	store, err := h.reopen(s.store)
	if err != nil {
		s.fail("reopen: %w", err)
		return
	}
	s.store = store
	s.ledger = capacityledger.New(store, capacityledger.Options{Clock: s.clock})
	s.sound()
}
