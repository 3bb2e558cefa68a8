package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
)

const (
	// askWithin bounds a claim or a renewal; a heartbeat later another one is sent. It
	// is at most a third of the time to the fence, so that one lost answer never fences.
	askWithin = 10 * time.Second
	// tellWithin bounds one try to publish a report.
	tellWithin = 5 * time.Second
	// drainReport is how long a runner that shuts down tries to report an end.
	drainReport = 2500 * time.Millisecond
	tellRetry   = 250 * time.Millisecond
)

// attempt is one execution of a run, from its claim to its ended report.
type attempt struct {
	runner   *Runner
	dir      string
	delivery queue.Delivery
	message  queue.RunMessage

	cancelOnce sync.Once
	cancelled  chan struct{} // closed by a cancel notice

	nonce    string       // of the claim
	repeated bool         // the claim was asked before, by a former delivery
	number   int          // the server's, from the grant
	sequence int64        // of the last claim or report
	told     bool         // its start was made known
	budget   atomic.Int64 // micro-dollars; the last grant's
	// fence fires when the last acknowledged claim was sent too long ago. It is started
	// before a claim is sent and replaces the former one when the claim is acknowledged,
	// so it runs on the monotonic clock and from the right end.
	fence *time.Timer
}

func newAttempt(r *Runner, dir string, d queue.Delivery) *attempt {
	return &attempt{runner: r, dir: dir, delivery: d, message: d.Message, cancelled: make(chan struct{}), nonce: rand.Text()}
}

func (a *attempt) cancel() { a.cancelOnce.Do(func() { close(a.cancelled) }) }

// claim asks for a new attempt.
func (a *attempt) claim(ctx context.Context) (queue.Grant, error) {
	fence := time.NewTimer(fenceAfter(a.runner.options.Lease))
	grant, err := a.ask(ctx, queue.Claim{Nonce: a.nonce})
	if err != nil || grant.Verdict != queue.GrantGo {
		fence.Stop()
		return grant, err
	}
	a.fence, a.number = fence, grant.Attempt
	a.budget.Store(int64(grant.Budget))
	return grant, nil
}

func (a *attempt) ask(ctx context.Context, c queue.Claim) (queue.Grant, error) {
	c.Run, c.Runner = a.message.Run, a.runner.options.Name
	c.Publication, c.Generation = a.message.Publication, a.message.Generation
	ctx, cancel := context.WithTimeout(ctx, min(askWithin, fenceAfter(a.runner.options.Lease)/3))
	defer cancel()
	return a.runner.queue.RequestClaim(ctx, c)
}

// run starts the child, watches it and reports its end.
func (a *attempt) run(ctx context.Context, grant queue.Grant) queue.Disposition {
	defer func() { a.fence.Stop() }()
	ended := a.execute(ctx)
	if err := a.tell(ctx, ended); err != nil {
		// The journal stays: what was spent is found when the folder is used next.
		a.runner.options.Log.Error("cannot report the end of an attempt", "run", a.message.Run, "attempt", grant.Attempt, "err", err)
		return queue.Later
	}
	a.forget()
	if f := a.runner.options.Events.Ended; f != nil {
		f(a.message, ended)
	}
	return queue.Done
}

// execute runs the child to its end and says how that was.
func (a *attempt) execute(ctx context.Context) queue.Report {
	switch {
	case ctx.Err() != nil:
		return a.report(queue.Report{Kind: queue.ReportEnded, Ending: queue.EndInterrupted, Detail: "the runner shut down before the command was started"})
	case closed(a.cancelled):
		return a.report(queue.Report{Kind: queue.ReportEnded, Ending: queue.EndCancelled})
	}
	out, work, err := a.prepare()
	if err != nil {
		return a.report(notStarted(err))
	}
	shipping := a.ship(ctx)
	if a.message.Bot.RepoURL != "" {
		if ended := a.checkout(ctx, out, work); ended != nil {
			a.discard(out)
			shipping.finish()
			return *ended
		}
	}
	child, err := a.start(ctx, out, work)
	if err != nil {
		fmt.Fprintf(out, "holdfast: the command was not started: %v\n", err)
		a.discard(out)
		shipping.finish()
		return a.report(notStarted(err))
	}
	if f := a.runner.options.Events.Started; f != nil {
		f(a.message)
	}
	a.watch(ctx, child)
	result := child.Wait()
	killStrays(work.report)
	if err := out.close(); err != nil {
		a.runner.options.Log.Warn("a log is incomplete", "run", a.message.Run, "err", err)
	}
	shipping.finish()
	return a.report(a.ended(result, out))
}

