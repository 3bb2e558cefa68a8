package mongo

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/store/internal/subject"
)

// archiveAt is how many closes beyond [subject.RecentKept] make a lane move them to
// the history, so that one move serves many closes.
const archiveAt = 64

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
	recent, err := n.ledger.readEntries(ctx, n.reader, ids)
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

// lookup reads closes of one subject in the history.
func (l *Ledger) lookup(ctx context.Context, r *reader, ids []holdfast.AllocationID) ([]entry, error) {
	ctx, cancel := context.WithTimeout(ctx, l.options.Timeout)
	defer cancel()
	rows, err := all[bson.Raw](ctx)(l.history.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}))
	if err != nil {
		return nil, unavailable(err)
	}
	out := make([]entry, len(rows))
	for n, row := range rows {
		if err := r.entry(row, &out[n]); err != nil {
			return nil, r.damaged("history", err)
		}
	}
	return out, nil
}

// archiveSoon moves closes to the history beside the lane's own work, when there are
// enough of them.
func (n *lane) archiveSoon(now time.Time) {
	if n.closes < subject.RecentKept+archiveAt || !n.moving.TryLock() {
		return
	}
	n.ledger.working.Go(func() {
		defer n.moving.Unlock()
		ctx, cancel := n.context()
		defer cancel()
		// What is not moved now is moved by a later close or by the housekeeping.
		_, _ = n.ledger.archive(ctx, newReader(n.key), now, subject.RecentMost)
	})
}

// archive moves closes to the history at once.
func (n *lane) archive(ctx context.Context, now time.Time, limit int) (int, error) {
	n.moving.Lock()
	defer n.moving.Unlock()
	moved, err := n.ledger.archive(ctx, n.reader, now, limit)
	n.closes = 0 // the next image says how many there are
	return moved, err
}

// archive moves closes that are old, or in excess, to the history: it copies them
// first and takes them out of the record only if no close has changed since it read
// them. A close is never in neither place.
func (l *Ledger) archive(ctx context.Context, r *reader, now time.Time, limit int) (int, error) {
	for range 5 {
		i, err := l.read(ctx, r, bson.D{{Key: fieldClosed, Value: 1}, {Key: fieldGeneration, Value: 1}})
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
		stamps := make(bson.A, 0, len(old))
		for _, e := range old {
			stamps = append(stamps, e.stamp)
		}
		result, err := l.subjects.UpdateOne(ctx, bson.D{{Key: "_id", Value: r.key.String()}, {Key: fieldGeneration, Value: i.generation}}, bson.D{
			{Key: "$pull", Value: pulled(fieldClosed, stamps)},
			{Key: "$inc", Value: bson.D{{Key: fieldCloses, Value: -int64(len(old))}, {Key: fieldGeneration, Value: int64(1)}}},
		})
		switch {
		case err != nil:
			return 0, unavailable(err)
		case result.MatchedCount == 1:
			return len(old), nil
		}
	}
	return 0, nil // closes of this subject change all the time; they stay for now
}

// oldest picks what goes to the history: what is beyond the newest ones, and what is
// old by itself.
func oldest(closed []entry, now time.Time, limit int) []*entry {
	var out []*entry
	for n := range closed {
		e := &closed[n]
		if len(out) < limit && (len(closed)-n > subject.RecentKept || now.Sub(e.ClosedAt) >= subject.RecentFor) {
			out = append(out, e)
		}
	}
	return out
}

// copyToHistory inserts closes where they are not there yet. One that is there was
// brought back for a late report: what says more of its spend wins.
func (l *Ledger) copyToHistory(ctx context.Context, list []*entry) error {
	rows := make([]any, 0, len(list))
	for _, e := range list {
		rows = append(rows, l.historyRow(e))
	}
	_, err := l.history.InsertMany(ctx, rows, options.InsertMany().SetOrdered(false))
	if err == nil {
		return nil
	}
	var bulk driver.BulkWriteException
	if !errors.As(err, &bulk) || bulk.WriteConcernError != nil {
		return unavailable(err)
	}
	for _, failed := range bulk.WriteErrors {
		if !driver.IsDuplicateKeyError(failed.WriteError) || failed.Index < 0 || failed.Index >= len(list) {
			return unavailable(err)
		}
		e := list[failed.Index]
		less := bson.D{{Key: "_id", Value: string(e.ID)}, {Key: "spent", Value: bson.D{{Key: "$lt", Value: e.Spent.Int()}}}}
		if _, err := l.history.ReplaceOne(ctx, less, l.historyRow(e)); err != nil {
			return unavailable(err)
		}
	}
	return nil
}

func (l *Ledger) historyRow(e *entry) bson.D {
	return append(bson.D{
		{Key: "_id", Value: string(e.ID)}, {Key: "spent", Value: e.Spent.Int()}, {Key: fieldGone, Value: e.ClosedAt.Add(l.options.KeepClosed)},
	}, e.document()...)
}

// recall brings closes back from the history into the record, because somebody still
// reports on them: there the report and the counters change in one write. It does so
// only if no close was moved since the record was read, else what the history said
// may be old; the caller reads again in any case.
func (n *lane) recall(ctx context.Context, from *image, list []*entry) error {
	if !n.created {
		if err := n.create(ctx); err != nil {
			return err
		}
	}
	ids, rows := make(bson.A, 0, len(list)), make(bson.A, 0, len(list))
	var top holdfast.AllocationID
	for _, e := range list {
		ids, rows = append(ids, string(e.ID)), append(rows, e.document())
		top = max(top, e.ID)
	}
	absent := bson.D{{Key: "$nin", Value: ids}}
	_, err := n.update(ctx, bson.D{
		{Key: "_id", Value: n.key.String()}, {Key: fieldGeneration, Value: from.generation},
		{Key: fieldClosed + ".id", Value: absent}, {Key: fieldOpen + ".id", Value: absent},
	}, bson.D{
		{Key: "$push", Value: bson.D{{Key: fieldClosed, Value: bson.D{{Key: "$each", Value: rows}}}}},
		{Key: "$inc", Value: bson.D{{Key: fieldCloses, Value: int64(len(list))}}},
		{Key: "$max", Value: bson.D{{Key: fieldTop, Value: string(top)}}},
	})
	return err
}
