package mongo

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// A subject's document, in the collection "subjects". Amounts are int64 in the grain
// of the axis' unit, instants are dates.
//
//	_id     the subject's text
//	s, o    settled and outstanding
//	h       {holder: {s, o}}; the holders' names escaped as keys, see holderKey
//	open    the open entries, in the order of their asks
//	closed  the recent closes, in the order of closing
//	c       how many closes that is
//	top     the highest id that was ever closed here; an id above it never was
//	gen     counts the changes to closes: a late report, a move to the history
//	next    no open entry expires before it; the year 9999 when none is open
//	terms   names the terms of the latest asks
//	shaken  when something last happened that an ask before it could not foresee: a
//	        report beyond what was granted, an adoption, an ask on other terms
//	gone    when the document may be removed, on subjects that end
//
// A page of the collection "history" has closes of one subject that were moved together:
//
//	_id     a stamp
//	of      the subject's text
//	ids     the closes' ids, without the subject; indexed
//	closes  the entries
//	gone    when the page may be removed
//
// An entry:
//
//	k    the stamp of the write that last touched the entry; unique
//	n    the stamp of the try that was recorded, when that is another one
//	id   its id; r instead, the id without the subject, once it is closed
//	h, q, m, a, t, x, l   holder, requested, minimum, allowance (when it is not what was
//	     requested), acquired, expires, cap (absent without one)
//	rs   the reservations it was judged by: [holder, amount, …]; only until somebody
//	     has touched the entry
//	u    it was recorded unjudged
//	c, at, sq, sp   confirmed, attempt, sequence, spend by attempt [attempt, amount, …]
//	z, ct  outcome and time of the close
const (
	fieldSettled     = "s"
	fieldOutstanding = "o"
	fieldHolders     = "h"
	fieldOpen        = "open"
	fieldClosed      = "closed"
	fieldCloses      = "c"
	fieldTop         = "top"
	fieldGeneration  = "gen"
	fieldNext        = "next"
	fieldTerms       = "terms"
	fieldShaken      = "shaken"
	fieldGone        = "gone"
	fieldOf          = "of"
	fieldIDs         = "ids"
	fieldPage        = "closes"
)

// never is what stands for "no open entry" in the index of expiries.
var never = time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)

// entry is an allocation as its document has it.
type entry struct {
	capacityledger.Allocation
	stamp    string
	reserved []capacityledger.Reserved
	unjudged bool
}

// decided says whether the entry shows by itself that everybody counts it: somebody
// has touched it since, so that it was granted, or there was nothing to judge.
func (e *entry) decided() bool { return e.touched() || e.unjudged || e.Cap.None() }

// touched says whether the entry was written again after it was pushed.
func (e *entry) touched() bool { return e.stamp != e.Nonce }

// image is a subject's document as it was read, its closes apart.
type image struct {
	tally
	open       []entry
	closed     []entry // those that were asked for
	closes     int64
	top        string
	terms      string
	generation int64
	next       time.Time
	shaken     time.Time
}

// has finds the first open entry under the id.
func (i *image) has(id holdfast.AllocationID) *entry {
	for n := range i.open {
		if i.open[n].ID == id {
			return &i.open[n]
		}
	}
	return nil
}

// hasClosed finds the recent close under the id.
func (i *image) hasClosed(id holdfast.AllocationID) *entry {
	for n := range i.closed {
		if i.closed[n].ID == id {
			return &i.closed[n]
		}
	}
	return nil
}

// newDocument is the document of a subject that nobody has asked yet.
func newDocument(key holdfast.Subject, keep time.Duration, terms string) bson.D {
	d := bson.D{
		{Key: "_id", Value: key.String()}, {Key: fieldSettled, Value: int64(0)}, {Key: fieldOutstanding, Value: int64(0)}, {Key: fieldHolders, Value: bson.D{}},
		{Key: fieldOpen, Value: bson.A{}}, {Key: fieldClosed, Value: bson.A{}}, {Key: fieldCloses, Value: int64(0)}, {Key: fieldGeneration, Value: int64(0)},
		{Key: fieldNext, Value: never}, {Key: fieldTerms, Value: terms},
	}
	if began, ends := beginning(key.Period); ends {
		d = append(d, bson.E{Key: fieldGone, Value: began.Add(keep)})
	}
	return d
}

