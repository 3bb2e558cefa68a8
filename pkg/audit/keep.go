package audit

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/pkg/records"
)

const (
	// pruneEvery is how often what is too old is looked for.
	pruneEvery = time.Minute
	// pruneBatch is how many entries are deleted at a time, and prunePass how many by one
	// pruning: a long arrear is worked off over several.
	pruneBatch = 500
	prunePass  = 20_000
)

// Keep deletes what is older than a time of keeping, until ctx ends; it returns nil. Zero
// keeps everything. Every replica may do it. told hears what a pruning deleted, or why
// it could not; the next one goes on from there.
func (l *Log) Keep(ctx context.Context, keep time.Duration, told func(deleted int, err error)) error {
	if keep <= 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(pruneEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if deleted, err := l.Prune(ctx, keep); (deleted > 0 || err != nil) && ctx.Err() == nil {
				told(deleted, err)
			}
		}
	}
}

// Prune deletes entries that are older than keep, the oldest first and a bounded number,
// and says how many. One whose repeats are still counted is younger than a minute.
func (l *Log) Prune(ctx context.Context, keep time.Duration) (deleted int, err error) {
	cutoff := records.FirstID(l.clock.Now().Add(-keep))
	for deleted < prunePass {
		found, _, err := l.table.List(ctx, records.Query{Limit: pruneBatch})
		if err != nil {
			return deleted, err
		}
		var old []string
		for _, v := range found {
			if v.Value.ID < cutoff {
				old = append(old, v.Value.ID)
			}
		}
		err = records.Each(old, writers, func(id string) error {
			if err := l.table.Delete(ctx, id); !errors.Is(err, records.ErrNotFound) { // another replica was faster
				return err
			}
			return nil
		})
		if err != nil {
			return deleted, err
		}
		deleted += len(old)
		if len(old) < pruneBatch {
			break
		}
	}
	return deleted, nil
}
