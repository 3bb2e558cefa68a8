package embedded

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// scan is where housekeeping goes on: each pass looks at a bounded number of rows
// behind the ones it looked at last, and begins again at the end.
type scan struct {
	subject    string
	allocation string
}

// Repair implements [capacityledger.Store]. Each pass looks at limit subjects and at
// limit rows of the oldest allocations; no pass depends on how much there is.
func (l *Ledger) Repair(ctx context.Context, now time.Time, limit int) (capacityledger.Repaired, error) {
	var done capacityledger.Repaired
	if limit <= 0 {
		return done, nil
	}
	err := l.do(ctx, now, func(t *tx) error {
		done = capacityledger.Repaired{}
		if err := l.repairSubjects(t, now, limit, &done); err != nil {
			return err
		}
		return l.dropClosed(t, now, limit, &done)
	})
	if err != nil {
		return capacityledger.Repaired{}, err
	}
	return done, nil
}

// repairSubjects mends the next subjects' counters, lets go of their older closes
// (whose rows stay), and drops the rows of subjects that have been empty for as long
// as closed allocations are kept.
func (l *Ledger) repairSubjects(t *tx, now time.Time, limit int, done *capacityledger.Repaired) error {
	type row struct {
		text    string
		empty   bool
		suspect bool
	}
	var rows []row
	oldest := now.Add(-l.keep).UnixMilli()
	err := t.query("SELECT subject, settled, outstanding, holders, changed_at FROM subjects WHERE subject > ? ORDER BY subject LIMIT ?", func(v []driver.Value) error {
		empty := v[1].(int64) == 0 && v[2].(int64) == 0
		rows = append(rows, row{v[0].(string), empty && v[4].(int64) < oldest, v[2].(int64) != 0})
		return nil
	}, l.scan.subject, int64(limit))
	if err != nil {
		return err
	}
	l.scan.subject = ""
	if len(rows) == limit {
		l.scan.subject = rows[limit-1].text
	}
	for _, row := range rows {
		key, err := holdfast.ParseSubject(row.text)
		if err != nil {
			continue // written by a newer build in a form that this one does not know
		}
		if _, resident := l.residents[key]; !resident && !row.suspect && !row.empty {
			continue
		}
		record, err := l.record(t, key)
		if err != nil {
			return err
		}
		if record.Mend(&l.journal) {
			done.Subjects++
		}
		closes := len(record.Archive(now, limit))
		l.archived[record] = closes
		done.Archived += closes
		if row.empty && record.Idle() {
			if _, err := t.exec("DELETE FROM subjects WHERE subject = ?", row.text); err != nil {
				return err
			}
			done.Dropped++
		}
	}
	return nil
}

// dropClosed deletes the rows of allocations that were closed long enough ago, from
// the oldest ids on. Ids are time-ordered, so when all of a pass' rows were acquired
// too late to be dropped there is nothing behind them, and the next pass begins anew.
func (l *Ledger) dropClosed(t *tx, now time.Time, limit int, done *capacityledger.Repaired) error {
	oldest := now.Add(-l.keep).UnixMilli()
	var last string
	var drop []string
	seen, young := 0, 0
	err := t.query("SELECT id, acquired_at, closed_at FROM allocations WHERE id > ? ORDER BY id LIMIT ?", func(v []driver.Value) error {
		seen++
		last = v[0].(string)
		if v[1].(int64) >= oldest {
			young++
		}
		if closed, ok := v[2].(int64); ok && closed < oldest {
			drop = append(drop, last)
		}
		return nil
	}, l.scan.allocation, int64(limit))
	if err != nil {
		return err
	}
	l.scan.allocation = last
	if seen < limit || young == seen {
		l.scan.allocation = ""
	}
	for _, id := range drop {
		if _, err := t.exec("DELETE FROM allocations WHERE id = ?", id); err != nil {
			return err
		}
	}
	done.Dropped += len(drop)
	return nil
}
