package embedded

import (
	"container/list"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/store/internal/subject"
)

// Ledger is the ledger's store in ledger.db. Subjects with open allocations are in
// memory, which is what the asks of a batch are judged on; the rows follow in the
// same transaction, each once per batch however often the batch changed it. A failed
// transaction puts the memory back. Closed allocations are rows only, apart from the
// newest of each subject.
type Ledger struct {
	file *file
	keep time.Duration

	// All below belongs to the writer's goroutine.
	residents map[holdfast.Subject]*resident
	idle      list.List // of *resident without open allocations, the longest unused in front
	idleMost  int
	calendar  *subject.Calendar
	journal   subject.Journal
	now       time.Time // of the newest verb of the batch
	fresh     []*capacityledger.Allocation
	// reused is set while a batch is run again because an ask in it reused the id of
	// an allocation that only the file knows: every id is looked up there first then.
	reused bool

	// archived counts the closes of a record that leave the memory with the commit of
	// the batch. Until then the batch may have to be put back, and they must be there.
	archived map[*subject.Record]int

	scan scan
}

// resident is a subject whose record is in memory.
type resident struct {
	record  *subject.Record
	idle    *list.Element // nil while it has open allocations
	stored  bool          // it has a row
	settled int64         // what that row's holders have settled together
}

// stale says whether the row does not say what the record does. Settled amounts only
// grow, so their sum tells.
func (r *resident) stale() bool { return !r.stored || r.settled != r.record.Settled() }

var _ capacityledger.Store = (*Ledger)(nil)

func openLedger(ctx context.Context, path string, options Options) (*Ledger, error) {
	l := &Ledger{
		keep: options.KeepClosed, residents: map[holdfast.Subject]*resident{}, idleMost: options.IdleSubjects, calendar: subject.NewCalendar(),
		archived: map[*subject.Record]int{},
	}
	h := hooks{flush: l.flush, committed: l.committed, failed: l.failed}
	f, err := openFile(ctx, path, ledgerSchema, options.Readers, h, l.load)
	if err != nil {
		return nil, err
	}
	l.file = f
	return l, nil
}

func (l *Ledger) close() error { return l.file.close() }

