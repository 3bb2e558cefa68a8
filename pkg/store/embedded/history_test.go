package embedded_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest/history"
	"github.com/holdfast-io/holdfast/pkg/store/embedded"
)

// Many histories run at once here, so that their writes share commits as they do
// under load.
func TestConcurrentHistoriesHaveAnOrder(t *testing.T) {
	history.Run(t, history.Options{Parallel: 32, Open: func() (capacityledger.Store, error) {
		store, err := embedded.Open(t.Context(), t.TempDir(), embedded.Options{IdleSubjects: 50})
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
		return store.Ledger(), nil
	}})
}
