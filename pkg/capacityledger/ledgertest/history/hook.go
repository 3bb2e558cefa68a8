package history

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// hook stands between one client's ledger and the store. It holds calls up at the
// door, between the judgement and the write, and behind it, so that calls overlap
// which would not by themselves; it cuts calls off and drops replies; and it keeps
// what a sweep closed. It belongs to one client.
type hook struct {
	capacityledger.Store
	plan *plan
	dice *rand.Rand
	// waiting counts the clients of this history that are inside a call.
	waiting *atomic.Int32
	fault   fault

	admitted capacityledger.Admission // the last
	swept    []capacityledger.Closing
	answers  []capacityledger.Closed
}

// through runs one call with what is planned for it.
func through[T any](h *hook, call func() (T, error)) (T, error) {
	fault := h.fault
	h.fault = noFault
	var none T
	if fault == cut {
		return none, fmt.Errorf("%w: cut before the write", capacityledger.ErrUnavailable)
	}
	h.waiting.Add(1)
	defer h.waiting.Add(-1)
	h.pause(4)
	got, err := call()
	h.pause(4)
	if fault == dropped && err == nil {
		return none, fmt.Errorf("%w: the reply is lost", capacityledger.ErrUnavailable)
	}
	return got, err
}

// pause lets others go first, up to n times.
func (h *hook) pause(n int) {
	for range h.dice.IntN(n + 1) {
		runtime.Gosched()
	}
}

// meet waits, but not for long, until another client of the history is in a call.
func (h *hook) meet() {
	for i := 0; i < 16 && h.waiting.Load() < 2; i++ {
		runtime.Gosched()
	}
}

// judging is the judgement with a stop behind it: in a twin that judges inside its
// critical section nothing may come in between, in one that judges what its write
// returned everything may. A twin may have the judge look at other asks too, and at
// one ask more than once.
func (h *hook) judging(judge capacityledger.JudgeFunc, id holdfast.AllocationID) capacityledger.JudgeFunc {
	hold := h.plan.hold
	if hold > 0 {
		hold = time.Duration(h.dice.Int64N(int64(hold)))
	}
	var held atomic.Bool
	return func(post capacityledger.PostAdmit, ask capacityledger.Ask) capacityledger.Verdict {
		h.meet()
		v := judge(post, ask)
		if ask.ID == id && hold > 0 && !held.Swap(true) {
			time.Sleep(hold)
		}
		h.meet()
		return v
	}
}

func (h *hook) Admit(ctx context.Context, now time.Time, subject holdfast.Subject, asks []capacityledger.Ask, judge capacityledger.JudgeFunc) ([]capacityledger.Admission, error) {
	return through(h, func() ([]capacityledger.Admission, error) {
		answers, err := h.Store.Admit(ctx, now, subject, asks, h.judging(judge, asks[0].ID))
		h.admitted = capacityledger.Admission{Err: err} // never what an earlier call was told
		if err == nil {
			h.admitted = answers[0]
		}
		return answers, err
	})
}

func (h *hook) Move(ctx context.Context, now time.Time, movings []capacityledger.Moving) ([]capacityledger.Moved, error) {
	return through(h, func() ([]capacityledger.Moved, error) { return h.Store.Move(ctx, now, movings) })
}

func (h *hook) Close(ctx context.Context, now time.Time, closings []capacityledger.Closing) ([]capacityledger.Closed, error) {
	return through(h, func() ([]capacityledger.Closed, error) {
		answers, err := h.Store.Close(ctx, now, closings)
		if err == nil {
			h.swept, h.answers = closings, answers
		}
		return answers, err
	})
}

func (h *hook) Balance(ctx context.Context, subject holdfast.Subject) (capacityledger.Balance, error) {
	return through(h, func() (capacityledger.Balance, error) { return h.Store.Balance(ctx, subject) })
}

func (h *hook) Get(ctx context.Context, id holdfast.AllocationID) (capacityledger.Allocation, error) {
	return through(h, func() (capacityledger.Allocation, error) { return h.Store.Get(ctx, id) })
}

// Due begins at the history's own time, so that a sweep sees nothing of the others
// over the same store. The fault of a sweep is that of its close.
func (h *hook) Due(ctx context.Context, now time.Time, after capacityledger.Cursor, limit int) ([]capacityledger.Allocation, error) {
	if after.Expires.Before(h.plan.start) {
		after = capacityledger.Cursor{Expires: h.plan.start}
	}
	due, err := h.Store.Due(ctx, now, after, limit)
	h.pause(6)
	return due, err
}

// direct is a hook over a store that answers single asks.
type direct struct {
	*hook
	one capacityledger.Direct
}

func (d direct) AdmitOne(ctx context.Context, now time.Time, ask capacityledger.Ask, judge capacityledger.JudgeFunc) (capacityledger.Admission, error) {
	return through(d.hook, func() (capacityledger.Admission, error) {
		answer, err := d.one.AdmitOne(ctx, now, ask, d.judging(judge, ask.ID))
		d.admitted = answer
		return answer, err
	})
}

func (d direct) CloseOne(ctx context.Context, now time.Time, c capacityledger.Closing) (capacityledger.Closed, error) {
	return through(d.hook, func() (capacityledger.Closed, error) { return d.one.CloseOne(ctx, now, c) })
}
