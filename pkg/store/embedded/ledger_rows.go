package embedded

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/store/internal/subject"
)

// The rows of ledger.db. Amounts are in the grain of the axis' unit, instants are
// milliseconds since 1970. An allocation is open while its outcome is NULL; the
// index over these is what an opening reads. Ids are time-ordered, so new rows go
// to the end of the table.
const ledgerSchema = `
CREATE TABLE subjects (
	subject     TEXT PRIMARY KEY NOT NULL,
	settled     INTEGER NOT NULL,
	outstanding INTEGER NOT NULL,
	holders     TEXT NOT NULL, -- JSON: [[holder, settled, outstanding], ...]
	changed_at  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE allocations (
	id          TEXT PRIMARY KEY NOT NULL, -- run~kind~id~axis[@period][~generation]
	holder      TEXT NOT NULL,
	requested   INTEGER NOT NULL,
	minimum     INTEGER NOT NULL,
	amount      INTEGER NOT NULL,
	spent       INTEGER NOT NULL DEFAULT 0,
	acquired_at INTEGER NOT NULL,
	expires_at  INTEGER NOT NULL,
	confirmed   INTEGER NOT NULL DEFAULT 0,
	attempt     INTEGER NOT NULL DEFAULT 0,
	sequence    INTEGER NOT NULL DEFAULT 0,
	spent_by    TEXT,    -- JSON: [[attempt, spent], ...]; NULL while nothing was reported
	cap         INTEGER, -- that it was asked under; NULL is no limit
	nonce       TEXT NOT NULL,
	outcome     TEXT,    -- NULL while open
	closed_at   INTEGER
) WITHOUT ROWID;
CREATE INDEX allocations_open ON allocations (id) WHERE outcome IS NULL;
CREATE VIEW open_allocations AS SELECT id, holder, amount, spent,
	datetime(acquired_at / 1000, 'unixepoch') AS acquired, datetime(expires_at / 1000, 'unixepoch') AS expires
	FROM allocations WHERE outcome IS NULL;
`

const selectAllocation = `SELECT id, holder, requested, minimum, amount, spent, acquired_at, expires_at, confirmed, attempt, sequence, spent_by, cap, nonce, outcome, closed_at FROM allocations`

const insertFresh = `INSERT INTO allocations (id, holder, requested, minimum, amount, acquired_at, expires_at, cap, nonce) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`

