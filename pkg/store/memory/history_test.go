package memory_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest/history"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

func TestConcurrentHistoriesHaveAnOrder(t *testing.T) {
	history.Run(t, history.Options{Open: func() (capacityledger.Store, error) { return memory.NewLedger(), nil }})
}
