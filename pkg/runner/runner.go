// Package runner executes runs. It takes run messages from the queue while it has
// free slots, claims each with the server before anything starts, runs the bot's
// command as a process group of its own, renews the claim while the child lives,
// and reports the end before the message leaves the queue. It never sees the
// database: what it knows of a run is in the message and in the grant.
//
// A runner spends only while its last acknowledged renewal is young: when the
// server cannot be reached for three quarters of a lease the child is stopped
// (fencing), because by the end of the lease the capacity belongs to others.
package runner

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/queue"
)

// Queue is what a runner needs of the queue; pkg/queue/nats has it.
type Queue interface {
	// Work hands out messages to at most slots handlers at a time until ctx ends,
	// then returns when the last handler has. A handler's context ends with ctx.
	Work(ctx context.Context, slots int, handle func(context.Context, queue.Delivery) queue.Disposition) error
	// RequestClaim asks a server. An error means that no answer is known.
	RequestClaim(ctx context.Context, claim queue.Claim) (queue.Grant, error)
	// PublishReport returns when the report is durable.
	PublishReport(ctx context.Context, report queue.Report) error
	// CancelNotices calls notice for every run that is cancelled from now on, until
	// stop is called. Notices may be lost; the next heartbeat tells as well.
	CancelNotices(notice func(holdfast.RunID)) (stop func(), err error)
}

// Options are a runner's settings; a zero field has the stated default.
type Options struct {
	Name        string        // who it is in claims and reports: "runner"
	DataDir     string        // where children, workspaces and logs are kept; required
	Executable  string        // this program, for the child wrapper and for bots of the binary itself: os.Executable
	Slots       int           // runs at a time: four for each processor
	Lease       time.Duration // how long the server believes a claim: 120 s
	Heartbeat   time.Duration // how often a claim is renewed: 20 s
	MaxDuration time.Duration // of a bot that states none: 2 h
	StopGrace   time.Duration // between TERM and KILL: 5 s
	DrainGrace  time.Duration // the same while the runner shuts down: 5 s
	ReportEvery time.Duration // how often HOLDFAST_REPORT is read: 200 ms
	LogLimit    int64         // bytes of output kept for an attempt: 16 MiB
	Clock       clock.Clock   // for the times in reports: clock.System
	Log         *slog.Logger  // nil: nothing is logged
	Events      Events
}

// Events are told what a runner does; nil fields are not called.
type Events struct {
	Started func(queue.RunMessage)
	Ended   func(queue.RunMessage, queue.Report)
	Skipped func(lines int) // HOLDFAST_REPORT lines that could not be read
	Fenced  func(holdfast.RunID)
}

// Runner executes runs; see the package. It is made by [New].
type Runner struct {
	queue   Queue
	options Options
}

// New is a runner that takes its work from q. It touches nothing until Run.
func New(q Queue, o Options) (*Runner, error) {
	if o.DataDir == "" {
		return nil, &holdfast.InvalidError{Field: "data_dir", Problem: "is empty", Allowed: "a folder"}
	}
	return &Runner{queue: q, options: o}, nil
}

// Run takes and executes work until ctx ends. Then it stops its children (TERM,
// after the drain grace KILL), reports them as interrupted and returns nil, all
// within the grace and three seconds.
func (r *Runner) Run(ctx context.Context) error { return errors.ErrUnsupported }
