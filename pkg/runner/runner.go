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
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
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

// LogKeeper keeps the output of attempts where servers can read it; pkg/queue/nats
// has one.
type LogKeeper interface {
	// AppendLog returns when the piece, which begins at the offset, is durable. The same
	// piece again is the same piece.
	AppendLog(ctx context.Context, run holdfast.RunID, attempt int, offset int64, piece []byte) error
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
	Logs        LogKeeper     // nil: the output stays in the data folder
	Secrets     SecretSource  // nil: repositories are cloned without a token
	CloneWithin time.Duration // how long a clone may take: 5 min
	CloneLimit  int64         // bytes that a clone may have: 2 GiB
	CloneMemory int64         // bytes of memory that each program of git may have, where the system can limit it (Linux): 2 GiB
	Clock       clock.Clock   // for the times in reports: clock.System
	Log         *slog.Logger  // nil: nothing is logged
	Events      Events
}

// Events are told what a runner does; nil fields are not called.
type Events struct {
	Started func(queue.RunMessage)
	Ended   func(queue.RunMessage, queue.Report)
	Fenced  func(holdfast.RunID) // stopped because no renewal was acknowledged in time
}

// Runner executes runs; see the package. It is made by [New].
type Runner struct {
	queue   Queue
	options Options

	mu     sync.Mutex
	active map[holdfast.RunID]*attempt
	asked  map[holdfast.RunID]openClaim // claims whose answer is not known
}

// openClaim is a claim that may have begun an attempt that nobody executes. The next
// delivery of the same message here asks with the same nonce, and is given that
// attempt.
type openClaim struct {
	publication, generation int
	nonce                   string
}

// maxOpenClaims bounds what is remembered. Of a forgotten claim, the attempt that it
// may have begun is ended by its lease.
const maxOpenClaims = 1024

// New is a runner that takes its work from q. It touches nothing until Run.
func New(q Queue, o Options) (*Runner, error) {
	if o.DataDir == "" {
		return nil, &holdfast.InvalidError{Field: "data_dir", Problem: "is empty", Allowed: "a folder"}
	}
	if o.Slots < 0 {
		return nil, &holdfast.InvalidError{Field: "slots", Problem: "is negative", Allowed: "0 for the default, or more"}
	}
	if o.Executable == "" {
		path, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("runner: where this program is: %w", err)
		}
		o.Executable = path
	}
	orElse(&o.Name, "runner")
	orElse(&o.Slots, 4*runtime.NumCPU())
	orElse(&o.Lease, 2*time.Minute)
	orElse(&o.Heartbeat, 20*time.Second)
	orElse(&o.MaxDuration, 2*time.Hour)
	orElse(&o.StopGrace, defaultGrace)
	orElse(&o.DrainGrace, defaultGrace)
	orElse(&o.ReportEvery, defaultReportEvery)
	orElse(&o.LogLimit, 16<<20)
	orElse(&o.CloneWithin, defaultCloneWithin)
	orElse(&o.CloneLimit, defaultCloneLimit)
	orElse(&o.CloneMemory, defaultCloneMemory)
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		field string
		value int64
	}{
		{"lease", int64(o.Lease)}, {"heartbeat", int64(o.Heartbeat)}, {"max_duration", int64(o.MaxDuration)}, {"stop_grace", int64(o.StopGrace)},
		{"drain_grace", int64(o.DrainGrace)}, {"report_every", int64(o.ReportEvery)}, {"log_limit", o.LogLimit},
		{"clone_within", int64(o.CloneWithin)}, {"clone_limit", o.CloneLimit}, {"clone_memory", o.CloneMemory},
	} {
		if d.value < 0 {
			return nil, &holdfast.InvalidError{Field: d.field, Problem: "is negative", Allowed: "0 for the default, or more"}
		}
	}
	if o.Heartbeat >= fenceAfter(o.Lease) {
		return nil, &holdfast.InvalidError{
			Field: "heartbeat", Problem: fmt.Sprintf("%s leaves no time to renew a lease of %s", o.Heartbeat, o.Lease),
			Allowed: "less than three quarters of the lease",
		}
	}
	return &Runner{queue: q, options: o, active: map[holdfast.RunID]*attempt{}, asked: map[holdfast.RunID]openClaim{}}, nil
}

