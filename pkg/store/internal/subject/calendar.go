package subject

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// Calendar has the open entries of many records by the second in which they expire.
// Its cost is that of what is open; closes leave nothing behind. A nil Calendar
// keeps nothing. It shares the lock of its records.
type Calendar struct {
	seconds []int64 // sorted; the keys of buckets
	buckets map[int64]*bucket
	empty   int
}

// bucket has the entries of one second, in no order.
type bucket struct{ entries []*entry }

// NewCalendar is an empty calendar.
func NewCalendar() *Calendar { return &Calendar{buckets: map[int64]*bucket{}} }

// Due lists the entries that expire at or before now, by (expiry, id), after the
// cursor, at most limit.
func (c *Calendar) Due(now time.Time, after capacityledger.Cursor, limit int) []capacityledger.Allocation {
	if limit <= 0 {
		return nil
	}
	from := 0
	if !after.Expires.IsZero() {
		from, _ = slices.BinarySearch(c.seconds, after.Expires.Unix())
	}
	var out []capacityledger.Allocation
	for _, second := range c.seconds[from:] {
		if second > now.Unix() || len(out) >= limit {
			break
		}
		out = append(out, c.buckets[second].due(now, after, limit-len(out))...)
	}
	return out
}

// due lists the bucket's part; all of it is in one second.
func (b *bucket) due(now time.Time, after capacityledger.Cursor, limit int) []capacityledger.Allocation {
	var found []*entry
	for _, e := range b.entries {
		if !e.ExpiresAt.After(now) && behind(e, after) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(x, y *entry) int {
		return cmp.Or(x.ExpiresAt.Compare(y.ExpiresAt), cmp.Compare(x.ID, y.ID))
	})
	out := make([]capacityledger.Allocation, 0, min(limit, len(found)))
	for _, e := range found[:min(limit, len(found))] {
		out = append(out, e.shown())
	}
	return out
}

// behind says whether the entry comes after the cursor.
func behind(e *entry, after capacityledger.Cursor) bool {
	if after.Expires.IsZero() && after.ID == "" {
		return true
	}
	return cmp.Or(e.ExpiresAt.Compare(after.Expires), cmp.Compare(e.ID, after.ID)) > 0
}

func (c *Calendar) add(e *entry) {
	if c == nil {
		return
	}
	second := e.ExpiresAt.Unix()
	b := c.buckets[second]
	if b == nil {
		b = c.open(second)
	} else if len(b.entries) == 0 {
		c.empty--
	}
	e.bucket, e.slot = b, len(b.entries)
	b.entries = append(b.entries, e)
}

func (c *Calendar) remove(e *entry) {
	b := e.bucket
	if c == nil || b == nil {
		return
	}
	last := len(b.entries) - 1
	moved := b.entries[last]
	b.entries[e.slot], moved.slot = moved, e.slot
	b.entries[last] = nil
	b.entries = b.entries[:last]
	e.bucket = nil
	if last == 0 {
		c.empty++
	}
}

// open makes a second's bucket. Emptied ones are kept for a while, because the next
// entry of the same second comes at once; here they go when they are the most.
func (c *Calendar) open(second int64) *bucket {
	if c.empty > 16+len(c.seconds)/2 {
		c.seconds = slices.DeleteFunc(c.seconds, func(s int64) bool {
			if len(c.buckets[s].entries) > 0 {
				return false
			}
			delete(c.buckets, s)
			return true
		})
		c.empty = 0
	}
	b := &bucket{}
	c.buckets[second] = b
	at, _ := slices.BinarySearch(c.seconds, second)
	c.seconds = slices.Insert(c.seconds, at, second)
	return b
}
