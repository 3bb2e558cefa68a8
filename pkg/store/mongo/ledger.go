package mongo

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// Ledger keeps one document per subject. An ask is one write that moves the counters
// and records the entry together, and is judged on the state that this write
// returned; a refusal takes both back in a second one (ADR-155 §3). Calls of one
// process on one subject share writes, see ledger_lane.go.
//
// Judging on what a write returned never admits too much. It sees the asks of other
// processes that are about to be refused, too; ledger_doubt.go says which of them
// cannot have been granted, and a refusal that rests on the others is asked again
// for a moment.
type Ledger struct {
	subjects, history *driver.Collection
	options           Options
	boot              string // makes stamps unique between processes
	stamps            atomic.Uint64

	mu      sync.Mutex
	lanes   map[holdfast.Subject]*lane
	stopped bool
	working sync.WaitGroup // lanes at work and moves to the history

	repairing sync.Mutex
	repaired  string // the subject at which the last Repair stopped
}

var _ capacityledger.Store = (*Ledger)(nil)

func openLedger(ctx context.Context, db *driver.Database, o Options) (*Ledger, error) {
	l := &Ledger{
		subjects: db.Collection("subjects"), history: db.Collection("history"), options: o,
		boot: rand.Text()[:10] + "-", lanes: map[holdfast.Subject]*lane{},
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	byExpiry := driver.IndexModel{Keys: bson.D{{Key: fieldNext, Value: 1}}}
	// Only a subject without open entries is removed when its time has come.
	removed := driver.IndexModel{
		Keys:    bson.D{{Key: fieldGone, Value: 1}},
		Options: options.Index().SetExpireAfterSeconds(0).SetPartialFilterExpression(bson.D{{Key: fieldNext, Value: bson.D{{Key: "$gte", Value: never}}}}),
	}
	if _, err := l.subjects.Indexes().CreateMany(ctx, []driver.IndexModel{byExpiry, removed}); err != nil {
		return nil, fmt.Errorf("create the indexes of the subjects: %w", unavailable(err))
	}
	forgotten := driver.IndexModel{Keys: bson.D{{Key: fieldGone, Value: 1}}, Options: options.Index().SetExpireAfterSeconds(0)}
	byID := driver.IndexModel{Keys: bson.D{{Key: fieldIDs, Value: 1}}}
	if _, err := l.history.Indexes().CreateMany(ctx, []driver.IndexModel{forgotten, byID}); err != nil {
		return nil, fmt.Errorf("create the indexes of the history: %w", unavailable(err))
	}
	return l, nil
}

// stop waits for what is under way and refuses what comes later.
func (l *Ledger) stop() {
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	l.working.Wait()
	l.vouchAll()
}

// stamp is a text that no write of any process has used before.
func (l *Ledger) stamp() string {
	var text [32]byte
	return string(strconv.AppendUint(append(text[:0], l.boot...), l.stamps.Add(1), 36))
}

// Admit implements [capacityledger.Store]. The asks travel together with those of
// other callers; one that was refused because of asks in flight in other processes
// is asked again, after a short and uneven pause, for at most Options.AskAgainFor.
func (l *Ledger) Admit(ctx context.Context, now time.Time, key holdfast.Subject, asks []capacityledger.Ask, judge capacityledger.JudgeFunc) ([]capacityledger.Admission, error) {
	out := make([]capacityledger.Admission, len(asks))
	waits := make([]wait, len(asks))
	left := make([]int, len(asks))
	for i := range left {
		left[i] = i
	}
	var waited time.Duration
	atOnce := false
	for round := 0; len(left) > 0; round++ {
		job := &askJob{waiter: newWaiter(ctx), now: now.UTC().Truncate(time.Millisecond), judge: judge, again: round > 0 && !atOnce, last: waited >= l.options.AskAgainFor}
		for _, i := range left {
			job.asks = append(job.asks, asks[i])
			job.stayed = append(job.stayed, waits[i].stayed(waited, l.options.AskAgainFor))
		}
		job.answers = make([]answer, len(left))
		if err := l.send(ctx, key, job.waiter, func(n *lane) { n.asks = append(n.asks, job) }); err != nil {
			return nil, err
		}
		open := left[:0]
		atOnce = true
		for n, i := range left {
			answer := job.answers[n]
			out[i] = answer.Admission
			if goesOn := waits[i].noted(answer.behind, waited, l.options.AskAgainFor); answer.open && round < mostRounds && (!job.last || answer.atOnce || goesOn) {
				open = append(open, i)
			} else if errors.Is(answer.Err, capacityledger.ErrUnavailable) {
				return nil, answer.Err
			}
			atOnce = atOnce && answer.atOnce
		}
		left = open
		if len(left) == 0 || atOnce {
			continue
		}
		wait := pause(round)
		if !job.last {
			wait = min(wait, max(time.Millisecond, l.options.AskAgainFor-waited))
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, unavailable(err)
		}
		waited += wait
	}
	return out, nil
}

// Move implements [capacityledger.Store].
func (l *Ledger) Move(ctx context.Context, now time.Time, movings []capacityledger.Moving) ([]capacityledger.Moved, error) {
	movings = slices.Clone(movings) // the lane may read them after the caller has gone
	changes := make([]change, len(movings))
	for i := range movings {
		changes[i] = change{id: movings[i].ID, moving: &movings[i]}
	}
	if err := l.change(ctx, now, changes); err != nil {
		return nil, err
	}
	out := make([]capacityledger.Moved, len(movings))
	for i := range changes {
		out[i] = capacityledger.Moved{Allocation: changes[i].allocation, Err: changes[i].err}
	}
	return out, nil
}

// Close implements [capacityledger.Store].
func (l *Ledger) Close(ctx context.Context, now time.Time, closings []capacityledger.Closing) ([]capacityledger.Closed, error) {
	closings = slices.Clone(closings)
	changes := make([]change, len(closings))
	for i := range closings {
		changes[i] = change{id: closings[i].ID, closing: &closings[i]}
	}
	if err := l.change(ctx, now, changes); err != nil {
		return nil, err
	}
	out := make([]capacityledger.Closed, len(closings))
	for i := range changes {
		out[i] = capacityledger.Closed{Closed: changes[i].closed, Allocation: changes[i].allocation, Err: changes[i].err}
	}
	return out, nil
}

// change sends changes to the lanes of their subjects and waits for all.
func (l *Ledger) change(ctx context.Context, now time.Time, changes []change) error {
	now = now.UTC().Truncate(time.Millisecond)
	jobs := map[holdfast.Subject]*changeJob{}
	for i := range changes {
		key, err := changes[i].id.Subject()
		if err != nil {
			changes[i].err = capacityledger.ErrNotFound // what is no id was never recorded
			continue
		}
		job := jobs[key]
		if job == nil {
			job = &changeJob{waiter: newWaiter(ctx), now: now}
			jobs[key] = job
		}
		job.changes = append(job.changes, &changes[i])
	}
	if len(jobs) == 1 {
		for key, job := range jobs {
			return l.send(ctx, key, job.waiter, func(n *lane) { n.changes = append(n.changes, job) })
		}
	}
	var failed error
	for key, job := range jobs {
		n, first, err := l.enqueue(ctx, key, func(n *lane) { n.changes = append(n.changes, job) })
		if err != nil {
			failed = err
			break
		}
		if first {
			go n.work() //nolint:gosec // it carries calls of others too, see lane
		}
	}
	for _, job := range jobs {
		if failed == nil {
			failed = job.wait(ctx)
		}
	}
	return failed
}

// Balance implements [capacityledger.Store].
func (l *Ledger) Balance(ctx context.Context, key holdfast.Subject) (capacityledger.Balance, error) {
	i, err := l.read(ctx, newReader(key), bson.D{{Key: fieldClosed, Value: 0}})
	if err != nil || i == nil {
		return capacityledger.Balance{Subject: key}, err
	}
	b := i.balance(key)
	b.Open = make([]capacityledger.Allocation, 0, len(i.open))
	for n := range i.open {
		a := i.open[n].Allocation
		b.Open = append(b.Open, a)
		if b.NextExpiry.IsZero() || a.ExpiresAt.Before(b.NextExpiry) {
			b.NextExpiry = a.ExpiresAt
		}
	}
	slices.SortFunc(b.Open, func(x, y capacityledger.Allocation) int {
		return cmp.Or(x.AcquiredAt.Compare(y.AcquiredAt), cmp.Compare(x.ID, y.ID))
	})
	return b, nil
}

// Get implements [capacityledger.Store].
func (l *Ledger) Get(ctx context.Context, id holdfast.AllocationID) (capacityledger.Allocation, error) {
	key, err := id.Subject()
	if err != nil {
		return capacityledger.Allocation{}, capacityledger.ErrNotFound
	}
	r := newReader(key)
	i, err := l.readEntries(ctx, r, []holdfast.AllocationID{id})
	if err != nil {
		return capacityledger.Allocation{}, err
	}
	if i == nil {
		i = &image{}
	}
	e, look := i.standing(id)
	if look {
		old, err := l.lookup(ctx, r, []holdfast.AllocationID{id})
		if err != nil {
			return capacityledger.Allocation{}, err
		}
		if len(old) > 0 {
			e = &old[0]
		}
	}
	if e == nil {
		return capacityledger.Allocation{}, capacityledger.ErrNotFound
	}
	return e.Allocation, nil
}

// Subjects implements [capacityledger.Store].
func (l *Ledger) Subjects(ctx context.Context, after string, limit int) ([]holdfast.Subject, error) {
	if limit <= 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.options.Timeout)
	defer cancel()
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: after}}}}
	find := options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(int64(limit)).SetProjection(bson.D{{Key: "_id", Value: 1}})
	rows, err := all[struct {
		ID string `bson:"_id"`
	}](ctx)(l.subjects.Find(ctx, filter, find))
	if err != nil {
		return nil, unavailable(err)
	}
	out := make([]holdfast.Subject, 0, len(rows))
	for _, row := range rows {
		key, err := holdfast.ParseSubject(row.ID)
		if err != nil {
			return nil, fmt.Errorf("read the subject %q: %w", row.ID, err)
		}
		out = append(out, key)
	}
	return out, nil
}

