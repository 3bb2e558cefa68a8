// Package runs is the run document: what was launched, as whom, what it holds, and
// how it stands. It is handed from the gate to the queue and to whoever settles it.
package runs

import (
	"time"

	"github.com/holdfast-io/holdfast"
)

// Status says how a run stands.
type Status string

// The statuses.
const (
	Queued          Status = "queued"
	Running         Status = "running"
	Paused          Status = "paused"
	Parked          Status = "parked"
	Finished        Status = "finished"
	Failed          Status = "failed"
	FailedResumable Status = "failed_resumable"
	Cancelled       Status = "cancelled"
)

// Statuses lists every status.
func Statuses() []Status {
	return []Status{Queued, Running, Paused, Parked, Finished, Failed, FailedResumable, Cancelled}
}

// Active says whether a run of this status holds a slot.
func (s Status) Active() bool { return s == Queued || s == Running }

// Ended says whether the run is over; only a failed_resumable one can come back.
func (s Status) Ended() bool {
	return s == Finished || s == Failed || s == FailedResumable || s == Cancelled
}

// Reason says why a run has its status, where the status alone does not.
type Reason string

// The reasons that this build writes. A runner may add the text of an error in
// [Run.Detail].
const (
	ReasonNone         Reason = ""
	ReasonExit         Reason = "exit_code"       // the command ended with a code other than 0
	ReasonDeadline     Reason = "deadline"        // killed at its max_duration
	ReasonBudget       Reason = "budget_exceeded" // stopped at its allowance
	ReasonCancelled    Reason = "cancelled_by_caller"
	ReasonInterrupted  Reason = "interrupted"      // the machine or process that ran it died
	ReasonLeaseLost    Reason = "lease_lost"       // its allocation was closed under it
	ReasonLaunchFailed Reason = "launch_failed"    // admitted, and then could not be queued
	ReasonStartFailed  Reason = "start_failed"     // the command could not be started
	ReasonAbandoned    Reason = "abandoned"        // an external caller stopped renewing
	ReasonCapacity     Reason = "waiting_capacity" // at the claim its allocation was gone and could not be had again
	ReasonReleased     Reason = "released_by_operator"
	ReasonDeadLetter   Reason = "dead_lettered" // its message could not be delivered; an operator may replay it
)

// Hold is one allocation of a run.
type Hold struct {
	ID      holdfast.AllocationID `json:"id"`
	Subject holdfast.Subject      `json:"subject"`
	Amount  int64                 `json:"amount"` // in the grain of the axis' unit; the allowance
}

// AmountOf is the hold's allowance with its unit.
func (h Hold) AmountOf() holdfast.Amount { return holdfast.AmountOf(h.Subject.Axis.Unit(), h.Amount) }

// Former is what a run held up to and including one of its attempts.
type Former struct {
	LastAttempt int    `json:"last_attempt"`
	Holds       []Hold `json:"holds"`
}

// Run is the document of one run. Times are UTC; a zero time has not happened.
type Run struct {
	ID       holdfast.RunID    `json:"id"`
	Team     holdfast.TeamID   `json:"team"`
	Identity holdfast.Identity `json:"identity"` // as resolved, never the request's label
	Bot      holdfast.Bot      `json:"bot"`      // the bot as it was when the run was admitted
	Repo     string            `json:"repo,omitempty"`
	Inputs   map[string]string `json:"inputs,omitempty"`
	Pool     string            `json:"pool,omitempty"`
	External bool              `json:"external,omitempty"` // the caller is the runner
	Caller   string            `json:"caller,omitempty"`   // who launched it, by name

	Status       Status `json:"status"`
	StatusReason Reason `json:"status_reason,omitempty"`
	Detail       string `json:"detail,omitempty"` // for people: an exit code, an error's text
	ExitCode     *int   `json:"exit_code,omitempty"`

	Budget holdfast.MicroUSD `json:"budget"` // of all attempts together; what the run is held to
	// Asked is the budget that its caller named, where it got a smaller one, and CutBy is
	// why.
	Asked holdfast.MicroUSD `json:"asked,omitempty"`
	CutBy Cut               `json:"cut_by,omitempty"`
	Spent holdfast.MicroUSD `json:"spent"` // reported so far, all attempts
	Holds []Hold            `json:"holds,omitempty"`
	// Former has what earlier generations held, oldest first, so that a late report
	// of one of their attempts is still charged to what that attempt held.
	Former []Former `json:"former,omitempty"`
	// Past has how the run stood each time that it was queued again, oldest first.
	Past []Past `json:"past,omitempty"`
	// Unheld says why the run was admitted without an allocation (a degraded ledger,
	// a policy never read); empty for a run that is held.
	Unheld     string `json:"unheld,omitempty"`
	DecisionID string `json:"decision_id,omitempty"`

	Attempt    int   `json:"attempt"`    // the executions so far; 0 before the first start
	Generation int   `json:"generation"` // how often it was admitted anew (resume)
	Asks       int   `json:"asks"`       // the highest generation of an allocation id that it has used
	Published  int   `json:"published"`  // how often its message was published
	Sequence   int64 `json:"sequence"`   // of the last report of this attempt
	// SpentBy is the cumulative spend of each attempt, by attempt.
	SpentBy map[int]holdfast.MicroUSD `json:"spent_by,omitempty"`
	// SkippedReports counts HOLDFAST_REPORT lines that could not be read.
	SkippedReports int `json:"skipped_reports,omitempty"`

	Runner      string    `json:"runner,omitempty"`
	ClaimNonce  string    `json:"claim_nonce,omitempty"` // of the claim that began this attempt
	Settled     bool      `json:"settled,omitempty"`     // its allocations were closed with its end
	CancelAsked bool      `json:"cancel_asked,omitempty"`
	Retry       Retry     `json:"retry,omitzero"`
	CreatedAt   time.Time `json:"created_at"`
	QueuedAt    time.Time `json:"queued_at"` // of the last publish
	StartedAt   time.Time `json:"started_at,omitzero"`
	EndedAt     time.Time `json:"ended_at,omitzero"`
	ReportedAt  time.Time `json:"reported_at,omitzero"` // of the last report or heartbeat
}
