package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
)

// Spec says what a child is. Only Argv is required.
type Spec struct {
	Argv []string
	Dir  string   // empty: the caller's
	Env  []string // the whole environment; empty is an empty one, never the caller's

	// Stdin nil is empty input. An *os.File is handed to the child as it is.
	Stdin  io.Reader
	Stdout io.Writer // nil: thrown away. The same writer twice gets one stream in order.
	Stderr io.Writer
	// Terminal, when set, is the terminal whose foreground the child gets while it
	// lives, so that it can read and is what Ctrl-C reaches.
	Terminal *os.File

	ReportFile  string        // tailed for {"cost_usd": …} lines; empty: the child cannot spend
	ReportEvery time.Duration // 200 ms
	// OnSpend is called with the total whenever it rose while the child lives, from one
	// goroutine; it may call [Child.Stop]. nil is allowed.
	OnSpend func(c *Child, total holdfast.MicroUSD)

	Deadline time.Duration // after which it is stopped with EndDeadline; zero: never
	Grace    time.Duration // between TERM and KILL of the deadline: 5 s

	// Wrapper is a program that calls [ChildMain] when its first argument is
	// [ChildArgument]. With it no code of the child runs before Started returned nil,
	// and none ever runs when this process dies first. Empty: Argv is started directly,
	// and Started is called when it runs.
	Wrapper string
	// Started is told the process; an error of it ends the child. nil is allowed.
	Started func(Process) error
}

// Result is how a child ended.
type Result struct {
	// Ending is EndFinished for exit code 0, EndFailed for another code or a signal,
	// or what [Child.Stop] or the deadline said first.
	Ending   queue.Ending
	ExitCode int            // -1 when a signal ended it
	Signal   syscall.Signal // 0 when it exited
	Spent    holdfast.MicroUSD
	Skipped  int // report lines that could not be read
}

// Child is a process group that runs: a command and everything that it started and
// that stayed in its group. When the command itself ends, what is left of its group
// is killed, so that nothing works on unmetered. It is made by [StartChild].
type Child struct {
	spec    Spec
	command *exec.Cmd
	process Process
	meter   *meter
	stop    chan stopping
	exited  chan struct{} // the command ended and is not reaped yet
	done    chan struct{}
	result  Result // once done is closed

	mu   sync.Mutex
	said queue.Ending // the first cause of a stop; empty: none
}

type stopping struct{ grace time.Duration }

const (
	defaultGrace       = 5 * time.Second
	defaultReportEvery = 200 * time.Millisecond
	// outputAfter is how long output is read after the command has ended, when a
	// process that left the group still holds the pipe.
	outputAfter = 500 * time.Millisecond
)

// StartError says that a command could not be started; nothing of it runs.
type StartError struct{ Text string }

// Error implements error.
func (e *StartError) Error() string { return e.Text }

// StartChild starts a command as the leader of a process group of its own, with no
// other descriptors than its three streams. The error is a *StartError when the
// command is at fault (not found, not executable), any other when this machine or
// Started is. The caller must call [Child.Wait].
func StartChild(s Spec) (*Child, error) {
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return nil, &StartError{Text: "there is no command"}
	}
	if s.Grace == 0 {
		s.Grace = defaultGrace
	}
	if s.ReportEvery == 0 {
		s.ReportEvery = defaultReportEvery
	}
	c := &Child{
		spec: s, meter: newMeter(s.ReportFile),
		stop: make(chan stopping, 1), exited: make(chan struct{}), done: make(chan struct{}),
	}
	if err := c.start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.exited)
		awaitExit(c.process.PID)
	}()
	go func() {
		defer close(c.done)
		c.supervise()
	}()
	return c, nil
}

// Process is the command's process, which leads the group.
func (c *Child) Process() Process { return c.process }

// Spent is what the child reported so far.
func (c *Child) Spent() holdfast.MicroUSD { spent, _ := c.meter.total(); return spent }

// Done is closed when the child has ended and everything about it is known.
func (c *Child) Done() <-chan struct{} { return c.done }

// Wait returns how the child ended, when it has and its report was read to the end.
func (c *Child) Wait() Result {
	<-c.done
	return c.result
}

// Stop ends the child: TERM to its group, KILL after grace. The first call's ending
// is the child's; later calls and calls after the end do nothing. It does not wait.
func (c *Child) Stop(ending queue.Ending, grace time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.said != "" {
		return
	}
	c.said = ending
	c.stop <- stopping{grace}
}

