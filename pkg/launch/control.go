package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/audit"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// Cancel ends a run that does not run yet, and asks one that runs to stop: its
// runner is told at once, and an external caller at its next heartbeat. A run that is
// cancelled or asked already is answered as it is; another ended run is
// [ErrConflict]. The run of the month stays used: the launch happened.
func (s *Service) Cancel(ctx context.Context, who auth.Principal, id holdfast.RunID) (runs.Run, error) {
	if _, err := s.owned(ctx, who, id, auth.Member); err != nil {
		return runs.Run{}, err
	}
	run, err := s.Runs.Update(ctx, id, func(run *runs.Run) error {
		switch run.Status {
		case runs.Running:
			if run.CancelAsked {
				return errUnchanged
			}
			run.CancelAsked = true
		case runs.Queued, runs.Paused, runs.Parked:
			run.Status, run.StatusReason, run.EndedAt = runs.Cancelled, runs.ReasonCancelled, s.now()
		case runs.Cancelled:
			return errUnchanged
		case runs.Finished, runs.Failed, runs.FailedResumable:
			return cannotCancel(*run)
		}
		return nil
	})
	switch {
	case errors.Is(err, ErrConflict):
		return runs.Run{}, err
	case errors.Is(err, errUnchanged):
		return run, nil
	case err != nil:
		return runs.Run{}, unavailable(err)
	}
	s.changed(run)
	if run.Status == runs.Cancelled {
		_, err := s.finish(ctx, run)
		s.settleFailed(ctx, run.ID, err)
	}
	if !run.External {
		s.tellRunner(ctx, run.ID)
	}
	return run, nil
}

// tellRunner takes a run's message out of the queue, or tells the runner that has
// it. Where that fails the next claim or heartbeat tells as well.
func (s *Service) tellRunner(ctx context.Context, id holdfast.RunID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if err := s.Queue.Cancel(ctx, id); err != nil {
		s.log.WarnContext(ctx, "could not tell the runner; its next claim or heartbeat will", "run", id, "error", err)
	}
}

// Resume brings back a run that failed and can be gone on with, or that waits for
// capacity: through the same gate, as the identity in its document, with what is
// left of its budget. It is queued again under the same id.
func (s *Service) Resume(ctx context.Context, who auth.Principal, id holdfast.RunID) (runs.Run, holdfast.Denial, error) {
	return s.ResumeFrom(ctx, who, id, SurfaceResume)
}

// ResumeFrom is [Service.Resume] for a surface that goes on with runs on its own. It
// is judged like any other: nothing that starts a run passes beside the gate.
func (s *Service) ResumeFrom(ctx context.Context, who auth.Principal, id holdfast.RunID, surface Surface) (runs.Run, holdfast.Denial, error) {
	run, err := s.owned(ctx, who, id, auth.Member)
	if err != nil {
		return runs.Run{}, holdfast.Denial{}, err
	}
	remaining := run.Budget - run.Spent
	switch {
	case run.External || (run.Status != runs.FailedResumable && run.Status != runs.Parked && run.Status != runs.Paused):
		return runs.Run{}, holdfast.Denial{}, cannotResume(run)
	case remaining <= 0:
		return runs.Run{}, holdfast.Denial{}, fmt.Errorf("run %s has spent its budget of %s, so there is nothing to go on with; `holdfast launch %s --team %s` starts another: %w", id, run.Budget.Dollars(), run.Identity.Bot(), run.Team, ErrConflict)
	case run.Unsettled():
		if _, err := s.finish(ctx, run); err != nil {
			return runs.Run{}, holdfast.Denial{}, unavailable(err)
		}
	}
	asks, err := s.nextAsk(ctx, id)
	if err != nil {
		return runs.Run{}, holdfast.Denial{}, err
	}
	took := s.options.Stopwatch()
	a := &admission{run: id, at: s.now(), asks: asks}
	c := call{who: who, team: run.Team, repo: run.Repo}
	found, denial, err := s.judge(ctx, a, c, s.resume(run, remaining))
	if err == nil {
		denial = s.decided(a, c, found, Request{Bot: string(run.Identity.Bot()), Repo: run.Repo, Surface: surface}, denial, took())
	}
	if denial.Denied() || err != nil {
		s.unwind(ctx, a, 0)
		return runs.Run{}, denial, err
	}
	resumed, err := s.requeueResumed(ctx, a, run)
	if err != nil {
		s.unwind(ctx, a, 0)
		return runs.Run{}, holdfast.Denial{}, err
	}
	s.useRun(ctx, resumed)
	s.changed(resumed)
	return resumed, holdfast.Denial{}, nil
}

