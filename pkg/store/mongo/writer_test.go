package mongo

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// entryOf is an entry of a subject; full has every field that an entry can have.
func entryOf(key holdfast.Subject, full, closed bool) *entry {
	amount := func(n int64) holdfast.Amount { return holdfast.AmountOf(key.Axis.Unit(), n) }
	run := holdfast.RunID("01JQ00Z0000000000000000001")
	at := time.Date(2026, time.March, 10, 12, 0, 0, 5_000_000, time.UTC)
	e := &entry{stamp: "b-2", Allocation: capacityledger.Allocation{
		ID: holdfast.NewAllocationID(run, key, 0), Subject: key, Run: run, Holder: holdfast.PlatformBot("review-pr"), Nonce: "b-2",
		Requested: amount(9), Amount: amount(9), Spent: amount(0), AcquiredAt: at, ExpiresAt: at.Add(time.Minute), Cap: holdfast.NoLimit,
	}}
	if full {
		e.Nonce, e.Minimum, e.Amount, e.Cap, e.unjudged = "b-1", amount(2), amount(7), holdfast.AtMost(amount(0)), true
		e.Confirmed, e.Attempt, e.Sequence, e.Spent = true, 3, 1<<40, amount(5)
		e.SpentBy = []capacityledger.AttemptSpend{{Attempt: 1, Spent: amount(2)}, {Attempt: 3, Spent: amount(3)}}
	}
	if closed {
		e.Outcome, e.ClosedAt = capacityledger.Expired, at.Add(time.Hour)
	}
	return e
}

func TestAnEntryIsReadAsItWasWritten(t *testing.T) {
	opaque := cmp.AllowUnexported(entry{}, holdfast.Amount{}, holdfast.Identity{}, holdfast.Limit{})
	for _, key := range []holdfast.Subject{holdfast.TeamSubject("acme", holdfast.AxisUSD, "2026-03"), holdfast.TeamSubject("acme", holdfast.AxisSlots, "")} {
		for n := range 8 {
			full, closed, asked := n&1 > 0, n&2 > 0, n&4 > 0
			t.Run(fmt.Sprintf("%s full %t closed %t asked %t", key, full, closed, asked), func(t *testing.T) {
				e := entryOf(key, full, closed)
				if asked { // the terms stay until somebody touches the entry
					e.Nonce = e.stamp
					e.reserved = []capacityledger.Reserved{{Holder: holdfast.TeamBot("acme", "docs-writer"), Amount: holdfast.AmountOf(key.Axis.Unit(), 4)}}
				}
				var got entry
				if err := newReader(key).entry(e.document(), &got); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(*e, got, opaque); diff != "" {
					t.Errorf("(-written +read)\n%s", diff)
				}
				raw, err := bson.Marshal(bson.D{{Key: "open", Value: documents(2, func(int) *entry { return e })}})
				if err != nil || bson.Raw(raw).Validate() != nil || e.document().Validate() != nil {
					t.Errorf("what is written is no document: %v", err)
				}
				page := historyPage("b-9", []*entry{e, e}, time.Hour)
				kept, err := newReader(key).entries(page.Lookup(fieldPage))
				if err != nil || page.Validate() != nil || len(kept) != 2 {
					t.Fatalf("the history has %s, %v", page, err)
				}
				if diff := cmp.Diff(*e, kept[1], opaque); diff != "" {
					t.Errorf("in the history (-written +read)\n%s", diff)
				}
				if short, _ := page.Lookup(fieldIDs, "1").StringValueOK(); short != shortened(e.ID, key) {
					t.Errorf("the history finds it as %q", short)
				}
			})
		}
	}
}
