package mongo

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
)

// What is closed soon after its grant is not remembered for vouching, and rings for
// nobody; what stays is.
func TestWhatIsClosedSoonNeedsNobodyToVouchForIt(t *testing.T) {
	slots := holdfast.TeamSubject("acme", holdfast.AxisSlots, "")
	n := &lane{ledger: &Ledger{options: Options{VouchAfter: time.Hour}}, key: slots, known: map[holdfast.AllocationID]*entry{}}
	granted := func(run holdfast.RunID) *entry {
		e := entryOf(slots, false, false)
		e.ID, e.Run = holdfast.NewAllocationID(run, slots, 0), run
		n.grants(e)
		return e
	}
	closed := func(e *entry) {
		after := *e
		after.stamp, after.Outcome = "b-7", "released"
		n.took(&plan{}, []replacement{{e, &after}})
	}
	for range 3 {
		closed(granted("01JQ00Z0000000000000000001"))
	}
	rings := func() bool {
		n.vouchSoon()
		defer func() { n.vouching = false }()
		return n.vouching
	}
	n.running = true // so that nobody works the lane
	if rings() {
		t.Error("it rings where nothing is left")
	}
	stays := granted("01JQ00Z0000000000000000002")
	if len(n.granting) != 1 || n.granting[0] != stays {
		t.Errorf("%d are remembered, want the one that is open", len(n.granting))
	}
	closed(granted("01JQ00Z0000000000000000003"))
	if !rings() {
		t.Error("it does not ring where one is left")
	}
	closed(stays)
	if rings() {
		t.Error("it rings after the last one is closed")
	}
}
