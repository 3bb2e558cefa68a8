package launch

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/runs"
)

// Recover puts things right at the start of a process that knows its former self,
// and every runner of it, to be dead. Runs that were executing are ended as
// interrupted and can be resumed; those that were claimed and never started, and
// queued ones whose message is gone, are queued again. What the dead held is closed,
// whatever its lease says. External runs keep their lease: their callers live
// elsewhere. When it returns nil, nothing is held by the dead.
func (s *Service) Recover(ctx context.Context) error {
	err := s.Runs.Walk(ctx, runs.Running, func(run runs.Run) error {
		switch {
		case run.External:
			return nil
		case run.StartedAt.IsZero() && !run.CancelAsked:
			return s.republish(ctx, run)
		}
		return s.endSilent(ctx, run, runs.ReasonInterrupted)
	})
	if err != nil {
		return wrap("end the runs of the former process", unavailable(err))
	}
	vanished := 0
	err = s.Runs.Walk(ctx, runs.Queued, func(run runs.Run) error {
		return s.requeueVanished(ctx, run, &vanished)
	})
	if err != nil {
		return wrap("queue runs again", unavailable(err))
	}
	if _, err := s.sweepUnsettled(ctx); err != nil {
		return wrap("close what ended runs hold", err)
	}
	_, err = s.sweeper.Reclaim(ctx)
	return wrap("give back what the dead hold", unavailable(err))
}
