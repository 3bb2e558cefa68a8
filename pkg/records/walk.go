package records

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast"
)

// DefaultPage and MaxPage bound the page of a list.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

// PageSize is the page for the limit that a caller asked for: [DefaultPage] for
// zero; outside 1 to [MaxPage] it is an *holdfast.InvalidError.
func PageSize(limit int) (int, error) {
	switch {
	case limit == 0:
		return DefaultPage, nil
	case limit < 0 || limit > MaxPage:
		return 0, &holdfast.InvalidError{Field: "limit", Problem: fmt.Sprintf("%d is not a page", limit), Allowed: fmt.Sprintf("1 to %d", MaxPage)}
	}
	return limit, nil
}

// Walk visits every value of the query, page by page; q.Limit is the page. A visit
// may change or delete the value that it is shown. Its error ends the walk and is
// returned as it is.
func (t *Table[T]) Walk(ctx context.Context, q Query, visit func(Versioned[T]) error) error {
	if q.Limit == 0 {
		q.Limit = DefaultPage
	}
	for {
		values, next, err := t.List(ctx, q)
		if err != nil {
			return err
		}
		for _, v := range values {
			if err := visit(v); err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
		q.After = next
	}
}

// maxScan bounds how many values one [Table.Filter] reads. A sparse filter answers
// a short page with a cursor instead of reading everything.
const maxScan = 5_000

// scanPage is how many values a filter reads at a time, at most: it begins with what
// is wanted and reads more where few match.
const scanPage = 500

// Filter lists up to q.Limit values of the query that keep accepts, and the cursor
// from which the next call goes on (q.After); it is empty at the end. A page may be
// short, or empty, before the end: read on until the cursor is empty. The query names
// no index, or one value of one.
func (t *Table[T]) Filter(ctx context.Context, q Query, keep func(T) bool) (values []T, next string, err error) {
	want := q.Limit
	page, last, err := splitCursor(q.After)
	if err != nil {
		return nil, "", err
	}
	q.Limit, q.After = min(want+1, scanPage), page
	for read := 0; read < maxScan; q.Limit = min(4*q.Limit, scanPage) {
		found, following, err := t.List(ctx, q)
		if err != nil {
			return nil, "", err
		}
		read += len(found)
		for _, v := range found {
			id := t.id(v.Value)
			if last != "" && before(id, last, q.Descending) {
				continue
			}
			if !keep(v.Value) {
				continue
			}
			if len(values) == want {
				return values, joinCursor(q.After, t.id(values[want-1])), nil
			}
			values = append(values, v.Value)
		}
		if following == "" {
			return values, "", nil
		}
		q.After = following
	}
	return values, joinCursor(q.After, last), nil
}

// before says whether id was shown before (or is) the last one shown.
func before(id, last string, descending bool) bool {
	if descending {
		return id >= last
	}
	return id <= last
}

// A filter's cursor is the collection's cursor of the page that it stopped in, and
// the id that it showed last: such a page is read again and skipped up to there.
func joinCursor(page, last string) string { return last + "/" + page }

func splitCursor(cursor string) (page, last string, err error) {
	if cursor == "" {
		return "", "", nil
	}
	cut := strings.LastIndexByte(cursor, '/')
	if cut < 0 || len(cursor) > 2048 {
		return "", "", &holdfast.InvalidError{Field: "cursor", Problem: "it is not a cursor of this list", Allowed: "next_cursor as the list answered it"}
	}
	return cursor[cut+1:], cursor[:cut], nil
}
