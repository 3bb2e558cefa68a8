// Package records is the one seam for documents that are plain records: teams,
// tokens, bots, runs, settings, decisions. A [Collection] keeps JSON bodies under an
// id with a revision, declared index keys, and cursors; the twins
// (pkg/store/*/records.go) implement it once, and the typed repositories are
// written once above it with [Table]. What needs atomic counting (the ledger, the
// meter) has a seam of its own.
package records

import (
	"context"
	"errors"
)

// Errors that callers branch on.
var (
	// ErrNotFound: there is no record under the id.
	ErrNotFound = errors.New("no such record")
	// ErrExists: the id, or the value of a unique index, is taken.
	ErrExists = errors.New("the record exists")
	// ErrRevision: the record was changed since the revision that was read.
	ErrRevision = errors.New("the record was changed in between")
	// ErrUnavailable: the store could not be reached or could not write.
	ErrUnavailable = errors.New("the record store is unavailable")
)

// MaxBody is the largest body that a store accepts, in bytes.
const MaxBody = 4 << 20

// Record is one stored document.
type Record struct {
	ID       string // 1 to 256 bytes, no control characters
	Revision int64  // 1 when inserted, one more with every replace; never reused
	Body     []byte // JSON
	// Keys has the value of each declared index that this record appears in. A
	// missing name leaves the record out of that index.
	Keys map[string]string
}

// Index is declared with the collection. A unique one lets each value exist once.
type Index struct {
	Name   string
	Unique bool
}

// Schema names a collection and its indexes. Opening it again with other indexes is
// an error unless the collection is empty or only gains non-unique ones.
type Schema struct {
	Name    string // [a-z][a-z_]*
	Indexes []Index
	// Hot says that single records of the collection are read far more often than they
	// are written, by every launch for instance. A store may then keep some in memory,
	// where it can do so without ever serving an older one.
	Hot bool
}

// Query is a bounded walk. Records come in the order of (index value, id), or of id
// when no index is named; Descending turns both around.
type Query struct {
	Index string // empty: all records, by id
	// Equal keeps one value of the index; Prefix those that begin with it; AtMost
	// those not above it. At most one of them is set.
	Equal, Prefix, AtMost string
	// IDFrom keeps ids at or above it: with time-ordered ids, "since".
	IDFrom     string
	Descending bool
	Limit      int    // 1 to 1000
	After      string // a cursor of the same query; empty begins
}

// Page is one page of a walk. Next is empty when it was the last.
type Page struct {
	Records []Record
	Next    string
}

// Collection is one set of records. An unreachable store is an error that matches
// [ErrUnavailable]; every acknowledged write survives the process in the durable
// twins. Slices and maps that are returned belong to the caller.
type Collection interface {
	// Get reads one record; ErrNotFound.
	Get(ctx context.Context, id string) (Record, error)
	// Insert stores a new record with revision 1; ErrExists.
	Insert(ctx context.Context, r Record) (Record, error)
	// Replace stores the record over the one of the same revision; ErrNotFound,
	// ErrRevision, ErrExists (a unique index).
	Replace(ctx context.Context, r Record) (Record, error)
	// Delete removes the record of that revision, or of any when it is zero;
	// ErrNotFound, ErrRevision.
	Delete(ctx context.Context, id string, revision int64) error
	// List walks; a cursor of another query is an *holdfast.InvalidError.
	List(ctx context.Context, q Query) (Page, error)
	// Count counts the records of one value of an index, or all when index is empty.
	Count(ctx context.Context, index, value string) (int64, error)
}

// DB opens collections. Both twins implement it.
type DB interface {
	// Collection opens a collection, creating it when it does not exist.
	Collection(ctx context.Context, schema Schema) (Collection, error)
}
