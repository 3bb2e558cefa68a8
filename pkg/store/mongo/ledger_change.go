package mongo

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/store/internal/subject"
)

// change is one moving or closing, with its answer.
type change struct {
	id      holdfast.AllocationID
	moving  *capacityledger.Moving
	closing *capacityledger.Closing

	now        time.Time
	done       bool
	closed     bool
	allocation capacityledger.Allocation
	err        error
}

// apply changes the record and notes the answer.
func (c *change) apply(r *subject.Record) {
	if c.moving != nil {
		moved := r.Move(c.moving, nil)
		c.allocation, c.err = moved.Allocation, moved.Err
		return
	}
	closed := r.Close(c.now, c.closing, nil)
	c.closed, c.allocation, c.err = closed.Closed, closed.Allocation, closed.Err
}

// replacement is an entry as it was read, and as it shall be.
type replacement struct{ before, after *entry }

// change makes the changes of several calls. Each is worked out on the entry as it
// was last known, by the rules that all twins share, and written on the condition that
// the entry is still that; where it is not, it is read and worked out again.
func (n *lane) change(base context.Context, jobs []*changeJob) {
	ctx, cancel := n.context(base)
	defer cancel()
	var todo []*change
	for _, job := range jobs {
		for _, c := range job.changes {
			c.now = job.now
			todo = append(todo, c)
		}
	}
	err := n.makeChanges(ctx, todo)
	for _, job := range jobs {
		done := true
		for _, c := range job.changes {
			done = done && c.done
		}
		if done {
			job.finish(nil)
		} else {
			job.finish(err)
		}
	}
	if err == nil {
		// What is not moved now is moved by a later close or by the housekeeping.
		_ = n.archiveOwn(ctx, todo[0].now)
	}
}

// attempts bounds how often a change is worked out anew because its entry was changed
// by somebody else in between.
const attempts = 50

func (n *lane) makeChanges(ctx context.Context, todo []*change) error {
	wrote := map[holdfast.AllocationID]string{}
	for attempt := range attempts {
		var left []*change
		for _, c := range todo {
			if !c.done {
				left = append(left, c)
			}
		}
		if len(left) == 0 {
			return nil
		}
		if n.closes >= subject.RecentMost {
			if err := n.archiveOwn(ctx, left[0].now); err != nil {
				return err
			}
		}
		p, err := n.plan(ctx, left, wrote, attempt > 0)
		if err != nil {
			return err
		}
		if err := n.execute(ctx, p, wrote); err != nil {
			return err
		}
	}
	return unavailable(fmt.Errorf("an entry of %s changes too fast", n.key))
}

// plan is what a set of changes comes to.
type plan struct {
	now      time.Time
	changes  map[holdfast.AllocationID][]*change
	opens    []replacement // open entries that stay open
	closes   []replacement // open entries that are closed
	late     []replacement // recent closes that take a report
	archived []*entry      // closes of the history that take one: they come back first
	from     *image        // what was read for it; nil when all was remembered
	shared   string        // what the stamps of its closes begin with
}

// plan works the changes out. Those that change nothing are done with it.
func (n *lane) plan(ctx context.Context, todo []*change, wrote map[holdfast.AllocationID]string, fresh bool) (*plan, error) {
	p := &plan{changes: map[holdfast.AllocationID][]*change{}}
	var ids []holdfast.AllocationID
	for _, c := range todo {
		if p.changes[c.id] == nil {
			ids = append(ids, c.id)
		}
		p.changes[c.id] = append(p.changes[c.id], c)
		if c.now.After(p.now) {
			p.now = c.now
		}
	}
	found, archived, err := n.entries(ctx, p, ids, fresh)
	if err != nil {
		return nil, err
	}
	r := subject.New(n.key, nil)
	for _, id := range ids {
		e := found[id]
		if e != nil && e.stamp == wrote[id] { // the write arrived, its answer did not
			p.finish(id)
			continue
		}
		n.workOut(p, r, id, e, archived[id])
	}
	return p, nil
}

// shutStamp is the stamp of the next close: what all closes of one write share, and a
// number. No other entry's stamp begins so.
func (p *plan) shutStamp(l *Ledger) string {
	if p.shared == "" {
		p.shared = l.stamp() + "."
	}
	return p.shared + strconv.Itoa(len(p.closes))
}

// finish says that the changes of an id are as they were worked out last.
func (p *plan) finish(id holdfast.AllocationID) {
	for _, c := range p.changes[id] {
		c.done = true
	}
}

