package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runner"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

const (
	// stopGrace is between TERM and KILL of a command that is stopped.
	stopGrace = 5 * time.Second
	// killedGrace is the same for the command of a killed exec, which nobody renews.
	killedGrace = 2 * time.Second
	// settlePatience bounds how long the end of a run is reported for; after it the
	// lease gives the capacity back.
	settlePatience = 20 * time.Second
	settlePause    = 500 * time.Millisecond
	// unknownLease is believed when a server does not say how long its lease is.
	unknownLease = 120 * time.Second
)

// foreground says that this process owns the terminal on the file, so that it can
// hand it on.
func (c *cli) foreground(file *os.File) bool {
	if !term.IsTerminal(int(file.Fd())) {
		return false
	}
	group, err := unix.IoctlGetInt(int(file.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// work runs the command under the admission, or under none when the run is empty,
// settles, and ends with the command's code.
func (e *execution) work(ctx context.Context, run api.Run, signals <-chan os.Signal) error {
	admitted := run.ID != ""
	report := ""
	if admitted {
		folder, err := os.MkdirTemp("", "holdfast-exec-")
		if err == nil {
			defer func() { _ = os.RemoveAll(folder) }()
			report = filepath.Join(folder, "report.jsonl")
			err = os.WriteFile(report, nil, 0o600)
		}
		if err != nil {
			return e.notStarted(ctx, run, fmt.Errorf("make the report file: %w", err))
		}
	}
	if err := e.note(execStatus{Outcome: "running", Run: run.ID, BudgetUSD: run.BudgetUSD, Unheld: !admitted}); err != nil {
		fmt.Fprintf(e.c.stderr, "holdfast: --status-file: %s\n", err)
	}
	if less := cut(run.AskedUSD, run.CutBy); less != "" {
		fmt.Fprintf(e.c.stderr, "holdfast: run %s has a budget of %s%s\n", run.ID, run.BudgetUSD.Dollars(), less)
	}
	watcher, child, err := e.startWatched(run, report, func(child *runner.Child, spent holdfast.MicroUSD) {
		if spent >= run.BudgetUSD {
			child.Stop(queue.EndBudget, stopGrace)
		}
	})
	if err != nil {
		return e.notStarted(ctx, run, err)
	}
	watch := &watch{e: e, run: run, child: child, signals: signals}
	watch.until(ctx)
	result := child.Wait()
	watcher.Dismiss()
	status := watch.status(result)
	if !admitted {
		status.Unheld = true
		return e.end(status, nil)
	}
	outcome := outcomeOf(status, watch.caught)
	answer, err := e.settle(ctx, run, result.Spent, outcome)
	status.Settled = err == nil
	e.sayWhatCameBack(run, status, outcome, answer, err)
	return e.end(status, nil)
}

// startWatched starts the command and, before it, who ends it when this process is
// killed. A command without an admission holds nothing and is not watched. After an
// error nothing runs.
func (e *execution) startWatched(run api.Run, report string, spent func(*runner.Child, holdfast.MicroUSD)) (*runner.Watcher, *runner.Child, error) {
	if run.ID == "" {
		child, err := e.start(run, report, nil, spent)
		return nil, child, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	watcher, err := runner.StartWatcher(runner.Watch{Program: self, Report: report, Grace: killedGrace})
	if err != nil {
		return nil, nil, err
	}
	child, err := e.start(run, report, watcher.Over, spent)
	if err != nil {
		watcher.Dismiss()
	}
	return watcher, child, err
}

// notStarted gives everything back for a command that could not be started.
func (e *execution) notStarted(ctx context.Context, run api.Run, cause error) error {
	code := exitFailed
	var fault *runner.StartError
	if errors.As(cause, &fault) {
		code = exitNotExecutable
	}
	status := execStatus{Outcome: "failed", ExitCode: code, Run: run.ID, BudgetUSD: run.BudgetUSD}
	if run.ID != "" {
		_, err := e.settle(ctx, run, 0, "failed")
		status.Settled = err == nil
	}
	return e.end(status, cause)
}

// outcomeOf is the word that a run is settled with.
func outcomeOf(status execStatus, caught syscall.Signal) string {
	switch {
	case status.StoppedBy == string(runs.ReasonCancelled), caught != 0 && status.ExitCode != 0,
		status.Outcome == "exited" && status.ExitCode == exitBySignal+int(syscall.SIGINT): // Ctrl-C on a terminal reaches the command alone
		return "cancelled"
	case status.Outcome == "exited" && status.ExitCode == 0:
		return "finished"
	}
	return "failed"
}

// settle reports the end. It outlives whatever ended the command, tries again while
// the server cannot be reached, and gives up after settlePatience.
func (e *execution) settle(ctx context.Context, run api.Run, spent holdfast.MicroUSD, outcome string) (api.SettleAnswer, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settlePatience)
	defer cancel()
	for {
		answer, err := e.server.Settle(ctx, run.ID, api.Settle{SpentUSD: spent, Outcome: outcome})
		if err == nil || !unreachable(err) {
			return answer, err
		}
		if waitErr := e.c.sleep(ctx, settlePause); waitErr != nil {
			return answer, err
		}
	}
}

// sayWhatCameBack is the one line about the run.
func (e *execution) sayWhatCameBack(run api.Run, status execStatus, outcome string, answer api.SettleAnswer, err error) {
	word := outcome
	if status.StoppedBy != "" {
		word = "stopped (" + status.StoppedBy + ")"
	}
	text := fmt.Sprintf("holdfast: run %s %s: reserved %s as %s, spent %s", run.ID, word, reserved(run), run.Identity, status.SpentUSD.Dollars())
	switch {
	case err != nil:
		text += fmt.Sprintf("; it could not be settled (%s), its lease gives it back", plain(err))
	case answer.Closed:
		text += ", " + back(run, status.SpentUSD) + " came back"
	default:
		text += "; it had been closed before, and the spend was recorded"
	}
	fmt.Fprintln(e.c.stderr, text)
}

// reserved lists what a run was granted, each amount once.
func reserved(run api.Run) string {
	var parts []string
	for _, a := range run.Allocations {
		if text := show(a.Amount); !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	return listed(parts)
}

// back lists what came back: the slot and the dollars that were not spent. A run of
// the month is used up by the launch.
func back(run api.Run, spent holdfast.MicroUSD) string {
	var parts []string
	for _, a := range run.Allocations {
		amount := amountOf(a.Amount)
		switch amount.Unit() {
		case holdfast.UnitRuns:
			continue
		case holdfast.UnitUSD:
			amount = amount.Minus(holdfast.USDAmount(spent)).Positive()
		case holdfast.UnitNone, holdfast.UnitSlots, holdfast.UnitPercent:
		}
		if text := amount.String(); !amount.IsZero() && !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	return listed(parts)
}

func listed(parts []string) string {
	if len(parts) == 0 {
		return "nothing"
	}
	last := len(parts) - 1
	if last == 0 {
		return parts[0]
	}
	return strings.Join(parts[:last], ", ") + " and " + parts[last]
}

// watch renews a run while its command lives and stops the command when it may not
// go on.
type watch struct {
	e       *execution
	run     api.Run
	child   *runner.Child
	signals <-chan os.Signal
	caught  syscall.Signal // the first signal that was passed on
	passed  int            // how many were
	said    string         // why the server said stop
}

// beat is the answer to one heartbeat; sent is when it was asked, on the monotonic
// clock.
type beat struct {
	sent   time.Time
	answer api.HeartbeatAnswer
	err    error
}

// until returns when the command has ended.
func (w *watch) until(ctx context.Context) {
	lease, every := w.rhythm()
	fence := time.NewTimer(lease * 3 / 4)
	defer fence.Stop()
	next := time.NewTimer(0) // the first renewal confirms the launch
	defer next.Stop()
	if w.run.ID == "" {
		fence.Stop()
		next.Stop()
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	beats := make(chan beat, 1)
	asking := false
	defer func() {
		cancel()
		if asking {
			<-beats
		}
	}()
	for {
		select {
		case <-w.child.Done():
			return
		case caught := <-w.signals:
			w.pass(caught)
		case <-next.C:
			asking = true
			go w.renew(ctx, min(every, lease/4), beats)
		case got := <-beats:
			asking = false
			next.Reset(every)
			if w.take(got) {
				fence.Reset(max(0, lease*3/4-time.Since(got.sent)))
			}
		case <-fence.C:
			w.child.Stop(queue.EndLeaseLost, stopGrace)
		}
	}
}

// rhythm is how long the server believes a renewal, and how often to renew. Both
// ends of the lease are the server's own times, so its clock does not matter.
func (w *watch) rhythm() (lease, every time.Duration) {
	lease = unknownLease
	if w.run.Lease == nil {
		return lease, lease / 6
	}
	if span := w.run.Lease.ExpiresAt.Sub(w.run.ReportedAt); !w.run.ReportedAt.IsZero() && span > 0 && span <= 24*time.Hour {
		lease = span
	}
	every = time.Duration(w.run.Lease.HeartbeatEveryS) * time.Second
	if every <= 0 || every > lease/3 {
		every = lease / 6
	}
	return lease, every
}

func (w *watch) renew(ctx context.Context, patience time.Duration, beats chan<- beat) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	sent := time.Now()
	answer, err := w.e.server.Heartbeat(ctx, w.run.ID, api.Heartbeat{SpentUSD: w.child.Spent()})
	beats <- beat{sent, answer, err}
}

// take acts on an answer and says whether it was an acknowledgement.
func (w *watch) take(got beat) bool {
	var conflict *client.Conflict
	switch {
	case errors.As(got.err, &conflict):
		w.said = string(runs.ReasonLeaseLost)
		w.child.Stop(queue.EndLeaseLost, stopGrace)
		return false
	case got.err != nil:
		return false // the fence counts on from the last acknowledgement
	case got.answer.Stop:
		w.said = got.answer.Reason
		ending := queue.EndCancelled
		switch w.said {
		case string(runs.ReasonBudget):
			ending = queue.EndBudget
		case string(runs.ReasonLeaseLost), string(runs.ReasonReleased):
			ending = queue.EndLeaseLost
		}
		w.child.Stop(ending, stopGrace)
	}
	return true
}

// pass hands a signal on to the command's group. A third one kills
// it: whoever sends that many does not want to wait.
func (w *watch) pass(caught os.Signal) {
	number, ok := caught.(syscall.Signal)
	if !ok {
		return
	}
	if w.caught == 0 {
		w.caught = number
	}
	if w.passed++; w.passed > 2 {
		w.child.Stop(queue.EndFailed, 0)
		return
	}
	w.child.Signal(number)
}

// status is how the command ended, in the words of the status file.
func (w *watch) status(result runner.Result) execStatus {
	status := execStatus{Outcome: "exited", ExitCode: result.ExitCode, Run: w.run.ID, BudgetUSD: w.run.BudgetUSD, SpentUSD: result.Spent}
	if result.Signal != 0 {
		status.ExitCode = exitBySignal + int(result.Signal)
	}
	switch result.Ending {
	case queue.EndBudget:
		status.StoppedBy = string(runs.ReasonBudget)
	case queue.EndLeaseLost:
		status.StoppedBy = string(runs.ReasonLeaseLost)
	case queue.EndCancelled:
		status.StoppedBy = string(runs.ReasonCancelled)
	default:
		return status
	}
	if w.said != "" {
		status.StoppedBy = w.said
	}
	status.Outcome, status.ExitCode = "stopped", exitExecStopped
	return status
}