// errUntold: the start could not be reported, so nothing was started.
var errUntold = errors.New("the start could not be reported")

// notStarted is how an attempt ended of which nothing ran.
func notStarted(err error) queue.Report {
	r := queue.Report{Kind: queue.ReportEnded, Ending: queue.EndStartFailed, Detail: holdfast.Clip(err.Error(), 400)}
	if errors.Is(err, errUntold) || errors.Is(err, errUnasked) { // not the command's fault: it can be gone on with
		r.Ending = queue.EndInterrupted
	}
	return r
}

// tellStart makes the start known before any code of the child runs. A run of which
// no start is known is executed by another runner when this one falls silent; so
// what is not known to have started must not have.
func (a *attempt) tellStart(ctx context.Context) error {
	started := a.report(queue.Report{Kind: queue.ReportStarted})
	try, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(tellWithin, fenceAfter(a.runner.options.Lease)/2))
	defer cancel()
	if err := a.runner.queue.PublishReport(try, started); err != nil {
		return fmt.Errorf("%w: %w", errUntold, err)
	}
	return nil
}

// prepare opens the attempt's log and makes its workspace.
func (a *attempt) prepare() (*output, workspace, error) {
	out, err := newOutput(LogPath(a.dir, a.message.Run, a.number), a.runner.options.LogLimit)
	if err != nil {
		return nil, workspace{}, err
	}
	work, err := newWorkspace(a.dir, a.message.Run, a.number, a.message.Bot.RepoURL != "")
	if err != nil {
		a.discard(out)
		return nil, workspace{}, err
	}
	return out, work, nil
}

// discard ends an attempt of which nothing runs: its log stays and nothing else.
func (a *attempt) discard(out *output) {
	_ = out.close() // the report says what happened
	a.forget()
}

// start starts the command in its workspace. After an error nothing of it runs.
func (a *attempt) start(ctx context.Context, out *output, work workspace) (*Child, error) {
	o := a.runner.options
	argv, err := arguments(a.message, o.Executable)
	if err != nil {
		return nil, err
	}
	lasts := time.Duration(a.message.Bot.MaxDuration)
	orElse(&lasts, o.MaxDuration)
	return StartChild(Spec{
		Argv: argv, Dir: work.dir(), Env: work.environ(a.message, a.number, holdfast.MicroUSD(a.budget.Load()), os.Getenv),
		Stdout: out, Stderr: out, Wrapper: o.Executable,
		ReportFile: work.report, ReportEvery: o.ReportEvery,
		OnSpend: func(c *Child, spent holdfast.MicroUSD) {
			if spent >= holdfast.MicroUSD(a.budget.Load()) {
				c.Stop(queue.EndBudget, o.StopGrace)
			}
		},
		Deadline: lasts, Grace: o.StopGrace,
		Started: func(p Process) error { return a.begun(ctx, p) },
	})
}

// watch renews the claim while the child lives and stops it when it must not go on.
func (a *attempt) watch(ctx context.Context, child *Child) {
	o := a.runner.options
	asking, stopAsking := context.WithCancel(context.WithoutCancel(ctx))
	answers := make(chan answer, 1)
	waiting := false
	defer func() {
		stopAsking()
		if waiting {
			(<-answers).fence.Stop()
		}
	}()
	if a.repeated { // its lease began with the first asking
		waiting = true
		a.renew(asking, 0, answers)
	}
	beat := time.NewTicker(o.Heartbeat)
	defer beat.Stop()
	cancelled, drain := a.cancelled, ctx.Done()
	for {
		select {
		case <-child.Done():
			return
		case <-cancelled:
			cancelled = nil
			child.Stop(queue.EndCancelled, o.StopGrace)
		case <-drain:
			drain = nil
			child.Stop(queue.EndInterrupted, o.DrainGrace)
		case <-a.fence.C:
			o.Log.Warn("no renewal was acknowledged in time, the child is stopped", "run", a.message.Run, "attempt", a.number)
			if o.Events.Fenced != nil {
				o.Events.Fenced(a.message.Run)
			}
			child.Stop(queue.EndLeaseLost, o.StopGrace)
		case <-beat.C:
			if err := a.delivery.Extend(); err != nil {
				o.Log.Warn("cannot extend a message", "run", a.message.Run, "err", err)
			}
			if !waiting {
				waiting = true
				a.renew(asking, child.Spent(), answers)
			}
		case got := <-answers:
			waiting = false
			a.take(got, child)
		}
	}
}

