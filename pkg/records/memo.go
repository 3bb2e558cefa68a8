package records

import (
	"bytes"
	"sync"
)

// mostRemembered bounds the values that a table remembers.
const mostRemembered = 1000

// memo has what a body was decoded to, by the record's id. The body itself is
// compared, so that whatever was written since is read as it is.
type memo[T any] struct {
	clone func(T) T

	mu     sync.Mutex
	values map[string]remembered[T]
}

type remembered[T any] struct {
	body  []byte
	value T
}

// Remember has [Table.Get] decode a body once and answer clones of the value until the
// body is another: for small values that every launch reads. clone must copy whatever
// a caller could change.
func (t *Table[T]) Remember(clone func(T) T) *Table[T] {
	t.memo = &memo[T]{clone: clone, values: map[string]remembered[T]{}}
	return t
}

func (m *memo[T]) get(r Record) (value T, known bool) {
	if m == nil {
		return value, false
	}
	m.mu.Lock()
	last, known := m.values[r.ID]
	m.mu.Unlock()
	if !known || !bytes.Equal(last.body, r.Body) {
		return value, false
	}
	return m.clone(last.value), true
}

func (m *memo[T]) put(r Record, value T) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.values) >= mostRemembered {
		clear(m.values)
	}
	m.values[r.ID] = remembered[T]{bytes.Clone(r.Body), m.clone(value)}
}
