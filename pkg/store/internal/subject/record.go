// Package subject is the record of one subject as the memory and embedded twins
// keep it: counters in total and per holder, open entries and recent closes. It is
// the one copy of the rules of [capacityledger.Store]; a twin adds locks, disks and
// the history around it. Nothing here locks, does I/O or reads a clock, and an
// error of one verb means that the verb changed nothing.
//
// A durable twin passes a [Journal] to the verbs, writes the rows that the journal
// names, and keeps or undoes them. The memory twin passes nil.
package subject

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

const (
	// RecentFor is how long a close stays in its record before housekeeping moves it
	// to the history.
	RecentFor = 15 * time.Minute
	// RecentKept is how many closes stay, however young, when housekeeping comes.
	RecentKept = 200
	// RecentMost is how many closes a record may have; whoever finds more moves them
	// before the next write.
	RecentMost = 1_000
	// MaxTotal bounds settled + outstanding of a subject, so that no sum of the
	// judgement can overflow.
	MaxTotal = math.MaxInt64 / 4
	// scanned is up to how many holders are searched one by one.
	scanned = 16
)

// Record is the state of one subject. The zero value is of no use; see [New].
type Record struct {
	key         holdfast.Subject
	settled     int64
	outstanding int64
	holders     []capacityledger.Holding
	at          map[holdfast.Identity]int // into holders; nil while they are few
	entries     map[holdfast.AllocationID]*entry
	open        int
	recent      []*entry // closed, in the order of closing
	due         *Calendar
	journal     *Journal // the one that has saved this record's counters
}

// entry is an allocation with its places in the indexes.
type entry struct {
	capacityledger.Allocation
	bucket  *bucket // nil while it is not in the calendar
	slot    int
	journal *Journal // the one that has saved this entry
}

// New is the record of a subject that nobody has asked yet. Its open entries are
// kept in the calendar, which may be nil.
func New(key holdfast.Subject, due *Calendar) *Record {
	return &Record{key: key, entries: map[holdfast.AllocationID]*entry{}, due: due}
}

// Subject is what the record is of.
func (r *Record) Subject() holdfast.Subject { return r.key }

// Settled and Outstanding are the totals.
func (r *Record) Settled() int64 { return r.settled }

// Outstanding is what is promised and not yet used.
func (r *Record) Outstanding() int64 { return r.outstanding }

// Open is how many entries are open.
func (r *Record) Open() int { return r.open }

// Recent is how many closes the record still has.
func (r *Record) Recent() int { return len(r.recent) }

// Idle says whether dropping the record loses nothing: no entry, no close, no count.
func (r *Record) Idle() bool {
	return len(r.entries) == 0 && r.settled == 0 && r.outstanding == 0 && len(r.holders) == 0
}

// Has says whether the record has an entry or a recent close under the id.
func (r *Record) Has(id holdfast.AllocationID) bool { return r.entries[id] != nil }

// Get is the entry or recent close under the id.
func (r *Record) Get(id holdfast.AllocationID) (capacityledger.Allocation, bool) {
	e := r.entries[id]
	if e == nil {
		return capacityledger.Allocation{}, false
	}
	return e.shown(), true
}

// Holders calls f for each holder's counters; a durable twin writes them.
func (r *Record) Holders(f func(capacityledger.Holding)) {
	for _, h := range r.holders {
		f(h)
	}
}

// Restore sets the counters as they were stored. It is meant for a new record.
func (r *Record) Restore(settled, outstanding int64, holders []capacityledger.Holding) {
	r.settled, r.outstanding = settled, outstanding
	r.setHolders(slices.Clone(holders))
}

// Put adds an entry as it was stored, without counting it: an open one, or a close
// that comes back from the history because somebody still reports on it.
func (r *Record) Put(a capacityledger.Allocation) {
	if r.entries[a.ID] != nil {
		return
	}
	e := &entry{Allocation: a}
	r.entries[a.ID] = e
	if a.Outcome == capacityledger.Open {
		r.open++
		r.due.add(e)
		return
	}
	r.recent = append(r.recent, e)
}

// Balance is the record as it is shown: holders by name, open entries oldest first.
func (r *Record) Balance() capacityledger.Balance {
	b := r.counters()
	b.Open = make([]capacityledger.Allocation, 0, r.open)
	for _, e := range r.entries {
		if e.Outcome == capacityledger.Open {
			b.Open = append(b.Open, e.shown())
			if b.NextExpiry.IsZero() || e.ExpiresAt.Before(b.NextExpiry) {
				b.NextExpiry = e.ExpiresAt
			}
		}
	}
	slices.SortFunc(b.Open, func(x, y capacityledger.Allocation) int {
		return cmp.Or(x.AcquiredAt.Compare(y.AcquiredAt), cmp.Compare(x.ID, y.ID))
	})
	return b
}

