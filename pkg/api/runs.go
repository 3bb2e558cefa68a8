package api

import (
	"time"

	"github.com/holdfast-io/holdfast"
)

// LaunchRequest asks for a run, or for a preview of one.
type LaunchRequest struct {
	Team         string             `json:"team" doc:"the team's id"`
	Bot          string             `json:"bot" doc:"the bot's name; it is folded, so Feature Dev is feature-dev"`
	Repo         string             `json:"repo,omitempty" doc:"the repository that the run works on, as owner/name"`
	BudgetUSD    *holdfast.MicroUSD `json:"budget_usd,omitempty" doc:"the most that the run may spend; absent: the bot's or the platform's default"`
	MinBudgetUSD *holdfast.MicroUSD `json:"min_budget_usd,omitempty" doc:"the least that is worth running with; absent: the lesser of the budget and max(0.05, a tenth of it)"`
	Inputs       map[string]string  `json:"inputs,omitempty"`
	Pool         string             `json:"pool,omitempty" doc:"the runner pool"`
	External     bool               `json:"external,omitempty" doc:"the caller runs the work itself: it sends heartbeats and settles"`
}

// Allocation is one durable promise to a run.
type Allocation struct {
	ID      string `json:"id"`
	Subject string `json:"subject"`
	Amount  Amount `json:"amount"`
}

// Lease is how long the allocations of an external run live without a heartbeat.
type Lease struct {
	ExpiresAt       time.Time `json:"expires_at"`
	HeartbeatEveryS int64     `json:"heartbeat_every_s"`
}

// CapPolicy is the usage-cap policy that a run is held to. Absent windows are not
// enforced.
type CapPolicy struct {
	FiveHourPercent int `json:"five_hour_percent,omitempty"`
	WeekPercent     int `json:"week_percent,omitempty"`
}

// Run is one run. Times that have not happened are absent.
type Run struct {
	ID           string            `json:"id"`
	Team         string            `json:"team"`
	Identity     Identity          `json:"identity"`
	Status       string            `json:"status" enum:"queued,running,paused,parked,finished,failed,failed_resumable,cancelled"`
	StatusReason string            `json:"status_reason,omitempty"`
	Detail       string            `json:"detail,omitempty"`
	ExitCode     *int              `json:"exit_code,omitempty"`
	BudgetUSD    holdfast.MicroUSD `json:"budget_usd" doc:"the smallest allowance; what the run is held to"`
	AskedUSD     holdfast.MicroUSD `json:"asked_usd,omitempty" doc:"what its caller asked for, where it got less"`
	CutBy        string            `json:"cut_by,omitempty" doc:"why it got less: bot, limits (max_run_usd) or capacity"`
	SpentUSD     holdfast.MicroUSD `json:"spent_usd" doc:"reported so far"`
	Allocations  []Allocation      `json:"allocations" nullable:"false"`
	Unheld       string            `json:"unheld,omitempty" doc:"why the run was admitted without an allocation"`
	DecisionID   string            `json:"decision_id,omitempty"`
	Repo         string            `json:"repo,omitempty"`
	Inputs       map[string]string `json:"inputs,omitempty"`
	Pool         string            `json:"pool,omitempty"`
	External     bool              `json:"external,omitempty"`
	Caller       string            `json:"caller,omitempty"`
	Runner       string            `json:"runner,omitempty"`
	Attempt      int               `json:"attempt"`
	Generation   int               `json:"generation" doc:"how often it was admitted anew"`
	Past         []RunAttempt      `json:"past,omitempty" doc:"how it stood each time that it was queued again, oldest first"`
	Skipped      int               `json:"skipped_reports,omitempty" doc:"lines of HOLDFAST_REPORT that could not be read"`
	CancelAsked  bool              `json:"cancel_asked,omitempty"`
	Retry        *RunRetry         `json:"retry,omitempty" doc:"how it stands with coming back by itself; absent: nothing was tried"`
	CreatedAt    time.Time         `json:"created_at"`
	QueuedAt     time.Time         `json:"queued_at,omitzero"`
	StartedAt    time.Time         `json:"started_at,omitzero"`
	EndedAt      time.Time         `json:"ended_at,omitzero"`
	ReportedAt   time.Time         `json:"reported_at,omitzero"`
	Lease        *Lease            `json:"lease,omitempty" doc:"of an external run that is open"`
	CapPolicy    *CapPolicy        `json:"cap_policy,omitempty" doc:"of an external run that is open"`
	Links        map[string]string `json:"links,omitempty"`
}

// RunAttempt is how a run stood before it was queued again.
type RunAttempt struct {
	Attempt      int               `json:"attempt" doc:"0: it waited, and no attempt had begun"`
	Status       string            `json:"status" doc:"running: a runner had claimed the attempt, and it never began"`
	StatusReason string            `json:"status_reason,omitempty"`
	Detail       string            `json:"detail,omitempty"`
	Runner       string            `json:"runner,omitempty"`
	StartedAt    time.Time         `json:"started_at,omitzero"`
	EndedAt      time.Time         `json:"ended_at,omitzero"`
	SpentUSD     holdfast.MicroUSD `json:"spent_usd"`
	DecisionID   string            `json:"decision_id,omitempty" doc:"of the judgement that admitted it"`
}

