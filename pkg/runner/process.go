package runner

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process identifies a process for as long as the machine is up: a pid may be used
// again, a pid with its start time is not.
type Process struct {
	PID   int `json:"pid"`
	Group int `json:"pgid"`
	// Session is the session of the process that started it, which the group keeps
	// when its leader is gone.
	Session int    `json:"session"`
	Start   string `json:"start"` // in the system's own notation
	Boot    string `json:"boot"`  // which start of the machine
}

// attributes put a child into a process group of its own, in the terminal's
// foreground where one is given.
func attributes(terminal *os.File) *syscall.SysProcAttr {
	if terminal == nil {
		return &syscall.SysProcAttr{Setpgid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true, Foreground: true, Ctty: int(terminal.Fd())}
}

// killGroup sends a signal to every process of a group. A group that is gone has
// nobody to hear it; a member that may not be signalled (it changed its user) is
// beyond this process.
func killGroup(group int, s syscall.Signal) {
	if group > 1 { // 0 and 1 would be this process's own group and everybody
		_ = syscall.Kill(-group, s)
	}
}

// awaitExit returns when a child of this process has ended, and leaves it unreaped:
// as long as it is, its number is not used again.
func awaitExit(pid int) {
	if blockUntilExit(pid) == nil {
		return
	}
	tick := time.NewTicker(exitPoll)
	defer tick.Stop()
	for {
		if _, alive, err := processOf(pid); err == nil && !alive {
			return
		}
		<-tick.C
	}
}

// exitPoll is how often a process is looked at where the system cannot be waited for.
const exitPoll = 20 * time.Millisecond

// restoreTerminal takes the terminal's foreground back.
func (c *Child) restoreTerminal() {
	if c.spec.Terminal == nil {
		return
	}
	// Taking it back from the background sends this process SIGTTOU, which would stop it.
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(int(c.spec.Terminal.Fd()), unix.TIOCSPGRP, unix.Getpgrp()) // a terminal that is gone has no foreground
}
