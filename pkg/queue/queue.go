// Package queue has the messages between servers and runners, and what each way
// for a message to end means. The transport is pkg/queue/nats. JetStream is not the
// truth: the run document is, and every message can be made again from it.
package queue

import (
	"time"

	"github.com/holdfast-io/holdfast"
)

// RunMessage tells a runner to execute one run. It is made from the run document
// alone and carries everything that a runner needs, because runners never see the
// database.
type RunMessage struct {
	Version     int               `json:"v"`
	Run         holdfast.RunID    `json:"run"`
	Team        holdfast.TeamID   `json:"team"`
	Identity    holdfast.Identity `json:"identity"`
	Bot         holdfast.Bot      `json:"bot"`
	Inputs      map[string]string `json:"inputs,omitempty"`
	Repo        string            `json:"repo,omitempty"`
	Pool        string            `json:"pool,omitempty"`
	Budget      holdfast.MicroUSD `json:"budget"`
	Generation  int               `json:"generation"`
	Publication int               `json:"publication"` // the message id is run + this count
	PublishedAt time.Time         `json:"published_at"`
}

// MessageVersion is the version that this build writes and the only one it reads.
const MessageVersion = 1

// ReportKind says what a report tells.
type ReportKind string

// The kinds of reports, in the order in which one attempt sends them.
const (
	ReportClaimed  ReportKind = "claimed"  // a runner took the message and asks to begin
	ReportStarted  ReportKind = "started"  // the child runs
	ReportProgress ReportKind = "progress" // a heartbeat, with the spend so far
	ReportEnded    ReportKind = "ended"    // the attempt is over
)

// Ending says how an attempt ended.
type Ending string

// The endings.
const (
	EndFinished    Ending = "finished"
	EndFailed      Ending = "failed"
	EndDeadline    Ending = "deadline"
	EndBudget      Ending = "budget"
	EndCancelled   Ending = "cancelled"
	EndInterrupted Ending = "interrupted" // resumable: the runner went away
	EndStartFailed Ending = "start_failed"
	EndLeaseLost   Ending = "lease_lost"
)

// Report is what a runner says of one attempt. Reports are durable and at least
// once; a server applies each (run, attempt, sequence) once.
type Report struct {
	Version  int               `json:"v"`
	Run      holdfast.RunID    `json:"run"`
	Attempt  int               `json:"attempt"`
	Sequence int64             `json:"sequence"` // from 1 within the attempt
	Kind     ReportKind        `json:"kind"`
	Runner   string            `json:"runner"`
	At       time.Time         `json:"at"`
	Spent    holdfast.MicroUSD `json:"spent"` // cumulative within the attempt
	Skipped  int               `json:"skipped,omitempty"`
	// Of an ended report.
	Ending   Ending `json:"ending,omitempty"`
	ExitCode *int   `json:"exit_code,omitempty"`
	Detail   string `json:"detail,omitempty"`
}

// Claim is asked by a runner before it starts a child, and by a heartbeat while
// the child runs: may this attempt (go on to) spend?
type Claim struct {
	Run         holdfast.RunID    `json:"run"`
	Publication int               `json:"publication"`
	Generation  int               `json:"generation"`
	Runner      string            `json:"runner"`
	Attempt     int               `json:"attempt"`  // 0: a new one is asked for
	Sequence    int64             `json:"sequence"` // of a renewal
	Spent       holdfast.MicroUSD `json:"spent"`
	// Nonce names one delivery of a message, so that a claim whose answer was lost
	// may be asked again: the same nonce gets the same attempt. Empty: it may not.
	Nonce string `json:"nonce,omitempty"`
}

// Grant answers a [Claim].
type Grant struct {
	// Verdict: go, or why not.
	Verdict GrantVerdict      `json:"verdict"`
	Attempt int               `json:"attempt"`
	Budget  holdfast.MicroUSD `json:"budget"`
	Expires time.Time         `json:"expires,omitzero"`
	Reason  string            `json:"reason,omitempty"`
}

// GrantVerdict is the answer's word. The zero value is no answer.
type GrantVerdict string

// The verdicts.
const (
	GrantGo    GrantVerdict = "go"    // start, or go on
	GrantStop  GrantVerdict = "stop"  // end the child (cancelled, or its allocation is closed)
	GrantDrop  GrantVerdict = "drop"  // the message is stale: superseded, settled, cancelled; ack it
	GrantLater GrantVerdict = "later" // cannot be told now; hand the message back
)
