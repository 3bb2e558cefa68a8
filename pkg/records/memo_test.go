package records_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

type listed struct {
	ID    string   `json:"id"`
	Words []string `json:"words"`
}

// What a table remembers is what is stored, also where a record went and came back at
// the revision that it had, and nobody's change of what he was answered reaches others.
func TestARememberedValueIsTheStoredOneAndNobodyElses(t *testing.T) {
	ctx, cloned := t.Context(), 0
	table, err := records.NewTable(ctx, memory.NewRecords(), records.Schema{Name: "lists"}, func(l listed) string { return l.ID }, nil)
	if err != nil {
		t.Fatal(err)
	}
	table.Remember(func(l listed) listed { cloned++; l.Words = slices.Clone(l.Words); return l })
	expect := func(words ...string) {
		t.Helper()
		for range 2 { // decoded, then remembered
			got, err := table.Get(ctx, "a")
			if diff := cmp.Diff(words, got.Value.Words); err != nil || diff != "" {
				t.Fatal(diff, err)
			}
			got.Value.Words[0] = "scribbled"
		}
	}
	store := func(words ...string) {
		t.Helper()
		if _, err := table.Insert(ctx, listed{"a", words}); err != nil {
			t.Fatal(err)
		}
	}
	store("one")
	expect("one")
	if _, err := table.Update(ctx, "a", func(l *listed) error { l.Words = []string{"two"}; return nil }); err != nil {
		t.Fatal(err)
	}
	expect("two")
	if err := table.Delete(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if got, err := table.Get(ctx, "a"); err == nil {
		t.Errorf("it is gone and was answered as %v", got)
	}
	store("six")
	expect("six")
	if cloned == 0 {
		t.Error("nothing was remembered")
	}
}
