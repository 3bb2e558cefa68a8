package recordstest

import (
	"context"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/records"
)

// Operation is one call on a collection.
type Operation struct {
	Verb       string // get, insert, replace, delete, list, count
	Collection string
	ID         string // of the record; empty for list and count
}

// Faults is a store whose calls can be made to fail, wait or be counted. The zero
// value of its hooks lets everything through.
type Faults struct {
	db records.DB

	mu     sync.Mutex
	before func(context.Context, Operation) error
	after  func(context.Context, Operation) error
}

var _ records.DB = (*Faults)(nil)

// NewFaults wraps a store.
func NewFaults(db records.DB) *Faults { return &Faults{db: db} }

// Before has hook called ahead of every operation, from the caller's goroutine; its
// error is the operation's, and nothing happens then. Nil takes the hook away.
func (f *Faults) Before(hook func(context.Context, Operation) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = hook
}

// After has hook called behind every operation that succeeded; its error replaces
// the answer: a reply that was lost.
func (f *Faults) After(hook func(context.Context, Operation) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after = hook
}

// Collection implements [records.DB]; opening is never made to fail.
func (f *Faults) Collection(ctx context.Context, schema records.Schema) (records.Collection, error) {
	inner, err := f.db.Collection(ctx, schema)
	if err != nil {
		return nil, err
	}
	return &faulty{f, inner, schema.Name}, nil
}

func (f *Faults) hooks() (before, after func(context.Context, Operation) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.before, f.after
}

type faulty struct {
	faults *Faults
	inner  records.Collection
	name   string
}

func (c *faulty) do(ctx context.Context, verb, id string, call func() error) error {
	operation := Operation{verb, c.name, id}
	before, after := c.faults.hooks()
	if before != nil {
		if err := before(ctx, operation); err != nil {
			return err
		}
	}
	if err := call(); err != nil {
		return err
	}
	if after != nil {
		return after(ctx, operation)
	}
	return nil
}

func (c *faulty) Get(ctx context.Context, id string) (r records.Record, err error) {
	err = c.do(ctx, "get", id, func() (err error) { r, err = c.inner.Get(ctx, id); return err })
	return r, err
}

func (c *faulty) Insert(ctx context.Context, in records.Record) (r records.Record, err error) {
	err = c.do(ctx, "insert", in.ID, func() (err error) { r, err = c.inner.Insert(ctx, in); return err })
	return r, err
}

func (c *faulty) Replace(ctx context.Context, in records.Record) (r records.Record, err error) {
	err = c.do(ctx, "replace", in.ID, func() (err error) { r, err = c.inner.Replace(ctx, in); return err })
	return r, err
}

func (c *faulty) Delete(ctx context.Context, id string, revision int64) error {
	return c.do(ctx, "delete", id, func() error { return c.inner.Delete(ctx, id, revision) })
}

func (c *faulty) List(ctx context.Context, q records.Query) (p records.Page, err error) {
	err = c.do(ctx, "list", "", func() (err error) { p, err = c.inner.List(ctx, q); return err })
	return p, err
}

func (c *faulty) Count(ctx context.Context, index, value string) (n int64, err error) {
	err = c.do(ctx, "count", "", func() (err error) { n, err = c.inner.Count(ctx, index, value); return err })
	return n, err
}
