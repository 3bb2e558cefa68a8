package node

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// Stores are the stores of one twin: of this machine, or what all servers share.
type Stores struct {
	Ledger  capacityledger.Store
	Records records.DB
}

// watched is a record store whose outages are told: while it was away nobody could
// renew, whatever it was that could not be read. A call that waited for longer than
// patience has sat an outage out, also when it was answered then.
type watched struct {
	db       records.DB
	patience time.Duration
	outage   func()
}

// watch is a record store of which the watcher hears. A renewal that waits as long as
// half a lease may come too late.
func (w *watcher) watch(db records.DB, lease time.Duration) watched {
	return watched{db, lease / 2, w.outage}
}

// Collection implements records.DB.
func (w watched) Collection(ctx context.Context, schema records.Schema) (records.Collection, error) {
	inner, err := w.db.Collection(ctx, schema)
	if err != nil {
		return nil, err
	}
	return watchedCollection{inner, w.patience, w.outage}, nil
}

type watchedCollection struct {
	records.Collection
	patience time.Duration
	outage   func()
}

// told passes an outage on. A caller that hung up is none.
func (w watchedCollection) told(ctx context.Context, began time.Time, err error) error {
	failed := errors.Is(err, records.ErrUnavailable) && !errors.Is(ctx.Err(), context.Canceled)
	if failed || time.Since(began) > w.patience {
		w.outage()
	}
	return err
}

// Get implements records.Collection.
func (w watchedCollection) Get(ctx context.Context, id string) (records.Record, error) {
	began := time.Now()
	r, err := w.Collection.Get(ctx, id)
	return r, w.told(ctx, began, err)
}

// Insert implements records.Collection.
func (w watchedCollection) Insert(ctx context.Context, r records.Record) (records.Record, error) {
	began := time.Now()
	r, err := w.Collection.Insert(ctx, r)
	return r, w.told(ctx, began, err)
}

// Replace implements records.Collection.
func (w watchedCollection) Replace(ctx context.Context, r records.Record) (records.Record, error) {
	began := time.Now()
	r, err := w.Collection.Replace(ctx, r)
	return r, w.told(ctx, began, err)
}

// Delete implements records.Collection.
func (w watchedCollection) Delete(ctx context.Context, id string, revision int64) error {
	began := time.Now()
	return w.told(ctx, began, w.Collection.Delete(ctx, id, revision))
}

// List implements records.Collection.
func (w watchedCollection) List(ctx context.Context, q records.Query) (records.Page, error) {
	began := time.Now()
	p, err := w.Collection.List(ctx, q)
	return p, w.told(ctx, began, err)
}

// Count implements records.Collection.
func (w watchedCollection) Count(ctx context.Context, index, value string) (int64, error) {
	began := time.Now()
	n, err := w.Collection.Count(ctx, index, value)
	return n, w.told(ctx, began, err)
}
