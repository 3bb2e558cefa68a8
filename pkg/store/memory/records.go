package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/records"
)

// Records is the collection store of one process. Everything is gone with it.
type Records struct {
	mu          sync.Mutex
	collections map[string]*collection
}

var _ records.DB = (*Records)(nil)

// NewRecords is an empty store.
func NewRecords() *Records { return &Records{collections: map[string]*collection{}} }

// Collection implements [records.DB].
func (r *Records) Collection(_ context.Context, schema records.Schema) (records.Collection, error) {
	if err := schema.Check(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.collections[schema.Name]
	if !ok {
		c = &collection{records: map[string]records.Record{}}
		r.collections[schema.Name] = c
	}
	if err := c.open(schema); err != nil {
		return nil, err
	}
	return c, nil
}

// collection keeps records by id, and each index as one slice in the order in which
// it is walked. The index of the empty name is the one over all ids.
type collection struct {
	mu      sync.RWMutex
	schema  records.Schema
	records map[string]records.Record
	indexes map[string][]records.Position
}

func (c *collection) open(schema records.Schema) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.records) > 0 {
		if err := schema.Extends(c.schema); err != nil {
			return err
		}
	}
	c.schema = records.Schema{Name: schema.Name, Indexes: slices.Clone(schema.Indexes)}
	if c.indexes == nil {
		c.indexes = map[string][]records.Position{}
	}
	return nil
}

// Get implements [records.Collection].
func (c *collection) Get(ctx context.Context, id string) (records.Record, error) {
	if err := ctx.Err(); err != nil {
		return records.Record{}, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	r, ok := c.records[id]
	if !ok {
		return records.Record{}, records.ErrNotFound
	}
	return clone(r), nil
}

// Insert implements [records.Collection].
func (c *collection) Insert(ctx context.Context, r records.Record) (records.Record, error) {
	if err := ctx.Err(); err != nil {
		return records.Record{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.schema.CheckRecord(r); err != nil {
		return records.Record{}, err
	}
	if _, taken := c.records[r.ID]; taken {
		return records.Record{}, records.ErrExists
	}
	if err := c.checkUnique(r); err != nil {
		return records.Record{}, err
	}
	r = clone(r)
	r.Revision = 1
	c.put(r)
	return clone(r), nil
}

// Replace implements [records.Collection].
func (c *collection) Replace(ctx context.Context, r records.Record) (records.Record, error) {
	if err := ctx.Err(); err != nil {
		return records.Record{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.schema.CheckRecord(r); err != nil {
		return records.Record{}, err
	}
	before, ok := c.records[r.ID]
	switch {
	case !ok:
		return records.Record{}, records.ErrNotFound
	case before.Revision != r.Revision:
		return records.Record{}, records.ErrRevision
	}
	if err := c.checkUnique(r); err != nil {
		return records.Record{}, err
	}
	c.remove(before)
	r = clone(r)
	r.Revision++
	c.put(r)
	return clone(r), nil
}

// Delete implements [records.Collection].
func (c *collection) Delete(ctx context.Context, id string, revision int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before, ok := c.records[id]
	switch {
	case !ok:
		return records.ErrNotFound
	case revision != 0 && before.Revision != revision:
		return records.ErrRevision
	}
	c.remove(before)
	return nil
}

// List implements [records.Collection].
func (c *collection) List(ctx context.Context, q records.Query) (records.Page, error) {
	if err := ctx.Err(); err != nil {
		return records.Page{}, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	after, begun, err := c.schema.CheckQuery(q)
	if err != nil {
		return records.Page{}, err
	}
	index := c.indexes[q.Index]
	from, to := bounds(index, q)
	if begun && !q.Descending {
		from = max(from, search(index, after, true))
	}
	if begun && q.Descending {
		to = min(to, search(index, after, false))
	}
	var page records.Page
	for from < to {
		at := from
		if q.Descending {
			at = to - 1
			to--
		} else {
			from++
		}
		id := index[at].ID
		if id < q.IDFrom {
			continue
		}
		if len(page.Records) == q.Limit {
			page.Next = c.schema.Cursor(q, page.Records[q.Limit-1])
			break
		}
		page.Records = append(page.Records, clone(c.records[id]))
	}
	return page, nil
}

// Count implements [records.Collection].
func (c *collection) Count(ctx context.Context, index, value string) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if err := c.schema.CheckCount(index); err != nil {
		return 0, err
	}
	if index == "" {
		return int64(len(c.records)), nil
	}
	from, to := sameValue(c.indexes[index], value)
	return int64(to - from), nil
}

// checkUnique refuses a value of a unique index that another record has.
func (c *collection) checkUnique(r records.Record) error {
	for _, index := range c.schema.Indexes {
		value, present := r.Keys[index.Name]
		if !index.Unique || !present {
			continue
		}
		positions := c.indexes[index.Name]
		from, to := sameValue(positions, value)
		for _, p := range positions[from:to] {
			if p.ID != r.ID {
				return fmt.Errorf("%w: %s %q", records.ErrExists, index.Name, value)
			}
		}
	}
	return nil
}

func (c *collection) put(r records.Record) {
	c.records[r.ID] = r
	c.insert("", records.Position{ID: r.ID})
	for name, value := range r.Keys {
		c.insert(name, records.Position{Value: value, ID: r.ID})
	}
}

func (c *collection) remove(r records.Record) {
	delete(c.records, r.ID)
	c.drop("", records.Position{ID: r.ID})
	for name, value := range r.Keys {
		c.drop(name, records.Position{Value: value, ID: r.ID})
	}
}

func (c *collection) insert(name string, p records.Position) {
	index := c.indexes[name]
	c.indexes[name] = slices.Insert(index, search(index, p, false), p)
}

func (c *collection) drop(name string, p records.Position) {
	index := c.indexes[name]
	at := search(index, p, false)
	c.indexes[name] = slices.Delete(index, at, at+1)
}

// bounds is the part of the index that the query's value filter keeps.
func bounds(index []records.Position, q records.Query) (from, to int) {
	switch {
	case q.Equal != "":
		return sameValue(index, q.Equal)
	case q.Prefix != "":
		from = search(index, records.Position{Value: q.Prefix}, false)
		count, _ := slices.BinarySearchFunc(index[from:], true, func(p records.Position, _ bool) int {
			if strings.HasPrefix(p.Value, q.Prefix) {
				return -1
			}
			return 1
		})
		return from, from + count
	case q.AtMost != "":
		_, to = sameValue(index, q.AtMost)
		return 0, to
	}
	return 0, len(index)
}

func sameValue(index []records.Position, value string) (from, to int) {
	from = search(index, records.Position{Value: value}, false)
	count, _ := slices.BinarySearchFunc(index[from:], value, func(p records.Position, v string) int {
		if p.Value <= v {
			return -1
		}
		return 1
	})
	return from, from + count
}

// search is where p stands in the index, or behind it when past is set.
func search(index []records.Position, p records.Position, past bool) int {
	at, found := slices.BinarySearchFunc(index, p, func(a, b records.Position) int {
		return cmp.Or(cmp.Compare(a.Value, b.Value), cmp.Compare(a.ID, b.ID))
	})
	if found && past {
		at++
	}
	return at
}

func clone(r records.Record) records.Record {
	r.Body = bytes.Clone(r.Body)
	r.Keys = maps.Clone(r.Keys)
	return r
}
