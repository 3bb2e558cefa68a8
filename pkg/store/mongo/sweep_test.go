package mongo_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/store/mongo"
)

// archived puts so many closes of long ago into the history, written by hand, because
// the ledger would take an hour for a million: in pages of 20, as a lane writes them.
func (p *process) archived(count int) {
	p.t.Helper()
	history := mongo.DatabaseOf(p.store).Collection("history")
	const onPage, together = 20, 500
	var pages []any
	for from := 0; from < count; from += onPage {
		subject := oldSubject(from)
		ids, closes := bson.A{}, bson.A{}
		for n := from; n < min(count, from+onPage); n++ {
			a := ask(n, subject, feature, 9, 1)
			ids = append(ids, string(a.Run))
			closes = append(closes, bson.D{
				{Key: "k", Value: fmt.Sprintf("old-%d", n)}, {Key: "r", Value: string(a.Run)}, {Key: "h", Value: a.Holder.String()}, {Key: "q", Value: int64(1)},
				{Key: "t", Value: p.clock.Now()}, {Key: "x", Value: p.clock.Now()}, {Key: "z", Value: "released"}, {Key: "ct", Value: p.clock.Now()},
			})
		}
		pages = append(pages, bson.D{
			{Key: "_id", Value: fmt.Sprintf("old-%d", from)}, {Key: "of", Value: subject.String()}, {Key: "gone", Value: p.clock.Now().Add(long)},
			{Key: "ids", Value: ids}, {Key: "closes", Value: closes},
		})
		if len(pages) < together && from+onPage < count {
			continue
		}
		if _, err := history.InsertMany(p.t.Context(), pages, options.InsertMany().SetOrdered(false)); err != nil {
			p.t.Fatal(err)
		}
		pages = nil
	}
}

// oldSubject is whose the n-th close of long ago is.
func oldSubject(n int) holdfast.Subject {
	return holdfast.TeamSubject(holdfast.TeamID(fmt.Sprintf("old-%d", n/20%1000)), holdfast.AxisSlots, "")
}

// TestASweepTouchesWhatIsOverdueAndNothingElse lets one process sweep what another left
// behind: 200 overdue allocations, one on each of 200 subjects, beside 300 subjects of
// which nothing is due and a history of very many closes (1,000,000 of them where
// HOLDFAST_TEST_LONG is set).
func TestASweepTouchesWhatIsOverdueAndNothingElse(t *testing.T) {
	t.Parallel() // it waits more than it works
	const overdue, alive = 200, 300
	closed := 10_000
	if os.Getenv("HOLDFAST_TEST_LONG") != "" {
		closed = 1_000_000
	}
	p, w, d := watched(t)
	p.archived(closed)
	old := ask(closed-1, oldSubject(closed-1), feature, 9, 1)
	if a, err := p.ledger.Get(t.Context(), old.ID); err != nil || a.Outcome != capacityledger.Released {
		t.Fatalf("the history does not read as the ledger's own: %q, %v", a.Outcome, err)
	}
	store, err := d.again(p.store)
	if err != nil {
		t.Fatal(err)
	}
	left := &process{t, store, capacityledger.New(store.Ledger(), capacityledger.Options{Clock: p.clock}), p.clock}
	due := map[string]bool{}
	for n := range overdue + alive {
		subject := holdfast.TeamSubject(holdfast.TeamID(fmt.Sprintf("t-%d", n)), holdfast.AxisSlots, "")
		a := ask(closed+n, subject, feature, 9, 1)
		a.Expires = p.clock.Now().Add(time.Hour)
		if n < overdue {
			a.Expires = p.clock.Now().Add(time.Second)
			due[subject.String()] = true
		}
		left.gets(a, 1)
	}
	p.clock.Advance(time.Minute)
	w.begin()
	began := time.Now()
	expired, err := p.ledger.Expire(t.Context(), p.clock.Now(), 1000)
	took := time.Since(began)
	if err != nil || len(expired) != overdue {
		t.Errorf("%d were closed, %v; want %d", len(expired), err, overdue)
	}
	looks, touched, writes := 0, map[string]bool{}, 0
	for _, c := range w.told() {
		subject := ""
		switch c.name {
		case "aggregate":
			looks++
			continue
		case "find":
			subject, _ = c.command.Lookup("filter", "_id").StringValueOK()
		case "update":
			writes++
			subject, _ = c.command.Lookup("updates", "0", "q", "_id").StringValueOK()
		}
		if touched[subject] = true; c.collection != "subjects" || !due[subject] {
			t.Errorf("the sweep sent %s of %q in %s, where nothing is due", c.name, subject, c.collection)
		}
	}
	if len(touched) != overdue || writes != overdue || looks > 3 {
		t.Errorf("the sweep wrote %d times to %d documents after %d looks, want %d times to as many after one look for each batch", writes, len(touched), looks, overdue)
	}
	t.Logf("a pass over %d closed and %d overdue allocations: %d looks, %d commands, %d documents, %s", closed, overdue, looks, len(w.told()), len(touched), took.Round(time.Millisecond))
}
