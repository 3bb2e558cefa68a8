package runs

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/pkg/records"
)

// Retry is how a run stands with the sweeper that resumes runs by themselves
// (pkg/retry). The zero value is a run that it has not looked at yet.
type Retry struct {
	// Tries counts the resumes after a failure that were begun; [holdfast.Bot.Retries]
	// bounds them. Coming back from waiting for capacity is none.
	Tries int `json:"tries,omitempty"`
	// Refusals counts the refusals of the gate since the run last ran.
	Refusals  int       `json:"refusals,omitempty"`
	NotBefore time.Time `json:"not_before,omitzero"`
	// Claim names who is resuming it now; a claim is believed for a while only.
	Claim     string    `json:"claim,omitempty"`
	ClaimedAt time.Time `json:"claimed_at,omitzero"`
	Last      string    `json:"last,omitempty"`     // the reason of the last refusal
	GivenUp   string    `json:"given_up,omitempty"` // why it is not tried again
}

// RetryOpen says whether the run is to be resumed by itself: it waits for capacity,
// or it was lost to no fault of its own and its bot has retries left. A run that has
// spent its budget, one that its caller executes, and one that was given up is not.
func (r Run) RetryOpen() bool {
	if r.External || r.Retry.GivenUp != "" || r.Spent >= r.Budget {
		return false
	}
	switch r.Status {
	case Parked:
		return r.StatusReason == ReasonCapacity
	case FailedResumable:
		return r.lost() && r.Retry.Tries < r.Bot.Retries
	case Queued, Running, Paused, Finished, Failed, Cancelled:
	}
	return false
}

// lost says whether the run ended because of what is around it: its machine, its
// runner, its lease, or the queue at an earlier resume.
func (r Run) lost() bool {
	return r.StatusReason == ReasonInterrupted || r.StatusReason == ReasonLeaseLost || r.StatusReason == ReasonLaunchFailed
}

// retryDue is when the sweeper must look at the run.
func (r Run) retryDue() time.Time {
	if r.Retry.NotBefore.After(r.EndedAt) {
		return r.Retry.NotBefore
	}
	return r.EndedAt
}

// stamp is an instant as text that sorts.
func stamp(t time.Time) string { return t.UTC().Format("20060102150405.000") }

// RetryDue lists runs that are [Run.RetryOpen] and due at an instant, those that wait
// longest first. Runs that failed_resumable before this build appear in it from their
// next change on.
func (r *Repository) RetryDue(ctx context.Context, now time.Time, limit int) (list []Run, err error) {
	values, _, err := r.table.List(ctx, records.Query{Index: indexRetry, AtMost: stamp(now), Limit: limit})
	for _, v := range values {
		list = append(list, v.Value)
	}
	return list, err
}
