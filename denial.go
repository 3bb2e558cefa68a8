package holdfast

import (
	"fmt"
	"time"
)

// DenyReason says which check said no. The empty reason is no denial. Each
// constant is a metric label and a row of docs/quotas-and-limits.md; a test keeps
// the three equal.
type DenyReason string

// The reasons, in the order in which the gate checks.
const (
	DenyMaintenance     DenyReason = "maintenance"
	DenyNoTeam          DenyReason = "no_team"
	DenyRole            DenyReason = "insufficient_role"
	DenyUnknownTeam     DenyReason = "unknown_team"
	DenyTeamSuspended   DenyReason = "team_suspended"
	DenyRepoQuota       DenyReason = "repo_quota_exceeded"
	DenyLaunchRate      DenyReason = "launch_rate_limited"
	DenyUnknownBot      DenyReason = "unknown_bot"
	DenyLane            DenyReason = "lane_unavailable"
	DenyConcurrency     DenyReason = "concurrency_cap_exceeded"
	DenyMonthlyRuns     DenyReason = "monthly_run_quota_exceeded"
	DenyMonthlyUSD      DenyReason = "monthly_cost_cap_exceeded"
	DenyWindowExhausted DenyReason = "credential_window_exhausted"
	DenyNoCredential    DenyReason = "no_credential"
	DenyDonorLimit      DenyReason = "donor_limit_reached"
	DenyRunnerPoolInUse DenyReason = "runner_pool_full"
	DenyUnknownCapacity DenyReason = "unknown_axis"
)

// DenyReasons lists every reason in the gate's order.
func DenyReasons() []DenyReason {
	return []DenyReason{
		DenyMaintenance, DenyNoTeam, DenyRole, DenyUnknownTeam, DenyTeamSuspended, DenyRepoQuota, DenyLaunchRate,
		DenyUnknownBot, DenyLane, DenyConcurrency, DenyMonthlyRuns, DenyMonthlyUSD, DenyWindowExhausted, DenyNoCredential,
		DenyDonorLimit, DenyRunnerPoolInUse, DenyUnknownCapacity,
	}
}

// DenyReason is the reason with which a full subject of the axis refuses.
func (a Axis) DenyReason() DenyReason {
	switch a {
	case AxisSlots:
		return DenyConcurrency
	case AxisRuns:
		return DenyMonthlyRuns
	case AxisUSD:
		return DenyMonthlyUSD
	case AxisFiveHour, AxisWeek:
		return DenyWindowExhausted
	case AxisInFlight:
		return DenyRunnerPoolInUse
	}
	return DenyUnknownCapacity
}

// Cause says why the reason applied, where that is worth telling apart.
type Cause string

// CauseReserved marks a denial in which only a reservation stood in the way: the
// plain limit would have admitted the ask. It is also the label that such a
// denial is counted under (ADR-155 §9).
const CauseReserved Cause = "capacity_reserved"

// Holding is what one holder has on a subject.
type Holding struct {
	Holder      Identity
	Reserved    Amount // by the policy in force, as cut to the cap
	Settled     Amount
	Outstanding Amount
}

// Denial is a "no": which check said it, on what subject, and every number it was
// judged by. It is data and deliberately has no Error method, so that the
// compiler keeps it apart from "could not tell".
type Denial struct {
	Reason  DenyReason
	Cause   Cause
	Subject Subject // zero where the check judges no subject

	// Public says it to the caller, with the way out. Operator says more and is
	// never sent to a caller.
	Public, Operator string

	// The arithmetic, where a subject was judged. Settled and Outstanding leave the
	// refused ask out; Remaining may be negative after an overspend.
	Cap                                                           Limit
	Requested, Minimum, Settled, Outstanding, Withheld, Remaining Amount
	Holders                                                       []Holding

	// Retryable is false when no return of capacity can ever admit this ask: its
	// minimum exceeds the cap minus what others have reserved.
	Retryable  bool
	RetryAfter time.Duration // zero when nobody can say
	ResetAt    time.Time     // zero when the subject has no reset

	// DecisionID names the recorded judgement; empty where none is recorded.
	DecisionID string
}

// Denied says whether it is a denial at all.
func (d Denial) Denied() bool { return d.Reason != "" }

// MetricLabel is what the denial is counted under: its cause, else its reason.
func (d Denial) MetricLabel() string {
	if d.Cause != "" {
		return string(d.Cause)
	}
	return string(d.Reason)
}

// InvalidError is a bad request: which field, what is wrong, and what is allowed.
// It is the caller's to mend; nothing was taken.
type InvalidError struct {
	Field   string // empty until a caller that knows it fills it in, see [InField]
	Problem string
	Allowed string
}

// Error names the field, the problem and the way out.
func (e *InvalidError) Error() string {
	text := e.Problem
	if e.Field != "" {
		text = fmt.Sprintf("%s: %s", e.Field, text)
	}
	if e.Allowed != "" {
		text += " (allowed: " + e.Allowed + ")"
	}
	return text
}

// InField names the field of an *InvalidError that does not name one yet; an outer
// field is put in front of an inner one. Other errors pass through.
func InField(field string, err error) error {
	bad, ok := err.(*InvalidError) //nolint:errorlint // only the bare error has no field yet
	if !ok {
		return err
	}
	if bad.Field != "" {
		field += "." + bad.Field
	}
	return &InvalidError{Field: field, Problem: bad.Problem, Allowed: bad.Allowed}
}
