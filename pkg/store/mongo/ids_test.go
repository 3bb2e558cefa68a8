package mongo_test

import (
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

func TestAnIDIsATextWhateverItLooksLike(t *testing.T) {
	both := processes(t, 2)
	var total int64
	for _, run := range []holdfast.RunID{"$x", "$$ROOT", "$", "a.b", "%2E", "\u00fc", "a@b", `{"$gt":""}`, "a/b", "A B", "z", "Z"} {
		a := ask(1, dollars, feature, 900, 9)
		a.Run, a.ID = run, holdfast.NewAllocationID(run, dollars, 0)
		both[0].gets(a, 9)
		both[1].confirm(a)
		both[1].settle(a, 4)
		late := capacityledger.Report{Attempt: 1, Spent: holdfast.AmountOf(holdfast.UnitUSD, 5)}
		if closed, err := both[0].ledger.Settle(t.Context(), a.ID, late); closed || err != nil {
			t.Errorf("%q is reported on late: %t, %v", run, closed, err)
		}
		if got, err := both[1].ledger.Get(t.Context(), a.ID); err != nil || got.Spent.Int() != 5 || got.Run != run {
			t.Errorf("%q reads as %+v, %v", run, got, err)
		}
		total += 5
	}
	both[0].holds(dollars, total, 0)
}
