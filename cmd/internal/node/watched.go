package node

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// Stores are the stores of one twin: of this machine, or what all servers share.
type Stores struct {
	Ledger  capacityledger.Store
	Records records.DB
}

// watched is a record store whose outages are told: while it was away nobody could
// renew, whatever it was that could not be read.
type watched struct {
	db     records.DB
	outage func()
}

// Collection implements records.DB.
func (w watched) Collection(ctx context.Context, schema records.Schema) (records.Collection, error) {
	inner, err := w.db.Collection(ctx, schema)
	if err != nil {
		return nil, err
	}
	return watchedCollection{inner, w.outage}, nil
}

type watchedCollection struct {
	records.Collection
	outage func()
}

// told passes an outage on. A caller that hung up is none.
func (w watchedCollection) told(ctx context.Context, err error) error {
	if errors.Is(err, records.ErrUnavailable) && !errors.Is(ctx.Err(), context.Canceled) {
		w.outage()
	}
	return err
}

// Get implements records.Collection.
func (w watchedCollection) Get(ctx context.Context, id string) (records.Record, error) {
	r, err := w.Collection.Get(ctx, id)
	return r, w.told(ctx, err)
}

// Insert implements records.Collection.
func (w watchedCollection) Insert(ctx context.Context, r records.Record) (records.Record, error) {
	r, err := w.Collection.Insert(ctx, r)
	return r, w.told(ctx, err)
}

// Replace implements records.Collection.
func (w watchedCollection) Replace(ctx context.Context, r records.Record) (records.Record, error) {
	r, err := w.Collection.Replace(ctx, r)
	return r, w.told(ctx, err)
}

// Delete implements records.Collection.
func (w watchedCollection) Delete(ctx context.Context, id string, revision int64) error {
	return w.told(ctx, w.Collection.Delete(ctx, id, revision))
}

// List implements records.Collection.
func (w watchedCollection) List(ctx context.Context, q records.Query) (records.Page, error) {
	p, err := w.Collection.List(ctx, q)
	return p, w.told(ctx, err)
}

// Count implements records.Collection.
func (w watchedCollection) Count(ctx context.Context, index, value string) (int64, error) {
	n, err := w.Collection.Count(ctx, index, value)
	return n, w.told(ctx, err)
}
