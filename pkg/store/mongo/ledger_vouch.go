package mongo

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// This file has a process vouch for what it granted. A grant is one write, and what
// that write left looks to everybody else like an ask that may still be taken back.
// Soon after it the process writes the entry once more, which says that it was
// granted; unless by then its run renewed it or it was closed, which is how most
// short ones end. Nobody waits for this write and many entries share one. While it
// fails the entries are what they would be without it: undecided for others until their
// runs renew them.
//
// So an entry that stays undecided belongs to a process that died between its write
// and the next moment, and what others may think of it need not be generous.

// grants takes over an entry that this process granted, as it is in the record.
func (n *lane) grants(e *entry) {
	n.known[e.ID] = e
	if n.ledger.options.VouchAfter <= 0 || e.touched() {
		return
	}
	if n.unvouched.Add(1) == 1 {
		n.granting, n.ripening = nil, nil // what is in them has been touched or closed
	}
	n.granting = append(n.granting, e)
	n.arm()
}

// leaves is told of an entry that this process changes: nobody needs to vouch for it.
func (n *lane) leaves(e *entry) {
	if n.known[e.ID] == e && !e.touched() {
		n.unvouched.Add(-1)
	}
}

// arm sees that the lane vouches in a while. What is granted in one half of
// Options.VouchAfter is vouched for at the end of the next one, if it is still there: so a
// busy subject does not write over what is closed a moment later.
func (n *lane) arm() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.armed {
		n.armed = true
		time.AfterFunc(n.ledger.options.VouchAfter/2, n.vouchSoon)
	}
}

// vouchSoon has the lane vouch for what it granted, between its other work.
func (n *lane) vouchSoon() {
	n.ledger.mu.Lock()
	defer n.ledger.mu.Unlock()
	if n.ledger.stopped {
		return // stop does it
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.armed = false
	if n.unvouched.Load() <= 0 {
		return
	}
	n.vouching = true
	if !n.running {
		n.running = true
		n.ledger.working.Add(1)
		go n.work()
	}
}

// vouch writes the entries that have waited for it and that nobody has touched since.
func (n *lane) vouch(base context.Context) {
	ctx, cancel := n.context(base)
	defer cancel()
	var list []replacement
	for _, e := range n.ripening {
		if n.known[e.ID] == e {
			after := *e
			after.stamp = n.ledger.stamp()
			list = append(list, replacement{e, &after})
		}
	}
	n.ripening, n.granting = n.granting, nil
	n.unvouched.Store(int64(len(n.ripening)))
	if len(n.ripening) > 0 {
		n.arm()
	}
	for some := range slices.Chunk(list, mostTogether) {
		if n.vouchFor(ctx, some) != nil { // it is tried again with what is granted next
			for _, r := range some {
				n.ripening = append(n.ripening, r.before)
			}
			n.unvouched.Store(int64(len(n.ripening)))
		}
	}
}

// vouchFor writes some of them in one write. Where another process has closed one
// meanwhile it is made again without that one.
func (n *lane) vouchFor(ctx context.Context, list []replacement) error {
	for range 3 {
		if len(list) == 0 {
			return nil
		}
		ok, err := n.replace(ctx, time.Time{}, list, nil)
		if err != nil {
			return err
		}
		if ok {
			for _, r := range list {
				n.known[r.after.ID] = r.after
			}
			return nil
		}
		i, err := n.ledger.read(ctx, n.reader, bson.D{{Key: fieldClosed, Value: 0}})
		if err != nil || i == nil {
			return err
		}
		there := make(map[string]bool, len(i.open))
		for at := range i.open {
			there[i.open[at].stamp] = true
		}
		list = slices.DeleteFunc(slices.Clone(list), func(r replacement) bool { return !there[r.before.stamp] })
	}
	return nil
}

// vouchAll is for a store that is closing: what it granted last is vouched for, so
// that nothing stays undecided because of an orderly end. All lanes have the time of one
// operation for it, so that a server that is away does not hold up the end.
func (l *Ledger) vouchAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), l.options.Timeout)
	defer cancel()
	for _, n := range l.lanes {
		n.vouch(ctx)
		n.vouch(ctx)
	}
}
