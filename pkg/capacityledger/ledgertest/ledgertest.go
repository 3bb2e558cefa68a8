// Package ledgertest is the conformance suite of the capacity ledger's stores.
// [Rows] lists what every twin must do, the simplest first; [Run] runs them all, each
// over a fresh store. Rows return errors, so that the suite itself can be tested
// against broken stores (mutants_test.go).
package ledgertest

import (
	"context"
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// Harness opens the twin under test.
type Harness struct {
	// Open gives an empty store. It may be called several times; each store is apart
	// from the others.
	Open func() (capacityledger.Store, error)
	// Reopen ends the store as if its process had died, without a close, and opens
	// what it left behind. It is nil for a twin that keeps nothing; its rows go on
	// with the same store then.
	Reopen func(capacityledger.Store) (capacityledger.Store, error)
}

func (h Harness) reopen(store capacityledger.Store) (capacityledger.Store, error) {
	if h.Reopen == nil {
		return store, nil
	}
	return h.Reopen(store)
}

// Row is one thing that every twin does.
type Row struct {
	Name string
	Run  func(context.Context, Harness) error
}

// Run runs every row over the twin; h is called once per row.
func Run(t *testing.T, h func(t *testing.T) Harness) {
	t.Helper()
	for _, row := range Rows() {
		t.Run(row.Name, func(t *testing.T) {
			if err := row.Run(t.Context(), h(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// Rows lists every row, the simplest first.
func Rows() []Row {
	return slices.Concat(storeRows(), ledgerRows(), exampleRows(), lifeRows(), faultRows(), raceRows(), modelRows())
}
