package records

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Table is a typed view of a collection. T is encoded as JSON.
type Table[T any] struct {
	collection Collection
	name       string
	id         func(T) string
	keys       func(T) map[string]string
	memo       *memo[T] // nil: every body is decoded
}

// Versioned is a value with the revision that it was read at.
type Versioned[T any] struct {
	Value    T
	Revision int64
}

// NewTable opens the collection of T. id names a value, keys gives its index values.
func NewTable[T any](ctx context.Context, db DB, schema Schema, id func(T) string, keys func(T) map[string]string) (*Table[T], error) {
	collection, err := db.Collection(ctx, schema)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", schema.Name, err)
	}
	if keys == nil {
		keys = func(T) map[string]string { return nil }
	}
	return &Table[T]{collection: collection, name: schema.Name, id: id, keys: keys}, nil
}

// Get reads one value; the error matches [ErrNotFound] when there is none.
func (t *Table[T]) Get(ctx context.Context, id string) (Versioned[T], error) {
	r, err := t.collection.Get(ctx, id)
	if err != nil {
		return Versioned[T]{}, fmt.Errorf("get %s %q: %w", t.name, id, err)
	}
	if value, known := t.memo.get(r); known {
		return Versioned[T]{value, r.Revision}, nil
	}
	v, err := t.decode(r)
	if err == nil {
		t.memo.put(r, v.Value)
	}
	return v, err
}

// Insert stores a new value; the error matches [ErrExists] when its id is taken.
func (t *Table[T]) Insert(ctx context.Context, value T) (Versioned[T], error) {
	r, err := t.encode(value, 0)
	if err != nil {
		return Versioned[T]{}, err
	}
	if r, err = t.collection.Insert(ctx, r); err != nil {
		return Versioned[T]{}, fmt.Errorf("insert %s %q: %w", t.name, t.id(value), err)
	}
	return Versioned[T]{value, r.Revision}, nil
}

// Replace stores the value over the revision it was read at; the error matches
// [ErrRevision] when somebody was faster.
func (t *Table[T]) Replace(ctx context.Context, v Versioned[T]) (Versioned[T], error) {
	r, err := t.encode(v.Value, v.Revision)
	if err != nil {
		return Versioned[T]{}, err
	}
	if r, err = t.collection.Replace(ctx, r); err != nil {
		return Versioned[T]{}, fmt.Errorf("replace %s %q: %w", t.name, t.id(v.Value), err)
	}
	return Versioned[T]{v.Value, r.Revision}, nil
}

// updateTries bounds how often [Table.Update] begins again after a lost race.
const updateTries = 32

// Update reads, lets change edit, and replaces; a lost race begins again with what
// is then stored. An error of change ends it and is returned as it is; nothing was
// written then.
func (t *Table[T]) Update(ctx context.Context, id string, change func(*T) error) (Versioned[T], error) {
	for range updateTries {
		v, err := t.Get(ctx, id)
		if err != nil {
			return Versioned[T]{}, err
		}
		if err := change(&v.Value); err != nil {
			return v, err
		}
		v, err = t.Replace(ctx, v)
		if !errors.Is(err, ErrRevision) {
			return v, err
		}
	}
	return Versioned[T]{}, fmt.Errorf("update %s %q: %w, %d times", t.name, id, ErrRevision, updateTries)
}

// Delete removes the value, whatever its revision; the error matches [ErrNotFound].
func (t *Table[T]) Delete(ctx context.Context, id string) error {
	if err := t.collection.Delete(ctx, id, 0); err != nil {
		return fmt.Errorf("delete %s %q: %w", t.name, id, err)
	}
	return nil
}

// List walks the values; next is the cursor of the following page, empty at the end.
func (t *Table[T]) List(ctx context.Context, q Query) (values []Versioned[T], next string, err error) {
	page, err := t.collection.List(ctx, q)
	if err != nil {
		return nil, "", fmt.Errorf("list %s: %w", t.name, err)
	}
	for _, r := range page.Records {
		v, err := t.decode(r)
		if err != nil {
			return nil, "", err
		}
		values = append(values, v)
	}
	return values, page.Next, nil
}

// Count counts the values of one index value, or all when index is empty.
func (t *Table[T]) Count(ctx context.Context, index, value string) (int64, error) {
	n, err := t.collection.Count(ctx, index, value)
	if err != nil {
		return 0, fmt.Errorf("count %s: %w", t.name, err)
	}
	return n, nil
}

func (t *Table[T]) encode(value T, revision int64) (Record, error) {
	body, err := json.Marshal(value)
	if err != nil {
		return Record{}, fmt.Errorf("encode %s: %w", t.name, err)
	}
	return Record{ID: t.id(value), Revision: revision, Body: body, Keys: t.keys(value)}, nil
}

func (t *Table[T]) decode(r Record) (Versioned[T], error) {
	var value T
	if err := json.Unmarshal(r.Body, &value); err != nil {
		return Versioned[T]{}, fmt.Errorf("decode %s %q: %w", t.name, r.ID, err)
	}
	return Versioned[T]{value, r.Revision}, nil
}
