package recordstest_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

// broken is a collection with some verbs replaced by broken ones.
type broken struct {
	records.Collection
	get     func(context.Context, string) (records.Record, error)
	insert  func(context.Context, records.Record) (records.Record, error)
	replace func(context.Context, records.Record) (records.Record, error)
	remove  func(context.Context, string, int64) error
	list    func(context.Context, records.Query) (records.Page, error)
	count   func(context.Context, string, string) (int64, error)
}

func (b *broken) Get(ctx context.Context, id string) (records.Record, error) {
	if b.get != nil {
		return b.get(ctx, id)
	}
	return b.Collection.Get(ctx, id)
}

func (b *broken) Insert(ctx context.Context, r records.Record) (records.Record, error) {
	if b.insert != nil {
		return b.insert(ctx, r)
	}
	return b.Collection.Insert(ctx, r)
}

func (b *broken) Replace(ctx context.Context, r records.Record) (records.Record, error) {
	if b.replace != nil {
		return b.replace(ctx, r)
	}
	return b.Collection.Replace(ctx, r)
}

func (b *broken) Delete(ctx context.Context, id string, revision int64) error {
	if b.remove != nil {
		return b.remove(ctx, id, revision)
	}
	return b.Collection.Delete(ctx, id, revision)
}

func (b *broken) List(ctx context.Context, q records.Query) (records.Page, error) {
	if b.list != nil {
		return b.list(ctx, q)
	}
	return b.Collection.List(ctx, q)
}

func (b *broken) Count(ctx context.Context, index, value string) (int64, error) {
	if b.count != nil {
		return b.count(ctx, index, value)
	}
	return b.Collection.Count(ctx, index, value)
}

// brokenDB breaks every collection that it opens.
type brokenDB struct {
	records.DB
	damage func(records.Collection, *broken)
}

func (d brokenDB) Collection(ctx context.Context, schema records.Schema) (records.Collection, error) {
	c, err := d.DB.Collection(ctx, schema)
	if err != nil {
		return nil, err
	}
	b := &broken{Collection: c}
	d.damage(c, b)
	return b, nil
}

const (
	rowInserted = "a record that was inserted is read as it was"
	rowOnce     = "an id is inserted once"
	rowReplaced = "a replace counts the revision and keeps nothing of before"
	rowLate     = "a replace over another revision changes nothing"
	rowDeleted  = "a delete removes the record from everywhere"
	rowUnique   = "the value of a unique index exists once"
	rowOwn      = "what is returned or given belongs to the caller"
	rowHostile  = "hostile ids, keys and bodies are refused or kept exactly"
	rowOrder    = "a walk keeps what its query says, in its order and in both directions"
	rowCount    = "a count is of one value, or of all"
	rowQueries  = "a bad query or another query's cursor is refused"
	rowMoving   = "a walk in either direction sees each record once while others come and go"
	rowSteps    = "16 callers count one record up and lose no step"
)

