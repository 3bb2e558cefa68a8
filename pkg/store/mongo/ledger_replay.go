package mongo

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/store/internal/subject"
)

// This file answers tries whose id is known already, and writes what follows from a
// batch's judgement.

// replayed answers a try from the entry that its id has already.
func (t *try) replayed(e *entry) {
	r := subject.New(t.Subject, nil)
	r.Put(e.Allocation)
	t.fate, t.answer.Admission = fateAnswered, r.Admit(t.job.now, t.ask, t.job.judge, nil)
}

// again takes a try back to make it once more: at once, or after a pause.
func (t *try) again(atOnce bool) {
	t.fate, *t.answer = fateAgain, answer{open: true, atOnce: atOnce}
	t.answer.Err = unavailable(errUndecided)
}

// replay answers a try whose id has an open entry already. Where nobody can say yet
// whether that entry was granted, its own asker decides it within moments: the try is
// made again until then. One that stays undecided belongs to a process that died before
// it had judged the entry or vouched for it, or that cannot write:
//
// It fits as it was asked, beside all that counts now. Then it may be granted, whether
// or not it was.
//
// It does not fit as it was asked, though everything else is decided, for good and not in
// this very write, and nothing shook the subject. Then it was not granted so: whatever
// was granted later was granted beside it. It may be granted the part that fits.
//
// Everything else stays undecided, until its run renews it or its time is over: also
// what was asked before the subject was shaken, because nothing can be said of what
// it met.
func (n *lane) replay(ctx context.Context, b *bench, t *try, e *entry) error {
	switch {
	case n.granted(e) || e.touched(): // that there was nothing to judge does not tell: it may be a replay itself
		t.replayed(e)
		return nil
	case n.lost[e.stamp] || b.doubt.isRefused(e): // it was granted to nobody
		t.again(true)
		_, err := n.remove(ctx, []*entry{e})
		return err
	}
	t.again(false)
	t.answer.behind = e.stamp
	if t.job.stayed[t.at] != e.stamp {
		return nil
	}
	switch fits := b.fits(e); {
	case fits == e.Amount.Int():
		return n.adopt(ctx, b, t, e, e.Amount)
	case fits > 0 && b.doubt.counted == 1 && b.doubt.passing == 0 && len(b.granted) == 0 && !e.AcquiredAt.Before(b.doubt.calm):
		return n.adopt(ctx, b, t, e, holdfast.AmountOf(e.Amount.Unit(), fits))
	}
	return nil
}

// fits is what an open entry would get if it were asked now, beside everything else
// that counts.
func (b *bench) fits(e *entry) int64 {
	ask, err := e.asked()
	if err != nil { // it was not made by this build
		return 0
	}
	verdict := b.doubt.judge(b.state.post(), ask)
	if verdict.Refused {
		return 0
	}
	return verdict.Allowance
}

// errUndecided is what an ask is told whose id has an entry of which nobody can say
// whether it was granted.
var errUndecided = errors.New("the same ask is being decided elsewhere")

// adopt answers a try from an entry that its asker has left undecided, and marks the
// entry as granted; unless somebody was faster. Where its asker would have marked the
// subject as shaken before it told anybody, and may have died in between, that is done
// first.
func (n *lane) adopt(ctx context.Context, b *bench, t *try, e *entry, amount holdfast.Amount) error {
	if e.unjudged || e.terms() != b.terms {
		shaken := bson.D{{Key: "$max", Value: bson.D{{Key: fieldShaken, Value: t.job.now}}}}
		if _, err := n.update(ctx, bson.D{{Key: "_id", Value: n.key.String()}}, shaken); err != nil {
			return err
		}
	}
	marked := *e
	marked.Amount, marked.stamp = amount, n.ledger.stamp()
	ok, err := n.replace(ctx, t.job.now, []replacement{{e, &marked}}, nil)
	if err != nil || !ok { // not ok: it was decided at this moment
		t.answer.atOnce = true
		return err
	}
	n.known[marked.ID] = &marked
	*t.answer = answer{}
	t.replayed(&marked)
	return nil
}

// lower writes the allowances that are smaller than what was asked. That one of the
// entries was touched by somebody else in between cannot be meant: nobody knows its
// id but who asks.
func (n *lane) lower(ctx context.Context, tries []*try) error {
	var list []replacement
	for _, t := range tries {
		if t.fate != fateLowered {
			continue
		}
		before, after := t.entry, t.entry
		before.Amount = before.Requested
		after.stamp = n.ledger.stamp()
		list = append(list, replacement{&before, &after})
	}
	if len(list) == 0 {
		return nil
	}
	ok, err := n.replace(ctx, tries[0].job.now, list, nil)
	switch {
	case err != nil:
		return err
	case !ok:
		return unavailable(errUndecided)
	}
	for _, r := range list {
		n.grants(r.after)
	}
	return nil
}

// mirror takes back what was not granted: the entries and what they counted, in one
// write. What is no longer as it was pushed has been decided by somebody else.
func (n *lane) mirror(ctx context.Context, tries []*try) error {
	var gone []*entry
	by := map[string]*try{}
	for _, t := range tries {
		if t.fate == fateAnswered || t.fate == fateRefused || t.fate == fateAgain {
			for range t.copies {
				gone = append(gone, &t.entry)
			}
			by[t.stamp] = t
		}
	}
	for range 10 {
		if len(gone) == 0 {
			return nil
		}
		ok, err := n.remove(ctx, gone)
		if err != nil || ok {
			return err
		}
		i, err := n.ledger.read(ctx, n.reader, bson.D{{Key: fieldClosed, Value: 0}})
		if err != nil {
			return err
		}
		gone = nil
		if i == nil {
			return nil
		}
		for at := range i.open {
			e := &i.open[at]
			t := by[e.Nonce]
			switch {
			case t == nil:
			case e.stamp == t.stamp:
				gone = append(gone, e)
			default: // somebody else knows it as granted
				t.replayed(e)
				t.answer.open, t.answer.atOnce, t.answer.behind = false, false, ""
			}
		}
	}
	return unavailable(errors.New("the subject's record changes too fast"))
}

// clean takes back what the image shows of tries whose fate was unknown. It is tried
// once: what stays expires.
func (n *lane) clean(ctx context.Context, i *image) {
	if len(n.lost) == 0 {
		return
	}
	var gone []*entry
	for at := range i.open {
		if e := &i.open[at]; n.lost[e.stamp] {
			delete(n.lost, e.stamp)
			gone = append(gone, e)
		}
	}
	if len(gone) > 0 {
		_, _ = n.remove(ctx, gone)
	}
}
