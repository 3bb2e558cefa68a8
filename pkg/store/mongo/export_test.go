package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// OpenWith is Open with a last word on the driver's options.
func OpenWith(ctx context.Context, uri string, o Options, last func(*options.ClientOptions)) (*Store, error) {
	return open(ctx, uri, o, last)
}

// DatabaseOf is the database of an opened store.
func DatabaseOf(s *Store) *driver.Database { return s.ledger.subjects.Database() }

// PushAs records an ask as a process does that has not judged it yet, and never will.
func PushAs(ctx context.Context, s *Store, now time.Time, ask capacityledger.Ask) error {
	ask, err := ask.Checked()
	if err != nil {
		return err
	}
	n := &lane{ledger: s.ledger, key: ask.Subject(), reader: newReader(ask.Subject())}
	_, err = n.push(ctx, n.tries([]*askJob{{now: now, asks: []capacityledger.Ask{ask}, answers: make([]answer, 1)}}))
	return err
}

// TakeBack removes the first open entry of an id as its asker does when it is refused.
func TakeBack(ctx context.Context, s *Store, id holdfast.AllocationID) error {
	key, err := id.Subject()
	if err != nil {
		return err
	}
	n := &lane{ledger: s.ledger, key: key, reader: newReader(key)}
	i, err := s.ledger.read(ctx, n.reader, bson.D{{Key: fieldClosed, Value: 0}})
	if err != nil {
		return err
	}
	_, err = n.remove(ctx, []*entry{i.has(id)})
	return err
}

// AdmitTogether asks in one write, each in a call of its own that has waited for what
// stands under its id as long as any ask does.
func AdmitTogether(ctx context.Context, s *Store, now time.Time, asks ...capacityledger.Ask) ([]capacityledger.Admission, error) {
	first, err := asks[0].Checked()
	if err != nil {
		return nil, err
	}
	key := first.Subject()
	n := &lane{ledger: s.ledger, key: key, reader: newReader(key), known: map[holdfast.AllocationID]*entry{}, seen: map[string]time.Time{}, lost: map[string]bool{}}
	i, err := s.ledger.read(ctx, n.reader, bson.D{{Key: fieldClosed, Value: 0}})
	if err != nil {
		return nil, err
	}
	var jobs []*askJob
	for _, a := range asks {
		job := &askJob{waiter: newWaiter(ctx), now: now, judge: capacityledger.Judge, last: true, stayed: []string{""}, answers: make([]answer, 1)}
		if a, err = a.Checked(); err != nil {
			return nil, err
		}
		if e := i.has(a.ID); e != nil {
			job.stayed[0] = e.stamp
		}
		job.asks = []capacityledger.Ask{a}
		jobs = append(jobs, job)
	}
	n.admit(ctx, jobs)
	var out []capacityledger.Admission
	for _, job := range jobs {
		if err := job.wait(ctx); err != nil {
			return nil, err
		}
		out = append(out, job.answers[0].Admission)
	}
	return out, nil
}
