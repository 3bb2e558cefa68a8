// Package recordstest is the conformance suite of the record stores. [Rows] lists
// what every twin must do, the simplest first; [Run] runs them all, each over a fresh
// store. Rows return errors, so that the suite itself is tested against broken stores
// (mutants_test.go).
package recordstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// Harness opens the twin under test.
type Harness struct {
	// Open gives an empty store. It may be called several times; each store is apart
	// from the others.
	Open func() (records.DB, error)
	// Reopen ends the store as if its process had died, without a close, and opens
	// what it left behind. It is nil for a twin that keeps nothing; its rows go on
	// with the same store then.
	Reopen func(records.DB) (records.DB, error)
	// Close ends the store in order. It is nil for a twin that has nothing to end.
	Close func(records.DB) error
}

// Row is one thing that every twin does.
type Row struct {
	Name string
	Run  func(context.Context, Harness) error
}

// Run runs every row over the twin; h is called once per row.
func Run(t *testing.T, h func(t *testing.T) Harness) {
	t.Helper()
	for _, row := range Rows() {
		t.Run(row.Name, func(t *testing.T) {
			if err := row.Run(t.Context(), h(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// Rows lists every row, the simplest first.
func Rows() []Row { return slices.Concat(singleRows(), walkRows(), schemaRows(), raceRows()) }

// things is the collection that most rows use.
var things = records.Schema{Name: "things", Indexes: []records.Index{{Name: "colour"}, {Name: "serial", Unique: true}}}

// open opens an empty collection of things.
func open(ctx context.Context, h Harness) (records.Collection, error) {
	db, err := h.Open()
	if err != nil {
		return nil, err
	}
	return db.Collection(ctx, things)
}

// over is a row over one empty collection of things.
func over(name string, run func(context.Context, records.Collection) error) Row {
	return Row{name, func(ctx context.Context, h Harness) error {
		c, err := open(ctx, h)
		if err != nil {
			return err
		}
		return run(ctx, c)
	}}
}

func thing(id, colour string) records.Record {
	r := records.Record{ID: id, Body: []byte(`{"id":` + quote(id) + `}`)}
	if colour != "" {
		r.Keys = map[string]string{"colour": colour}
	}
	return r
}

func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// insert stores things, each "id" or "id colour" in two texts.
func insert(ctx context.Context, c records.Collection, all ...records.Record) error {
	for _, r := range all {
		if _, err := c.Insert(ctx, r); err != nil {
			return fmt.Errorf("insert %q: %w", r.ID, err)
		}
	}
	return nil
}

// wants demands a sentinel.
func wants(what string, err, want error) error {
	if !errors.Is(err, want) {
		return fmt.Errorf("%s: %v, want %w", what, err, want)
	}
	return nil
}

// invalid demands an *holdfast.InvalidError of the field.
func invalid(what string, err error, field string) error {
	var bad *holdfast.InvalidError
	if !errors.As(err, &bad) || bad.Field != field {
		return fmt.Errorf("%s: %w, want a bad %s", what, orNone(err), field)
	}
	return nil
}

var errNone = errors.New("no error")

func orNone(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

// same demands a record's parts.
func same(got records.Record, id string, revision int64, body string, keys map[string]string) error {
	if got.ID != id || got.Revision != revision || string(got.Body) != body || len(got.Keys) != len(keys) {
		return fmt.Errorf("read %q at %d with %s and keys %q; want %q at %d with %s and keys %q", got.ID, got.Revision, got.Body, got.Keys, id, revision, body, keys)
	}
	for name, value := range keys {
		if had, ok := got.Keys[name]; !ok || had != value {
			return fmt.Errorf("%q has keys %q, want %q", id, got.Keys, keys)
		}
	}
	return nil
}

// ids walks the whole query in pages and lists the ids as they come.
func ids(ctx context.Context, c records.Collection, q records.Query) ([]string, error) {
	var out []string
	for range 10_000 {
		page, err := c.List(ctx, q)
		if err != nil {
			return nil, err
		}
		if len(page.Records) > q.Limit {
			return nil, fmt.Errorf("a page of %d has %d records", q.Limit, len(page.Records))
		}
		for _, r := range page.Records {
			out = append(out, r.ID)
		}
		if page.Next == "" {
			return out, nil
		}
		if len(page.Records) == 0 {
			return nil, errors.New("an empty page says that there is more")
		}
		q.After = page.Next
	}
	return nil, errors.New("the walk does not end")
}

// walks demands the ids of a query, in pages of one, two, three and all.
func walks(ctx context.Context, c records.Collection, q records.Query, want ...string) error {
	for _, limit := range []int{1, 2, 3, records.MaxLimit} {
		q.Limit = limit
		got, err := ids(ctx, c, q)
		if err != nil {
			return err
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("walk %+v: %q, want %q", q, got, want)
		}
	}
	return nil
}