// beginning is when a period began; false for a subject that does not end.
func beginning(period string) (time.Time, bool) {
	if month, err := time.Parse("2006-01", period); err == nil {
		return month, true
	}
	if day, err := time.Parse(time.DateOnly, period); err == nil {
		return day, true
	}
	if unix, err := strconv.ParseInt(period, 10, 64); err == nil && unix > 0 && unix < never.Unix() {
		return time.Unix(unix, 0).UTC(), true
	}
	return time.Time{}, false
}

// holderKey makes a holder's name the key of a document: without what a path of an
// update gives a meaning to.
func holderKey(holder holdfast.Identity) string { return escapes.Replace(holder.String()) }

var (
	escapes   = strings.NewReplacer("%", "%25", ".", "%2E", "$", "%24", "\x00", "%00")
	unescapes = strings.NewReplacer("%25", "%", "%2E", ".", "%24", "$", "%00", "\x00")
)

// shortened is the id without the subject that stands in its middle: what tells the
// entries of one document apart.
func shortened(id holdfast.AllocationID, key holdfast.Subject) string {
	return strings.Replace(string(id), middle(key), "", 1)
}

// middle is what the ids of a subject have in their middle.
func middle(key holdfast.Subject) string {
	return string(holdfast.NewAllocationID("", key, 0))
}

// tally is a subject's counters.
type tally struct {
	settled, outstanding int64
	holders              []capacityledger.Holding
}

// add changes what a holder has outstanding, and the total with it.
func (t *tally) add(holder holdfast.Identity, outstanding int64) {
	t.outstanding += outstanding
	for n := range t.holders {
		if t.holders[n].Holder == holder {
			t.holders[n].Outstanding += outstanding
			return
		}
	}
	t.holders = append(t.holders, capacityledger.Holding{Holder: holder, Outstanding: outstanding})
}

func (t *tally) clone() tally {
	return tally{t.settled, t.outstanding, slices.Clone(t.holders)}
}

// balance is the tally as a refusal shows it.
func (t *tally) balance(key holdfast.Subject) capacityledger.Balance {
	holders := slices.DeleteFunc(slices.Clone(t.holders), func(h capacityledger.Holding) bool { return h.Settled == 0 && h.Outstanding == 0 })
	slices.SortFunc(holders, func(a, b capacityledger.Holding) int { return cmp.Compare(a.Holder.String(), b.Holder.String()) })
	return capacityledger.Balance{Subject: key, Settled: t.settled, Outstanding: t.outstanding, Holders: holders}
}

func (t *tally) post() capacityledger.PostAdmit {
	return capacityledger.PostAdmit{Settled: t.settled, Outstanding: t.outstanding, Holders: t.holders}
}

// counting collects changes of counters for one write.
type counting struct {
	settled, outstanding int64
	holders              map[holdfast.Identity][2]int64
}

func (c *counting) move(holder holdfast.Identity, settled, outstanding int64) {
	c.settled += settled
	c.outstanding += outstanding
	if c.holders == nil {
		c.holders = map[holdfast.Identity][2]int64{}
	}
	before := c.holders[holder]
	c.holders[holder] = [2]int64{before[0] + settled, before[1] + outstanding}
}

// inc is the operand of $inc, with further counters behind.
func (c *counting) inc(more ...bson.E) bson.D {
	d := bson.D{{Key: fieldOutstanding, Value: c.outstanding}}
	if c.settled != 0 {
		d = append(d, bson.E{Key: fieldSettled, Value: c.settled})
	}
	for holder, moved := range c.holders {
		path := fieldHolders + "." + holderKey(holder) + "."
		if moved[0] != 0 {
			d = append(d, bson.E{Key: path + fieldSettled, Value: moved[0]})
		}
		if moved[1] != 0 {
			d = append(d, bson.E{Key: path + fieldOutstanding, Value: moved[1]})
		}
	}
	return append(d, more...)
}
