package capacityledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock"
)

// Events are told what the ledger did, after it is certain. Nil fields are no-ops;
// a callee must not block.
type Events struct {
	Reserved func(Allocation)
	Denied   func(Ask, holdfast.Denial)
	Closed   func(Allocation)
	Failed   func(operation string, err error)
}

// Options configure a [Ledger]; the zero value is the documented default.
type Options struct {
	Clock  clock.Clock // nil is the machine's clock
	Events Events
}

// Ledger answers asks with allocations. All its methods may be called from any
// number of goroutines and, over a shared store, replicas.
type Ledger struct {
	store  Store
	direct Direct // the store, when it answers single asks; else nil
	clock  clock.Clock
	events Events
	boot   string // makes nonces unique between processes
	tries  atomic.Uint64
}

// New is a ledger over a store.
func New(store Store, options Options) *Ledger {
	if options.Clock == nil {
		options.Clock = clock.System{}
	}
	direct, _ := store.(Direct)
	return &Ledger{store: store, direct: direct, clock: options.Clock, events: options.Events, boot: rand.Text()[:13] + "-"}
}

// Reserve asks for capacity. Exactly one of the three is set: an allocation (also
// for an ask that was granted before), a denial, or an error; a denial is not
// remembered. An error that matches [ErrUnavailable] means that nobody knows: ask
// the same id again, or release it.
func (l *Ledger) Reserve(ctx context.Context, ask Ask) (Allocation, holdfast.Denial, error) {
	allocation, _, denial, err := l.ReserveJudged(ctx, ask)
	return allocation, denial, err
}

// ReserveJudged is [Ledger.Reserve] with the arithmetic of the judgement, for who
// records why something was granted. A replayed ask has none and says so; see
// [Ledger.Withdraw] for who gives it back.
func (l *Ledger) ReserveJudged(ctx context.Context, ask Ask) (Allocation, Verdict, holdfast.Denial, error) {
	ask, err := ask.Checked()
	if err != nil {
		return Allocation{}, Verdict{}, holdfast.Denial{}, err
	}
	subject := ask.subject
	ask.Nonce = l.nonce()
	answer, err := l.admit(ctx, ask)
	if err != nil {
		return Allocation{}, Verdict{}, holdfast.Denial{}, l.failed("reserve "+subject.String(), err)
	}
	switch {
	case answer.Err != nil:
		return Allocation{}, Verdict{}, holdfast.Denial{}, fmt.Errorf("reserve %s: %w", ask.ID, answer.Err)
	case answer.Verdict.Refused:
		denial := denialOf(ask, answer.Verdict, *answer.Balance)
		if l.events.Denied != nil {
			l.events.Denied(ask, denial)
		}
		return Allocation{}, answer.Verdict, denial, nil
	}
	if l.events.Reserved != nil && !answer.Replayed {
		l.events.Reserved(answer.Allocation)
	}
	answer.Verdict.Replayed = answer.Replayed
	return answer.Allocation, answer.Verdict, holdfast.Denial{}, nil
}

func (l *Ledger) admit(ctx context.Context, ask Ask) (Admission, error) {
	now := l.clock.Now()
	if l.direct != nil {
		return l.direct.AdmitOne(ctx, now, ask, Judge)
	}
	return first(l.store.Admit(ctx, now, ask.subject, []Ask{ask}, Judge))
}

// first is the one answer of a batch of one.
func first[T any](answers []T, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return answers[0], nil
}

// nonce tells this try from every other one.
func (l *Ledger) nonce() string {
	var text [32]byte
	return string(strconv.AppendUint(append(text[:0], l.boot...), l.tries.Add(1), 36))
}

// Preview answers what an ask would get now, and takes nothing. The verdict's
// arithmetic comes with the balance it rests on.
func (l *Ledger) Preview(ctx context.Context, ask Ask) (Verdict, holdfast.Denial, Balance, error) {
	ask, err := ask.Checked()
	if err != nil {
		return Verdict{}, holdfast.Denial{}, Balance{}, err
	}
	subject := ask.subject
	balance, err := l.store.Balance(ctx, subject)
	if err != nil {
		return Verdict{}, holdfast.Denial{}, Balance{}, l.failed("preview "+subject.String(), err)
	}
	verdict := Judge(Excluding{balance}.Plus(ask.Holder, ask.Requested), ask)
	if verdict.Refused {
		return verdict, denialOf(ask, verdict, balance), balance, nil
	}
	return verdict, holdfast.Denial{}, balance, nil
}

