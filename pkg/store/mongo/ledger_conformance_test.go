package mongo_test

import (
	"sync"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest"
)

// besideEachOther calls f for each of the numbers below n, six at a time: a row waits for
// the server more than it works, and `go test` would run as many as there are cores.
func besideEachOther(n int, f func(i int)) {
	var workers sync.WaitGroup
	next := make(chan int)
	for range 6 {
		workers.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

// conform runs the suite's rows over a twin; those in skip are left out.
func conform(t *testing.T, skip map[string]bool, h func(t *testing.T) ledgertest.Harness) {
	t.Helper()
	rows := ledgertest.Rows()
	besideEachOther(len(rows), func(i int) {
		if skip[rows[i].Name] {
			return
		}
		t.Run(rows[i].Name, func(t *testing.T) {
			if err := rows[i].Run(t.Context(), h(t)); err != nil {
				t.Error(err)
			}
		})
	})
}

func TestLedgerConforms(t *testing.T) {
	conform(t, nil, func(t *testing.T) ledgertest.Harness {
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