// Admit implements [capacityledger.Store].
func (l *Ledger) Admit(ctx context.Context, now time.Time, key holdfast.Subject, asks []capacityledger.Ask, judge capacityledger.JudgeFunc) ([]capacityledger.Admission, error) {
	answers := make([]capacityledger.Admission, len(asks))
	err := l.do(ctx, now, func(t *tx) error {
		record, err := l.record(t, key)
		if err != nil {
			return err
		}
		for i := range asks {
			if answers[i], err = l.admit(t, record, now, &asks[i], judge); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// admit answers one ask. An id that is not in memory is taken for a new one: when
// it is not, its row's insertion fails and the batch is run again with l.reused. A
// refusal inserts nothing, so there the file is asked.
func (l *Ledger) admit(t *tx, record *subject.Record, now time.Time, ask *capacityledger.Ask, judge capacityledger.JudgeFunc) (capacityledger.Admission, error) {
	if l.reused {
		if _, err := l.recall(t, record, ask.ID); err != nil {
			return capacityledger.Admission{}, err
		}
	}
	answer := record.Admit(now, ask, judge, &l.journal)
	if l.reused || answer.Replayed || (answer.Err == nil && !answer.Verdict.Refused) {
		return answer, nil
	}
	if known, err := l.recall(t, record, ask.ID); err != nil || !known {
		return answer, err
	}
	return record.Admit(now, ask, judge, &l.journal), nil
}

// Move implements [capacityledger.Store].
func (l *Ledger) Move(ctx context.Context, now time.Time, movings []capacityledger.Moving) ([]capacityledger.Moved, error) {
	answers := make([]capacityledger.Moved, len(movings))
	err := l.do(ctx, now, func(t *tx) error {
		for i := range movings {
			record, err := l.holding(t, movings[i].ID)
			switch {
			case err != nil:
				return err
			case record == nil:
				answers[i] = capacityledger.Moved{Err: capacityledger.ErrNotFound}
			default:
				answers[i] = record.Move(&movings[i], &l.journal)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// Close implements [capacityledger.Store].
func (l *Ledger) Close(ctx context.Context, now time.Time, closings []capacityledger.Closing) ([]capacityledger.Closed, error) {
	answers := make([]capacityledger.Closed, len(closings))
	err := l.do(ctx, now, func(t *tx) error {
		for i := range closings {
			record, err := l.holding(t, closings[i].ID)
			switch {
			case err != nil:
				return err
			case record == nil:
				answers[i] = capacityledger.Closed{Err: capacityledger.ErrNotFound}
			default:
				answers[i] = record.Close(now, &closings[i], &l.journal)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// Balance implements [capacityledger.Store]. It is read in order with the writes, so
// it never shows what a failed commit takes back.
func (l *Ledger) Balance(ctx context.Context, key holdfast.Subject) (capacityledger.Balance, error) {
	var balance capacityledger.Balance
	err := l.do(ctx, time.Time{}, func(t *tx) error {
		record, err := l.record(t, key)
		if err == nil {
			balance = record.Balance()
		}
		return err
	})
	return balance, err
}

// Get implements [capacityledger.Store]. It reads the file beside the writer.
func (l *Ledger) Get(ctx context.Context, id holdfast.AllocationID) (capacityledger.Allocation, error) {
	var text, ask, state string
	var outcome sql.NullString
	err := l.file.readers.QueryRowContext(ctx, selectAllocation+" WHERE id = ?", string(id)).Scan(&text, &ask, &state, &outcome)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return capacityledger.Allocation{}, capacityledger.ErrNotFound
	case err != nil:
		return capacityledger.Allocation{}, ledgerUnavailable(err)
	}
	a, err := allocationOf(text, ask, state, outcome.String)
	if err != nil {
		return capacityledger.Allocation{}, ledgerUnavailable(err)
	}
	return a, nil
}

// Subjects implements [capacityledger.Store].
func (l *Ledger) Subjects(ctx context.Context, after string, limit int) (found []holdfast.Subject, err error) {
	if limit <= 0 {
		return nil, nil
	}
	rows, err := l.file.readers.QueryContext(ctx, "SELECT subject FROM subjects WHERE subject > ? ORDER BY subject LIMIT ?", after, limit)
	if err != nil {
		return nil, ledgerUnavailable(err)
	}
	defer func() {
		if closeErr := rows.Close(); err == nil && closeErr != nil {
			err = ledgerUnavailable(closeErr)
		}
	}()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, ledgerUnavailable(err)
		}
		key, err := holdfast.ParseSubject(text)
		if err != nil {
			return nil, fmt.Errorf("read the subject %q: %w", text, err)
		}
		found = append(found, key)
	}
	if err := rows.Err(); err != nil {
		return nil, ledgerUnavailable(err)
	}
	return found, nil
}

// Due implements [capacityledger.Store]. It is read in order with the writes.
func (l *Ledger) Due(ctx context.Context, now time.Time, after capacityledger.Cursor, limit int) ([]capacityledger.Allocation, error) {
	var due []capacityledger.Allocation
	err := l.do(ctx, time.Time{}, func(*tx) error {
		due = l.calendar.Due(now, after, limit)
		return nil
	})
	return due, err
}

// do runs one verb on the writer's goroutine and waits until it is durable.
func (l *Ledger) do(ctx context.Context, now time.Time, verb func(*tx) error) error {
	err := l.file.do(ctx, func(t *tx) error {
		if now.After(l.now) {
			l.now = now
		}
		return verb(t)
	})
	if err != nil {
		return ledgerUnavailable(err)
	}
	return nil
}

// record is the subject's record, from memory or from its row. A subject that nobody
// asked has an empty one.
func (l *Ledger) record(t *tx, key holdfast.Subject) (*subject.Record, error) {
	if r, ok := l.residents[key]; ok {
		if r.idle != nil {
			l.idle.MoveToBack(r.idle)
		}
		return r.record, nil
	}
	r := &resident{record: subject.New(key, l.calendar)}
	var err error
	if r.stored, err = restore(t, r.record); err != nil {
		return nil, err
	}
	r.settled = r.record.Settled()
	r.idle = l.idle.PushBack(r)
	l.residents[key] = r
	return r.record, nil
}

// holding is the record that has the allocation, read back from its row when it is
// no longer in memory; nil when nothing is known of it.
func (l *Ledger) holding(t *tx, id holdfast.AllocationID) (*subject.Record, error) {
	key, err := id.Subject()
	if err != nil {
		return nil, nil //nolint:nilerr // what is no id was never recorded
	}
	record, err := l.record(t, key)
	if err != nil {
		return nil, err
	}
	known, err := l.recall(t, record, id)
	if err != nil || !known {
		return nil, err
	}
	return record, nil
}

// recall makes sure that a record knows an allocation that the file has, and says
// whether there is one.
func (l *Ledger) recall(t *tx, record *subject.Record, id holdfast.AllocationID) (known bool, err error) {
	if record.Has(id) {
		return true, nil
	}
	err = t.query(selectAllocation+" WHERE id = ?", func(row []driver.Value) error {
		a, err := allocationIn(row)
		if err == nil {
			known = true
			record.Put(a)
		}
		return err
	}, string(id))
	return known, err
}

// flush writes what the batch changed.
func (l *Ledger) flush(t *tx) error {
	var failed error
	l.fresh = l.fresh[:0]
	l.journal.Entries(func(c subject.Change) {
		switch {
		case failed != nil:
		case c.Fresh:
			l.fresh = append(l.fresh, c.Allocation)
		default:
			failed = updateRow(t, c.Allocation)
		}
	})
	if failed == nil {
		failed = insertRows(t, l.fresh)
	}
	clear(l.fresh)
	l.journal.Changed(func(r *subject.Record, _ []capacityledger.Holding) {
		if failed == nil && l.residents[r.Subject()].stale() {
			failed = writeSubject(t, r, l.now)
		}
	})
	return failed
}

// committed takes over what the batch changed and lets go of what need not be in
// memory.
func (l *Ledger) committed() {
	for record, closes := range l.archived {
		record.Forget(closes)
	}
	clear(l.archived)
	l.journal.Changed(func(record *subject.Record, _ []capacityledger.Holding) {
		r := l.residents[record.Subject()]
		r.stored, r.settled = true, record.Settled()
	})
	l.journal.Records(func(record *subject.Record) {
		r := l.residents[record.Subject()]
		if record.Recent() > subject.RecentMost {
			record.Forget(record.Recent() - subject.RecentKept)
		}
		switch open := record.Open() > 0; {
		case open && r.idle != nil:
			l.idle.Remove(r.idle)
			r.idle = nil
		case !open && r.idle == nil:
			r.idle = l.idle.PushBack(r)
		}
	})
	l.journal.Keep()
	l.reused = false
	for l.idle.Len() > l.idleMost {
		r := l.idle.Remove(l.idle.Front()).(*resident)
		delete(l.residents, r.record.Subject())
	}
}

// failed puts the memory back. The batch is run again when it failed on the id of an
// allocation that was not in memory.
func (l *Ledger) failed(err error) (again bool) {
	l.journal.Undo()
	clear(l.archived)
	again = !l.reused && taken(err)
	l.reused = again
	return again
}

// ledgerUnavailable is what the store answers when it cannot tell, also to a caller
// who has gone; the cause stays visible to errors.Is.
func ledgerUnavailable(err error) error {
	return fmt.Errorf("%w: %w", capacityledger.ErrUnavailable, err)
}
