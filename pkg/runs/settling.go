package runs

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// Unsettled says that the run no longer holds a slot by its status, and that the
// allocations which it holds are not known to be closed: the durable intent that a
// sweep finishes when the ledger could not be reached at the end of the run.
func (r Run) Unsettled() bool { return !r.Status.Active() && !r.Settled && len(r.Holds) > 0 }

// WalkUnsettled visits every run that is [Run.Unsettled], the oldest first. A visit
// may update the run; its error ends the walk and is returned as it is.
func (r *Repository) WalkUnsettled(ctx context.Context, visit func(Run) error) error {
	q := records.Query{Index: indexUnsettled, Equal: "yes", Limit: scan}
	return r.table.Walk(ctx, q, func(v records.Versioned[Run]) error { return visit(v.Value) })
}

// Month is what the run documents of one calendar month add up to.
type Month struct {
	Runs int64             // launched in it
	USD  holdfast.MicroUSD // spent by those that ended, and the larger of budget and spend of the others
}

// MonthFilter says which runs a [Month] adds up; at most one of them is set, and
// none means all.
type MonthFilter struct {
	Team holdfast.TeamID
	Repo string // as the documents have it
}

// MonthOf adds up the documents of the runs that were launched in the UTC calendar
// month of an instant. It reads every one of them: it is for questions that the
// ledger does not answer, or cannot answer at the time.
func (r *Repository) MonthOf(ctx context.Context, f MonthFilter, at time.Time) (Month, error) {
	u := at.UTC()
	q := records.Query{IDFrom: records.FirstID(time.Date(u.Year(), u.Month(), 1, 0, 0, 0, 0, time.UTC)), Limit: records.MaxPage}
	switch {
	case f.Team != "":
		q.Index, q.Equal = indexTeam, string(f.Team)
	case f.Repo != "":
		q.Index, q.Equal = indexRepo, f.Repo
	}
	var sum Month
	err := r.table.Walk(ctx, q, func(v records.Versioned[Run]) error {
		run := v.Value
		if !run.CreatedAt.Before(holdfast.MonthEnd(u)) {
			return errMonthOver
		}
		sum.Runs++
		used := run.Spent
		if !run.Status.Ended() {
			used = max(run.Spent, run.Budget)
		}
		sum.USD += min(used, math.MaxInt64-sum.USD)
		return nil
	})
	if errors.Is(err, errMonthOver) {
		err = nil
	}
	return sum, err
}

var errMonthOver = errors.New("the month is over")
