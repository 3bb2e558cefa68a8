package ledgertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// Faulty is a store whose calls can be made to fail as an unreachable one does:
// before the call did anything, or after it did everything and its reply is lost.
type Faulty struct {
	Store capacityledger.Store

	mu    sync.Mutex
	calls int
	at    int
	upTo  int
	after bool
}

var _ capacityledger.Store = (*Faulty)(nil)

// Fail makes the n-th call from now fail, 1 being the next one.
func (f *Faulty) Fail(n int, after bool) { f.FailRange(n, n, after) }

// FailRange makes the calls from the first to the last from now fail.
func (f *Faulty) FailRange(first, last int, after bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls, f.at, f.upTo, f.after = 0, first, last, after
}

// Calls is how many calls there were since the last Fail.
func (f *Faulty) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// call runs one call with the fault that is due to it.
func call[T any](f *Faulty, run func() (T, error)) (T, error) {
	f.mu.Lock()
	f.calls++
	fails, after := f.calls >= f.at && f.calls <= f.upTo, f.after
	f.mu.Unlock()
	var none T
	if fails && !after {
		return none, fmt.Errorf("%w: cut before the write", capacityledger.ErrUnavailable)
	}
	got, err := run()
	if fails {
		return none, fmt.Errorf("%w: the reply is lost", capacityledger.ErrUnavailable)
	}
	return got, err
}

// Admit implements [capacityledger.Store].
func (f *Faulty) Admit(ctx context.Context, now time.Time, subject holdfast.Subject, asks []capacityledger.Ask, judge capacityledger.JudgeFunc) ([]capacityledger.Admission, error) {
	return call(f, func() ([]capacityledger.Admission, error) { return f.Store.Admit(ctx, now, subject, asks, judge) })
}

// Move implements [capacityledger.Store].
func (f *Faulty) Move(ctx context.Context, now time.Time, movings []capacityledger.Moving) ([]capacityledger.Moved, error) {
	return call(f, func() ([]capacityledger.Moved, error) { return f.Store.Move(ctx, now, movings) })
}

// Close implements [capacityledger.Store].
func (f *Faulty) Close(ctx context.Context, now time.Time, closings []capacityledger.Closing) ([]capacityledger.Closed, error) {
	return call(f, func() ([]capacityledger.Closed, error) { return f.Store.Close(ctx, now, closings) })
}

// Balance implements [capacityledger.Store].
func (f *Faulty) Balance(ctx context.Context, subject holdfast.Subject) (capacityledger.Balance, error) {
	return call(f, func() (capacityledger.Balance, error) { return f.Store.Balance(ctx, subject) })
}

// Get implements [capacityledger.Store].
func (f *Faulty) Get(ctx context.Context, id holdfast.AllocationID) (capacityledger.Allocation, error) {
	return call(f, func() (capacityledger.Allocation, error) { return f.Store.Get(ctx, id) })
}

// Subjects implements [capacityledger.Store].
func (f *Faulty) Subjects(ctx context.Context, after string, limit int) ([]holdfast.Subject, error) {
	return call(f, func() ([]holdfast.Subject, error) { return f.Store.Subjects(ctx, after, limit) })
}

// Due implements [capacityledger.Store].
func (f *Faulty) Due(ctx context.Context, now time.Time, after capacityledger.Cursor, limit int) ([]capacityledger.Allocation, error) {
	return call(f, func() ([]capacityledger.Allocation, error) { return f.Store.Due(ctx, now, after, limit) })
}

// Repair implements [capacityledger.Store].
func (f *Faulty) Repair(ctx context.Context, now time.Time, limit int) (capacityledger.Repaired, error) {
	return call(f, func() (capacityledger.Repaired, error) { return f.Store.Repair(ctx, now, limit) })
}
