package launch

import (
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/pkg/runs"
)

// cannotCancel says of a run that has ended how it ended, and what can be done.
func cannotCancel(run runs.Run) error {
	text := fmt.Sprintf("run %s %s, so there is nothing to cancel", run.ID, endedAs(run))
	if run.Status == runs.FailedResumable && !run.External {
		text += fmt.Sprintf("; `holdfast runs resume %s` goes on with it", run.ID)
	} else {
		text += fmt.Sprintf("; `holdfast runs show %s` says how it went", run.ID)
	}
	return fmt.Errorf("%s: %w", text, ErrConflict)
}

// cannotResume says why a run cannot be gone on with, and what can be done instead.
func cannotResume(run runs.Run) error {
	var text string
	switch {
	case run.External && !run.Status.Ended():
		text = fmt.Sprintf("run %s is executed by its caller, who goes on with it; only what a runner executed is resumed", run.ID)
	case run.External:
		text = fmt.Sprintf("run %s was executed by its caller: start the command again with `holdfast exec --team %s --bot %s -- …`", run.ID, run.Team, run.Identity.Bot())
	case !run.Status.Ended():
		text = fmt.Sprintf("run %s is %s already; `holdfast runs logs %s --follow` shows its output", run.ID, run.Status, run.ID)
	default:
		text = fmt.Sprintf("run %s %s, and only a run that failed_resumable, parked or paused is resumed; `holdfast launch %s --team %s` starts another", run.ID, endedAs(run), run.Identity.Bot(), run.Team)
	}
	return fmt.Errorf("%s: %w", text, ErrConflict)
}

// endedAs says how and when a run ended.
func endedAs(run runs.Run) string {
	text := "is " + string(run.Status)
	if run.StatusReason != "" {
		text += fmt.Sprintf(" (%s)", run.StatusReason)
	}
	if !run.EndedAt.IsZero() {
		text += " since " + run.EndedAt.UTC().Format(time.RFC3339)
	}
	return text
}
