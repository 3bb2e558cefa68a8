package audit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/pkg/audit"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

// all are the entries that are written, the newest first.
func all(t *testing.T, l *audit.Log) []audit.Entry {
	t.Helper()
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, _, err := l.List(t.Context(), audit.Filter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func refusal(actor, target, ip string) audit.Entry {
	return audit.Entry{Actor: actor, Action: "create-team", Target: target, IP: ip, Outcome: audit.Refused, Detail: map[string]string{"code": "forbidden"}}
}

func TestRepeatsOfARefusalWithinAMinuteAreOneRowAlsoWhenItIsWritten(t *testing.T) {
	c := clocktest.New()
	l := open(t, memory.NewRecords(), c)
	for range 3 {
		l.Note(refusal("ann", "teams", "10.0.0.1"))
		c.Advance(10 * time.Second)
	}
	if rows := all(t, l); len(rows) != 1 || rows[0].Count != 3 {
		t.Fatalf("%+v, want one row of three", rows)
	}
	l.Note(refusal("ann", "teams", "10.0.0.1"))
	l.Note(refusal("bob", "teams", "10.0.0.1"))
	rows := all(t, l)
	if len(rows) != 2 || rows[1].Count != 4 || !rows[1].LastAt.Equal(c.Now()) {
		t.Fatalf("%+v, want ann's row of four and bob's", rows)
	}
	c.Advance(time.Minute)
	l.Note(refusal("ann", "teams", "10.0.0.1"))
	if rows := all(t, l); len(rows) != 3 {
		t.Errorf("%d rows, want another one after a minute", len(rows))
	}
}

func TestWhatIsDoneIsARowEachTime(t *testing.T) {
	l := open(t, memory.NewRecords(), clocktest.New())
	for range 5 {
		l.Note(audit.Entry{Actor: "ann", Action: "run.launched", Target: "r"})
	}
	if rows := all(t, l); len(rows) != 5 || rows[0].Outcome != audit.Done {
		t.Errorf("%d rows, want 5", len(rows))
	}
}

func TestStrangersCannotFillTheTrail(t *testing.T) {
	l := open(t, memory.NewRecords(), clocktest.New())
	for i := range 5_000 {
		l.Note(refusal(audit.Nobody, fmt.Sprint("teams/", i), fmt.Sprint("10.0.", i/250, ".", i%250)))
	}
	rows := all(t, l)
	count := 0
	for _, row := range rows {
		count += row.Count
	}
	if len(rows) > 101 || count != 5_000 {
		t.Errorf("%d rows of %d refusals, want at most 101 of 5000", len(rows), count)
	}
}

func TestWhatDoesNotFitIsCountedInARow(t *testing.T) {
	l := open(t, memory.NewRecords(), clocktest.New())
	for range 10_007 {
		l.Note(audit.Entry{Actor: "ann", Action: "run.launched", Target: "r"})
	}
	all(t, l)
	list, _, err := l.List(t.Context(), audit.Filter{Action: "audit.dropped"})
	if err != nil || len(list) != 1 || list[0].Detail["entries"] != "7" {
		t.Errorf("%+v, %v; want one row of 7", list, err)
	}
}

func TestNotesWaitForAStoreThatIsAway(t *testing.T) {
	db := recordstest.NewFaults(memory.NewRecords())
	l := open(t, db, clocktest.New())
	db.Before(func(context.Context, recordstest.Operation) error { return records.ErrUnavailable })
	l.Note(refusal("ann", "teams", ""))
	if err := l.Flush(t.Context()); err == nil {
		t.Fatal("it was written")
	}
	l.Note(refusal("ann", "teams", ""))
	db.Before(nil)
	if rows := all(t, l); len(rows) != 1 || rows[0].Count != 2 {
		t.Errorf("%+v, want one row of two", rows)
	}
}

func TestTheLoopWritesWhatIsLeftWhenItEnds(t *testing.T) {
	l := open(t, memory.NewRecords(), clocktest.New())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.Note(audit.Entry{Actor: "ann", Action: "run.launched", Target: "r"})
	if err := l.Run(ctx); err != nil {
		t.Fatal(err)
	}
	list, _, err := l.List(t.Context(), audit.Filter{})
	if err != nil || len(list) != 1 {
		t.Errorf("%d rows, %v", len(list), err)
	}
}
