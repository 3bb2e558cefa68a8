package mongo

import (
	"context"
	"hash/maphash"
	"slices"
)

// turns lets the writers of one value in one at a time; writers of different values
// meet only by chance.
type turns struct {
	seed  maphash.Seed
	gates []chan struct{} // each holds a token while somebody is in
}

func newTurns() turns {
	t := turns{seed: maphash.MakeSeed(), gates: make([]chan struct{}, 256)}
	for n := range t.gates {
		t.gates[n] = make(chan struct{}, 1)
	}
	return t
}

// enter waits until nobody else writes one of the values; who entered must leave. It
// fails only when the caller has gone.
func (t turns) enter(ctx context.Context, values []string) (leave func(), err error) {
	var through []int
	for _, value := range values {
		through = append(through, int(maphash.String(t.seed, value)%uint64(len(t.gates))))
	}
	slices.Sort(through) // all go through the gates in one order, so nobody waits in a circle
	through = slices.Compact(through)
	in := 0
	leave = func() {
		for _, n := range through[:in] {
			<-t.gates[n]
		}
	}
	for _, n := range through {
		select {
		case t.gates[n] <- struct{}{}:
			in++
		case <-ctx.Done():
			leave()
			return nil, ctx.Err()
		}
	}
	return leave, nil
}
