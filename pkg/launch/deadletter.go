package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// Buried takes a dead letter: the run that waited for it ends as resumable, with the
// reason, and gives back everything that it holds, so that nothing is held for what
// nobody will start. A run that has moved on, and one that a sweep will queue again
// from its document, is left alone. It may be told the same letter again.
func (s *Service) Buried(ctx context.Context, d queue.DeadLetter) error {
	var m queue.RunMessage
	readable := json.Unmarshal(d.Body, &m) == nil
	e := ending{status: runs.FailedResumable, reason: runs.ReasonDeadLetter, detail: fmt.Sprintf("no runner could take its message (%s); dead letter %d", d.Reason, d.Seq)}
	_, _, err := s.end(ctx, d.Run, e, func(run *runs.Run) bool {
		spent := run.Published-run.Generation-1 >= queue.Republished
		current := !readable || (m.Publication == run.Published && m.Generation == run.Generation)
		return run.Status == runs.Queued && spent && current && !run.CancelAsked
	})
	if errors.Is(err, records.ErrNotFound) {
		return nil // there is nobody to end
	}
	return err
}

// Replay brings the run of a dead letter back through the gate: it is judged anew, as
// the identity in its document, under the policy of now, and queued as a new message
// that is made from the document; the letter's own words are not used. Errors:
// [ErrNotFound] when the run is gone, and [ErrConflict] when it is not one that can be
// brought back: such a letter can only be removed.
func (s *Service) Replay(ctx context.Context, who auth.Principal, d queue.DeadLetter) (runs.Run, holdfast.Denial, error) {
	if !who.Operator {
		return runs.Run{}, holdfast.Denial{}, fmt.Errorf("dead letter: an operator replays one: %w", ErrForbidden)
	}
	if d.Run == "" {
		return runs.Run{}, holdfast.Denial{}, fmt.Errorf("dead letter %d names no run; remove it: %w", d.Seq, ErrConflict)
	}
	return s.ResumeFrom(ctx, who, d.Run, SurfaceDLQReplay)
}