// Ended says whether the run is over.
func (r Run) Ended() bool {
	switch r.Status {
	case "finished", "failed", "failed_resumable", "cancelled":
		return true
	}
	return false
}

// Heartbeat renews the allocations of an external run.
type Heartbeat struct {
	SpentUSD holdfast.MicroUSD `json:"spent_usd" doc:"cumulative, from the start of this attempt"`
}

// HeartbeatAnswer says until when the run may go on, or that it must stop.
type HeartbeatAnswer struct {
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	Stop      bool      `json:"stop,omitempty"`
	Reason    string    `json:"reason,omitempty" doc:"why it must stop"`
}

// Settle ends an external run with what it used. It is idempotent.
type Settle struct {
	SpentUSD holdfast.MicroUSD `json:"spent_usd" doc:"cumulative, from the start of this attempt"`
	Outcome  string            `json:"outcome" enum:"finished,failed,cancelled" doc:"how the run ended"`
}

// SettleAnswer says whether this call closed the run.
type SettleAnswer struct {
	Closed bool `json:"closed"`
}

// Check is one check of the gate with its arithmetic. The numbers are absent where
// the check judges no subject.
type Check struct {
	Name        string  `json:"name"`
	Verdict     string  `json:"verdict" doc:"pass, deny, skip or unknown"`
	Reason      string  `json:"reason,omitempty"`
	Cause       string  `json:"cause,omitempty"`
	Detail      string  `json:"detail,omitempty"`
	Subject     string  `json:"subject,omitempty"`
	Cap         *Amount `json:"cap,omitempty"`
	Requested   *Amount `json:"requested,omitempty"`
	Settled     *Amount `json:"settled,omitempty"`
	Outstanding *Amount `json:"outstanding,omitempty"`
	Withheld    *Amount `json:"withheld,omitempty"`
	Remaining   *Amount `json:"remaining,omitempty"`
	Allowance   *Amount `json:"allowance,omitempty"`
}

// Preview is what a launch would get now. Nothing was taken.
type Preview struct {
	Admitted  bool               `json:"admitted"`
	BudgetUSD *holdfast.MicroUSD `json:"budget_usd,omitempty" doc:"what the run would be held to; absent when refused"`
	AskedUSD  holdfast.MicroUSD  `json:"asked_usd,omitempty" doc:"what was asked for, where the run would get less"`
	CutBy     string             `json:"cut_by,omitempty" doc:"why it would get less: bot, limits (max_run_usd) or capacity"`
	Identity  *Identity          `json:"identity,omitempty" doc:"absent when the bot was not resolved"`
	Checks    []Check            `json:"checks" nullable:"false"`
	Walk      []WalkStep         `json:"walk" nullable:"false" doc:"the credentials that would be tried; empty for a bot that needs no provider"`
	Refusal   *Problem           `json:"refusal,omitempty" doc:"the refusal that a launch would get"`
}

// WalkStep is one credential that a launch would try.
type WalkStep struct {
	Tier       string `json:"tier"`
	Credential string `json:"credential"`
	Verdict    string `json:"verdict"`
	Reason     string `json:"reason,omitempty"`
}

// Decision is one judgement of the gate with its arithmetic.
type Decision struct {
	ID       string    `json:"id"`
	At       time.Time `json:"at"`
	Team     string    `json:"team"`
	Bot      string    `json:"bot" doc:"as the request named it"`
	Identity *Identity `json:"identity,omitempty"`
	Run      string    `json:"run,omitempty"`
	Surface  string    `json:"surface,omitempty" doc:"where the launch came from"`
	Admitted bool      `json:"admitted"`
	Reason   string    `json:"reason,omitempty"`
	Cause    string    `json:"cause,omitempty"`
	Subject  string    `json:"subject,omitempty"`
	Detail   string    `json:"detail,omitempty"`
	Checks   []Check   `json:"checks" nullable:"false"`
	Holders  []Holding `json:"holders,omitempty"`
	Count    int       `json:"count" doc:"repeats within a second are one row"`
}

// Explanation is the story of a run or of a decision.
type Explanation struct {
	Run      *Run              `json:"run,omitempty" doc:"absent for a refusal"`
	Decision *Decision         `json:"decision,omitempty" doc:"the gate's judgement; absent when it is no longer kept"`
	Capacity []SubjectCapacity `json:"capacity" nullable:"false" doc:"the subjects that it holds on or was refused by, as they are now"`
	Summary  []string          `json:"summary" nullable:"false" doc:"the story in sentences, oldest first"`
	Change   string            `json:"change,omitempty" doc:"the smallest change that would have admitted a refused launch"`
	Earliest time.Time         `json:"earliest,omitzero" doc:"when a refused launch can fit at the earliest"`
	Until    string            `json:"until,omitempty" doc:"why not before"`
}

// RunRetry says how a run stands with coming back by itself.
type RunRetry struct {
	Tries     int       `json:"tries" doc:"resumes after a loss that were begun; the bot's retries bound them"`
	Refusals  int       `json:"refusals,omitempty" doc:"by the gate, since it last ran"`
	NotBefore time.Time `json:"not_before,omitzero" doc:"when it is tried next"`
	Last      string    `json:"last,omitempty" doc:"the last refusal"`
	GivenUp   string    `json:"given_up,omitempty" doc:"why it is not tried again"`
}
