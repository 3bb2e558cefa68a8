package subject

import (
	"slices"

	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// Journal remembers what the verbs of one batch changed, as it was before, so that
// a durable twin writes those rows only and, when the write fails, puts everything
// back exactly. A nil Journal remembers nothing. One journal at a time may be open
// over a record; it is used again after [Journal.Keep] or [Journal.Undo].
type Journal struct {
	records []savedRecord
	entries []savedEntry
}

type savedRecord struct {
	record               *Record
	settled, outstanding int64
	holders              []capacityledger.Holding
}

type savedEntry struct {
	record *Record
	entry  *entry
	before capacityledger.Allocation
	fresh  bool
}

// Change is one entry that a batch changed: as it is now, and whether it was made
// by the batch or had been stored before. It is a view; do not keep SpentBy.
type Change struct {
	Record     *Record
	Allocation *capacityledger.Allocation
	Fresh      bool
}

// Empty says whether the batch changed nothing.
func (j *Journal) Empty() bool { return len(j.records) == 0 && len(j.entries) == 0 }

// Records calls f for each record whose counters may have changed. A refused ask
// alone leaves the counters as they were and still names its record.
func (j *Journal) Records(f func(*Record)) {
	for i := range j.records {
		f(j.records[i].record)
	}
}

// Moved says whether the counters of the i-th record really differ from before.
func (s *savedRecord) moved() bool {
	r := s.record
	return s.settled != r.settled || s.outstanding != r.outstanding || !slices.Equal(s.holders, r.holders)
}

// Changed calls f for each record whose counters really differ from before, with
// the holders as they were.
func (j *Journal) Changed(f func(r *Record, before []capacityledger.Holding)) {
	for i := range j.records {
		if s := &j.records[i]; s.moved() {
			f(s.record, s.holders)
		}
	}
}

// Entries calls f for each entry that was made or changed, once.
func (j *Journal) Entries(f func(Change)) {
	for i := range j.entries {
		s := &j.entries[i]
		f(Change{Record: s.record, Allocation: &s.entry.Allocation, Fresh: s.fresh})
	}
}

// Keep ends the batch: what was changed stays.
func (j *Journal) Keep() {
	for i := range j.records {
		j.records[i].record.journal = nil
	}
	for i := range j.entries {
		j.entries[i].entry.journal = nil
	}
	j.reset()
}

// Undo ends the batch and puts everything back as it was before it.
func (j *Journal) Undo() {
	for _, s := range slices.Backward(j.entries) {
		s.undo()
	}
	for i := range j.records {
		s := &j.records[i]
		r := s.record
		r.journal = nil
		r.settled, r.outstanding = s.settled, s.outstanding
		r.setHolders(s.holders)
		r.recent = slices.DeleteFunc(r.recent, func(e *entry) bool {
			return e.Outcome == capacityledger.Open || r.entries[e.ID] != e
		})
	}
	j.reset()
}

func (s *savedEntry) undo() {
	e, r := s.entry, s.record
	e.journal = nil
	r.due.remove(e)
	if e.Outcome == capacityledger.Open {
		r.open--
	}
	if s.fresh {
		delete(r.entries, e.ID)
		return
	}
	e.Allocation = s.before
	if e.Outcome == capacityledger.Open {
		r.open++
		r.due.add(e)
	}
}

func (j *Journal) reset() {
	clear(j.records)
	clear(j.entries)
	j.records, j.entries = j.records[:0], j.entries[:0]
}

func (j *Journal) saveRecord(r *Record) {
	if j == nil || r.journal == j {
		return
	}
	r.journal = j
	j.records = append(j.records, savedRecord{r, r.settled, r.outstanding, slices.Clone(r.holders)})
}

func (j *Journal) saveEntry(r *Record, e *entry) {
	if j == nil || e.journal == j {
		return
	}
	e.journal = j
	j.entries = append(j.entries, savedEntry{record: r, entry: e, before: e.Allocation})
}

func (j *Journal) saveNew(r *Record, e *entry) {
	if j == nil {
		return
	}
	e.journal = j
	j.entries = append(j.entries, savedEntry{record: r, entry: e, fresh: true})
}
