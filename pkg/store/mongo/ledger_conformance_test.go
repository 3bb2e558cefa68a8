package mongo_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest"
)

func TestLedgerConforms(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T) ledgertest.Harness {
		d := newDatabases(t)
		return ledgertest.Harness{
			Open: func() (capacityledger.Store, error) {
				store, err := d.fresh()
				if err != nil {
					return nil, err
				}
				return store.Ledger(), nil
			},
			Reopen: func(part capacityledger.Store) (capacityledger.Store, error) {
				store, err := d.again(part)
				if err != nil {
					return nil, err
				}
				return store.Ledger(), nil
			},
		}
	})
}