// Renew pushes the expiry of an open allocation and moves reported spend to
// settled; it never takes a second unit. Without Terms it is never denied. On a
// closed allocation the spend is still recorded and the error matches [ErrClosed].
func (l *Ledger) Renew(ctx context.Context, id holdfast.AllocationID, r Renewal) (Allocation, holdfast.Denial, error) {
	subject, err := checkReport(id, r.Attempt, r.Sequence, r.Spent)
	if err != nil {
		return Allocation{}, holdfast.Denial{}, err
	}
	if r.Terms != nil {
		denial, err := l.judgeResume(ctx, id, subject, *r.Terms)
		switch {
		case err != nil:
			return Allocation{}, holdfast.Denial{}, err
		case denial.Denied():
			if err := l.recordSpend(ctx, id, r); err != nil {
				return Allocation{}, holdfast.Denial{}, err
			}
			return Allocation{}, denial, nil
		}
	}
	moved, err := l.store.Move(ctx, l.clock.Now(), []Moving{{ID: id, Attempt: r.Attempt, Sequence: r.Sequence, Spent: r.Spent, Expires: grain(r.Expires)}})
	if err != nil {
		return Allocation{}, holdfast.Denial{}, l.failed("renew "+string(id), err)
	}
	switch answer := moved[0]; {
	case answer.Err != nil:
		return Allocation{}, holdfast.Denial{}, fmt.Errorf("renew %s: %w", id, answer.Err)
	case answer.Allocation.Outcome != Open:
		return answer.Allocation, holdfast.Denial{}, fmt.Errorf("renew %s (%s): %w", id, answer.Allocation.Outcome, ErrClosed)
	default:
		return answer.Allocation, holdfast.Denial{}, nil
	}
}

// recordSpend records what a refused resume reported: it was spent all the same. A
// failure leaves the denial unsaid, so that one of the two is returned.
func (l *Ledger) recordSpend(ctx context.Context, id holdfast.AllocationID, r Renewal) error {
	if r.Spent.IsZero() {
		return nil
	}
	moved, err := l.store.Move(ctx, l.clock.Now(), []Moving{{ID: id, Attempt: r.Attempt, Sequence: r.Sequence, Spent: r.Spent}})
	if err != nil {
		return l.failed("renew "+string(id), err)
	}
	return moved[0].Err
}

// grain cuts an instant to the millisecond in UTC, which every twin keeps.
func grain(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Millisecond)
}

// judgeResume judges an open allocation's holder again with nothing requested and
// its own remainder left out, so that nobody is refused by itself. Countable axes
// hold their unit and are not judged again.
func (l *Ledger) judgeResume(ctx context.Context, id holdfast.AllocationID, subject holdfast.Subject, terms Terms) (holdfast.Denial, error) {
	if !divisible(subject.Axis) {
		return holdfast.Denial{}, nil
	}
	balance, err := l.store.Balance(ctx, subject)
	if err != nil {
		return holdfast.Denial{}, l.failed("renew "+string(id), err)
	}
	for _, entry := range balance.Open {
		if entry.ID != id {
			continue
		}
		others := balance.without(entry)
		ask := Ask{ID: id, Terms: terms, Holder: entry.Holder, Run: entry.Run, Requested: holdfast.AmountOf(subject.Axis.Unit(), 0), subject: subject}
		if verdict := Judge(Excluding{others}.Plus(entry.Holder, ask.Requested), ask); verdict.Refused {
			return denialOf(ask, verdict, others), nil
		}
	}
	return holdfast.Denial{}, nil
}

// without is the balance as if the entry's remainder were not held.
func (b Balance) without(entry Allocation) Balance {
	remainder := entry.Outstanding().Int()
	b.Outstanding -= remainder
	holders := make([]Holding, len(b.Holders))
	copy(holders, b.Holders)
	for i := range holders {
		if holders[i].Holder == entry.Holder {
			holders[i].Outstanding -= remainder
		}
	}
	b.Holders = holders
	return b
}

// Lower corrects allowances down to what their run was really given: the smallest
// of all its allowances. It never raises one; one that is closed by now is an error
// that matches [ErrClosed], after the others were corrected.
func (l *Ledger) Lower(ctx context.Context, corrections []Correction) error {
	movings := make([]Moving, 0, len(corrections))
	for _, c := range corrections {
		subject, err := c.ID.Subject()
		switch {
		case err != nil:
			return err
		case c.Amount.Unit() != subject.Axis.Unit() || c.Amount.Int() <= 0:
			return &holdfast.InvalidError{Field: "amount", Problem: fmt.Sprintf("an allowance on %s cannot become %s", subject, c.Amount), Allowed: "a positive amount in " + subject.Axis.Unit().String()}
		}
		movings = append(movings, Moving{ID: c.ID, LowerTo: c.Amount})
	}
	moved, err := l.store.Move(ctx, l.clock.Now(), movings)
	if err != nil {
		return l.failed("lower", err)
	}
	for i, answer := range moved {
		switch {
		case answer.Err != nil:
			return fmt.Errorf("lower %s: %w", corrections[i].ID, answer.Err)
		case answer.Allocation.Outcome != Open:
			return fmt.Errorf("lower %s (%s): %w", corrections[i].ID, answer.Allocation.Outcome, ErrClosed)
		}
	}
	return nil
}

