package embedded

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/records"
)

// Records is the collection store in records.db: one table per collection, r_NAME,
// with the body as JSON text and one column k_INDEX for each declared index.
type Records struct {
	file *file

	mu          sync.Mutex
	collections map[string]*collection
	caches      map[string]*rowCache // of the hot collections, by name
}

var _ records.DB = (*Records)(nil)

const recordsSchema = `CREATE TABLE collections (name TEXT PRIMARY KEY, indexes TEXT NOT NULL) WITHOUT ROWID`

func openRecords(ctx context.Context, path string, options Options) (*Records, error) {
	r := &Records{collections: map[string]*collection{}, caches: map[string]*rowCache{}}
	h := hooks{committed: r.written, failed: func(error) bool { r.written(); return false }}
	var err error
	if r.file, err = openFile(ctx, path, recordsSchema, options.Readers, h, nil); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Records) close() error { return r.file.close() }

// Collection implements [records.DB].
func (r *Records) Collection(ctx context.Context, schema records.Schema) (records.Collection, error) {
	if err := schema.Check(); err != nil {
		return nil, err
	}
	schema.Indexes = slices.Clone(schema.Indexes)
	var refused error
	err := r.file.do(ctx, func(t *tx) error {
		var err error
		refused, err = openTable(t, schema)
		return err
	})
	switch {
	case err != nil:
		return nil, unavailable(ctx, err)
	case refused != nil:
		return nil, refused
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.collections[schema.Name]
	if cache := r.cacheOf(schema); !ok || !slices.Equal(c.schema.Indexes, schema.Indexes) || c.cache != cache {
		c = newCollection(r.file, schema)
		c.cache = cache
		r.collections[schema.Name] = c
	}
	return c, nil
}

// collection is one table. Its statements are written once; the order of a row's
// columns is id, revision, body and the indexes as declared.
type collection struct {
	file   *file
	schema records.Schema
	cache  *rowCache // nil: nothing is kept

	get, insert, replace, revision, remove, removeAny string

	mu    sync.Mutex
	reads map[string]*sql.Stmt // by text; closed with the readers
}

func newCollection(f *file, schema records.Schema) *collection {
	table := "r_" + schema.Name
	var columns, holes, sets strings.Builder
	for _, index := range schema.Indexes {
		columns.WriteString(", k_" + index.Name)
		holes.WriteString(", ?")
		sets.WriteString(", k_" + index.Name + " = ?")
	}
	return &collection{
		file: f, schema: schema, reads: map[string]*sql.Stmt{},
		get:       "SELECT id, revision, body" + columns.String() + " FROM " + table,
		insert:    "INSERT INTO " + table + " (id, revision, body" + columns.String() + ") VALUES (?, 1, ?" + holes.String() + ")",
		replace:   "UPDATE " + table + " SET revision = revision + 1, body = ?" + sets.String() + " WHERE id = ? AND revision = ?",
		revision:  "SELECT revision FROM " + table + " WHERE id = ?",
		remove:    "DELETE FROM " + table + " WHERE id = ? AND revision = ?",
		removeAny: "DELETE FROM " + table + " WHERE id = ?",
	}
}

// Get implements [records.Collection].
func (c *collection) Get(ctx context.Context, id string) (records.Record, error) {
	if !records.ValidID(id) {
		return records.Record{}, records.ErrNotFound
	}
	if err := ctx.Err(); err != nil {
		return records.Record{}, unavailable(ctx, err)
	}
	kept, ok, generation := c.cache.find(id)
	switch {
	case ok && kept.Revision == 0:
		return records.Record{}, records.ErrNotFound
	case ok:
		return kept, nil
	}
	// One row by its key takes microseconds, less than the two goroutines with which the
	// driver would watch for the end of the context.
	found, err := c.read(context.WithoutCancel(ctx), c.get+" WHERE id = ?", 1, id)
	switch {
	case err != nil:
		return records.Record{}, err
	case len(found) == 0:
		c.cache.keep(id, records.Record{}, generation)
		return records.Record{}, records.ErrNotFound
	}
	c.cache.keep(id, found[0], generation)
	return found[0], nil
}

// Insert implements [records.Collection].
func (c *collection) Insert(ctx context.Context, r records.Record) (records.Record, error) {
	if err := c.schema.CheckRecord(r); err != nil {
		return records.Record{}, err
	}
	args := append([]driver.Value{r.ID, string(r.Body)}, c.keys(r)...)
	err := c.write(ctx, r.ID, func(t *tx) (answer, err error) {
		_, err = t.exec(c.insert, args...)
		if taken(err) {
			return records.ErrExists, nil
		}
		return nil, err
	})
	if err != nil {
		return records.Record{}, err
	}
	r.Revision = 1
	return own(r), nil
}

// Replace implements [records.Collection].
func (c *collection) Replace(ctx context.Context, r records.Record) (records.Record, error) {
	if err := c.schema.CheckRecord(r); err != nil {
		return records.Record{}, err
	}
	args := append(append([]driver.Value{string(r.Body)}, c.keys(r)...), r.ID, r.Revision)
	err := c.write(ctx, r.ID, func(t *tx) (answer, err error) {
		changed, err := t.exec(c.replace, args...)
		switch {
		case taken(err):
			return records.ErrExists, nil
		case err != nil || changed == 1:
			return nil, err
		}
		return c.missed(t, r.ID)
	})
	if err != nil {
		return records.Record{}, err
	}
	r.Revision++
	return own(r), nil
}

// Delete implements [records.Collection].
func (c *collection) Delete(ctx context.Context, id string, revision int64) error {
	if !records.ValidID(id) {
		return records.ErrNotFound
	}
	return c.write(ctx, id, func(t *tx) (answer, err error) {
		var changed int64
		if revision == 0 {
			changed, err = t.exec(c.removeAny, id)
		} else {
			changed, err = t.exec(c.remove, id, revision)
		}
		if err != nil || changed == 1 {
			return nil, err
		}
		return c.missed(t, id)
	})
}

// missed tells a write that found no row of its revision which of the two it was.
func (c *collection) missed(t *tx, id string) (answer, err error) {
	answer = records.ErrNotFound
	err = t.query(c.revision, func([]driver.Value) error {
		answer = records.ErrRevision
		return nil
	}, id)
	return answer, err
}

// List implements [records.Collection].
func (c *collection) List(ctx context.Context, q records.Query) (records.Page, error) {
	after, begun, err := c.schema.CheckQuery(q)
	if err != nil {
		return records.Page{}, err
	}
	query, args := c.walk(q, after, begun)
	found, err := c.read(ctx, query, min(q.Limit+1, 64), args...)
	if err != nil {
		return records.Page{}, err
	}
	page := records.Page{Records: found}
	if len(found) > q.Limit {
		page.Records = found[:q.Limit]
		page.Next = c.schema.Cursor(q, found[q.Limit-1])
	}
	return page, nil
}

// Count implements [records.Collection]. It counts in the index and reads no record.
func (c *collection) Count(ctx context.Context, index, value string) (int64, error) {
	if err := c.schema.CheckCount(index); err != nil {
		return 0, err
	}
	query, args := "SELECT count(*) FROM r_"+c.schema.Name, []any(nil)
	if index != "" {
		query, args = query+" WHERE k_"+index+" = ?", []any{value}
	}
	statement, err := c.prepared(ctx, query)
	if err != nil {
		return 0, unavailable(ctx, err)
	}
	var n int64
	if err := statement.QueryRowContext(ctx, args...).Scan(&n); err != nil {
		return 0, unavailable(ctx, err)
	}
	return n, nil
}

// keys are the values of the declared indexes, nil where the record is left out.
func (c *collection) keys(r records.Record) []driver.Value {
	values := make([]driver.Value, len(c.schema.Indexes))
	for i, index := range c.schema.Indexes {
		if value, ok := r.Keys[index.Name]; ok {
			values[i] = value
		}
	}
	return values
}

// write runs one statement's work on a row through the writer. answer is the caller's
// (nothing was written then), an error is the store's.
func (c *collection) write(ctx context.Context, id string, run func(*tx) (answer, err error)) error {
	var answer error
	err := c.file.do(ctx, func(t *tx) (err error) {
		c.cache.begin(id)
		answer, err = run(t)
		return err
	})
	if err != nil {
		return unavailable(ctx, err)
	}
	return answer
}

func (c *collection) read(ctx context.Context, query string, expect int, args ...any) (found []records.Record, err error) {
	statement, err := c.prepared(ctx, query)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	rows, err := statement.QueryContext(ctx, args...)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	defer func() {
		if closeErr := rows.Close(); err == nil && closeErr != nil {
			err = unavailable(ctx, closeErr)
		}
	}()
	found = make([]records.Record, 0, expect)
	keys := make([]sql.NullString, len(c.schema.Indexes))
	for rows.Next() {
		var r records.Record
		var body string
		into := []any{&r.ID, &r.Revision, &body}
		for i := range keys {
			into = append(into, &keys[i])
		}
		if err := rows.Scan(into...); err != nil {
			return nil, unavailable(ctx, err)
		}
		r.Body = []byte(body)
		for i, index := range c.schema.Indexes {
			if keys[i].Valid {
				if r.Keys == nil {
					r.Keys = map[string]string{}
				}
				r.Keys[index.Name] = keys[i].String
			}
		}
		found = append(found, r)
	}
	if err := rows.Err(); err != nil {
		return nil, unavailable(ctx, err)
	}
	return found, nil
}

// prepared is the statement of a text, prepared on first use. There are as many as
// there are shapes of queries.
func (c *collection) prepared(ctx context.Context, query string) (*sql.Stmt, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.reads[query]; ok {
		return s, nil
	}
	s, err := c.file.readers.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	c.reads[query] = s
	return s, nil
}

// unavailable is what the store answers when it cannot: the caller's context's own
// error where that ended, else one that matches ErrUnavailable.
func unavailable(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
		return fmt.Errorf("wait for the record store: %w", ended)
	}
	return fmt.Errorf("%w: %w", records.ErrUnavailable, err)
}

// own copies what the caller may go on changing.
func own(r records.Record) records.Record {
	r.Body, r.Keys = slices.Clone(r.Body), maps.Clone(r.Keys)
	return r
}
