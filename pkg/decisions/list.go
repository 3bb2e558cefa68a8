package decisions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// Get is one decision, also one that is not written yet; the error matches
// [records.ErrNotFound] when there is none, or none any more.
func (r *Recorder) Get(ctx context.Context, id string) (Decision, error) {
	r.mu.Lock()
	e, ok := r.byID[id]
	if ok {
		d := e.decision
		r.mu.Unlock()
		return d, nil
	}
	r.mu.Unlock()
	if id == "" || len(id) > 64 || holdfast.Clip(id, 64) != id {
		return Decision{}, fmt.Errorf("get decision %q: %w", holdfast.Clip(id, 80), records.ErrNotFound)
	}
	v, err := r.table.Get(ctx, id)
	return v.Value, err
}

// Filter selects decisions; what is empty selects all.
type Filter struct {
	Team     holdfast.TeamID
	Bot      string // a name, folded here; it is compared with the identity and with what was asked for
	Reason   holdfast.DenyReason
	Cause    holdfast.Cause
	Admitted *bool
	Since    time.Time
	Limit    int // 1 to [records.MaxPage]; 0 is [records.DefaultPage]
	Cursor   string
}

// List lists decisions, the newest first; those of this process that are not written
// yet are written first. next is the cursor of the following page, empty at the end;
// a page may be short before it.
func (r *Recorder) List(ctx context.Context, f Filter) (list []Decision, next string, err error) {
	q := records.Query{Descending: true, After: f.Cursor}
	if q.Limit, err = records.PageSize(f.Limit); err != nil {
		return nil, "", err
	}
	bot := ""
	if f.Bot != "" {
		if bot, err = holdfast.FoldName(f.Bot); err != nil {
			return nil, "", holdfast.InField("bot", err)
		}
	}
	if err := r.Flush(ctx); err != nil {
		return nil, "", fmt.Errorf("list decisions: %w", err)
	}
	if !f.Since.IsZero() {
		q.IDFrom = records.FirstID(f.Since)
	}
	switch {
	case f.Team != "" && f.Reason != "":
		q.Index, q.Equal = indexTeamReason, teamReason(f.Team, f.Reason)
	case f.Team != "":
		q.Index, q.Equal = indexTeam, string(f.Team)
	case f.Reason != "":
		q.Index, q.Equal = indexReason, string(f.Reason)
	}
	return r.table.Filter(ctx, q, func(d Decision) bool {
		return (f.Team == "" || d.Team == f.Team) && (f.Reason == "" || d.Reason == f.Reason) &&
			(f.Cause == "" || d.Cause == f.Cause) && (f.Admitted == nil || d.Admitted == *f.Admitted) &&
			(bot == "" || d.isOf(bot))
	})
}

// isOf says whether the decision is about a bot of that folded name.
func (d Decision) isOf(bot string) bool {
	if !d.Identity.IsZero() {
		return string(d.Identity.Bot()) == bot
	}
	asked, err := holdfast.FoldName(d.Bot)
	return err == nil && asked == bot
}

// pruneBatch is how many decisions are deleted at a time, and prunePass how many
// by one pruning: a long arrear is worked off over several.
const (
	pruneBatch = 500
	prunePass  = 20_000
)

// Prune deletes what is older than the time of keeping, and of each team that was
// asked for since the last pruning what it has too many of, the oldest first. It
// says how many it deleted.
func (r *Recorder) Prune(ctx context.Context) (deleted int, err error) {
	cutoff := records.FirstID(r.clock.Now().Add(-r.options.Keep))
	old := func(d Decision) bool { return d.ID < cutoff }
	deleted, err = r.deleteOldest(ctx, records.Query{}, prunePass, old)
	if err != nil {
		return deleted, err
	}
	r.mu.Lock()
	asked := r.asked
	r.asked = map[holdfast.TeamID]bool{}
	r.mu.Unlock()
	for team := range asked {
		n, err := r.table.Count(ctx, indexTeam, string(team))
		if err != nil {
			return deleted, err
		}
		surplus := int(n) - r.options.KeepPerTeam
		if surplus <= 0 {
			continue
		}
		gone, err := r.deleteOldest(ctx, records.Query{Index: indexTeam, Equal: string(team)}, min(surplus, prunePass), func(Decision) bool { return true })
		deleted += gone
		if gone > 0 {
			r.options.Dropped(gone)
		}
		if err != nil {
			return deleted, err
		}
		if surplus > prunePass { // the rest is the next pruning's
			r.mu.Lock()
			r.asked[team] = true
			r.mu.Unlock()
		}
	}
	return deleted, nil
}

// deleteOldest deletes from the low end of a query while the decisions match, at
// most `most`.
func (r *Recorder) deleteOldest(ctx context.Context, q records.Query, most int, match func(Decision) bool) (deleted int, err error) {
	for deleted < most {
		q.Limit = min(pruneBatch, most-deleted)
		found, _, err := r.table.List(ctx, q)
		if err != nil {
			return deleted, err
		}
		var batch []string
		for _, v := range found {
			if !match(v.Value) {
				break
			}
			batch = append(batch, v.Value.ID)
		}
		err = records.Each(batch, writers, func(id string) error {
			if err := r.table.Delete(ctx, id); !errors.Is(err, records.ErrNotFound) {
				return err
			}
			return nil
		})
		if err != nil {
			return deleted, err
		}
		deleted += len(batch)
		if len(batch) < q.Limit {
			return deleted, nil
		}
	}
	return deleted, nil
}
