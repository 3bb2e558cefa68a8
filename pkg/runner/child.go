package runner

import (
	"io"
	"os"
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
	// OnSpend is called with the total whenever it rose, from one goroutine; it may
	// call [Child.Stop]. nil is allowed.
	OnSpend func(holdfast.MicroUSD)

	Deadline time.Duration // after which it is stopped with EndDeadline; zero: never
	Grace    time.Duration // between TERM and KILL of the deadline: 5 s

	// Wrapper is a program that calls [ChildMain] when its first argument is
	// [ChildArgument]. With it no code of the child runs before Started returned nil,
	// and none ever runs when this process dies first. Empty: Argv is started directly.
	Wrapper string
	Started func(Process) error
}

// Process identifies a process for as long as the machine is up: a pid may be used
// again, a pid with its start time is not.
type Process struct {
	PID   int    `json:"pid"`
	Group int    `json:"pgid"`
	Start string `json:"start"` // in the system's own notation
	Boot  string `json:"boot"`  // which start of the machine
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

// Child is a running process group.
type Child struct{}
