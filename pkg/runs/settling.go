package runs

import (
	"context"
	"errors"
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
	USD  holdfast.MicroUSD // spent by the ended, and the larger of budget and spend of the others
}

// MonthOf adds up the documents of the runs that were launched in the UTC calendar
// month of an instant, of one team or of all when team is empty. It reads every one
// of them, so it is for the times when the ledger cannot be asked.
func (r *Repository) MonthOf(ctx context.Context, team holdfast.TeamID, at time.Time) (Month, error) {
	u := at.UTC()
	q := records.Query{IDFrom: records.FirstID(time.Date(u.Year(), u.Month(), 1, 0, 0, 0, 0, time.UTC)), Limit: records.MaxPage}
	if team != "" {
		q.Index, q.Equal = indexTeam, string(team)
	}
	var sum Month
	err := r.table.Walk(ctx, q, func(v records.Versioned[Run]) error {
		run := v.Value
		if !run.CreatedAt.Before(holdfast.MonthEnd(u)) {
			return errMonthOver
		}
		sum.Runs++
		sum.USD += run.Spent
		if !run.Status.Ended() {
			sum.USD += max(0, run.Budget-run.Spent)
		}
		return nil
	})
	if errors.Is(err, errMonthOver) {
		err = nil
	}
	return sum, err
}

var errMonthOver = errors.New("the month is over")