func orElse[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// fenceAfter is how old the last acknowledged renewal may become.
func fenceAfter(lease time.Duration) time.Duration { return lease / 4 * 3 }

// Run is [Runner.Drain] with no time for what is under way: its children are stopped
// as soon as ctx ends.
func (r *Runner) Run(ctx context.Context) error { return r.Drain(ctx, ctx) }

// Drain takes and executes work until taking ends. What is under way then may go on
// until last ends too; then its children are stopped (TERM, after the drain grace
// KILL) and reported as interrupted, which takes the grace and three seconds at
// most. It returns nil when nothing runs any more. It returns an error when the
// folder cannot be used or the queue's connection was closed under it.
func (r *Runner) Drain(taking, last context.Context) error {
	for _, folder := range []string{"", childrenFolder, workFolder, "runs"} {
		if err := os.MkdirAll(filepath.Join(r.options.DataDir, folder), 0o700); err != nil {
			return fmt.Errorf("runner: %w", err)
		}
	}
	dir, err := resolve(r.options.DataDir)
	if err != nil {
		return fmt.Errorf("runner: %w", err)
	}
	stop, err := r.queue.CancelNotices(r.cancel)
	if err != nil {
		return fmt.Errorf("runner: %w", err)
	}
	defer stop()
	err = r.queue.Work(taking, r.options.Slots, func(_ context.Context, d queue.Delivery) queue.Disposition {
		return r.execute(last, dir, d)
	})
	if err != nil {
		return fmt.Errorf("runner: %w", err)
	}
	return nil
}

// cancel passes a notice on to the attempt of the run, if it is here.
func (r *Runner) cancel(run holdfast.RunID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.active[run]; a != nil {
		a.cancel()
	}
}

// begin makes the attempt of a delivery, unless this runner executes the run
// already: then the message was delivered again because its extension was late, and
// the delivery that is worked on answers for it.
func (r *Runner) begin(dir string, d queue.Delivery) *attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active[d.Message.Run] != nil {
		return nil
	}
	a := newAttempt(r, dir, d)
	r.active[d.Message.Run] = a
	open := r.asked[d.Message.Run]
	if open.nonce != "" && open.publication == d.Message.Publication && open.generation == d.Message.Generation {
		a.nonce, a.repeated = open.nonce, true
	}
	return a
}

// answered notes whether the attempt's claim got an answer that settles it.
func (r *Runner) answered(a *attempt, settled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if settled {
		delete(r.asked, a.message.Run)
		return
	}
	if len(r.asked) >= maxOpenClaims {
		clear(r.asked)
	}
	r.asked[a.message.Run] = openClaim{a.message.Publication, a.message.Generation, a.nonce}
}

func (r *Runner) end(a *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.active, a.message.Run)
}

// execute claims a delivery's run and executes it when the server says go.
func (r *Runner) execute(ctx context.Context, dir string, d queue.Delivery) queue.Disposition {
	a := r.begin(dir, d)
	if a == nil {
		return queue.Leave
	}
	defer r.end(a)
	grant, err := a.claim(ctx)
	begin, stale := grant.Verdict == queue.GrantGo, grant.Verdict == queue.GrantDrop || grant.Verdict == queue.GrantStop
	r.answered(a, err == nil && (begin || stale))
	switch {
	case err != nil:
		r.options.Log.Warn("cannot claim a run", "run", d.Message.Run, "err", err)
		return queue.Later
	case begin:
		return a.run(ctx, grant)
	case stale:
		return queue.Drop
	}
	return queue.Later
}
