package audit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/pkg/audit"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

// record writes entries, a millisecond apart.
func record(t *testing.T, l *audit.Log, c *clocktest.Manual, entries int) {
	t.Helper()
	for n := range entries {
		if _, err := l.Record(t.Context(), audit.Entry{Actor: "a", Action: "b", Target: fmt.Sprint(n)}); err != nil {
			t.Fatal(err)
		}
		c.Advance(time.Millisecond)
	}
}

func left(t *testing.T, l *audit.Log) []audit.Entry {
	t.Helper()
	list, _, err := l.List(t.Context(), audit.Filter{Limit: records.MaxPage})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestWhatIsOlderThanTheTimeOfKeepingIsDeletedAndNothingElse(t *testing.T) {
	const day = 24 * time.Hour
	c := clocktest.New()
	db := memory.NewRecords()
	l, other := open(t, db, c), open(t, db, c)
	record(t, l, c, 1200) // more than two batches
	c.Advance(30 * day)
	record(t, l, c, 3)
	if deleted, err := l.Prune(t.Context(), 31*day); deleted != 0 || err != nil {
		t.Fatalf("%d deleted, %v", deleted, err)
	}
	var both [2]int
	done := make(chan error)
	for i, log := range []*audit.Log{l, other} {
		go func() {
			deleted, err := log.Prune(t.Context(), 30*day)
			both[i] = deleted
			done <- err
		}()
	}
	for range both {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if n := len(left(t, l)); n != 3 || both[0]+both[1] < 1200 {
		t.Errorf("%d are left after two replicas deleted %v", n, both)
	}
}

func TestKeepingGoesOnAfterAnOutageAndZeroKeepsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clocktest.New()
		db := recordstest.NewFaults(memory.NewRecords())
		l := open(t, db, c)
		record(t, l, c, 2)
		c.Advance(time.Hour)
		ctx, end := context.WithCancel(t.Context())
		var says []string
		down := true
		db.Before(func(context.Context, recordstest.Operation) error {
			if down {
				return records.ErrUnavailable
			}
			return nil
		})
		ended := make(chan error, 2)
		go func() {
			ended <- l.Keep(ctx, time.Minute, func(n int, err error) {
				says = append(says, fmt.Sprint(n, errors.Is(err, records.ErrUnavailable)))
				down = false
			})
		}()
		go func() { ended <- l.Keep(ctx, 0, func(n int, err error) { t.Errorf("%d, %v", n, err) }) }()
		time.Sleep(5 * time.Minute) // of the bubble's clock
		synctest.Wait()
		end()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if got := fmt.Sprint(says); got != "[0 true 2 false]" || len(left(t, l)) != 0 {
			t.Errorf("it said %s, and %d are left", got, len(left(t, l)))
		}
	})
}
