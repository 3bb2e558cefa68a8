package embedded

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/store/internal/subject"
)

// The rows of ledger.db. What is outstanding on a subject is not stored: it is the
// sum of the open allocations, always, so no crash and no bug can leave the two
// apart on the disk. A subject's row has what cannot be derived: what its holders
// have settled.
//
// An allocation is open while its outcome is NULL; the index over these is what an
// opening reads. Ids are time-ordered, so new rows go to the end of the table. The
// two JSON columns are what was asked, which never changes, and how it stands;
// amounts are in the grain of the axis' unit, instants are milliseconds since 1970.
// The views say the same in columns, for people.
const ledgerSchema = `
CREATE TABLE subjects (
	subject    TEXT PRIMARY KEY NOT NULL,
	settled    TEXT NOT NULL, -- {holder: amount, ...}
	created_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE allocations (
	id      TEXT PRIMARY KEY NOT NULL, -- run~kind~id~axis[@period][~generation]
	ask     TEXT NOT NULL, -- {holder, requested, minimum, cap, acquired, nonce}; without a cap there is no limit
	state   TEXT NOT NULL, -- {amount, expires, spent, confirmed, attempt, sequence, spent_by: [[attempt, amount], ...], closed}
	outcome TEXT -- NULL while open
) WITHOUT ROWID;
CREATE INDEX allocations_open ON allocations (id) WHERE outcome IS NULL;
CREATE VIEW all_allocations AS SELECT id, replace(substr(id, instr(id, '~') + 1), '~', '/') AS subject, ask ->> 'holder' AS holder,
	state ->> 'amount' AS amount, coalesce(state ->> 'spent', 0) AS spent, coalesce(outcome, 'open') AS outcome,
	datetime((ask ->> 'acquired') / 1000, 'unixepoch') AS acquired, datetime((state ->> 'expires') / 1000, 'unixepoch') AS expires,
	datetime((state ->> 'closed') / 1000, 'unixepoch') AS closed FROM allocations;
CREATE VIEW open_allocations AS SELECT id, replace(substr(id, instr(id, '~') + 1), '~', '/') AS subject, ask ->> 'holder' AS holder,
	state ->> 'amount' AS amount, coalesce(state ->> 'spent', 0) AS spent,
	datetime((ask ->> 'acquired') / 1000, 'unixepoch') AS acquired, datetime((state ->> 'expires') / 1000, 'unixepoch') AS expires
	FROM allocations WHERE outcome IS NULL;
`

const (
	selectAllocation = "SELECT id, ask, state, outcome FROM allocations"
	insertAllocation = "INSERT INTO allocations (id, ask, state, outcome) VALUES (?, ?, ?, ?)"
	updateAllocation = "UPDATE allocations SET state = ?, outcome = ? WHERE id = ?"
	selectSubject    = "SELECT settled FROM subjects WHERE subject = ?"
	upsertSubject    = "INSERT INTO subjects (subject, settled, created_at) VALUES (?, ?, ?) ON CONFLICT (subject) DO UPDATE SET settled = excluded.settled"
)

// askRow and stateRow are the JSON columns; they are written by hand, because every
// reserve and every settle does it.
type askRow struct {
	Holder    holdfast.Identity `json:"holder"`
	Requested int64             `json:"requested"`
	Minimum   *int64            `json:"minimum"` // absent where the ask named none
	Cap       *int64            `json:"cap"`
	Acquired  int64             `json:"acquired"`
	Nonce     string            `json:"nonce"`
}

type stateRow struct {
	Amount    int64      `json:"amount"`
	Expires   int64      `json:"expires"`
	Spent     int64      `json:"spent"`
	Confirmed bool       `json:"confirmed"`
	Attempt   int        `json:"attempt"`
	Sequence  int64      `json:"sequence"`
	SpentBy   [][2]int64 `json:"spent_by"`
	Closed    int64      `json:"closed"`
}

// together is how many rows one statement inserts where there are as many: a
// statement's own cost is then shared.
const together = 8

const insertTogether = insertAllocation + ", (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?), (?, ?, ?, ?)"

// insertRows writes the rows of allocations that the batch made.
func insertRows(t *tx, fresh []*capacityledger.Allocation) error {
	args := make([]driver.Value, 0, 4*together)
	for len(fresh) > 0 {
		n, statement := 1, insertAllocation
		if len(fresh) >= together {
			n, statement = together, insertTogether
		}
		args = args[:0]
		for _, a := range fresh[:n] {
			args = append(args, string(a.ID), askOf(a), stateOf(a), outcomeOf(a))
		}
		if _, err := t.exec(statement, args...); err != nil {
			return err
		}
		fresh = fresh[n:]
	}
	return nil
}

// updateRow writes the row of an allocation that was stored before, as the batch
// left it.
func updateRow(t *tx, a *capacityledger.Allocation) error {
	changed, err := t.exec(updateAllocation, stateOf(a), outcomeOf(a), string(a.ID))
	if err == nil && changed != 1 {
		return fmt.Errorf("the row of allocation %s is gone", a.ID)
	}
	return err
}

func outcomeOf(a *capacityledger.Allocation) driver.Value {
	if a.Outcome == capacityledger.Open {
		return nil
	}
	return string(a.Outcome)
}

func askOf(a *capacityledger.Allocation) string {
	b := make([]byte, 0, 192)
	b = append(b, `{"holder":`...)
	b = quoted(b, a.Holder.String())
	b = number(b, `,"requested":`, a.Requested.Int())
	if a.Minimum.Unit() != holdfast.UnitNone {
		b = number(b, `,"minimum":`, a.Minimum.Int())
	}
	if !a.Cap.None() {
		b = number(b, `,"cap":`, a.Cap.Max().Int())
	}
	b = number(b, `,"acquired":`, a.AcquiredAt.UnixMilli())
	b = append(b, `,"nonce":`...)
	b = quoted(b, a.Nonce)
	return string(append(b, '}'))
}

