package mongo_test

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest/history"
)

// Each client has the database open for itself, as a process has, so that an ask of
// one is seen by the others until it is decided. What is decided is held up a little,
// for longer than a round trip takes.
func TestConcurrentHistoriesOfProcessesNeverGrantTooMuch(t *testing.T) {
	d := newDatabases(t)
	report := history.Run(t, history.Options{
		Promise: history.NeverTooMuch, Parallel: 64, Hold: 4 * time.Millisecond,
		Open: func() (capacityledger.Store, error) {
			store, err := d.fresh()
			if err != nil {
				return nil, err
			}
			return store.Ledger(), nil
		},
		Another: func(part capacityledger.Store) (capacityledger.Store, error) {
			store, err := d.again(part)
			if err != nil {
				return nil, err
			}
			return store.Ledger(), nil
		},
	})
	if report.Spurious*100 > report.Refused {
		t.Errorf("%d of %d refusals rest on asks in flight, more than one in a hundred", report.Spurious, report.Refused)
	}
}