// requeueResumed writes the next generation into the document and publishes it.
func (s *Service) requeueResumed(ctx context.Context, a *admission, was runs.Run) (runs.Run, error) {
	a.took("document", func(ctx context.Context) error { return s.launchFailed(ctx, was.ID, was.Generation+1, a.decision) })
	run, err := s.Runs.Update(ctx, was.ID, func(run *runs.Run) error {
		if run.Generation != was.Generation || run.Status != was.Status {
			return fmt.Errorf("run %s was changed in between: %w", was.ID, ErrConflict)
		}
		remember(run)
		if attempt, _, _ := current(*run); attempt > 0 {
			run.Former = append(run.Former, runs.Former{LastAttempt: attempt, Holds: run.Holds})
		}
		run.Generation++
		run.Published++
		run.Holds, run.Unheld, run.DecisionID = a.holds, a.unheld, a.decision
		run.Budget = run.Spent + a.budget
		run.Status, run.StatusReason, run.Detail, run.ExitCode = runs.Queued, runs.ReasonNone, "", nil
		run.Settled, run.CancelAsked, run.Sequence, run.Runner, run.ClaimNonce = false, false, 0, "", ""
		run.QueuedAt, run.StartedAt, run.EndedAt, run.ReportedAt = s.now(), time.Time{}, time.Time{}, time.Time{}
		return nil
	})
	if err != nil {
		if errors.Is(err, ErrConflict) {
			a.untook() // the document is not ours to undo
			return runs.Run{}, err
		}
		return runs.Run{}, unavailable(err)
	}
	return run, s.publish(ctx, run)
}

// maxReleaseReason is how long the reason for a release may be.
const maxReleaseReason = 500

// ReleaseAllocation takes an allocation away from its run, for an operator. It is
// audited before it happens, and it fences the run: the run ends, gives back what
// else it holds, and its runner or caller is told to stop. closed says whether this
// call closed the allocation; one that was closed before fences nothing.
func (s *Service) ReleaseAllocation(ctx context.Context, who auth.Principal, id holdfast.AllocationID, reason string) (closed bool, err error) {
	if !who.Operator {
		return false, fmt.Errorf("allocation: an operator releases one: %w", ErrForbidden)
	}
	if reason == "" || len(reason) > maxReleaseReason {
		return false, invalid("reason", "it is missing or too long", fmt.Sprintf("1 to %d bytes", maxReleaseReason))
	}
	allocation, err := s.Ledger.Get(ctx, id)
	switch {
	case isInvalid(err):
		return false, err
	case errors.Is(err, capacityledger.ErrNotFound):
		return false, fmt.Errorf("allocation %s: %w", holdfast.Clip(string(id), 120), ErrNotFound)
	case err != nil:
		return false, unavailable(err)
	}
	entry := audit.Entry{
		Actor: who.Name, Action: "allocation.released", Target: string(id),
		Detail: map[string]string{"reason": reason, "run": string(allocation.Run), "subject": allocation.Subject.String(), "holder": allocation.Holder.String()},
	}
	if allocation.Subject.Kind == holdfast.KindTeam {
		entry.Team = holdfast.TeamID(allocation.Subject.ID)
	}
	if _, err := s.Audit.Record(ctx, entry); err != nil {
		return false, unavailable(err)
	}
	if closed, err = s.Ledger.Release(ctx, id); err != nil || !closed {
		return closed, unavailable(err)
	}
	e := ending{status: runs.Failed, reason: runs.ReasonReleased, detail: holdfast.Clip(reason, maxReleaseReason)}
	run, ended, err := s.end(ctx, allocation.Run, e, func(run *runs.Run) bool {
		return run.Status.Active() && holds(*run, id)
	})
	if ended && !run.External {
		s.tellRunner(ctx, run.ID)
	}
	if errors.Is(err, records.ErrNotFound) {
		err = nil // there is nobody to fence
	}
	return closed, err
}

// holds says whether a run holds an allocation now.
func holds(run runs.Run, id holdfast.AllocationID) bool {
	return slices.ContainsFunc(run.Holds, func(hold runs.Hold) bool { return hold.ID == id })
}
