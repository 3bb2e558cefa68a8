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