const insertMoved = `INSERT INTO allocations (id, holder, requested, minimum, amount, acquired_at, expires_at, cap, nonce, spent, confirmed, attempt, sequence, spent_by, outcome, closed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

const updateAllocation = `UPDATE allocations SET amount = ?, expires_at = ?, spent = ?, confirmed = ?, attempt = ?, sequence = ?, spent_by = ?, outcome = ?, closed_at = ? WHERE id = ?`

const upsertSubject = `INSERT INTO subjects (subject, settled, outstanding, holders, changed_at) VALUES (?, ?, ?, ?, ?)
	ON CONFLICT (subject) DO UPDATE SET settled = excluded.settled, outstanding = excluded.outstanding, holders = excluded.holders, changed_at = excluded.changed_at`

// writeAllocation writes one row as the batch left it.
func writeAllocation(t *tx, c subject.Change) error {
	a := c.Allocation
	if !c.Fresh {
		changed, err := t.exec(updateAllocation, a.Amount.Int(), a.ExpiresAt.UnixMilli(), a.Spent.Int(), a.Confirmed, int64(a.Attempt), a.Sequence, spentBy(a), outcome(a), closedAt(a), string(a.ID))
		if err == nil && changed != 1 {
			return fmt.Errorf("the row of allocation %s is gone", a.ID)
		}
		return err
	}
	var limit driver.Value
	if !a.Cap.None() {
		limit = a.Cap.Max().Int()
	}
	if a.Outcome == capacityledger.Open && a.Attempt == 0 && a.Sequence == 0 && !a.Confirmed && len(a.SpentBy) == 0 {
		_, err := t.exec(insertFresh, string(a.ID), a.Holder.String(), a.Requested.Int(), a.Minimum.Int(), a.Amount.Int(), a.AcquiredAt.UnixMilli(), a.ExpiresAt.UnixMilli(), limit, a.Nonce)
		return err
	}
	_, err := t.exec(insertMoved, string(a.ID), a.Holder.String(), a.Requested.Int(), a.Minimum.Int(), a.Amount.Int(), a.AcquiredAt.UnixMilli(), a.ExpiresAt.UnixMilli(), limit, a.Nonce,
		a.Spent.Int(), a.Confirmed, int64(a.Attempt), a.Sequence, spentBy(a), outcome(a), closedAt(a))
	return err
}

func outcome(a *capacityledger.Allocation) driver.Value {
	if a.Outcome == capacityledger.Open {
		return nil
	}
	return string(a.Outcome)
}

func closedAt(a *capacityledger.Allocation) driver.Value {
	if a.Outcome == capacityledger.Open {
		return nil
	}
	return a.ClosedAt.UnixMilli()
}

func spentBy(a *capacityledger.Allocation) driver.Value {
	if len(a.SpentBy) == 0 {
		return nil
	}
	pairs := make([][2]int64, 0, len(a.SpentBy))
	for _, s := range a.SpentBy {
		pairs = append(pairs, [2]int64{int64(s.Attempt), s.Spent.Int()})
	}
	text, err := json.Marshal(pairs)
	if err != nil {
		panic("embedded: numbers always encode: " + err.Error())
	}
	return string(text)
}

// writeSubject writes a subject's counters.
func writeSubject(t *tx, r *subject.Record, now time.Time) error {
	text := []byte{'['}
	r.Holders(func(h capacityledger.Holding) {
		if len(text) > 1 {
			text = append(text, ',')
		}
		// A holder's text has no character that JSON escapes.
		text = fmt.Appendf(text, `["%s",%d,%d]`, h.Holder.String(), h.Settled, h.Outstanding)
	})
	text = append(text, ']')
	_, err := t.exec(upsertSubject, r.Subject().String(), r.Settled(), r.Outstanding(), string(text), now.UnixMilli())
	return err
}

// restore reads a subject's counters into its new record. Its open allocations are
// none of its business: a subject that has some is in memory since the opening.
func restore(t *tx, r *subject.Record) error {
	return t.query("SELECT settled, outstanding, holders FROM subjects WHERE subject = ?", func(row []driver.Value) error {
		holders, err := holdersOf(row[2])
		if err != nil {
			return fmt.Errorf("read the holders of %s: %w", r.Subject(), err)
		}
		r.Restore(row[0].(int64), row[1].(int64), holders)
		return nil
	}, r.Subject().String())
}

func holdersOf(column driver.Value) ([]capacityledger.Holding, error) {
	var rows [][3]json.RawMessage
	if err := json.Unmarshal([]byte(column.(string)), &rows); err != nil {
		return nil, err
	}
	holders := make([]capacityledger.Holding, len(rows))
	for i, row := range rows {
		for column, into := range []any{&holders[i].Holder, &holders[i].Settled, &holders[i].Outstanding} {
			if err := json.Unmarshal(row[column], into); err != nil {
				return nil, err
			}
		}
	}
	return holders, nil
}

// scanAllocation reads a row through database/sql.
func scanAllocation(scan func(...any) error) (capacityledger.Allocation, error) {
	row := make([]driver.Value, 16)
	into := make([]any, len(row))
	for i := range row {
		into[i] = &row[i]
	}
	if err := scan(into...); err != nil {
		return capacityledger.Allocation{}, err
	}
	return allocationOf(row)
}

// allocationOf reads a row of selectAllocation.
func allocationOf(row []driver.Value) (capacityledger.Allocation, error) {
	text := func(i int) string { s, _ := row[i].(string); return s }
	number := func(i int) int64 { n, _ := row[i].(int64); return n }
	id := holdfast.AllocationID(text(0))
	run, key, _, err := id.Parts()
	if err != nil {
		return capacityledger.Allocation{}, fmt.Errorf("read an allocation: %w", err)
	}
	holder, err := holdfast.ParseIdentity(text(1))
	if err != nil {
		return capacityledger.Allocation{}, fmt.Errorf("read allocation %s: %w", id, err)
	}
	unit := key.Axis.Unit()
	a := capacityledger.Allocation{
		ID: id, Subject: key, Holder: holder, Run: run,
		Requested: holdfast.AmountOf(unit, number(2)), Minimum: holdfast.AmountOf(unit, number(3)), Amount: holdfast.AmountOf(unit, number(4)), Spent: holdfast.AmountOf(unit, number(5)),
		AcquiredAt: instant(number(6)), ExpiresAt: instant(number(7)), Confirmed: number(8) != 0, Attempt: int(number(9)), Sequence: number(10),
		Cap: holdfast.NoLimit, Nonce: text(13), Outcome: capacityledger.Outcome(text(14)),
	}
	if row[12] != nil {
		a.Cap = holdfast.AtMost(holdfast.AmountOf(unit, number(12)))
	}
	if row[15] != nil {
		a.ClosedAt = instant(number(15))
	}
	if row[11] != nil {
		var pairs [][2]int64
		if err := json.Unmarshal([]byte(text(11)), &pairs); err != nil {
			return capacityledger.Allocation{}, fmt.Errorf("read the reports of allocation %s: %w", id, err)
		}
		for _, p := range pairs {
			a.SpentBy = append(a.SpentBy, capacityledger.AttemptSpend{Attempt: int(p[0]), Spent: holdfast.AmountOf(unit, p[1])})
		}
	}
	return a, nil
}

func instant(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// load reads the open allocations and the counters of their subjects into memory.
func (l *Ledger) load(t *tx) error {
	err := t.query(selectAllocation+" INDEXED BY allocations_open WHERE outcome IS NULL", func(row []driver.Value) error {
		a, err := allocationOf(row)
		if err != nil {
			return err
		}
		r, ok := l.residents[a.Subject]
		if !ok {
			r = &resident{record: subject.New(a.Subject, l.calendar)}
			l.residents[a.Subject] = r
		}
		r.record.Put(a)
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range l.residents {
		if err := restore(t, r.record); err != nil {
			return err
		}
	}
	return nil
}
