package mongo

import (
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// This file says what an ask may think of the entries of other processes that are
// not decided yet: each was granted, or is about to be taken back, and only its own
// asker knows. To count them all would never admit too much, and would refuse for
// nothing while others are being refused. Three things are certain:
//
// The order of the entries is the order of the asks. An entry was judged on a state
// that had every certain entry before it, with no less than these hold now: what
// closes or is lowered only makes room, and what a holder has is no longer withheld
// for it. What entries behind it have settled since was granted beside it, on the same
// terms. So an entry that does not fit now, beside the certain ones before it alone,
// did not fit then. It was refused and does not count.
//
// Of several undecided entries that were judged by the same terms, together not more
// were granted than fits beside the certain ones before them: the last one granted was
// judged on a state that had the others. What they ask beyond that does not count.
//
// Three things break the first sentence: a report beyond what was granted, an entry
// that was recorded unjudged, and asks on other terms. They mark the subject as shaken:
// entries that were asked before, and until a launch lease after (clocks differ), are
// counted whatever they look like.
//
// Who renews, reports on or closes an allocation was told that it was granted; an
// undecided entry that is touched is decided by that.

// doubt is what is known of the undecided entries of others in one image.
type doubt struct {
	refused []*entry // were refused for certain
	flying  []*entry // count, and their asker may still take them back
	counted int      // how many undecided ones count, those in flight among them
	// passing is how many entries of others there was nothing to judge about, and which
	// nobody has touched since. Everybody counts them, but nothing follows from them for
	// others: one may be a replay, which those of its own write were judged without, or
	// from a process that has not marked the subject as shaken yet.
	passing int
	// excess is what of the counted ones cannot have been granted, by the terms that
	// they were judged by; it holds for an ask under the same terms.
	excess map[string][]share

	judge capacityledger.JudgeFunc
	calm  time.Time // entries acquired before it are counted as they are
	now   time.Time
}

// share is a part of what a holder has.
type share struct {
	holder holdfast.Identity
	amount int64
}

// class is the undecided entries of one kind of asker under the same terms.
type class struct {
	members []*entry
	sum     int64
	room    int64 // the most that fits beside the certain ones before a member
}

// doubts looks at the entries that were there before the batch.
func (n *lane) doubts(i *image, older []*entry, job *askJob) doubt {
	d := doubt{judge: job.judge, now: job.now}
	undecided := false
	for _, e := range older {
		undecided = undecided || !(e.decided() || n.granted(e))
	}
	if !undecided {
		return d
	}
	if !i.shaken.IsZero() {
		d.calm = i.shaken.Add(n.ledger.options.LaunchLease)
	}
	certain := certainBase(i, n.key.Axis)
	classes := map[string]*class{}
	var order []string
	for _, e := range older {
		if e.touched() || n.granted(e) {
			certain.add(e.Holder, e.Outstanding().Int())
			continue
		}
		if e.decided() {
			d.passing++
			continue
		}
		if e.AcquiredAt.Before(d.calm) {
			d.fly(n, e)
			continue
		}
		verdict := d.judged(certain, e)
		if verdict.Refused {
			d.refused = append(d.refused, e)
			continue
		}
		d.fly(n, e)
		key := termsKey(e.Cap, e.reserved) + kind(e)
		c := classes[key]
		if c == nil {
			c = &class{}
			classes[key] = c
			order = append(order, key)
		}
		c.members = append(c.members, e)
		c.sum += e.Outstanding().Int()
		c.room = max(c.room, verdict.Remaining)
	}
	for _, key := range order {
		d.exceed(classes[key])
	}
	return d
}

// certainBase is the counters without any open entry: what an entry is judged beside,
// before the certain entries are added. On axes where what is settled does not count
// as held it does here, because it was held before: in doubt there is more room.
func certainBase(i *image, axis holdfast.Axis) tally {
	base := tally{settled: i.settled}
	for _, h := range i.holders {
		held := capacityledger.Holding{Holder: h.Holder, Settled: h.Settled}
		if axis != holdfast.AxisUSD {
			held.Outstanding = h.Settled
		}
		base.holders = append(base.holders, held)
	}
	return base
}

// fly notes an undecided entry. One that this process has seen for longer than any
// asker takes has stayed, so it was granted.
func (d *doubt) fly(n *lane, e *entry) {
	d.counted++
	first, ok := n.seen[e.stamp]
	if !ok {
		first = d.now
		n.seen[e.stamp] = first
	}
	if d.now.Sub(first) < n.ledger.options.AskAgainFor {
		d.flying = append(d.flying, e)
	}
}

// judged judges an entry again, beside what the tally has.
func (d *doubt) judged(beside tally, e *entry) capacityledger.Verdict {
	ask, err := e.asked()
	if err != nil { // it was not made by this build
		return capacityledger.Verdict{Allowance: e.Amount.Int()}
	}
	beside = beside.clone()
	beside.add(e.Holder, ask.Requested.Int())
	return d.judge(beside.post(), ask)
}

// asked is the ask that the entry was made of.
func (e *entry) asked() (capacityledger.Ask, error) {
	return capacityledger.Ask{
		ID: e.ID, Run: e.Run, Holder: e.Holder, Requested: e.Requested, Minimum: e.Minimum, Expires: e.ExpiresAt, Unjudged: e.unjudged,
		Terms: capacityledger.Terms{Cap: e.Cap, Reserved: e.reserved},
	}.Checked()
}

// exceed notes what a class asks beyond its room, the latest first.
func (d *doubt) exceed(c *class) {
	beyond := c.sum - max(0, c.room)
	if beyond <= 0 {
		return
	}
	key := termsKey(c.members[0].Cap, c.members[0].reserved)
	if d.excess == nil {
		d.excess = map[string][]share{}
	}
	for at := len(c.members) - 1; at >= 0 && beyond > 0; at-- {
		part := min(beyond, c.members[at].Outstanding().Int())
		d.excess[key] = append(d.excess[key], share{c.members[at].Holder, part})
		beyond -= part
	}
}

// isRefused says whether the entry was refused for certain.
func (d *doubt) isRefused(e *entry) bool {
	for _, r := range d.refused {
		if r.stamp == e.stamp {
			return true
		}
	}
	return false
}

// kind tells askers apart that the same terms treat differently: each holder with a
// reservation is one, all others are one together.
func kind(e *entry) string {
	for _, r := range e.reserved {
		if r.Holder == e.Holder {
			return "\x00" + e.Holder.String()
		}
	}
	return ""
}

// terms names the terms that an entry was asked on, while nobody has touched it.
func (e *entry) terms() string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(termsKey(e.Cap, e.reserved)))
	return strconv.FormatUint(h.Sum64(), 36)
}

// termsKey is the same for the same terms.
func termsKey(limit holdfast.Limit, reserved []capacityledger.Reserved) string {
	if limit.None() {
		return "none"
	}
	var b strings.Builder
	b.WriteString(strconv.FormatInt(limit.Max().Int(), 10))
	for _, r := range reserved {
		b.WriteByte('|')
		b.WriteString(r.Holder.String())
		b.WriteByte('=')
		b.WriteString(strconv.FormatInt(r.Amount.Int(), 10))
	}
	return b.String()
}
