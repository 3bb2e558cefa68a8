package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/store/internal/subject"
)

const (
	// shards is how many parts the subjects are spread over, each under a lock.
	shards = 64
	// historyKept is how many old closes are remembered in all, the youngest ones.
	historyKept = 20_000
	// recordKept is how long the record of a past period stays readable.
	recordKept = 400 * 24 * time.Hour
)

// Ledger keeps subjects in memory. It judges inside its critical section and is
// exact. Beyond the recent ones, the newest
// 20,000 closes are remembered.
type Ledger struct {
	seed    maphash.Seed
	shards  [shards]shard
	history history

	repairing sync.Mutex
	repaired  string // the subject at which the last Repair stopped
}

type shard struct {
	mu      sync.Mutex
	records map[holdfast.Subject]*subject.Record
	due     *subject.Calendar
	_       [64]byte // keeps neighbours off one cache line
}

var _ capacityledger.Direct = (*Ledger)(nil)

// NewLedger is an empty ledger store.
func NewLedger() *Ledger {
	l := &Ledger{seed: maphash.MakeSeed()}
	for i := range l.shards {
		l.shards[i].records = map[holdfast.Subject]*subject.Record{}
		l.shards[i].due = subject.NewCalendar()
	}
	l.history.rows = map[holdfast.AllocationID]*capacityledger.Allocation{}
	return l
}

// Admit implements [capacityledger.Store].
func (l *Ledger) Admit(ctx context.Context, now time.Time, key holdfast.Subject, asks []capacityledger.Ask, judge capacityledger.JudgeFunc) ([]capacityledger.Admission, error) {
	if err := gone(ctx); err != nil {
		return nil, err
	}
	out := make([]capacityledger.Admission, len(asks))
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.record(key)
	for i := range asks {
		l.recall(r, asks[i].ID)
		out[i] = r.Admit(now, &asks[i], judge, nil)
	}
	return out, nil
}

// AdmitOne implements [capacityledger.Direct].
func (l *Ledger) AdmitOne(ctx context.Context, now time.Time, ask capacityledger.Ask, judge capacityledger.JudgeFunc) (capacityledger.Admission, error) {
	if err := gone(ctx); err != nil {
		return capacityledger.Admission{}, err
	}
	s := l.shard(ask.Subject())
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.record(ask.Subject())
	l.recall(r, ask.ID)
	return r.Admit(now, &ask, judge, nil), nil
}

// Move implements [capacityledger.Store].
func (l *Ledger) Move(ctx context.Context, _ time.Time, movings []capacityledger.Moving) ([]capacityledger.Moved, error) {
	if err := gone(ctx); err != nil {
		return nil, err
	}
	out := make([]capacityledger.Moved, len(movings))
	for i := range movings {
		m := &movings[i]
		if !l.with(m.ID, func(r *subject.Record) { out[i] = r.Move(m, nil) }) {
			out[i].Err = capacityledger.ErrNotFound
		}
	}
	return out, nil
}

// Close implements [capacityledger.Store].
func (l *Ledger) Close(ctx context.Context, now time.Time, closings []capacityledger.Closing) ([]capacityledger.Closed, error) {
	if err := gone(ctx); err != nil {
		return nil, err
	}
	out := make([]capacityledger.Closed, len(closings))
	for i := range closings {
		out[i] = l.close(now, &closings[i])
	}
	return out, nil
}

// CloseOne implements [capacityledger.Direct].
func (l *Ledger) CloseOne(ctx context.Context, now time.Time, c capacityledger.Closing) (capacityledger.Closed, error) {
	if err := gone(ctx); err != nil {
		return capacityledger.Closed{}, err
	}
	return l.close(now, &c), nil
}

func (l *Ledger) close(now time.Time, c *capacityledger.Closing) capacityledger.Closed {
	closed := capacityledger.Closed{Err: capacityledger.ErrNotFound}
	l.with(c.ID, func(r *subject.Record) {
		closed = r.Close(now, c, nil)
		if r.Recent() >= subject.RecentMost {
			l.archive(r, now, subject.RecentMost)
		}
	})
	return closed
}

// Balance implements [capacityledger.Store].
func (l *Ledger) Balance(ctx context.Context, key holdfast.Subject) (capacityledger.Balance, error) {
	if err := gone(ctx); err != nil {
		return capacityledger.Balance{}, err
	}
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.records[key]; r != nil {
		return r.Balance(), nil
	}
	return capacityledger.Balance{Subject: key}, nil
}

// Get implements [capacityledger.Store].
func (l *Ledger) Get(ctx context.Context, id holdfast.AllocationID) (capacityledger.Allocation, error) {
	if err := gone(ctx); err != nil {
		return capacityledger.Allocation{}, err
	}
	var a capacityledger.Allocation
	var ok bool
	l.with(id, func(r *subject.Record) { a, ok = r.Get(id) })
	if !ok {
		return capacityledger.Allocation{}, capacityledger.ErrNotFound
	}
	return a, nil
}

