package embedded

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/store/internal/subject"
)

// scan is where housekeeping goes on: each pass looks at a bounded number of rows
// behind the ones it looked at last, and begins again at the end.
type scan struct {
	subject    string
	allocation string
}

// mostEntries bounds how many entries one pass of housekeeping counts again, because
// the writer serves nobody else meanwhile.
const mostEntries = 20_000

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
// (whose rows stay), and drops the rows of subjects that are empty and have been
// known for as long as closed allocations are kept: the next ask begins them anew.
func (l *Ledger) repairSubjects(t *tx, now time.Time, limit int, done *capacityledger.Repaired) error {
	type row struct {
		text  string
		empty bool
	}
	var rows []row
	oldest := now.Add(-l.keep).UnixMilli()
	err := t.query("SELECT subject, settled = '{}' AND created_at < ? FROM subjects WHERE subject > ? ORDER BY subject LIMIT ?", func(v []driver.Value) error {
		rows = append(rows, row{v[0].(string), v[1].(int64) != 0})
		return nil
	}, oldest, l.scan.subject, int64(limit))
	if err != nil {
		return err
	}
	entries := 0
	for _, row := range rows {
		if entries > mostEntries {
			break
		}
		l.scan.subject = row.text
		key, err := holdfast.ParseSubject(row.text)
		if err != nil {
			return err
		}
		r, resident := l.residents[key]
		if resident {
			entries += r.record.Open() + r.record.Recent()
			l.repairRecord(r.record, now, limit, done)
		}
		if !row.empty || (resident && r.record.Open() > 0) {
			continue
		}
		if _, err := t.exec("DELETE FROM subjects WHERE subject = ?", row.text); err != nil {
			return err
		}
		if resident {
			r.stored = false
		}
		done.Dropped++
	}
	if len(rows) < limit && entries <= mostEntries {
		l.scan.subject = ""
	}
	return nil
}

func (l *Ledger) repairRecord(record *subject.Record, now time.Time, limit int, done *capacityledger.Repaired) {
	if record.Mend(&l.journal) {
		done.Subjects++
	}
	if closes := len(record.Archive(now, limit)); closes > 0 {
		l.archived[record] = closes
		done.Archived += closes
	}
}

// dropClosed deletes the rows of allocations that were closed long enough ago, from
// the oldest ids on. Ids are time-ordered, so when all of a pass' rows were acquired
// too late to be dropped there is nothing behind them, and the next pass begins anew.
func (l *Ledger) dropClosed(t *tx, now time.Time, limit int, done *capacityledger.Repaired) error {
	oldest := now.Add(-l.keep).UnixMilli()
	var last string
	var drop []string
	seen, young := 0, 0
	err := t.query("SELECT id, ask ->> 'acquired', state ->> 'closed' FROM allocations WHERE id > ? ORDER BY id LIMIT ?", func(v []driver.Value) error {
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
