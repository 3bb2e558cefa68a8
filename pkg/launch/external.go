package launch

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// owned reads a run that the caller may act on with at least that role. A run of
// another team is not found.
func (s *Service) owned(ctx context.Context, who auth.Principal, id holdfast.RunID, role auth.Role) (runs.Run, error) {
	run, err := s.Runs.Get(ctx, id)
	switch {
	case errors.Is(err, records.ErrNotFound), err == nil && !who.In(run.Team):
		return runs.Run{}, fmt.Errorf("run %s: %w", holdfast.Clip(string(id), 64), ErrNotFound)
	case err != nil:
		return runs.Run{}, unavailable(err)
	case !who.May(run.Team, role):
		return runs.Run{}, fmt.Errorf("run %s: it takes the role %s: %w", id, role, ErrForbidden)
	}
	return run, nil
}

// external is [Service.owned] of a run that its caller executes.
func (s *Service) external(ctx context.Context, who auth.Principal, id holdfast.RunID, spent holdfast.MicroUSD) error {
	if spent < 0 || spent > holdfast.MaxUSD {
		return invalid("spent_usd", "it is not what a run can have spent", "0 to 1000000000 dollars, cumulative")
	}
	run, err := s.owned(ctx, who, id, auth.Member)
	if err == nil && !run.External {
		return fmt.Errorf("run %s is executed by a runner, which reports on it: %w", id, ErrConflict)
	}
	return err
}

// LeaseOf is the lease of an external run as its last renewal set it, and whether
// its caller must stop.
func (s *Service) LeaseOf(run runs.Run) Lease {
	lease := Lease{ExpiresAt: run.ReportedAt.Add(s.options.Lease), HeartbeatEvery: s.options.Heartbeat}
	switch {
	case run.CancelAsked:
		lease.Stop, lease.Reason = true, string(runs.ReasonCancelled)
	case overBudget(run):
		lease.Stop, lease.Reason = true, string(runs.ReasonBudget)
	}
	return lease
}

// overBudget says that a run has spent what it was granted.
func overBudget(run runs.Run) bool { return run.Budget > 0 && run.Spent >= run.Budget }

// Heartbeat renews everything that an external run holds and reports what it spent
// so far. spent is cumulative; less than was reported before changes nothing. The
// answer says when to stop: the run was cancelled, or its budget is spent. After the
// end of the run, and when its allocations were closed under it, the error matches
// [ErrAllocationClosed]; the spend is recorded all the same.
func (s *Service) Heartbeat(ctx context.Context, who auth.Principal, id holdfast.RunID, spent holdfast.MicroUSD) (Lease, error) {
	if err := s.external(ctx, who, id, spent); err != nil {
		return Lease{}, err
	}
	run, err := s.Runs.Update(ctx, id, func(run *runs.Run) error {
		spend(run, run.Attempt, spent)
		if run.Status == runs.Running {
			run.Sequence++
			run.ReportedAt = s.now()
		}
		return nil
	})
	if err != nil {
		return Lease{}, unavailable(err)
	}
	if run.Status != runs.Running {
		if err := s.recordSpend(ctx, run, run.Attempt, run.Sequence, spent); err != nil {
			return Lease{}, unavailable(err)
		}
		return Lease{}, fmt.Errorf("run %s is %s: %w", id, run.Status, ErrAllocationClosed)
	}
	switch err := s.renew(ctx, run, run.ReportedAt); {
	case errors.Is(err, ErrAllocationClosed):
		s.lost(ctx, run)
		return Lease{}, fmt.Errorf("run %s: %w", id, err)
	case err != nil:
		return Lease{}, err
	}
	s.changed(run)
	return s.LeaseOf(run), nil
}

// outcomeOf is the ending that an external caller's word stands for.
func outcomeOf(word string) (ending, error) {
	switch word {
	case "finished":
		return ending{status: runs.Finished}, nil
	case "failed":
		return ending{status: runs.Failed, reason: runs.ReasonExit}, nil
	case "cancelled":
		return ending{status: runs.Cancelled, reason: runs.ReasonCancelled}, nil
	}
	return ending{}, invalid("outcome", fmt.Sprintf("%q is not an outcome", holdfast.Clip(word, 40)), "finished, failed, cancelled")
}

// Settle ends an external run with what it spent in all, and closes what it holds.
// closed says whether this call did; a repeated one, or one after the lease ran out,
// records its spend exactly once and closes nothing. Where the run was only believed
// to be abandoned, its outcome is now known.
func (s *Service) Settle(ctx context.Context, who auth.Principal, id holdfast.RunID, spent holdfast.MicroUSD, outcome string) (closed bool, err error) {
	e, err := outcomeOf(outcome)
	if err != nil {
		return false, err
	}
	if err := s.external(ctx, who, id, spent); err != nil {
		return false, err
	}
	ended := false
	run, err := s.Runs.Update(ctx, id, func(run *runs.Run) error {
		ended = !run.Status.Ended()
		spend(run, run.Attempt, spent)
		switch {
		case ended:
			run.Sequence++
			run.EndedAt = s.now()
			fallthrough
		case inferred(*run):
			run.Status, run.StatusReason = e.status, e.reason
			if e.status == runs.Failed && overBudget(*run) {
				run.StatusReason = runs.ReasonBudget // its caller was told to stop it
			}
		}
		return nil
	})
	if err != nil {
		return false, unavailable(err)
	}
	s.changed(run)
	closed, err = s.finish(ctx, run)
	return closed || (ended && len(run.Holds) == 0), unavailable(err)
}

// inferred says that the run's end was concluded from silence, so that a later
// report of the same attempt knows better.
func inferred(run runs.Run) bool {
	switch run.StatusReason {
	case runs.ReasonAbandoned, runs.ReasonInterrupted, runs.ReasonLeaseLost:
		return run.Status.Ended()
	default:
		return false
	}
}

// lost ends a run whose allocations were closed under it: what it held is promised
// to others by now.
func (s *Service) lost(ctx context.Context, run runs.Run) {
	e := ending{status: runs.FailedResumable, reason: runs.ReasonLeaseLost}
	if run.External {
		e = ending{status: runs.Failed, reason: runs.ReasonAbandoned}
	}
	if run.CancelAsked {
		e = ending{status: runs.Cancelled, reason: runs.ReasonCancelled}
	}
	attempt := run.Attempt
	_, _, err := s.end(ctx, run.ID, e, func(run *runs.Run) bool {
		return run.Status == runs.Running && run.Attempt == attempt
	})
	if err != nil {
		s.log.WarnContext(ctx, "could not write the end of a run; a sweep will", "run", run.ID, "error", err)
	}
}
