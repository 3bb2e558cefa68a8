package mongo_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest"
	"github.com/holdfast-io/holdfast/pkg/store/mongo"
)

// TestAHolderWithinItsReserveIsNeverRefusedByAStorm lets 64 ordinary askers loop over
// the one slot that is not reserved, while the holder of the other two asks within its
// reserve, holding one or two. The askers are in one process, in two within this one,
// and in two of their own. Refusals of ordinary asks while nobody had that slot rest on
// asks in flight alone; they are counted.
func TestAHolderWithinItsReserveIsNeverRefusedByAStorm(t *testing.T) {
	for _, count := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d processes in this one", count), func(t *testing.T) {
			all := processes(t, count)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			storms := make([]storm, count)
			var askers sync.WaitGroup
			for i, p := range all {
				askers.Go(func() { storms[i] = runStorm(ctx, p.ledger, 64/count, 64/count*i) })
			}
			holderAsks(t, all)
			stop()
			askers.Wait()
			weighed(t, all[0], storms)
		})
	}
	t.Run("2 processes of 32", func(t *testing.T) {
		own := processes(t, 1)
		parts := startParts(t, mongo.DatabaseOf(own[0].store).Name())
		for i, p := range parts {
			p.order(order{Storm: true, Run: partSize * i})
		}
		holderAsks(t, own)
		var storms []storm
		for _, p := range parts {
			p.order(order{})
			storms = append(storms, p.answer().Storm)
		}
		weighed(t, own[0], storms)
	})
}

// holderAsks lets the holder ask many times while it holds nothing or one of its two.
func holderAsks(t *testing.T, from []*process) {
	t.Helper()
	withheld := reserved(slots, review, 2)
	refused, asks := 0, rounds(t, 100)
	var held holdfast.AllocationID
	for n := range asks {
		p := from[n%len(from)]
		got, denial, err := p.ledger.Reserve(t.Context(), ask(later(64), slots, review, 3, 1, withheld))
		if err != nil {
			t.Fatal(err)
		}
		if denial.Denied() {
			refused++
			t.Errorf("ask %d of the holder was refused: %s", n, denial.Public)
			continue
		}
		if held != "" {
			if _, err := p.ledger.Release(t.Context(), held); err != nil {
				t.Fatal(err)
			}
		}
		held = got.ID
	}
	t.Logf("%d of %d asks of the holder were refused", refused, asks)
}

// weighed counts the refusals during which nobody had the slot.
func weighed(t *testing.T, p *process, storms []storm) {
	t.Helper()
	var all storm
	for _, s := range storms {
		all.Granted, all.Refused, all.Errors = append(all.Granted, s.Granted...), append(all.Refused, s.Refused...), append(all.Errors, s.Errors...)
	}
	for _, text := range all.Errors {
		t.Error(text)
	}
	byStart := func(a, b span) int { return cmp.Compare(a.From, b.From) }
	slices.SortFunc(all.Granted, byStart)
	slices.SortFunc(all.Refused, byStart)
	spurious := 0
	var last int64 // when the latest of the grants that began before ended
	next := 0
	for _, r := range all.Refused {
		for ; next < len(all.Granted) && all.Granted[next].From <= r.To; next++ {
			last = max(last, all.Granted[next].To)
		}
		if last < r.From {
			spurious++
		}
	}
	asks := len(all.Granted) + len(all.Refused)
	t.Logf("the storm asked %d times and was refused %d times, %d of these (%.2f %%) while nobody had the slot", asks, len(all.Refused), spurious, 100*float64(spurious)/float64(max(1, len(all.Refused))))
	if spurious*100 > len(all.Refused) {
		t.Errorf("%d of %d refusals rest on asks in flight, more than one in a hundred", spurious, len(all.Refused))
	}
	if len(all.Granted) == 0 || len(all.Refused) == 0 {
		t.Errorf("%d were granted and %d refused: this is no storm", len(all.Granted), len(all.Refused))
	}
	if err := ledgertest.Invariants(t.Context(), p.store.Ledger()); err != nil {
		t.Error(err)
	}
}