// workOut works out the changes of one entry, in a record that has it. That they change
// nothing is known only of an entry that was read: what this process remembers may be
// old, and only a write's condition would tell.
func (n *lane) workOut(p *plan, r *subject.Record, id holdfast.AllocationID, e *entry, archived bool) {
	r.Restore(n.counted.settled, n.counted.outstanding, nil)
	if e != nil {
		r.Put(e.Allocation)
	}
	for _, c := range p.changes[id] {
		c.closed, c.allocation, c.err = false, capacityledger.Allocation{}, nil
		c.apply(r)
	}
	now, _ := r.Get(id)
	if e == nil || same(&e.Allocation, &now) {
		if p.from != nil {
			p.finish(id)
		}
		return
	}
	after := *e
	after.Allocation, after.stamp = now, n.ledger.stamp()
	switch change := (replacement{e, &after}); {
	case archived:
		p.archived = append(p.archived, e)
	case e.Outcome != capacityledger.Open:
		p.late = append(p.late, change)
	case now.Outcome != capacityledger.Open:
		after.stamp = p.shutStamp(n.ledger)
		p.closes = append(p.closes, change)
	default:
		p.opens = append(p.opens, change)
	}
}

// same says whether nothing of an allocation changed; what it was asked for never does.
func same(a, b *capacityledger.Allocation) bool {
	return a.Outcome == b.Outcome && a.Amount == b.Amount && a.Spent == b.Spent && a.ExpiresAt.Equal(b.ExpiresAt) &&
		a.Confirmed == b.Confirmed && a.Attempt == b.Attempt && a.Sequence == b.Sequence
}

// standing is what an id stands for in an image: its close, else its first open entry.
// The history has to be asked where neither is there, and where the open entry may be
// a try of an id that was closed before, which its asker is about to take back.
func (i *image) standing(id holdfast.AllocationID) (e *entry, askHistory bool) {
	if e := i.hasClosed(id); e != nil {
		return e, false
	}
	e = i.has(id)
	return e, e == nil || !e.touched() && string(id) <= i.top
}