// all reads a cursor to its end.
func all[T any](ctx context.Context) func(*driver.Cursor, error) ([]T, error) {
	return func(cursor *driver.Cursor, err error) ([]T, error) {
		if err != nil {
			return nil, err
		}
		var out []T
		err = cursor.All(ctx, &out)
		return out, err
	}
}

// Due implements [capacityledger.Store]. It looks only at subjects in which, by the
// index, something is due, and lets the server sort their entries.
func (l *Ledger) Due(ctx context.Context, now time.Time, after capacityledger.Cursor, limit int) ([]capacityledger.Allocation, error) {
	if limit <= 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.options.Timeout)
	defer cancel()
	expires, id := fieldOpen+".x", fieldOpen+".id"
	due := bson.D{{Key: expires, Value: bson.D{{Key: "$lte", Value: now}}}}
	if !after.Expires.IsZero() || after.ID != "" {
		due = append(due, bson.E{Key: "$or", Value: bson.A{
			bson.D{{Key: expires, Value: bson.D{{Key: "$gt", Value: after.Expires}}}},
			bson.D{{Key: expires, Value: after.Expires}, {Key: id, Value: bson.D{{Key: "$gt", Value: string(after.ID)}}}},
		}})
	}
	rows, err := all[struct {
		ID   string   `bson:"_id"`
		Open bson.Raw `bson:"open"`
	}](ctx)(l.subjects.Aggregate(ctx, driver.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: fieldNext, Value: bson.D{{Key: "$lte", Value: now}}}}}},
		{{Key: "$project", Value: bson.D{{Key: fieldOpen, Value: 1}}}},
		{{Key: "$unwind", Value: "$" + fieldOpen}},
		{{Key: "$match", Value: due}},
		{{Key: "$sort", Value: bson.D{{Key: expires, Value: 1}, {Key: id, Value: 1}}}},
		{{Key: "$limit", Value: limit}},
	}))
	if err != nil {
		return nil, unavailable(err)
	}
	out := make([]capacityledger.Allocation, len(rows))
	for n, row := range rows {
		key, err := holdfast.ParseSubject(row.ID)
		if err != nil {
			return nil, fmt.Errorf("read the subject %q: %w", row.ID, err)
		}
		var e entry
		r := newReader(key)
		if err := r.entry(row.Open, &e); err != nil {
			return nil, r.damaged(fieldOpen, err)
		}
		out[n] = e.Allocation
	}
	return out, nil
}