// Settle ends an allocation with what was really used and returns the rest. It
// says whether this call closed it; a settle after another close records its spend
// all the same, exactly once. An attempt older than the newest reported records its
// spend and closes nothing.
func (l *Ledger) Settle(ctx context.Context, id holdfast.AllocationID, r Report) (bool, error) {
	if _, err := checkReport(id, r.Attempt, r.Sequence, r.Spent); err != nil {
		return false, err
	}
	return l.close(ctx, Closing{ID: id, Outcome: Settled, Attempt: r.Attempt, Sequence: r.Sequence, Spent: r.Spent, IfAttempt: r.Attempt})
}

// Release gives an allocation back with nothing used beyond what was reported. It
// says whether this call closed it. Releasing what was never recorded is no error:
// an ask whose fate is unknown is released blindly.
func (l *Ledger) Release(ctx context.Context, id holdfast.AllocationID) (bool, error) {
	return l.close(ctx, Closing{ID: id, Outcome: Released})
}

func (l *Ledger) close(ctx context.Context, c Closing) (bool, error) {
	if _, err := c.ID.Subject(); err != nil {
		return false, err
	}
	answer, err := l.closeOne(ctx, c)
	if err != nil {
		return false, l.failed("close "+string(c.ID), err)
	}
	if answer.Err != nil {
		if c.Outcome == Released && errors.Is(answer.Err, ErrNotFound) {
			return false, nil
		}
		return false, fmt.Errorf("close %s: %w", c.ID, answer.Err)
	}
	if answer.Closed && l.events.Closed != nil {
		l.events.Closed(answer.Allocation)
	}
	return answer.Closed, nil
}

func (l *Ledger) closeOne(ctx context.Context, c Closing) (Closed, error) {
	now := l.clock.Now()
	if l.direct != nil {
		return l.direct.CloseOne(ctx, now, c)
	}
	return first(l.store.Close(ctx, now, []Closing{c}))
}

// Outstanding is a subject's balance: totals, per holder, and the open entries. A
// subject that nobody asked has the zero balance.
func (l *Ledger) Outstanding(ctx context.Context, subject holdfast.Subject) (Balance, error) {
	balance, err := l.store.Balance(ctx, subject)
	if err != nil {
		return Balance{}, l.failed("read "+subject.String(), err)
	}
	return balance, nil
}

// Get is one allocation, open or closed.
func (l *Ledger) Get(ctx context.Context, id holdfast.AllocationID) (Allocation, error) {
	if _, err := id.Subject(); err != nil {
		return Allocation{}, err
	}
	a, err := l.store.Get(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return Allocation{}, fmt.Errorf("read %s: %w", id, err)
	case err != nil:
		return Allocation{}, l.failed("read "+string(id), err)
	}
	return a, nil
}

// Subjects lists the subjects that have a record, after the one named, at most limit.
func (l *Ledger) Subjects(ctx context.Context, after string, limit int) ([]holdfast.Subject, error) {
	subjects, err := l.store.Subjects(ctx, after, limit)
	if err != nil {
		return nil, l.failed("list subjects", err)
	}
	return subjects, nil
}

// Expire closes, without any spend, up to limit open allocations whose expiry has
// passed, oldest first, and returns those that it closed. It asks nobody whether
// the holder lives: that is the [Sweeper]'s part.
func (l *Ledger) Expire(ctx context.Context, now time.Time, limit int) ([]Allocation, error) {
	due, err := l.store.Due(ctx, now, Cursor{}, limit)
	if err != nil {
		return nil, l.failed("expire", err)
	}
	return l.expire(ctx, now, due)
}

// expire closes entries that are still open with the expiry that was read.
func (l *Ledger) expire(ctx context.Context, now time.Time, due []Allocation) ([]Allocation, error) {
	if len(due) == 0 {
		return nil, nil
	}
	closings := make([]Closing, 0, len(due))
	for _, a := range due {
		closings = append(closings, Closing{ID: a.ID, Outcome: Expired, IfExpires: a.ExpiresAt})
	}
	answers, err := l.store.Close(ctx, now, closings)
	if err != nil {
		return nil, l.failed("expire", err)
	}
	var closed []Allocation
	for _, answer := range answers {
		if !answer.Closed {
			continue
		}
		closed = append(closed, answer.Allocation)
		if l.events.Closed != nil {
			l.events.Closed(answer.Allocation)
		}
	}
	return closed, nil
}

func (l *Ledger) failed(operation string, err error) error {
	if l.events.Failed != nil {
		l.events.Failed(operation, err)
	}
	return fmt.Errorf("%s: %w", operation, err)
}
