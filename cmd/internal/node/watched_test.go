package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/pkg/records"
)

// answering is a collection of which every call has one answer.
type answering struct {
	records.Collection
	err error
}

func (a answering) Get(context.Context, string) (records.Record, error) {
	return records.Record{}, a.err
}

func (a answering) Delete(context.Context, string, int64) error { return a.err }

func TestACallThatFailedOrWaitedTooLongForTheStoreIsAnOutage(t *testing.T) {
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	for name, c := range map[string]struct {
		ctx      context.Context
		err      error
		patience time.Duration
		outage   bool
	}{
		"answered soon":                {t.Context(), nil, time.Hour, false},
		"no such record":               {t.Context(), records.ErrNotFound, time.Hour, false},
		"away":                         {t.Context(), records.ErrUnavailable, time.Hour, true},
		"away, and the caller went":    {gone, records.ErrUnavailable, time.Hour, false},
		"answered when it came back":   {t.Context(), nil, -1, true},
		"the caller's time ran out":    {t.Context(), context.DeadlineExceeded, -1, true},
		"no such record, after a wait": {t.Context(), records.ErrNotFound, -1, true},
	} {
		t.Run(name, func(t *testing.T) {
			outages := 0
			w := watchedCollection{answering{err: c.err}, c.patience, func() { outages++ }}
			if _, err := w.Get(c.ctx, "x"); !errors.Is(err, c.err) {
				t.Errorf("Get: %v", err)
			}
			if err := w.Delete(c.ctx, "x", 1); !errors.Is(err, c.err) {
				t.Errorf("Delete: %v", err)
			}
			if (outages == 2) != c.outage || (outages == 0) == c.outage {
				t.Errorf("two calls were %d outages", outages)
			}
		})
	}
}