// read is a subject's document, as far as the projection goes; nil when there is none.
func (l *Ledger) read(ctx context.Context, r *reader, projection bson.D) (*image, error) {
	ctx, cancel := context.WithTimeout(ctx, l.options.Timeout)
	defer cancel()
	raw, err := l.subjects.FindOne(ctx, bson.D{{Key: "_id", Value: r.key.String()}}, options.FindOne().SetProjection(projection)).Raw()
	switch {
	case errors.Is(err, driver.ErrNoDocuments):
		return nil, nil //nolint:nilnil // a subject that nobody asked
	case err != nil:
		return nil, unavailable(err)
	}
	return r.image(raw)
}

// readEntries is a subject's document with the entries and closes of these ids only.
func (l *Ledger) readEntries(ctx context.Context, r *reader, ids []holdfast.AllocationID) (*image, error) {
	return l.read(ctx, r, bson.D{
		{Key: fieldSettled, Value: 1}, {Key: fieldOutstanding, Value: 1}, {Key: fieldCloses, Value: 1}, {Key: fieldTop, Value: 1}, {Key: fieldGeneration, Value: 1},
		{Key: fieldOpen, Value: among(fieldOpen, "id", ids)}, {Key: fieldClosed, Value: among(fieldClosed, "r", shortenedAll(ids, r.key))},
	})
}

func shortenedAll(ids []holdfast.AllocationID, key holdfast.Subject) []string {
	out := make([]string, len(ids))
	for n, id := range ids {
		out[n] = shortened(id, key)
	}
	return out
}

// among keeps of an array the elements whose field has one of the values. The values are
// texts also where one looks like the path of a field.
func among[T any](array, field string, values []T) bson.D {
	return bson.D{{Key: "$filter", Value: bson.D{
		{Key: "input", Value: "$" + array}, {Key: "as", Value: "e"},
		{Key: "cond", Value: bson.D{{Key: "$in", Value: bson.A{"$$e." + field, bson.D{{Key: "$literal", Value: values}}}}}},
	}}}
}