// Signal sends a signal to the child's group, as a terminal would. It does nothing
// once the child has ended.
func (c *Child) Signal(signal syscall.Signal) {
	select {
	case <-c.exited:
	default:
		killGroup(c.process.Group, signal)
	}
}

// supervise lives as long as the child.
func (c *Child) supervise() {
	report := time.NewTicker(c.spec.ReportEvery)
	defer report.Stop()
	var deadline, kill <-chan time.Time
	if c.spec.Deadline > 0 {
		timer := time.NewTimer(c.spec.Deadline)
		defer timer.Stop()
		deadline = timer.C
	}
	for {
		select {
		case <-c.exited:
			c.finish()
			return
		case <-report.C:
			c.read(false)
		case <-deadline:
			deadline = nil
			c.Stop(queue.EndDeadline, c.spec.Grace)
		case s := <-c.stop:
			killGroup(c.process.Group, syscall.SIGTERM)
			killGroup(c.process.Group, syscall.SIGCONT) // a stopped process hears nothing else
			timer := time.NewTimer(s.grace)
			defer timer.Stop()
			kill = timer.C
		case <-kill:
			kill = nil
			killGroup(c.process.Group, syscall.SIGKILL)
		}
	}
}

// finish ends what is left of the group while the dead leader still keeps the
// group's number from being used again, then reaps the leader.
func (c *Child) finish() {
	killGroup(c.process.Group, syscall.SIGKILL)
	err := c.command.Wait()
	c.restoreTerminal()
	c.read(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.result
	r.Spent, r.Skipped = c.meter.total()
	r.ExitCode = c.command.ProcessState.ExitCode()
	if status, ok := c.command.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		r.Signal = status.Signal()
	}
	switch {
	case c.said != "":
		r.Ending = c.said
	case r.ExitCode == 0 && (err == nil || errors.Is(err, exec.ErrWaitDelay)):
		r.Ending = queue.EndFinished
	default:
		r.Ending = queue.EndFailed
	}
	if c.said == "" {
		c.said = r.Ending // a Stop from now on does nothing
	}
}

// read takes what was appended to the report file.
func (c *Child) read(last bool) {
	if rose := c.meter.read(last); rose && c.spec.OnSpend != nil && !last {
		c.spec.OnSpend(c, c.Spent())
	}
}

// start starts the command and returns when its process is known.
func (c *Child) start() error {
	s := c.spec
	argv := s.Argv
	var gate *gate
	if s.Wrapper != "" {
		var err error
		if gate, err = newGate(); err != nil {
			return fmt.Errorf("start: %w", err)
		}
		defer gate.close()
		argv = append([]string{s.Wrapper, ChildArgument}, argv...)
	}
	c.command = exec.Command(argv[0], argv[1:]...)
	c.command.Dir, c.command.Env = s.Dir, append([]string{}, s.Env...)
	c.command.Stdin, c.command.Stdout, c.command.Stderr = s.Stdin, s.Stdout, s.Stderr
	c.command.WaitDelay = outputAfter
	c.command.SysProcAttr = attributes(s.Terminal)
	if gate != nil {
		c.command.ExtraFiles = gate.childSide()
	}
	if err := c.command.Start(); err != nil {
		if gate != nil {
			return fmt.Errorf("start the child wrapper: %w", err)
		}
		return &StartError{Text: err.Error()}
	}
	if gate != nil {
		gate.handedOver()
	}
	err := c.release(gate)
	if err != nil {
		if gate != nil {
			gate.close() // an unreleased wrapper ends by itself
		}
		killGroup(c.command.Process.Pid, syscall.SIGKILL)
		_ = c.command.Wait() // it was killed; how it ended says nothing
		c.restoreTerminal()
	}
	return err
}

// release makes the process known, then lets it run.
func (c *Child) release(gate *gate) error {
	p, alive, err := processOf(c.command.Process.Pid)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if !alive { // started directly and over already
		p = Process{PID: c.command.Process.Pid, Group: c.command.Process.Pid}
	}
	if p.Boot, err = bootID(); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	c.process = p
	if c.spec.Started != nil {
		if err := c.spec.Started(p); err != nil {
			return fmt.Errorf("start: %w", err)
		}
	}
	if gate == nil {
		return nil
	}
	return gate.open()
}
