package mongo

import (
	"context"
	mathrand "math/rand/v2"
	"time"
)

// wait is how long an ask has waited behind one undecided entry of its own id.
type wait struct {
	behind string
	from   time.Duration
}

// noted takes over behind what the ask waits now, and says whether it is worth waiting on.
func (w *wait) noted(behind string, waited, enough time.Duration) bool {
	if w.behind != behind {
		w.behind, w.from = behind, waited
	}
	return behind != "" && waited < 4*enough
}

// stayed is the entry behind which the ask has waited long enough; empty when none.
func (w *wait) stayed(waited, enough time.Duration) string {
	if enough <= 0 || waited-w.from < enough {
		return ""
	}
	return w.behind
}

// mostRounds bounds how often an ask is made again in all.
const mostRounds = 50

// pause is how long an ask waits before it is made again: a few milliseconds, doubled
// each time, and never the same twice, so that askers do not meet again.
func pause(round int) time.Duration {
	step := 4 * time.Millisecond << min(round, 6)
	return step + mathrand.N(step) //nolint:gosec // no secret: it only sets askers apart
}

// sleep waits, or says that the caller has gone.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