// answer is what came of a renewal, with the fence that was started before it was sent.
type answer struct {
	grant queue.Grant
	err   error
	fence *time.Timer
}

// renew sends a heartbeat; its answer comes through answers, always.
func (a *attempt) renew(ctx context.Context, spent holdfast.MicroUSD, answers chan<- answer) {
	a.sequence++
	claim := queue.Claim{Attempt: a.number, Sequence: a.sequence, Spent: spent}
	fence := time.NewTimer(fenceAfter(a.runner.options.Lease))
	go func() { // its end is awaited by watch
		grant, err := a.ask(ctx, claim)
		answers <- answer{grant, err, fence}
	}()
}

// take acts on the answer to a heartbeat. Only go is an acknowledgement: without one
// the former fence stays.
func (a *attempt) take(got answer, child *Child) {
	o := a.runner.options
	switch {
	case got.err == nil && got.grant.Verdict == queue.GrantGo:
		a.fence.Stop()
		a.fence = got.fence
		if got.grant.Budget > 0 { // a renewal need not repeat it
			a.budget.Store(int64(got.grant.Budget))
		}
		return
	case got.err != nil:
		o.Log.Warn("a renewal got no answer", "run", a.message.Run, "attempt", a.number, "err", got.err)
	case got.grant.Verdict == queue.GrantStop && got.grant.Reason == queue.StopCancelled:
		child.Stop(queue.EndCancelled, o.StopGrace)
	case got.grant.Verdict == queue.GrantStop, got.grant.Verdict == queue.GrantDrop:
		child.Stop(queue.EndLeaseLost, o.StopGrace)
	}
	got.fence.Stop()
}

// report completes a report of this attempt.
func (a *attempt) report(r queue.Report) queue.Report {
	a.sequence++
	r.Version, r.Run, r.Attempt, r.Sequence = queue.MessageVersion, a.message.Run, a.number, a.sequence
	r.Runner, r.At = a.runner.options.Name, a.runner.options.Clock.Now()
	return r
}

// ended says how the child ended.
func (a *attempt) ended(result Result, out *output) queue.Report {
	r := queue.Report{Kind: queue.ReportEnded, Ending: result.Ending, Spent: result.Spent, Skipped: result.Skipped}
	if result.Signal == 0 {
		r.ExitCode = &result.ExitCode
	}
	switch result.Ending {
	case queue.EndFailed:
		r.Detail = fmt.Sprintf("exit code %d", result.ExitCode)
		if result.Signal != 0 {
			r.Detail = fmt.Sprintf("ended by signal: %v", result.Signal)
		}
		if line := out.lastLine(); line != "" {
			r.Detail += ": " + line
		}
	case queue.EndDeadline:
		lasts := time.Duration(a.message.Bot.MaxDuration)
		orElse(&lasts, a.runner.options.MaxDuration)
		r.Detail = fmt.Sprintf("ran longer than %s", lasts)
	case queue.EndBudget:
		r.Detail = fmt.Sprintf("spent %s of %s", result.Spent.Dollars(), holdfast.MicroUSD(a.budget.Load()).Dollars())
	case queue.EndInterrupted:
		r.Detail = "the runner shut down"
	case queue.EndFinished, queue.EndCancelled, queue.EndStartFailed, queue.EndLeaseLost:
	}
	return r
}

// tell publishes the ended report until it is durable: for a lease, or a short time
// when the runner shuts down.
func (a *attempt) tell(ctx context.Context, r queue.Report) error {
	trying, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.runner.options.Lease)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		timer := time.NewTimer(drainReport)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-trying.Done():
		}
	})()
	for {
		try, done := context.WithTimeout(trying, tellWithin)
		err := a.runner.queue.PublishReport(try, r)
		done()
		if err == nil {
			return nil
		}
		a.runner.options.Log.Warn("cannot report an end yet", "run", a.message.Run, "err", err)
		if err := a.delivery.Extend(); err != nil {
			a.runner.options.Log.Warn("cannot extend a message", "run", a.message.Run, "err", err)
		}
		retry := time.NewTimer(tellRetry)
		select {
		case <-trying.Done():
			retry.Stop()
			return err
		case <-retry.C:
		}
	}
}

// forget removes the attempt's workspace, then its journal entry.
func (a *attempt) forget() {
	root := workspaceRoot(a.dir, a.message.Run, a.number)
	journal := journalPath(a.dir, a.message.Run, a.number)
	if err := errors.Join(removeAll(root), removeAll(journal)); err != nil {
		a.runner.options.Log.Warn("cannot remove what an attempt left", "run", a.message.Run, "err", err)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