// entries finds the entries of these ids: as this process left them when it was the
// last to touch them all, else as the record has them, else as the history has them.
func (n *lane) entries(ctx context.Context, p *plan, ids []holdfast.AllocationID, fresh bool) (found map[holdfast.AllocationID]*entry, archived map[holdfast.AllocationID]bool, err error) {
	found, archived = make(map[holdfast.AllocationID]*entry, len(ids)), map[holdfast.AllocationID]bool{}
	for _, id := range ids {
		if e := n.known[id]; e != nil && !fresh {
			found[id] = e
		}
	}
	if len(found) == len(ids) {
		return found, archived, nil
	}
	clear(found)
	i, err := n.ledger.readEntries(ctx, n.reader, ids)
	if err != nil {
		return nil, nil, err
	}
	if i == nil {
		i = &image{}
		n.created = false
	}
	n.counted.settled, n.counted.outstanding, n.closes, p.from = i.settled, i.outstanding, i.closes, i
	var missing []holdfast.AllocationID
	for _, id := range ids {
		delete(n.known, id)
		e, look := i.standing(id)
		if found[id] = e; look {
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return found, archived, nil
	}
	old, err := n.ledger.lookup(ctx, n.reader, missing)
	for at := range old {
		found[old[at].ID], archived[old[at].ID] = &old[at], true
	}
	return found, archived, err
}

// execute writes a plan: first what stays where it is, then what is closed. A write
// whose condition fails leaves its changes to the next attempt.
func (n *lane) execute(ctx context.Context, p *plan, wrote map[holdfast.AllocationID]string) error {
	if len(p.archived) > 0 {
		if err := n.recall(ctx, p.from, p.archived); err != nil {
			return err
		}
	}
	for _, list := range [][]replacement{p.opens, p.late, p.closes} {
		for _, r := range list {
			wrote[r.before.ID] = r.after.stamp
		}
	}
	if len(p.opens)+len(p.late) > 0 {
		ok, err := n.replace(ctx, p.now, p.opens, p.late)
		if err != nil {
			return err
		}
		if ok {
			n.took(p, p.opens)
			n.took(p, p.late)
		}
	}
	if len(p.closes) > 0 {
		ok, err := n.shut(ctx, p.now, p.closes)
		if err != nil {
			return err
		}
		if ok {
			n.took(p, p.closes)
			n.closes += int64(len(p.closes))
			for _, r := range p.closes {
				n.shutBy.list = append(n.shutBy.list, r.after)
			}
		}
	}
	return nil
}

// took takes over what was written.
func (n *lane) took(p *plan, list []replacement) {
	for _, r := range list {
		n.leaves(r.before)
		p.finish(r.after.ID)
		if r.after.Outcome == capacityledger.Open {
			n.known[r.after.ID] = r.after
		} else {
			delete(n.known, r.after.ID)
		}
	}
}

// replace writes entries over what they were, if all of them still are that.
func (n *lane) replace(ctx context.Context, now time.Time, opens, late []replacement) (bool, error) {
	var moved counting
	still := bson.A{}
	set := make(bson.D, 0, len(opens)+len(late))
	var which []any
	var earliest time.Time
	raised := false
	for kind, list := range [][]replacement{opens, late} {
		array, letter := fieldOpen, "o"
		if kind == 1 {
			array, letter = fieldClosed, "c"
		}
		stamps := make(bson.A, 0, len(list))
		for at, r := range list {
			name := fmt.Sprintf("%s%d", letter, at)
			stamps = append(stamps, r.before.stamp)
			set = append(set, bson.E{Key: fmt.Sprintf("%s.$[%s]", array, name), Value: r.after.document()})
			which = append(which, bson.D{{Key: name + ".k", Value: r.before.stamp}})
			raised = moved.replace(r) || raised
			if x := r.after.ExpiresAt; kind == 0 && x.Before(r.before.ExpiresAt) && (earliest.IsZero() || x.Before(earliest)) {
				earliest = x
			}
		}
		if len(list) > 0 {
			still = append(still, stillIn(array, stamps))
		}
	}
	filter := bson.D{{Key: "_id", Value: n.key.String()}, {Key: "$expr", Value: bson.D{{Key: "$and", Value: still}}}}
	var more []bson.E
	if len(late) > 0 {
		more = append(more, bson.E{Key: fieldGeneration, Value: int64(1)})
	}
	update := bson.D{{Key: "$set", Value: set}, {Key: "$inc", Value: moved.inc(more...)}}
	if !earliest.IsZero() {
		update = append(update, bson.E{Key: "$min", Value: bson.D{{Key: fieldNext, Value: earliest}}})
	}
	if raised {
		update = append(update, bson.E{Key: "$max", Value: bson.D{{Key: fieldShaken, Value: now}}})
	}
	return n.update(ctx, filter, update, options.UpdateOne().SetArrayFilters(which))
}

// replace counts a replacement; true when it raises the total.
func (c *counting) replace(r replacement) bool {
	settled := r.after.Spent.Int() - r.before.Spent.Int()
	outstanding := r.after.Outstanding().Int() - r.before.Outstanding().Int()
	c.move(r.before.Holder, settled, outstanding)
	return settled+outstanding > 0
}

// shut moves open entries to the closes, if all of them still are what they were, and
// counts what comes back.
func (n *lane) shut(ctx context.Context, now time.Time, list []replacement) (bool, error) {
	var moved counting
	stamps := make(bson.A, 0, len(list))
	raised := false
	var top holdfast.AllocationID
	for _, r := range list {
		stamps = append(stamps, r.before.stamp)
		raised = moved.replace(r) || raised
		top = max(top, r.after.ID)
	}
	highest := bson.D{{Key: fieldTop, Value: string(top)}}
	if raised {
		highest = append(highest, bson.E{Key: fieldShaken, Value: now})
	}
	return n.update(ctx, n.stillOpen(stamps), bson.D{
		{Key: "$pull", Value: pulled(fieldOpen, stamps)},
		{Key: "$push", Value: bson.D{{Key: fieldClosed, Value: bson.D{{Key: "$each", Value: documents(len(list), func(at int) *entry { return list[at].after })}}}}},
		{Key: "$inc", Value: moved.inc(bson.E{Key: fieldCloses, Value: int64(len(list))})},
		{Key: "$max", Value: highest},
	})
}

// remove takes open entries back as if they had never been, if all of them still are
// what they were.
func (n *lane) remove(ctx context.Context, list []*entry) (bool, error) {
	var moved counting
	stamps := make(bson.A, 0, len(list))
	for _, e := range list {
		stamps = append(stamps, e.stamp)
		moved.move(e.Holder, 0, -e.Outstanding().Int())
	}
	return n.update(ctx, n.stillOpen(stamps), bson.D{
		{Key: "$pull", Value: pulled(fieldOpen, stamps)},
		{Key: "$inc", Value: moved.inc()},
	})
}
