package records_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

type thing struct {
	ID     string `json:"id"`
	Colour string `json:"colour"`
	N      int    `json:"n"`
}

// things is a table of n things, every third red and the others blue; it counts the
// pages that are read.
func things(t *testing.T, n int) (table *records.Table[thing], pages *int) {
	t.Helper()
	pages = new(int)
	db := recordstest.NewFaults(memory.NewRecords())
	table, err := records.NewTable(t.Context(), db, records.Schema{Name: "things", Indexes: []records.Index{{Name: "colour"}}},
		func(v thing) string { return v.ID }, func(v thing) map[string]string { return map[string]string{"colour": v.Colour} })
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		colour := "blue"
		if i%3 == 0 {
			colour = "red"
		}
		if _, err := table.Insert(t.Context(), thing{fmt.Sprintf("%06d", i), colour, i}); err != nil {
			t.Fatal(err)
		}
	}
	db.Before(func(_ context.Context, op recordstest.Operation) error {
		if op.Verb == "list" {
			*pages++
		}
		return nil
	})
	return table, pages
}

func TestFilterShowsEveryMatchOnceInOrderWhateverThePage(t *testing.T) {
	table, _ := things(t, 1300)
	match := func(v thing) bool { return v.N%7 == 0 }
	for _, q := range []records.Query{{}, {Descending: true}, {Index: "colour", Equal: "red"}, {Index: "colour", Equal: "blue", Descending: true}} {
		for _, limit := range []int{1, 7, 100, 1000} {
			t.Run(fmt.Sprintf("%+v by %d", q, limit), func(t *testing.T) {
				var want, got []int
				for i := range 1300 {
					if i%7 == 0 && (q.Equal == "" || (q.Equal == "red") == (i%3 == 0)) {
						want = append(want, i)
					}
				}
				if q.Descending {
					for i, j := 0, len(want)-1; i < j; i, j = i+1, j-1 {
						want[i], want[j] = want[j], want[i]
					}
				}
				q := q
				q.Limit = limit
				for {
					page, next, err := table.Filter(t.Context(), q, match)
					if err != nil {
						t.Fatal(err)
					}
					if len(page) > limit {
						t.Fatalf("a page of %d, want at most %d", len(page), limit)
					}
					for _, v := range page {
						got = append(got, v.N)
					}
					if next == "" {
						break
					}
					q.After = next
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

func TestFilterOfASparseMatchStopsReadingAndGoesOnFromItsCursor(t *testing.T) {
	table, pages := things(t, 11_250)
	q := records.Query{Limit: 10}
	var found []int
	calls := 0
	for {
		*pages = 0
		page, next, err := table.Filter(t.Context(), q, func(v thing) bool { return v.N == 11_249 })
		if err != nil {
			t.Fatal(err)
		}
		if *pages > 14 {
			t.Fatalf("one call read %d pages", *pages)
		}
		calls++
		for _, v := range page {
			found = append(found, v.N)
		}
		if next == "" {
			break
		}
		q.After = next
	}
	if diff := cmp.Diff([]int{11_249}, found); diff != "" || calls != 3 {
		t.Errorf("%d calls, want 3; %s", calls, diff)
	}
}

func TestFilterGoesOnBehindWhatItShowedWhenNewerThingsCome(t *testing.T) {
	table, _ := things(t, 10)
	q := records.Query{Limit: 4, Descending: true}
	all := func(thing) bool { return true }
	first, next, err := table.Filter(t.Context(), q, all)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Insert(t.Context(), thing{ID: "000099", N: 99}); err != nil {
		t.Fatal(err)
	}
	q.After = next
	second, _, err := table.Filter(t.Context(), q, all)
	if err != nil {
		t.Fatal(err)
	}
	if first[3].N != 6 || second[0].N != 5 {
		t.Errorf("the pages end with %d and begin with %d, want 6 and 5", first[3].N, second[0].N)
	}
}

func TestFilterRefusesACursorThatIsNone(t *testing.T) {
	table, _ := things(t, 3)
	for _, cursor := range []string{"nonsense", "x/!!", "a/b/c"} {
		_, _, err := table.Filter(t.Context(), records.Query{Limit: 1, After: cursor}, func(thing) bool { return true })
		var bad *holdfast.InvalidError
		if !errors.As(err, &bad) || bad.Field != "cursor" {
			t.Errorf("%q: %v, want an InvalidError of the cursor", cursor, err)
		}
	}
}

func TestWalkVisitsEverythingWhileTheVisitMovesIt(t *testing.T) {
	table, _ := things(t, 250)
	var seen int
	err := table.Walk(t.Context(), records.Query{Index: "colour", Equal: "blue", Limit: 20}, func(v records.Versioned[thing]) error {
		seen++
		v.Value.Colour = "green"
		_, err := table.Replace(t.Context(), v)
		return err
	})
	if err != nil || seen != 166 {
		t.Errorf("%d seen, %v; want the 166 blue ones", seen, err)
	}
	stop := errors.New("enough")
	err = table.Walk(t.Context(), records.Query{}, func(records.Versioned[thing]) error { return stop })
	if err != stop { //nolint:errorlint // it must come back as it is
		t.Errorf("the walk ended with %v, want the visit's own error", err)
	}
}

func TestPageSizeRefusesWhatIsNoPage(t *testing.T) {
	for limit, want := range map[int]int{0: records.DefaultPage, 1: 1, 1000: 1000, -1: 0, 1001: 0} {
		got, err := records.PageSize(limit)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%d: %d, %v; want %d", limit, got, err, want)
		}
	}
}