func stateOf(a *capacityledger.Allocation) string {
	b := make([]byte, 0, 128)
	b = number(b, `{"amount":`, a.Amount.Int())
	b = number(b, `,"expires":`, a.ExpiresAt.UnixMilli())
	if a.Spent.Int() != 0 {
		b = number(b, `,"spent":`, a.Spent.Int())
	}
	if a.Confirmed {
		b = append(b, `,"confirmed":true`...)
	}
	if a.Attempt != 0 || a.Sequence != 0 {
		b = number(b, `,"attempt":`, int64(a.Attempt))
		b = number(b, `,"sequence":`, a.Sequence)
	}
	for i, s := range a.SpentBy {
		before := `,"spent_by":[[`
		if i > 0 {
			before = `,[`
		}
		b = number(b, before, int64(s.Attempt))
		b = append(number(b, `,`, s.Spent.Int()), ']')
	}
	if len(a.SpentBy) > 0 {
		b = append(b, ']')
	}
	if a.Outcome != capacityledger.Open {
		b = number(b, `,"closed":`, a.ClosedAt.UnixMilli())
	}
	return string(append(b, '}'))
}

func number(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(b, name...), n, 10)
}

// quoted appends a JSON string; what the ledger makes itself needs no escape.
func quoted(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, err := json.Marshal(s)
			if err != nil {
				panic("embedded: a string always encodes: " + err.Error())
			}
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// allocationOf reads a row of selectAllocation.
func allocationOf(id, ask, state, outcome string) (capacityledger.Allocation, error) {
	bad := func(err error) (capacityledger.Allocation, error) {
		return capacityledger.Allocation{}, fmt.Errorf("read allocation %q: %w", id, err)
	}
	run, key, _, err := holdfast.AllocationID(id).Parts()
	if err != nil {
		return bad(err)
	}
	var asked askRow
	if err := json.Unmarshal([]byte(ask), &asked); err != nil {
		return bad(err)
	}
	var stands stateRow
	if err := json.Unmarshal([]byte(state), &stands); err != nil {
		return bad(err)
	}
	amount := func(n int64) holdfast.Amount { return holdfast.AmountOf(key.Axis.Unit(), n) }
	a := capacityledger.Allocation{
		ID: holdfast.AllocationID(id), Subject: key, Holder: asked.Holder, Run: run,
		Requested: amount(asked.Requested), Amount: amount(stands.Amount), Spent: amount(stands.Spent),
		AcquiredAt: instant(asked.Acquired), ExpiresAt: instant(stands.Expires), Confirmed: stands.Confirmed, Attempt: stands.Attempt, Sequence: stands.Sequence,
		Cap: holdfast.NoLimit, Nonce: asked.Nonce, Outcome: capacityledger.Outcome(outcome),
	}
	if asked.Minimum != nil {
		a.Minimum = amount(*asked.Minimum)
	}
	if asked.Cap != nil {
		a.Cap = holdfast.AtMost(amount(*asked.Cap))
	}
	if a.Outcome != capacityledger.Open {
		a.ClosedAt = instant(stands.Closed)
	}
	for _, s := range stands.SpentBy {
		a.SpentBy = append(a.SpentBy, capacityledger.AttemptSpend{Attempt: int(s[0]), Spent: amount(s[1])})
	}
	return a, nil
}

func instant(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// allocationIn reads a row that the writer's connection returned.
func allocationIn(row []driver.Value) (capacityledger.Allocation, error) {
	var columns [4]string
	for i := range columns {
		columns[i], _ = row[i].(string)
	}
	return allocationOf(columns[0], columns[1], columns[2], columns[3])
}

// writeSubject writes what a subject's holders have settled.
func writeSubject(t *tx, r *subject.Record, now time.Time) error {
	b := []byte{'{'}
	r.Holders(func(h capacityledger.Holding) {
		if h.Settled == 0 {
			return
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = number(quoted(b, h.Holder.String()), ":", h.Settled)
	})
	_, err := t.exec(upsertSubject, r.Subject().String(), string(append(b, '}')), now.UnixMilli())
	return err
}

// restore sets the counters of a record that has its open allocations: settled from
// the subject's row, outstanding from the allocations. stored says whether there is
// a row.
func restore(t *tx, r *subject.Record) (stored bool, err error) {
	err = t.query(selectSubject, func(row []driver.Value) error {
		stored = true
		text, _ := row[0].(string)
		var settled map[holdfast.Identity]int64
		if err := json.Unmarshal([]byte(text), &settled); err != nil {
			return fmt.Errorf("read %s: %w", r.Subject(), err)
		}
		var total int64
		holders := make([]capacityledger.Holding, 0, len(settled))
		for holder, amount := range settled {
			holders = append(holders, capacityledger.Holding{Holder: holder, Settled: amount})
			total += amount
		}
		r.Restore(total, 0, holders)
		return nil
	}, r.Subject().String())
	r.Mend(nil)
	return stored, err
}

// load reads the open allocations and the counters of their subjects into memory.
func (l *Ledger) load(t *tx) error {
	err := t.query(selectAllocation+" INDEXED BY allocations_open WHERE outcome IS NULL", func(row []driver.Value) error {
		a, err := allocationIn(row)
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
		if r.stored, err = restore(t, r.record); err != nil {
			return err
		}
		r.settled = r.record.Settled()
	}
	return nil
}