// mutants are stores that are broken in one way, each with the rows that must see it.
func mutants() map[string]struct {
	damage func(records.Collection, *broken)
	rows   []string
} {
	type mutant = struct {
		damage func(records.Collection, *broken)
		rows   []string
	}
	return map[string]mutant{
		"inserts over what is there": {func(c records.Collection, b *broken) {
			b.insert = func(ctx context.Context, r records.Record) (records.Record, error) {
				_ = c.Delete(ctx, r.ID, 0)
				return c.Insert(ctx, r)
			}
		}, []string{rowOnce}},
		"replaces whatever the revision": {func(c records.Collection, b *broken) {
			b.replace = func(ctx context.Context, r records.Record) (records.Record, error) {
				if stored, err := c.Get(ctx, r.ID); err == nil {
					r.Revision = stored.Revision
				}
				return c.Replace(ctx, r)
			}
		}, []string{rowLate}},
		"keeps the older keys": {func(c records.Collection, b *broken) {
			b.replace = func(ctx context.Context, r records.Record) (records.Record, error) {
				if stored, err := c.Get(ctx, r.ID); err == nil {
					for name, value := range stored.Keys {
						if r.Keys == nil {
							r.Keys = map[string]string{}
						}
						r.Keys[name] = value
					}
				}
				return c.Replace(ctx, r)
			}
		}, []string{rowReplaced}},
		"answers the revision that it was given": {func(c records.Collection, b *broken) {
			b.replace = func(ctx context.Context, r records.Record) (records.Record, error) {
				_, err := c.Replace(ctx, r)
				return r, err
			}
		}, []string{rowReplaced, rowSteps}},
		"ignores the revision of a delete": {func(c records.Collection, b *broken) {
			b.remove = func(ctx context.Context, id string, _ int64) error { return c.Delete(ctx, id, 0) }
		}, []string{rowDeleted}},
		"deletes nothing": {func(_ records.Collection, b *broken) {
			b.remove = func(context.Context, string, int64) error { return nil }
		}, []string{rowDeleted, rowUnique}},
		"lets a unique value exist twice": {func(c records.Collection, b *broken) {
			b.insert = func(ctx context.Context, r records.Record) (records.Record, error) {
				stored, err := c.Insert(ctx, r)
				if err != nil && len(r.Keys["serial"]) > 0 {
					delete(r.Keys, "serial")
					return c.Insert(ctx, r)
				}
				return stored, err
			}
		}, []string{rowUnique}},
		"shows its own memory": {func(c records.Collection, b *broken) {
			var mu sync.Mutex
			shown := map[string]records.Record{}
			b.get = func(ctx context.Context, id string) (records.Record, error) {
				mu.Lock()
				defer mu.Unlock()
				if r, ok := shown[id]; ok {
					return r, nil
				}
				r, err := c.Get(ctx, id)
				shown[id] = r
				return r, err
			}
		}, []string{rowOwn, rowReplaced}},
		"cuts what is too long": {func(c records.Collection, b *broken) {
			b.insert = func(ctx context.Context, r records.Record) (records.Record, error) {
				r.ID = r.ID[:min(len(r.ID), 100)]
				return c.Insert(ctx, r)
			}
		}, []string{rowHostile}},
		"walks one way only": {func(c records.Collection, b *broken) {
			b.list = func(ctx context.Context, q records.Query) (records.Page, error) {
				q.Descending = false
				return c.List(ctx, q)
			}
		}, []string{rowOrder, rowMoving}},
		"forgets the filter": {func(c records.Collection, b *broken) {
			b.list = func(ctx context.Context, q records.Query) (records.Page, error) {
				q.Prefix, q.AtMost = "", ""
				return c.List(ctx, q)
			}
		}, []string{rowOrder, rowQueries}},
		"forgets since when": {func(c records.Collection, b *broken) {
			b.list = func(ctx context.Context, q records.Query) (records.Page, error) {
				q.IDFrom = ""
				return c.List(ctx, q)
			}
		}, []string{rowOrder}},
		"ends the walk a page early": {func(c records.Collection, b *broken) {
			b.list = func(ctx context.Context, q records.Query) (records.Page, error) {
				page, err := c.List(ctx, q)
				if len(page.Records) < q.Limit+1 && q.After != "" {
					page.Next = ""
				}
				return page, err
			}
		}, []string{rowOrder, rowMoving}},
		"counts everything": {func(c records.Collection, b *broken) {
			b.count = func(ctx context.Context, _, _ string) (int64, error) { return c.Count(ctx, "", "") }
		}, []string{rowCount}},
		"reads nothing back": {func(c records.Collection, b *broken) {
			b.insert = func(ctx context.Context, r records.Record) (records.Record, error) {
				r.Body = []byte(`{}`)
				return c.Insert(ctx, r)
			}
		}, []string{rowInserted}},
	}
}

func run(t *testing.T, name string, open func() (records.DB, error)) error {
	t.Helper()
	rows := recordstest.Rows()
	at := slices.IndexFunc(rows, func(r recordstest.Row) bool { return r.Name == name })
	if at < 0 {
		t.Fatalf("there is no row %q", name)
	}
	return rows[at].Run(t.Context(), recordstest.Harness{Open: open})
}

func TestEachBrokenStoreFailsTheRowsThatWatchForIt(t *testing.T) {
	for name, m := range mutants() {
		for _, row := range m.rows {
			err := run(t, row, func() (records.DB, error) { return brokenDB{memory.NewRecords(), m.damage}, nil })
			if err == nil {
				t.Errorf("a store that %s passes %q", name, row)
			}
		}
	}
}

func TestAnUnbrokenStoreBehindTheSameWrapperPasses(t *testing.T) {
	for _, row := range recordstest.Rows() {
		err := run(t, row.Name, func() (records.DB, error) {
			return brokenDB{memory.NewRecords(), func(records.Collection, *broken) {}}, nil
		})
		if err != nil {
			t.Errorf("%s: %v", row.Name, err)
		}
	}
}
