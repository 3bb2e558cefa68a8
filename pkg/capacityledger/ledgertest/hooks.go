package ledgertest

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// Hooks is a store that asks before and after each call, by the method's name. An
// error of Before is the call's, and nothing happens then; one of After replaces the
// answer of a call that succeeded: a reply that was lost. Nil lets everything through.
// It does not answer single asks, so that every ask goes through Admit. The hooks must
// not change while calls are under way.
type Hooks struct {
	Store         capacityledger.Store
	Before, After func(method string) error
	// Admitted and Closed are told every answer before it can be lost.
	Admitted func(capacityledger.Ask, capacityledger.Admission)
	Closed   func(capacityledger.Closing, capacityledger.Closed)
}

var _ capacityledger.Store = (*Hooks)(nil)

// around makes one call between its hooks.
func around[T any](h *Hooks, method string, call func() (T, error)) (T, error) {
	var none T
	if h.Before != nil {
		if err := h.Before(method); err != nil {
			return none, err
		}
	}
	got, err := call()
	if err == nil && h.After != nil {
		if err := h.After(method); err != nil {
			return none, err
		}
	}
	return got, err
}

// Admit implements [capacityledger.Store].
func (h *Hooks) Admit(ctx context.Context, now time.Time, subject holdfast.Subject, asks []capacityledger.Ask, judge capacityledger.JudgeFunc) ([]capacityledger.Admission, error) {
	return around(h, "Admit", func() ([]capacityledger.Admission, error) {
		answers, err := h.Store.Admit(ctx, now, subject, asks, judge)
		if h.Admitted != nil {
			for i := range answers {
				h.Admitted(asks[i], answers[i])
			}
		}
		return answers, err
	})
}

// Move implements [capacityledger.Store].
func (h *Hooks) Move(ctx context.Context, now time.Time, movings []capacityledger.Moving) ([]capacityledger.Moved, error) {
	return around(h, "Move", func() ([]capacityledger.Moved, error) { return h.Store.Move(ctx, now, movings) })
}

// Close implements [capacityledger.Store].
func (h *Hooks) Close(ctx context.Context, now time.Time, closings []capacityledger.Closing) ([]capacityledger.Closed, error) {
	return around(h, "Close", func() ([]capacityledger.Closed, error) {
		answers, err := h.Store.Close(ctx, now, closings)
		if h.Closed != nil {
			for i := range answers {
				h.Closed(closings[i], answers[i])
			}
		}
		return answers, err
	})
}

// Balance implements [capacityledger.Store].
func (h *Hooks) Balance(ctx context.Context, subject holdfast.Subject) (capacityledger.Balance, error) {
	return around(h, "Balance", func() (capacityledger.Balance, error) { return h.Store.Balance(ctx, subject) })
}

// Get implements [capacityledger.Store].
func (h *Hooks) Get(ctx context.Context, id holdfast.AllocationID) (capacityledger.Allocation, error) {
	return around(h, "Get", func() (capacityledger.Allocation, error) { return h.Store.Get(ctx, id) })
}

// Subjects implements [capacityledger.Store].
func (h *Hooks) Subjects(ctx context.Context, after string, limit int) ([]holdfast.Subject, error) {
	return around(h, "Subjects", func() ([]holdfast.Subject, error) { return h.Store.Subjects(ctx, after, limit) })
}

// Due implements [capacityledger.Store].
func (h *Hooks) Due(ctx context.Context, now time.Time, after capacityledger.Cursor, limit int) ([]capacityledger.Allocation, error) {
	return around(h, "Due", func() ([]capacityledger.Allocation, error) { return h.Store.Due(ctx, now, after, limit) })
}

// Repair implements [capacityledger.Store].
func (h *Hooks) Repair(ctx context.Context, now time.Time, limit int) (capacityledger.Repaired, error) {
	return around(h, "Repair", func() (capacityledger.Repaired, error) { return h.Store.Repair(ctx, now, limit) })
}
