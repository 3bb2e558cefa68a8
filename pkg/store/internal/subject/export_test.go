package subject

import "github.com/holdfast-io/holdfast"

// Seconds is how many buckets the calendar keeps.
func (c *Calendar) Seconds() int { return len(c.seconds) }

// Damage makes the counters differ from the entries, as only a bug could.
func (r *Record) Damage(holder holdfast.Identity, total, held int64) {
	r.outstanding += total
	r.move(holder, 0, held)
	r.outstanding -= held
}
