package memory_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

func TestLedgerConformance(t *testing.T) {
	ledgertest.Run(t, func(*testing.T) ledgertest.Harness {
		return ledgertest.Harness{Open: func() (capacityledger.Store, error) { return memory.NewLedger(), nil }}
	})
}

// batched hides that the twin answers single asks, so that the same rows go through
// its batches.
type batched struct{ capacityledger.Store }

func TestLedgerConformanceThroughBatches(t *testing.T) {
	ledgertest.Run(t, func(*testing.T) ledgertest.Harness {
		return ledgertest.Harness{Open: func() (capacityledger.Store, error) { return batched{memory.NewLedger()}, nil }}
	})
}
