package launch

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// endingOf is what each way for an attempt to end makes of its run. A run that was
// asked to stop is cancelled, however its attempt was stopped.
func endingOf(report queue.Report, cancelled bool) ending {
	e := ending{detail: holdfast.Clip(report.Detail, maxDetail)}
	switch report.Ending {
	case queue.EndFinished:
		e.status = runs.Finished
	case queue.EndFailed:
		e.status, e.reason = runs.Failed, runs.ReasonExit
	case queue.EndDeadline:
		e.status, e.reason = runs.Failed, runs.ReasonDeadline
	case queue.EndBudget:
		e.status, e.reason = runs.Failed, runs.ReasonBudget
	case queue.EndCancelled:
		e.status, e.reason = runs.Cancelled, runs.ReasonCancelled
	case queue.EndInterrupted:
		e.status, e.reason = runs.FailedResumable, runs.ReasonInterrupted
	case queue.EndStartFailed:
		e.status, e.reason = runs.Failed, runs.ReasonStartFailed
	case queue.EndLeaseLost:
		e.status, e.reason = runs.FailedResumable, runs.ReasonLeaseLost
	default:
		e.status, e.reason = runs.Failed, runs.ReasonExit
		e.detail = fmt.Sprintf("a newer runner says that it ended as %q", holdfast.Clip(string(report.Ending), 40))
	}
	if cancelled && e.status == runs.FailedResumable {
		e.status, e.reason = runs.Cancelled, runs.ReasonCancelled
	}
	return e
}

// maxDetail is how much of a runner's words a run keeps.
const maxDetail = 1_000

// Apply takes a runner's report. It is idempotent: what a report says is compared
// with how the run stands, so a repeated one, or one out of order, changes nothing
// more. A report of an older attempt, or of a run that has ended, is charged for what
// it spent and decides nothing, but for an end that was only concluded from silence.
// When it returns nil the run's document has everything; an allocation that could
// not be closed is the sweep's. An error asks for the report again.
func (s *Service) Apply(ctx context.Context, report queue.Report) error {
	report.Spent = min(max(0, report.Spent), holdfast.MaxUSD)
	ended := false
	run, err := s.Runs.Update(ctx, report.Run, func(run *runs.Run) error {
		ended = false
		if report.Attempt < 1 || report.Attempt > run.Attempt {
			return errUnchanged
		}
		spend(run, report.Attempt, report.Spent)
		if report.Attempt < run.Attempt {
			return nil
		}
		run.SkippedReports = max(run.SkippedReports, report.Skipped)
		if run.Status == runs.Running {
			run.Sequence = max(run.Sequence, report.Sequence)
			run.ReportedAt = s.now()
		}
		ended = s.applyKind(run, report)
		return nil
	})
	switch {
	case errors.Is(err, records.ErrNotFound):
		s.log.WarnContext(ctx, "a report of a run that has no document", "run", report.Run, "kind", report.Kind)
		return nil
	case errors.Is(err, errUnchanged):
		s.log.WarnContext(ctx, "a report of an attempt that was never begun", "run", report.Run, "attempt", report.Attempt)
		return nil
	case err != nil:
		return unavailable(err)
	}
	s.changed(run)
	if ended {
		_, err := s.finish(ctx, run)
		s.settleFailed(ctx, run.ID, err)
		if !run.Settled { // the intent is in the document
			return nil
		}
		return unavailable(err)
	}
	return unavailable(s.recordSpend(ctx, run, report.Attempt, report.Sequence, report.Spent))
}

// applyKind applies what the current attempt says of itself. It says whether that
// ended the run.
func (s *Service) applyKind(run *runs.Run, report queue.Report) (ended bool) {
	switch report.Kind {
	case queue.ReportStarted, queue.ReportClaimed, queue.ReportProgress:
		if report.Kind == queue.ReportStarted && run.StartedAt.IsZero() {
			run.StartedAt = report.At
		}
	case queue.ReportEnded:
		if run.Status != runs.Running && !inferred(*run) {
			return false // it has ended otherwise, and the first reason stays
		}
		e := endingOf(report, run.CancelAsked)
		run.Status, run.StatusReason, run.Detail, run.ExitCode = e.status, e.reason, e.detail, report.ExitCode
		run.EndedAt = s.now()
		return true
	}
	return false
}
