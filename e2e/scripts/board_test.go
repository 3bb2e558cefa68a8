package scripts_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
)

// fault is what goes wrong: the calls from the first on, 1 being the first of all, as
// many as it lasts, each before or after it took effect. The zero value is none.
type fault struct {
	first, lasts int
	after        bool
}

func (f fault) String() string {
	return fmt.Sprintf("call %d, lasting %d, after it took effect %t", f.first, f.lasts, f.after)
}

func (f fault) hits(call int, after bool) bool {
	return f.first > 0 && call >= f.first && call < f.first+f.lasts && after == f.after
}

// board counts every call that goes to a store or the queue and makes those fail that
// a test names.
type board struct {
	mu    sync.Mutex
	names []string // of the calls so far, in their order
	fault fault
	then  fault    // a second one; nothing unless a test sets it
	fired []string // of the calls that failed
	// written is told each call that took effect, from its own goroutine.
	written func(name string)
}

// before is asked ahead of a call.
func (b *board) before(name string, unavailable error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.names = append(b.names, name)
	if !b.fault.hits(len(b.names), false) && !b.then.hits(len(b.names), false) {
		return nil
	}
	b.fired = append(b.fired, name)
	return fmt.Errorf("%w: cut before %s, call %d", unavailable, name, len(b.names))
}

// done is asked behind a call that took effect.
func (b *board) done(name string, unavailable error) error {
	if b.written != nil {
		b.written(name)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.fault.hits(len(b.names), true) {
		return nil
	}
	b.fired = append(b.fired, name)
	return fmt.Errorf("%w: the reply to %s is lost, call %d", unavailable, name, len(b.names))
}

// quiet says that nothing fails from now on.
func (b *board) quiet() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault, b.then = fault{}, fault{}
}

// ledger puts the board in front of a ledger's store.
func (b *board) ledger(store capacityledger.Store, seen *seen) capacityledger.Store {
	return &ledgertest.Hooks{
		Store:    store,
		Before:   func(method string) error { return b.before("ledger."+method, capacityledger.ErrUnavailable) },
		After:    func(method string) error { return b.done("ledger."+method, capacityledger.ErrUnavailable) },
		Admitted: seen.admitted, Closed: seen.closed,
	}
}

// records puts the board in front of the collections.
func (b *board) records(db records.DB) records.DB {
	faults := recordstest.NewFaults(db)
	name := func(o recordstest.Operation) string { return o.Collection + "." + o.Verb }
	faults.Before(func(_ context.Context, o recordstest.Operation) error {
		return b.before(name(o), records.ErrUnavailable)
	})
	faults.After(func(_ context.Context, o recordstest.Operation) error { return b.done(name(o), records.ErrUnavailable) })
	return faults
}

// messages is a queue that keeps what was published until a runner takes it.
type messages struct {
	board *board
	mu    sync.Mutex
	all   map[holdfast.RunID]queue.RunMessage
	taken map[holdfast.RunID]bool // a runner works on it
}

var _ launch.Publisher = (*messages)(nil)

func newMessages(b *board) *messages {
	return &messages{board: b, all: map[holdfast.RunID]queue.RunMessage{}, taken: map[holdfast.RunID]bool{}}
}

func (m *messages) call(name string, f func()) error {
	if err := m.board.before("queue."+name, launch.ErrUnavailable); err != nil {
		return err
	}
	m.mu.Lock()
	f()
	m.mu.Unlock()
	return m.board.done("queue."+name, launch.ErrUnavailable)
}

func (m *messages) Publish(_ context.Context, message queue.RunMessage) error {
	return m.call("Publish", func() { m.all[message.Run] = message; delete(m.taken, message.Run) })
}

func (m *messages) Cancel(_ context.Context, run holdfast.RunID) error {
	return m.call("Cancel", func() {
		if !m.taken[run] {
			delete(m.all, run)
		}
	})
}

func (m *messages) Queued(_ context.Context, _ string, run holdfast.RunID) (known bool, err error) {
	err = m.call("Queued", func() { _, known = m.all[run] })
	return known, err
}

// take is a runner's pull: the oldest message that nobody works on.
func (m *messages) take() (queue.RunMessage, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(m.all)) {
		if !m.taken[id] {
			m.taken[id] = true
			return m.all[id], true
		}
	}
	return queue.RunMessage{}, false
}

// handBack is a runner that could not begin.
func (m *messages) handBack(run holdfast.RunID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.taken, run)
}

// ack is a runner's last word on a message.
func (m *messages) ack(message queue.RunMessage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[message.Run].Publication == message.Publication {
		delete(m.all, message.Run)
		delete(m.taken, message.Run)
	}
}

// snapshot is a copy of what the queue has; no runner works on any of it.
func (m *messages) snapshot() map[holdfast.RunID]queue.RunMessage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.all)
}

// seen is what a ledger's store did, also where its reply was lost.
type seen struct {
	mu     sync.Mutex
	ids    map[holdfast.AllocationID]bool
	closes map[holdfast.AllocationID]int
	above  []string // grants that were judged and went above their cap
}

func newSeen() *seen {
	return &seen{ids: map[holdfast.AllocationID]bool{}, closes: map[holdfast.AllocationID]int{}}
}

func (s *seen) admitted(ask capacityledger.Ask, answer capacityledger.Admission) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer.Err != nil || answer.Verdict.Refused {
		return
	}
	s.ids[ask.ID] = true
	v, limit := answer.Verdict, ask.Terms.Cap
	if !answer.Replayed && !ask.Unjudged && !limit.None() && v.Settled+v.Outstanding+v.Allowance > limit.Max().Int() {
		s.above = append(s.above, string(ask.ID))
	}
}

func (s *seen) closed(c capacityledger.Closing, answer capacityledger.Closed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer.Closed {
		s.closes[c.ID]++
	}
}
