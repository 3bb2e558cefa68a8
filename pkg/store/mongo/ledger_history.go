package mongo

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/store/internal/subject"
)

// archiveAt is at how many closes a lane moves them to the history, so that one move
// serves many. It is far less than the [subject.RecentKept] that would be allowed: the
// server writes the whole document at every change, and 200 closes halve the rate of
// a subject. What is asked or told of a close is answered from the history alike.
const archiveAt = 20

// closedBefore finds the closes of ids that are asked. An id above every one that was
// ever closed on the subject needs no look: ids are time-ordered, so that is nearly all.
func (n *lane) closedBefore(ctx context.Context, i *image, tries []*try) (map[holdfast.AllocationID]*entry, error) {
	var ids []holdfast.AllocationID
	for _, t := range tries {
		if string(t.ID) <= i.top {
			ids = append(ids, t.ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil //nolint:nilnil // an empty map is none
	}
	recent, err := n.ledger.read(ctx, n.reader, bson.D{{Key: fieldClosed, Value: among(fieldClosed, "r", shortenedAll(ids, n.key))}})
	if err != nil {
		return nil, err
	}
	found := map[holdfast.AllocationID]*entry{}
	if recent != nil {
		for at := range recent.closed {
			found[recent.closed[at].ID] = &recent.closed[at]
		}
	}
	ids = slices.DeleteFunc(ids, func(id holdfast.AllocationID) bool { return found[id] != nil })
	if len(ids) == 0 {
		return found, nil
	}
	old, err := n.ledger.lookup(ctx, n.reader, ids)
	for at := range old {
		found[old[at].ID] = &old[at]
	}
	return found, err
}

// lookup reads closes of one subject in the history. A close that was brought back and
// moved again is there twice: what says more of its spend is the later one.
func (l *Ledger) lookup(ctx context.Context, r *reader, ids []holdfast.AllocationID) ([]entry, error) {
	ctx, cancel := context.WithTimeout(ctx, l.options.Timeout)
	defer cancel()
	short := shortenedAll(ids, r.key)
	find := options.Find().SetProjection(bson.D{{Key: fieldPage, Value: among(fieldPage, "r", short)}})
	pages, err := all[bson.Raw](ctx)(l.history.Find(ctx, bson.D{{Key: fieldIDs, Value: bson.D{{Key: "$in", Value: short}}}, {Key: fieldOf, Value: r.key.String()}}, find))
	if err != nil {
		return nil, unavailable(err)
	}
	var out []entry
	at := map[holdfast.AllocationID]int{}
	for _, page := range pages {
		entries, err := r.entries(page.Lookup(fieldPage))
		if err != nil {
			return nil, r.damaged("history", err)
		}
		for _, e := range entries {
			n, twice := at[e.ID]
			switch {
			case !twice:
				at[e.ID] = len(out)
				out = append(out, e)
			case e.Spent.Int() > out[n].Spent.Int():
				out[n] = e
			}
		}
	}
	return out, nil
}

// shutting has the closes that a lane made and nobody has moved yet: they are copied
// without being read again and while the lane goes on, and taken out of the record by
// the next write that records asks.
type shutting struct {
	list    []*entry
	copying *copying
	copied  []*entry
}

// copying is closes on their way to the history.
type copying struct {
	list []*entry
	done chan struct{}
	err  error
}

// collect takes over what has been copied. What failed stays in the record until
// somebody moves it.
func (s *shutting) collect(wait bool) {
	c := s.copying
	if c == nil {
		return
	}
	if !wait {
		select {
		case <-c.done:
		default:
			return
		}
	}
	<-c.done
	if c.err == nil {
		s.copied = append(s.copied, c.list...)
	}
	s.copying = nil
}

// archiveOwn sees that closes go to the history when there are enough of them: the
// lane's own beside its work, all of them at once when they are very many.
func (n *lane) archiveOwn(ctx context.Context, now time.Time) error {
	s := &n.shutBy
	if n.closes >= subject.RecentMost {
		s.collect(true)
		s.list, s.copied, n.closes = nil, nil, 0 // the next image says how many there are
		_, err := n.ledger.archive(ctx, n.reader, now, subject.RecentMost)
		return err
	}
	s.collect(false)
	if len(s.copied) >= 16*archiveAt { // nobody asks, so nothing takes them out
		out := s.copied
		s.copied = nil
		n.closes -= int64(len(out))
		return n.ledger.takeOut(ctx, n.key, takingOutWhole(out), len(out), 0)
	}
	if s.copying != nil || len(s.list) < archiveAt {
		return nil
	}
	c := &copying{list: s.list, done: make(chan struct{})}
	s.list, s.copying = nil, c
	n.ledger.working.Go(func() {
		defer close(c.done)
		ctx, cancel := n.context(context.Background())
		defer cancel()
		c.err = n.ledger.copyToHistory(ctx, c.list)
	})
	return nil
}

// archive moves closes that are old, or in excess, to the history: it copies them
// first and takes them out of the record then. A close is never in neither place.
func (l *Ledger) archive(ctx context.Context, r *reader, now time.Time, limit int) (int, error) {
	i, err := l.read(ctx, r, bson.D{{Key: fieldClosed, Value: 1}, {Key: fieldCloses, Value: 1}})
	if err != nil || i == nil {
		return 0, err
	}
	old := oldest(i.closed, now, limit)
	if len(old) == 0 {
		return 0, nil
	}
	if err := l.copyToHistory(ctx, old); err != nil {
		return 0, err
	}
	return len(old), l.takeOut(ctx, r.key, takingOut(old), len(old), int64(len(i.closed))-i.closes)
}

// takeOut removes closes that the history has from the record, and corrects how many
// there are.
func (l *Ledger) takeOut(ctx context.Context, key holdfast.Subject, pull bson.E, count int, correction int64) error {
	counters := fewer(count)
	counters[0].Value = correction - int64(count)
	_, err := l.subjects.UpdateOne(ctx, bson.D{{Key: "_id", Value: key.String()}}, bson.D{pull, {Key: "$inc", Value: counters}})
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// fewer counts closes that leave a record. The generation tells who is about to bring
// a close back that what he read may be old.
func fewer(count int) bson.D {
	return bson.D{{Key: fieldCloses, Value: -int64(count)}, {Key: fieldGeneration, Value: int64(1)}}
}

// takingOut is the part of a write that takes closes out of a record. One that has
// changed since has another stamp and stays.
func takingOut(list []*entry) bson.E {
	stamps := make(bson.A, 0, len(list))
	for _, e := range list {
		stamps = append(stamps, e.stamp)
	}
	return bson.E{Key: "$pull", Value: pulled(fieldClosed, stamps)}
}

// takingOutWhole is takingOut for all the closes that some writes of this lane made.
// Those of one write share the beginning of their stamps, see plan.shutStamp; to look
// for it is less work for the server than to look for each of many.
func takingOutWhole(list []*entry) bson.E {
	var some []*entry
	var either bson.A
	for len(list) > 0 {
		shared, _, _ := strings.Cut(list[0].stamp, ".")
		n := 1
		for n < len(list) && strings.HasPrefix(list[n].stamp, shared+".") {
			n++
		}
		if n == 1 {
			some = append(some, list[0])
		} else {
			either = append(either, bson.D{{Key: "k", Value: bson.D{{Key: "$gte", Value: shared + "."}, {Key: "$lt", Value: shared + "/"}}}})
		}
		list = list[n:]
	}
	if len(either) == 0 {
		return takingOut(some)
	}
	for _, e := range some {
		either = append(either, bson.D{{Key: "k", Value: e.stamp}})
	}
	return bson.E{Key: "$pull", Value: bson.D{{Key: fieldClosed, Value: bson.D{{Key: "$or", Value: either}}}}}
}

// oldest picks what goes to the history: all when they are many, else what is old by
// itself.
func oldest(closed []entry, now time.Time, limit int) []*entry {
	var out []*entry
	for n := range closed {
		e := &closed[n]
		if len(out) < limit && (len(closed) >= archiveAt || now.Sub(e.ClosedAt) >= subject.RecentFor) {
			out = append(out, e)
		}
	}
	return out
}

// copyToHistory writes closes to the history, many on a page: for the server a page is
// little more than one close would be. Its name is of this call alone, so a page
// that is there already is this very one, written by a try whose answer was lost.
func (l *Ledger) copyToHistory(ctx context.Context, list []*entry) error {
	for page := range slices.Chunk(list, mostTogether) {
		_, err := l.history.InsertOne(ctx, historyPage(l.stamp(), page, l.options.KeepClosed))
		if err != nil && !driver.IsDuplicateKeyError(err) {
			return unavailable(err)
		}
	}
	return nil
}

// recall brings closes back from the history into the record, because somebody still
// reports on them: there the report and the counters change in one write. It does so
// only if no close was moved since the record was read, else what the history said
// may be old; the caller reads again in any case.
func (n *lane) recall(ctx context.Context, from *image, list []*entry) error {
	if !n.created {
		if err := n.create(ctx, ""); err != nil {
			return err
		}
	}
	ids := make(bson.A, 0, len(list))
	var top holdfast.AllocationID
	for _, e := range list {
		ids = append(ids, shortened(e.ID, n.key))
		top = max(top, e.ID)
	}
	_, err := n.update(ctx, bson.D{
		{Key: "_id", Value: n.key.String()}, {Key: fieldGeneration, Value: from.generation},
		{Key: fieldClosed + ".r", Value: bson.D{{Key: "$nin", Value: ids}}},
	}, bson.D{
		{Key: "$push", Value: bson.D{{Key: fieldClosed, Value: bson.D{{Key: "$each", Value: documents(len(list), func(at int) *entry { return list[at] })}}}}},
		{Key: "$inc", Value: bson.D{{Key: fieldCloses, Value: int64(len(list))}}},
		{Key: "$max", Value: bson.D{{Key: fieldTop, Value: string(top)}}},
	})
	return err
}