// counters is the balance without its entries.
func (r *Record) counters() capacityledger.Balance {
	b := capacityledger.Balance{Subject: r.key, Settled: r.settled, Outstanding: r.outstanding, Holders: slices.Clone(r.holders)}
	slices.SortFunc(b.Holders, func(x, y capacityledger.Holding) int {
		return cmp.Compare(x.Holder.String(), y.Holder.String())
	})
	return b
}

// Archive names the closes that are older than [RecentFor] or in excess of
// [RecentKept], the oldest first, at most limit of them. The twin puts them into its
// history first and calls [Record.Forget] then; a close is never in neither place.
// They do not change any more, so the twin may keep them as they are.
func (r *Record) Archive(now time.Time, limit int) []*capacityledger.Allocation {
	n := 0
	for n < min(limit, len(r.recent)) && (len(r.recent)-n > RecentKept || now.Sub(r.recent[n].ClosedAt) >= RecentFor) {
		n++
	}
	out := make([]*capacityledger.Allocation, 0, n)
	for _, e := range r.recent[:n] {
		out = append(out, &e.Allocation)
	}
	return out
}

// Forget drops the n oldest closes, which the history has by now.
func (r *Record) Forget(n int) {
	for _, e := range r.recent[:n] {
		delete(r.entries, e.ID)
	}
	clear(r.recent[:n])
	r.recent = r.recent[n:]
}

// Mend counts the open entries again and corrects what is outstanding, in total and
// per holder. It says whether anything was wrong, which is a bug or a damaged file.
func (r *Record) Mend(j *Journal) bool {
	want := map[holdfast.Identity]int64{}
	var total int64
	for _, e := range r.entries {
		remainder := e.Outstanding().Int()
		if remainder > 0 {
			want[e.Holder] += remainder
			total += remainder
		}
	}
	wrong := total != r.outstanding
	for _, h := range r.holders {
		wrong = wrong || h.Outstanding != want[h.Holder]
	}
	for holder := range want {
		wrong = wrong || r.find(holder) < 0
	}
	if !wrong {
		return false
	}
	j.saveRecord(r)
	r.outstanding = total
	holders := slices.Clone(r.holders)
	for i := range holders {
		holders[i].Outstanding = want[holders[i].Holder]
		delete(want, holders[i].Holder)
	}
	for holder, amount := range want {
		holders = append(holders, capacityledger.Holding{Holder: holder, Outstanding: amount})
	}
	r.setHolders(slices.DeleteFunc(holders, func(h capacityledger.Holding) bool { return h.Settled == 0 && h.Outstanding == 0 }))
	return true
}

// shown is a copy that belongs to the caller.
func (e *entry) shown() capacityledger.Allocation {
	a := e.Allocation
	if len(a.SpentBy) > 0 {
		a.SpentBy = slices.Clone(a.SpentBy)
	}
	return a
}

// move changes what is settled and outstanding, in total and of the holder.
func (r *Record) move(holder holdfast.Identity, settled, outstanding int64) {
	r.settled += settled
	r.outstanding += outstanding
	i := r.find(holder)
	if i < 0 {
		i = len(r.holders)
		r.holders = append(r.holders, capacityledger.Holding{Holder: holder})
		if r.at != nil {
			r.at[holder] = i
		} else if len(r.holders) > scanned {
			r.setHolders(r.holders)
		}
	}
	h := &r.holders[i]
	h.Settled += settled
	h.Outstanding += outstanding
	if h.Settled == 0 && h.Outstanding == 0 {
		r.drop(i)
	}
}

func (r *Record) drop(i int) {
	last := len(r.holders) - 1
	if r.at != nil {
		delete(r.at, r.holders[i].Holder)
		if i != last {
			r.at[r.holders[last].Holder] = i
		}
	}
	r.holders[i] = r.holders[last]
	r.holders[last] = capacityledger.Holding{}
	r.holders = r.holders[:last]
}

func (r *Record) find(holder holdfast.Identity) int {
	if r.at != nil {
		if i, ok := r.at[holder]; ok {
			return i
		}
		return -1
	}
	for i := range r.holders {
		if r.holders[i].Holder == holder {
			return i
		}
	}
	return -1
}

func (r *Record) setHolders(holders []capacityledger.Holding) {
	r.holders, r.at = holders, nil
	if len(holders) <= scanned {
		return
	}
	r.at = make(map[holdfast.Identity]int, 2*len(holders))
	for i, h := range holders {
		r.at[h.Holder] = i
	}
}

// Quiet says whether no entry and no close is left, whatever the counters say.
func (r *Record) Quiet() bool { return len(r.entries) == 0 }
