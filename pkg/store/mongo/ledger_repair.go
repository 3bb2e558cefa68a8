package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/store/internal/subject"
)

// Repair implements [capacityledger.Store]. Each call looks at the next limit subjects
// and begins again at the end. What is long past the server removes by itself.
func (l *Ledger) Repair(ctx context.Context, now time.Time, limit int) (capacityledger.Repaired, error) {
	var done capacityledger.Repaired
	if limit <= 0 {
		return done, nil
	}
	l.repairing.Lock()
	defer l.repairing.Unlock()
	if err := l.retime(ctx, now, limit); err != nil {
		return done, err
	}
	rows, err := l.repairable(ctx, now, limit)
	if err != nil {
		return done, err
	}
	for _, row := range rows {
		key, err := holdfast.ParseSubject(row.ID)
		if err != nil {
			l.repaired = row.ID // a newer replica knows it
			continue
		}
		if err := l.repairOne(ctx, now, key, row.Raw, limit-done.Archived, &done); err != nil {
			return done, err
		}
		l.repaired = row.ID
	}
	if len(rows) < limit {
		l.repaired = ""
	}
	return done, nil
}

// row is a subject's document with its id.
type row struct {
	ID string
	bson.Raw
}

// repairable reads the next subjects with all open entries and the old closes.
func (l *Ledger) repairable(ctx context.Context, now time.Time, limit int) ([]row, error) {
	ctx, cancel := context.WithTimeout(ctx, l.options.Timeout)
	defer cancel()
	old := bson.D{{Key: "$filter", Value: bson.D{
		{Key: "input", Value: "$" + fieldClosed}, {Key: "as", Value: "e"},
		{Key: "cond", Value: bson.D{{Key: "$lte", Value: bson.A{"$$e.ct", now.Add(-subject.RecentFor)}}}},
	}}}
	fields := bson.D{{Key: fieldClosed, Value: old}}
	for _, field := range []string{fieldSettled, fieldOutstanding, fieldHolders, fieldOpen, fieldCloses, fieldTop} {
		fields = append(fields, bson.E{Key: field, Value: 1})
	}
	find := options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(int64(limit)).SetProjection(fields)
	raws, err := all[bson.Raw](ctx)(l.subjects.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: l.repaired}}}}, find))
	if err != nil {
		return nil, unavailable(err)
	}
	out := make([]row, len(raws))
	for n, raw := range raws {
		id, _ := raw.Lookup("_id").StringValueOK()
		out[n] = row{id, raw}
	}
	return out, nil
}

func (l *Ledger) repairOne(ctx context.Context, now time.Time, key holdfast.Subject, raw bson.Raw, limit int, done *capacityledger.Repaired) error {
	ctx, cancel := context.WithTimeout(ctx, l.options.Timeout)
	defer cancel()
	r := newReader(key)
	i, err := r.image(raw)
	if err != nil {
		return err
	}
	n := &lane{ledger: l, key: key, reader: r}
	mended, err := n.mend(ctx, now, i)
	if err != nil {
		return err
	}
	if mended {
		done.Subjects++
	}
	if limit > 0 && (len(i.closed) > 0 || i.closes >= archiveAt) {
		moved, err := l.archive(ctx, r, now, limit)
		if err != nil {
			return err
		}
		done.Archived += moved
	}
	// A record that counts nothing, has nothing and never closed anything is forgotten.
	if i.settled != 0 || i.outstanding != 0 || len(i.open) > 0 || i.closes > 0 || i.top != "" {
		return n.tidy(ctx, raw)
	}
	gone, err := l.subjects.DeleteOne(ctx, bson.D{
		{Key: "_id", Value: key.String()}, {Key: fieldSettled, Value: 0}, {Key: fieldOutstanding, Value: 0},
		{Key: fieldOpen, Value: bson.A{}}, {Key: fieldClosed, Value: bson.A{}}, {Key: fieldTop, Value: nil},
	})
	if err != nil {
		return unavailable(err)
	}
	done.Dropped += int(gone.DeletedCount)
	return nil
}

