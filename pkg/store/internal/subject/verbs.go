package subject

import (
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// Admit answers one ask: a replay from its record, else the move, the judgement on
// the state that contains it, and the correction or the mirror.
func (r *Record) Admit(now time.Time, ask *capacityledger.Ask, judge capacityledger.JudgeFunc, j *Journal) capacityledger.Admission {
	if e := r.entries[ask.ID]; e != nil {
		return replay(e, ask)
	}
	requested := ask.Requested.Int()
	switch {
	case r.open >= holdfast.MaxOpenPerSubject:
		return capacityledger.Admission{Err: capacityledger.ErrTooManyOpen}
	case requested < 0 || requested > MaxTotal-r.settled-r.outstanding:
		return capacityledger.Admission{Err: capacityledger.ErrOverflow}
	}
	j.saveRecord(r)
	r.move(ask.Holder, 0, requested)
	verdict := judge(capacityledger.PostAdmit{Settled: r.settled, Outstanding: r.outstanding, Holders: r.holders}, *ask)
	if verdict.Refused {
		r.move(ask.Holder, 0, -requested)
		before := r.counters()
		return capacityledger.Admission{Verdict: verdict, Balance: &before}
	}
	if less := verdict.Allowance - requested; less != 0 {
		r.move(ask.Holder, 0, less)
	}
	e := &entry{Allocation: capacityledger.Allocation{
		ID: ask.ID, Subject: r.key, Holder: ask.Holder, Run: ask.Run, Requested: ask.Requested, Minimum: ask.Minimum,
		Amount: holdfast.AmountOf(ask.Requested.Unit(), verdict.Allowance), Spent: holdfast.AmountOf(ask.Requested.Unit(), 0),
		AcquiredAt: now, ExpiresAt: ask.Expires, Cap: ask.Terms.Cap, Nonce: ask.Nonce,
	}}
	j.saveNew(r, e)
	r.entries[ask.ID] = e
	r.open++
	r.due.add(e)
	return capacityledger.Admission{Allocation: e.Allocation, Verdict: verdict}
}

// replay answers an ask whose id is known: the same ask again is the same entry.
func replay(e *entry, ask *capacityledger.Ask) capacityledger.Admission {
	switch {
	case e.Holder != ask.Holder || e.Run != ask.Run || e.Requested != ask.Requested || e.Minimum.Int() != ask.Minimum.Int():
		return capacityledger.Admission{Allocation: e.shown(), Replayed: true, Err: capacityledger.ErrMismatch}
	case e.Outcome != capacityledger.Open:
		return capacityledger.Admission{Allocation: e.shown(), Replayed: true, Err: capacityledger.ErrClosed}
	}
	return capacityledger.Admission{Allocation: e.shown(), Replayed: true, Verdict: capacityledger.Verdict{Allowance: e.Amount.Int()}}
}

// Move applies one renewal, correction or late report.
func (r *Record) Move(m *capacityledger.Moving, j *Journal) capacityledger.Moved {
	e := r.entries[m.ID]
	if e == nil {
		return capacityledger.Moved{Err: capacityledger.ErrNotFound}
	}
	if err := r.report(e, m.Attempt, m.Spent, j); err != nil {
		return capacityledger.Moved{Err: err}
	}
	if e.Outcome == capacityledger.Open {
		if newest(e, m.Attempt, m.Sequence) {
			r.push(e, m, j)
		}
		if m.LowerTo.Unit() == e.Amount.Unit() && m.LowerTo.Int() >= 0 && m.LowerTo.Int() < e.Amount.Int() {
			r.adjust(e, j, func() { e.Amount = m.LowerTo })
		}
	}
	return capacityledger.Moved{Allocation: e.shown()}
}

// push takes over what the newest report says of the expiry.
func (r *Record) push(e *entry, m *capacityledger.Moving, j *Journal) {
	same := e.Attempt == m.Attempt && e.Sequence == m.Sequence
	if same && (m.Expires.IsZero() || e.Confirmed && m.Expires.Equal(e.ExpiresAt)) {
		return
	}
	j.saveEntry(r, e)
	e.Attempt, e.Sequence = m.Attempt, m.Sequence
	if m.Expires.IsZero() {
		return
	}
	e.Confirmed = true
	if !m.Expires.Equal(e.ExpiresAt) {
		r.due.remove(e)
		e.ExpiresAt = m.Expires
		r.due.add(e)
	}
}

// Close closes the entry when it is open and the conditions hold. Its report is
// recorded in any case, once.
func (r *Record) Close(now time.Time, c *capacityledger.Closing, j *Journal) capacityledger.Closed {
	e := r.entries[c.ID]
	if e == nil {
		return capacityledger.Closed{Err: capacityledger.ErrNotFound}
	}
	if err := r.report(e, c.Attempt, c.Spent, j); err != nil {
		return capacityledger.Closed{Err: err}
	}
	switch {
	case e.Outcome != capacityledger.Open,
		!c.IfExpires.IsZero() && !c.IfExpires.Equal(e.ExpiresAt),
		c.IfAttempt > 0 && c.IfAttempt < e.Attempt:
		return capacityledger.Closed{Allocation: e.shown()}
	}
	j.saveRecord(r)
	j.saveEntry(r, e)
	r.move(e.Holder, 0, -e.Outstanding().Int())
	if newest(e, c.Attempt, c.Sequence) {
		e.Attempt, e.Sequence = c.Attempt, c.Sequence
	}
	e.Outcome, e.ClosedAt = c.Outcome, now
	r.due.remove(e)
	r.open--
	r.recent = append(r.recent, e)
	return capacityledger.Closed{Closed: true, Allocation: e.shown()}
}

// report records an attempt's cumulative spend: the highest wins, the increase goes
// to settled, also on a closed entry and above the allowance.
func (r *Record) report(e *entry, attempt int, spent holdfast.Amount, j *Journal) error {
	amount := spent.Int()
	if amount <= 0 {
		return nil
	}
	at := slices.IndexFunc(e.SpentBy, func(s capacityledger.AttemptSpend) bool { return s.Attempt == attempt })
	var before int64
	if at >= 0 {
		before = e.SpentBy[at].Spent.Int()
	}
	increase := amount - before
	switch {
	case increase <= 0:
		return nil
	case increase > MaxTotal-r.settled-r.outstanding:
		return capacityledger.ErrOverflow
	}
	r.adjust(e, j, func() {
		e.SpentBy = slices.Clone(e.SpentBy) // what was shown or saved before stays as it was
		said := capacityledger.AttemptSpend{Attempt: attempt, Spent: holdfast.AmountOf(e.Amount.Unit(), amount)}
		if at >= 0 {
			e.SpentBy[at] = said
		} else {
			e.SpentBy = append(e.SpentBy, said)
		}
		e.Spent = holdfast.AmountOf(e.Amount.Unit(), e.Spent.Int()+increase)
	})
	return nil
}

// adjust changes an entry's amount or spend and moves the counters with it.
func (r *Record) adjust(e *entry, j *Journal, change func()) {
	j.saveRecord(r)
	j.saveEntry(r, e)
	spent, held := e.Spent.Int(), e.Outstanding().Int()
	change()
	r.move(e.Holder, e.Spent.Int()-spent, e.Outstanding().Int()-held)
}

// newest says whether (attempt, sequence) is not behind the highest that reported.
func newest(e *entry, attempt int, sequence int64) bool {
	if attempt != e.Attempt {
		return attempt > e.Attempt
	}
	return sequence >= e.Sequence
}
