package mongo_test

import (
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest"
	"github.com/holdfast-io/holdfast/pkg/store/mongo"
)

// document reads a subject's document.
func (p *process) document(subject holdfast.Subject) bson.M {
	p.t.Helper()
	var doc bson.M
	if err := mongo.DatabaseOf(p.store).Collection("subjects").FindOne(p.t.Context(), bson.D{{Key: "_id", Value: subject.String()}}).Decode(&doc); err != nil {
		p.t.Fatal(err)
	}
	return doc
}

func (p *process) damage(subject holdfast.Subject, update bson.D) {
	p.t.Helper()
	if _, err := mongo.DatabaseOf(p.store).Collection("subjects").UpdateOne(p.t.Context(), bson.D{{Key: "_id", Value: subject.String()}}, update); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) repair() capacityledger.Repaired {
	p.t.Helper()
	done, err := p.store.Ledger().Repair(p.t.Context(), p.clock.Now(), 100)
	if err != nil {
		p.t.Fatal(err)
	}
	return done
}

func TestHousekeepingMendsCountersThatDifferFromTheirEntries(t *testing.T) {
	p := processes(t, 1)[0]
	p.gets(ask(1, slots, feature, 9, 2), 2)
	p.gets(ask(2, slots, review, 9, 3), 3)
	p.damage(slots, bson.D{{Key: "$inc", Value: bson.D{{Key: "o", Value: int64(4)}, {Key: "h.platform/review-pr.o", Value: int64(-2)}, {Key: "h.platform/nobody.o", Value: int64(7)}}}})
	if ledgertest.Invariants(t.Context(), p.store.Ledger()) == nil {
		t.Fatal("the damage is not seen")
	}
	if done := p.repair(); done.Subjects != 1 {
		t.Errorf("%+v, want one subject mended", done)
	}
	p.holds(slots, 0, 5)
	if done := p.repair(); done.Subjects != 0 {
		t.Errorf("%+v, want nothing left to mend", done)
	}
	if holders, _ := p.document(slots)["h"].(bson.D); len(holders) != 2 {
		t.Errorf("the holders are %v, want the two that hold something", holders)
	}
}

func TestHousekeepingTakesOutATryThatCameLate(t *testing.T) {
	p := processes(t, 1)[0]
	p.gets(ask(1, slots, feature, 9, 2), 2)
	p.inFlight(ask(1, slots, feature, 9, 2)) // the first try's lost write arrives after the second one was granted
	p.repair()
	p.holds(slots, 0, 2)
	p.gets(ask(1, slots, feature, 9, 2), 2)
}

func TestHousekeepingForgetsASubjectThatNeverHeldAnything(t *testing.T) {
	p := processes(t, 1)[0]
	used := holdfast.TeamSubject("globex", holdfast.AxisSlots, "")
	p.gets(ask(1, slots, feature, 0, 1), 0)
	p.gets(ask(1, used, feature, 1, 1), 1)
	if _, err := p.ledger.Release(t.Context(), ask(1, used, feature, 1, 1).ID); err != nil {
		t.Fatal(err)
	}
	if done := p.repair(); done.Dropped != 1 {
		t.Errorf("%+v, want one record dropped", done)
	}
	subjects, err := p.ledger.Subjects(t.Context(), "", 10)
	if err != nil || len(subjects) != 1 || subjects[0] != used {
		t.Errorf("there are %v, %v; want the one that has a history", subjects, err)
	}
	p.gets(ask(2, slots, feature, 1, 1), 1) // its record is made again, though this process remembers one
	p.holds(slots, 0, 1)
}