// mend takes out entries that came late (an id that is there already) and makes the
// counters equal the entries. It writes only over the very entries that it counted.
func (n *lane) mend(ctx context.Context, now time.Time, i *image) (bool, error) {
	first := map[holdfast.AllocationID]bool{}
	var strays []*entry
	want := map[holdfast.Identity]int64{}
	var total int64
	stamps := make(bson.A, 0, len(i.open))
	for at := range i.open {
		e := &i.open[at]
		stamps = append(stamps, e.stamp)
		if first[e.ID] {
			strays = append(strays, e)
		}
		first[e.ID] = true
		want[e.Holder] += e.Outstanding().Int()
		total += e.Outstanding().Int()
	}
	if len(strays) > 0 {
		if _, err := n.remove(ctx, strays); err != nil {
			return false, err
		}
		return false, nil // the counters are looked at in the next pass
	}
	wrong := bson.D{}
	for _, h := range i.holders {
		if h.Outstanding != want[h.Holder] {
			wrong = append(wrong, bson.E{Key: fieldHolders + "." + holderKey(h.Holder) + "." + fieldOutstanding, Value: want[h.Holder]})
		}
		delete(want, h.Holder)
	}
	for holder, amount := range want {
		if amount != 0 {
			wrong = append(wrong, bson.E{Key: fieldHolders + "." + holderKey(holder) + "." + fieldOutstanding, Value: amount})
		}
	}
	if len(wrong) == 0 && total == i.outstanding {
		return false, nil
	}
	filter := bson.D{{Key: "_id", Value: n.key.String()}, {Key: fieldOutstanding, Value: i.outstanding}, {Key: "$expr", Value: bson.D{{Key: "$eq", Value: bson.A{"$" + fieldOpen + ".k", stamps}}}}}
	return n.update(ctx, filter, bson.D{
		{Key: "$set", Value: append(wrong, bson.E{Key: fieldOutstanding, Value: total})},
		{Key: "$max", Value: bson.D{{Key: fieldShaken, Value: now}}},
	})
}

// tidy lets go of holders that count nothing any more.
func (n *lane) tidy(ctx context.Context, raw bson.Raw) error {
	holders, _ := raw.Lookup(fieldHolders).DocumentOK()
	elements, err := holders.Elements()
	if err != nil {
		return n.reader.damaged(fieldHolders, err)
	}
	for _, element := range elements {
		counters, _ := element.Value().DocumentOK()
		settled, _ := counters.Lookup(fieldSettled).AsInt64OK()
		outstanding, _ := counters.Lookup(fieldOutstanding).AsInt64OK()
		if settled != 0 || outstanding != 0 {
			continue
		}
		path := fieldHolders + "." + element.Key()
		filter := bson.D{
			{Key: "_id", Value: n.key.String()}, {Key: path + "." + fieldOutstanding, Value: bson.D{{Key: "$in", Value: bson.A{0, nil}}}},
			{Key: path + "." + fieldSettled, Value: bson.D{{Key: "$in", Value: bson.A{0, nil}}}},
		}
		if _, err := n.update(ctx, filter, bson.D{{Key: "$unset", Value: bson.D{{Key: path, Value: ""}}}}); err != nil {
			return err
		}
	}
	return nil
}

// retime corrects the index of expiries where it says too early: closes and renewals
// leave it as it was. The server works the instant out in the write itself, so that an
// entry that comes meanwhile is never missed.
func (l *Ledger) retime(ctx context.Context, now time.Time, limit int) error {
	ctx, cancel := context.WithTimeout(ctx, l.options.Timeout)
	defer cancel()
	first := bson.D{{Key: "$ifNull", Value: bson.A{bson.D{{Key: "$min", Value: "$" + fieldOpen + ".x"}}, never}}}
	rows, err := all[struct {
		ID    string    `bson:"_id"`
		Next  time.Time `bson:"next"`
		First time.Time `bson:"first"`
	}](ctx)(l.subjects.Aggregate(ctx, driver.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: fieldNext, Value: bson.D{{Key: "$lte", Value: now}}}}}},
		{{Key: "$sort", Value: bson.D{{Key: fieldNext, Value: 1}}}},
		{{Key: "$limit", Value: limit}},
		{{Key: "$project", Value: bson.D{{Key: fieldNext, Value: 1}, {Key: "first", Value: first}}}},
	}))
	if err != nil {
		return unavailable(err)
	}
	stale := bson.A{}
	for _, row := range rows {
		if !row.First.Equal(row.Next) {
			stale = append(stale, row.ID)
		}
	}
	if len(stale) == 0 {
		return nil
	}
	_, err = l.subjects.UpdateMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: stale}}}}, driver.Pipeline{{{Key: "$set", Value: bson.D{{Key: fieldNext, Value: first}}}}})
	if err != nil {
		return unavailable(err)
	}
	return nil
}
