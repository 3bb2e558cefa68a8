package launch

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// ending is how a run stands when it is over.
type ending struct {
	status runs.Status
	reason runs.Reason
	detail string
}

// end writes the end of a run into its document, if it still is as may says, and
// then closes what it holds. The document comes first: it is the durable intent, and
// a sweep finishes what could not be closed, which is told and no error here. ended
// says whether this call ended it.
func (s *Service) end(ctx context.Context, id holdfast.RunID, e ending, may func(*runs.Run) bool) (run runs.Run, ended bool, err error) {
	run, err = s.Runs.Update(ctx, id, func(run *runs.Run) error {
		if !may(run) {
			return errUnchanged
		}
		run.Status, run.StatusReason, run.EndedAt = e.status, e.reason, s.now()
		if e.detail != "" {
			run.Detail = e.detail
		}
		return nil
	})
	switch {
	case errors.Is(err, errUnchanged):
		return run, false, nil
	case err != nil:
		return run, false, unavailable(err)
	}
	s.changed(run)
	_, err = s.finish(ctx, run)
	s.settleFailed(ctx, run.ID, err)
	return run, true, nil
}

// settleFailed tells that a run's allocations could not be closed. nil is nothing.
func (s *Service) settleFailed(ctx context.Context, run holdfast.RunID, err error) {
	if err == nil {
		return
	}
	s.log.WarnContext(ctx, "could not close what a run holds; a sweep will", "run", run, "error", err)
	if f := s.options.Events.SettleFailed; f != nil {
		f(run, err)
	}
}

// finish closes everything that a run which is over still holds, by id, and notes
// that in its document. It may be called any number of times, from any replica. It
// says whether this call closed any; the first error is returned after all were
// tried.
func (s *Service) finish(ctx context.Context, run runs.Run) (closed bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	for attempt, spent := range run.SpentBy {
		if attempt != run.Attempt {
			err = errors.Join(err, s.recordSpend(ctx, run, attempt, 0, spent))
		}
	}
	for _, hold := range run.Holds {
		this, failed := s.closeHold(ctx, run, hold)
		closed = closed || this
		err = errors.Join(err, failed)
	}
	if err != nil || run.Settled {
		return closed, err
	}
	_, err = s.Runs.Update(ctx, run.ID, func(stored *runs.Run) error {
		if stored.Settled || stored.Generation != run.Generation || stored.Status.Active() {
			return errUnchanged
		}
		stored.Settled = true
		return nil
	})
	if errors.Is(err, errUnchanged) || errors.Is(err, records.ErrNotFound) {
		err = nil
	}
	return closed, err
}

// closeHold closes one allocation of a run that is over. A run of the month stays
// used, unless the launch itself failed. What was never begun is released, not
// settled. An allocation that the ledger does not know is as closed as one can be.
func (s *Service) closeHold(ctx context.Context, run runs.Run, hold runs.Hold) (closed bool, err error) {
	unit := hold.Subject.Axis == holdfast.AxisRuns
	attempt, sequence, spent := current(run)
	switch {
	case run.StatusReason == runs.ReasonLaunchFailed, attempt == 0 && !unit:
		closed, err = s.Ledger.Release(ctx, hold.ID)
	case unit:
		_, err = s.Ledger.Settle(ctx, hold.ID, capacityledger.Report{Spent: holdfast.RunAmount(1)})
	case hold.Subject.Axis == holdfast.AxisUSD:
		closed, err = s.Ledger.Settle(ctx, hold.ID, capacityledger.Report{Attempt: attempt, Sequence: sequence, Spent: holdfast.USDAmount(spent)})
	default:
		closed, err = s.Ledger.Settle(ctx, hold.ID, capacityledger.Report{Attempt: attempt, Sequence: sequence})
	}
	if errors.Is(err, capacityledger.ErrNotFound) {
		err = nil
	}
	return closed, err
}

// holdsOf is what an attempt of a run held: what the run holds now, or what it held
// before it was admitted anew.
func holdsOf(run runs.Run, attempt int) []runs.Hold {
	for _, former := range run.Former {
		if attempt <= former.LastAttempt {
			return former.Holds
		}
	}
	return run.Holds
}

// current is the attempt that spends on what the run holds now, and its last report.
// All are zero while no attempt was begun on it: the last attempt of a run that was
// admitted anew spent on what it held before.
func current(run runs.Run) (attempt int, sequence int64, spent holdfast.MicroUSD) {
	if n := len(run.Former); n > 0 && run.Attempt <= run.Former[n-1].LastAttempt {
		return 0, 0, 0
	}
	return run.Attempt, run.Sequence, run.SpentBy[run.Attempt]
}

// recordSpend charges an attempt's spend to what the attempt held, open or closed,
// and nothing else: it neither extends nor closes. The highest report of an attempt
// counts, so it may be repeated.
func (s *Service) recordSpend(ctx context.Context, run runs.Run, attempt int, sequence int64, spent holdfast.MicroUSD) error {
	if spent <= 0 {
		return nil
	}
	var all error
	for _, hold := range holdsOf(run, attempt) {
		if hold.Subject.Axis != holdfast.AxisUSD {
			continue
		}
		_, _, err := s.Ledger.Renew(ctx, hold.ID, capacityledger.Renewal{Attempt: attempt, Sequence: sequence, Spent: holdfast.USDAmount(spent)})
		if err != nil && !errors.Is(err, capacityledger.ErrClosed) && !errors.Is(err, capacityledger.ErrNotFound) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// renew extends what a run holds by a lease, as its document reports it, and moves
// what it spent. It tries every allocation; when one is closed the error matches
// [ErrAllocationClosed], and the spend is recorded all the same.
func (s *Service) renew(ctx context.Context, run runs.Run, now time.Time) error {
	var closed, failed error
	attempt, sequence, spent := current(run)
	for _, hold := range run.Holds {
		renewal := capacityledger.Renewal{Attempt: attempt, Sequence: sequence, Expires: now.Add(s.options.Lease)}
		switch hold.Subject.Axis {
		case holdfast.AxisRuns:
			continue // it was settled when the run was queued
		case holdfast.AxisUSD:
			renewal.Spent = holdfast.USDAmount(spent)
		case holdfast.AxisSlots, holdfast.AxisFiveHour, holdfast.AxisWeek, holdfast.AxisInFlight:
		}
		_, _, err := s.Ledger.Renew(ctx, hold.ID, renewal)
		switch {
		case errors.Is(err, capacityledger.ErrClosed), errors.Is(err, capacityledger.ErrNotFound):
			closed = errors.Join(ErrAllocationClosed, err)
		case err != nil && failed == nil:
			failed = unavailable(err)
		}
	}
	if failed != nil {
		return failed
	}
	return closed
}

// spend notes an attempt's cumulative spend in the document; less than is known
// changes nothing.
func spend(run *runs.Run, attempt int, spent holdfast.MicroUSD) {
	if spent <= run.SpentBy[attempt] {
		return
	}
	if run.SpentBy == nil {
		run.SpentBy = map[int]holdfast.MicroUSD{}
	}
	run.Spent += spent - run.SpentBy[attempt]
	run.SpentBy[attempt] = spent
}

// left is what an attempt of a run may spend: the run's budget less what its other
// attempts spent.
func left(run runs.Run, attempt int) holdfast.MicroUSD {
	return max(0, run.Budget-(run.Spent-run.SpentBy[attempt]))
}