func TestTheIndexOfExpiriesFollowsTheEntries(t *testing.T) {
	p := processes(t, 1)[0]
	next := func() time.Time { return p.document(slots)["next"].(bson.DateTime).Time().UTC() }
	first, second := ask(1, slots, feature, 9, 1), ask(2, slots, feature, 9, 1)
	first.Expires, second.Expires = p.clock.Now().Add(time.Minute), p.clock.Now().Add(time.Hour)
	p.gets(second, 1)
	p.gets(first, 1)
	if !next().Equal(first.Expires) {
		t.Errorf("it says %s, want %s", next(), first.Expires)
	}
	if _, err := p.ledger.Release(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	p.clock.Advance(2 * time.Minute)
	p.repair()
	if !next().Equal(second.Expires) {
		t.Errorf("after the first is gone it says %s, want %s", next(), second.Expires)
	}
	if _, err := p.ledger.Release(t.Context(), second.ID); err != nil {
		t.Fatal(err)
	}
	p.clock.Advance(2 * time.Hour)
	p.repair()
	if next().Year() != 9999 {
		t.Errorf("with nothing open it says %s", next())
	}
	third := ask(3, slots, feature, 9, 1)
	third.Expires = p.clock.Now().Add(time.Minute)
	p.gets(third, 1)
	if !next().Equal(third.Expires) {
		t.Errorf("it says %s, want %s", next(), third.Expires)
	}
}

func TestASweepTouchesNoMoreThanWhatIsDue(t *testing.T) {
	p := processes(t, 1)[0]
	for n := range 40 { // busy subjects, nothing of which is due, and one entry that is
		subject := holdfast.TeamSubject(holdfast.TeamID(fmt.Sprintf("t-%d", n)), holdfast.AxisSlots, "")
		a := ask(n, subject, feature, 9, 1)
		a.Expires = p.clock.Now().Add(time.Hour)
		if n == 7 {
			a.Expires = p.clock.Now().Add(time.Second)
		}
		p.gets(a, 1)
	}
	filter := bson.D{{Key: "next", Value: bson.D{{Key: "$lte", Value: p.clock.Now().Add(time.Minute)}}}}
	count, err := mongo.DatabaseOf(p.store).Collection("subjects").CountDocuments(t.Context(), filter)
	if err != nil || count != 1 {
		t.Errorf("the sweep would look at %d subjects, %v; want 1", count, err)
	}
	due, err := p.store.Ledger().Due(t.Context(), p.clock.Now().Add(time.Minute), capacityledger.Cursor{}, 10)
	if err != nil || len(due) != 1 {
		t.Errorf("%d are due, %v", len(due), err)
	}
}

func TestWhatEndsIsGivenATimeToGo(t *testing.T) {
	d := newDatabases(t)
	store, err := d.fresh()
	if err != nil {
		t.Fatal(err)
	}
	db := mongo.DatabaseOf(store)
	for _, name := range []string{"subjects", "history"} {
		specs, err := db.Collection(name).Indexes().ListSpecifications(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ttl := 0
		for _, spec := range specs {
			if spec.ExpireAfterSeconds != nil && *spec.ExpireAfterSeconds == 0 {
				ttl++
			}
		}
		if ttl != 1 {
			t.Errorf("%s has %d indexes that remove, want 1", name, ttl)
		}
	}
	short, err := mongo.Open(t.Context(), server(t), mongo.Options{Database: db.Name()})
	if err != nil {
		t.Fatal(err)
	}
	defer short.Close()
	p := processes(t, 1)[0]
	p.store, p.ledger = short, capacityledger.New(short.Ledger(), capacityledger.Options{Clock: p.clock})
	window := holdfast.Subject{Kind: holdfast.KindAccount, ID: "fp", Axis: holdfast.AxisFiveHour, Period: "1773147600"}
	for subject, began := range map[holdfast.Subject]time.Time{
		dollars: time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC), window: time.Unix(1773147600, 0), slots: {},
	} {
		p.gets(ask(1, subject, feature, 9, 1), 1)
		gone, has := p.document(subject)["gone"].(bson.DateTime)
		if has == began.IsZero() || has && !gone.Time().Equal(began.Add(400*24*time.Hour)) {
			t.Errorf("%s goes at %v (%t)", subject, gone.Time(), has)
		}
	}
}

// Closes that were written together are copied to the history and taken out together;
// one of them that took a late report in between stays until it is copied again.
func TestALateReportStaysWhereTheOthersOfItsWriteAreTakenOut(t *testing.T) {
	p := processes(t, 1)[0]
	const together = 25
	var closings []capacityledger.Closing
	for n := range together {
		p.gets(ask(n, dollars, feature, 900, 9), 9)
		closings = append(closings, capacityledger.Closing{ID: ask(n, dollars, feature, 900, 9).ID, Outcome: capacityledger.Expired})
	}
	// All at once, so that they share a write; the next change finds them copied.
	if _, err := p.store.Ledger().Close(t.Context(), p.clock.Now(), closings); err != nil {
		t.Fatal(err)
	}
	late := ask(7, dollars, feature, 900, 9).ID
	if closed, err := p.ledger.Settle(t.Context(), late, capacityledger.Report{Attempt: 1, Spent: holdfast.AmountOf(holdfast.UnitUSD, 4)}); err != nil || closed {
		t.Fatal(closed, err)
	}
	left := func() int { return len(p.document(dollars)["closed"].(bson.A)) }
	for n, deadline := together, time.Now().Add(patience); left() == together; n++ { // an ask takes out what is copied
		if time.Now().After(deadline) {
			t.Fatal("nothing is taken out")
		}
		p.gets(ask(n, dollars, feature, 900, 1), 1)
	}
	if n := left(); n != 1 {
		t.Errorf("%d closes are left, want the one that changed", n)
	}
	if a, err := p.ledger.Get(t.Context(), late); err != nil || a.Spent.Int() != 4 {
		t.Errorf("the late one says %d, %v", a.Spent.Int(), err)
	}
	if a, err := p.ledger.Get(t.Context(), closings[8].ID); err != nil || a.Outcome != capacityledger.Expired {
		t.Errorf("another one says %q, %v", a.Outcome, err)
	}
}
