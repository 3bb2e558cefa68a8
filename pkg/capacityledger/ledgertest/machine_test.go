package ledgertest_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

// The same verbs as in the model rows, drawn by rapid, which shrinks what fails to
// the shortest history.
func TestAnyHistoryAgreesWithTheModel(t *testing.T) {
	harness := ledgertest.Harness{Open: func() (capacityledger.Store, error) { return memory.NewLedger(), nil }}
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 80).Draw(rt, "verbs")
		choose := func(k int) int { return rapid.IntRange(0, k-1).Draw(rt, "choice") }
		if err := ledgertest.Steps(t.Context(), harness, n, choose); err != nil {
			rt.Fatal(err)
		}
	})
}