// Subjects implements [capacityledger.Store].
func (l *Ledger) Subjects(ctx context.Context, after string, limit int) ([]holdfast.Subject, error) {
	if err := gone(ctx); err != nil {
		return nil, err
	}
	type named struct {
		text string
		key  holdfast.Subject
	}
	var found []named
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for key := range s.records {
			if text := key.String(); text > after {
				found = append(found, named{text, key})
			}
		}
		s.mu.Unlock()
	}
	slices.SortFunc(found, func(a, b named) int { return strings.Compare(a.text, b.text) })
	out := make([]holdfast.Subject, 0, min(max(0, limit), len(found)))
	for _, n := range found[:cap(out)] {
		out = append(out, n.key)
	}
	return out, nil
}

// Due implements [capacityledger.Store].
func (l *Ledger) Due(ctx context.Context, now time.Time, after capacityledger.Cursor, limit int) ([]capacityledger.Allocation, error) {
	if err := gone(ctx); err != nil {
		return nil, err
	}
	var out []capacityledger.Allocation
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		out = append(out, s.due.Due(now, after, limit)...)
		s.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b capacityledger.Allocation) int {
		if c := a.ExpiresAt.Compare(b.ExpiresAt); c != 0 {
			return c
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return out[:min(max(0, limit), len(out))], nil
}

// Repair implements [capacityledger.Store]. Each call goes on where the one before
// stopped.
func (l *Ledger) Repair(ctx context.Context, now time.Time, limit int) (capacityledger.Repaired, error) {
	l.repairing.Lock()
	defer l.repairing.Unlock()
	keys, err := l.Subjects(ctx, l.repaired, limit)
	if err != nil {
		return capacityledger.Repaired{}, err
	}
	l.repaired = ""
	if len(keys) == limit && limit > 0 {
		l.repaired = keys[limit-1].String()
	}
	var done capacityledger.Repaired
	for _, key := range keys {
		s := l.shard(key)
		s.mu.Lock()
		if r := s.records[key]; r != nil {
			if r.Mend(nil) {
				done.Subjects++
			}
			done.Archived += l.archive(r, now, limit-done.Archived)
			if r.Idle() || r.Quiet() && past(key.Period, now) {
				delete(s.records, key)
				done.Dropped++
			}
		}
		s.mu.Unlock()
	}
	return done, nil
}

// past says whether a month's record is beyond its keeping.
func past(period string, now time.Time) bool {
	month, err := time.Parse("2006-01", period)
	return err == nil && now.Sub(month) > recordKept
}

// record is the subject's record, made when it is new; the lock is held.
func (s *shard) record(key holdfast.Subject) *subject.Record {
	r := s.records[key]
	if r == nil {
		r = subject.New(key, s.due)
		s.records[key] = r
	}
	return r
}

func (l *Ledger) shard(key holdfast.Subject) *shard {
	return &l.shards[(maphash.String(l.seed, key.ID)^maphash.String(l.seed, string(key.Axis)))%shards]
}

// with runs f on the record that the id belongs to, under its lock; false when
// there is none, or it knows nothing of the id.
func (l *Ledger) with(id holdfast.AllocationID, f func(*subject.Record)) bool {
	key, err := id.Subject()
	if err != nil {
		return false
	}
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[key]
	if r == nil {
		if l.history.get(id) == nil {
			return false
		}
		r = s.record(key) // it was dropped once it held nothing but old closes
	}
	l.recall(r, id)
	f(r)
	return true
}

// recall brings a close back from the history when somebody asks for it again.
func (l *Ledger) recall(r *subject.Record, id holdfast.AllocationID) {
	if r.Has(id) {
		return
	}
	if a := l.history.get(id); a != nil {
		r.Put(*a)
	}
}

// archive moves old closes of the record to the history.
func (l *Ledger) archive(r *subject.Record, now time.Time, limit int) int {
	old := r.Archive(now, limit)
	if len(old) > 0 {
		l.history.put(old)
		r.Forget(len(old))
	}
	return len(old)
}

// history has the newest of the old closes. Its lock is taken inside a shard's.
type history struct {
	mu    sync.RWMutex
	rows  map[holdfast.AllocationID]*capacityledger.Allocation
	order []holdfast.AllocationID // a ring once it is full
	next  int
}

func (h *history) get(id holdfast.AllocationID) *capacityledger.Allocation {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.rows[id]
}

func (h *history) put(old []*capacityledger.Allocation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range old {
		before := len(h.rows)
		h.rows[a.ID] = a
		switch {
		case len(h.rows) == before: // it came back for a late report
		case len(h.order) < historyKept:
			h.order = append(h.order, a.ID)
		default:
			delete(h.rows, h.order[h.next])
			h.order[h.next] = a.ID
			h.next = (h.next + 1) % historyKept
		}
	}
}

// gone says that the caller does not wait any more; nothing was done then.
func gone(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", capacityledger.ErrUnavailable, err)
	}
	return nil
}
