package runner

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// blockUntilExit returns nil when the child has ended. The system's waitid also
// returns when the process is merely stopped (https://go.dev/issue/19314), so it is
// not used.
func blockUntilExit(pid int) error {
	kq, err := unix.Kqueue()
	if err != nil {
		return err
	}
	defer unix.Close(kq)
	unix.CloseOnExec(kq)
	change := []unix.Kevent_t{{Ident: uint64(pid), Filter: unix.EVFILT_PROC, Flags: unix.EV_ADD | unix.EV_ONESHOT, Fflags: unix.NOTE_EXIT}}
	events := make([]unix.Kevent_t, 1)
	for {
		n, err := unix.Kevent(kq, change, events, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue // the change is added again, which changes nothing
		case errors.Is(err, unix.ESRCH):
			return nil // it ended before it was asked about
		case err != nil:
			return err
		case n == 1 && events[0].Flags&unix.EV_ERROR != 0:
			if unix.Errno(events[0].Data) == unix.ESRCH {
				return nil
			}
			return unix.Errno(events[0].Data)
		case n == 1:
			return nil
		}
	}
}

const zombie = 5 // SZOMB of sys/proc.h

// processOf looks a process up, without the boot; a zombie is not alive.
func processOf(pid int) (Process, bool, error) {
	list, err := unix.SysctlKinfoProcSlice("kern.proc.pid", pid)
	if err != nil {
		return Process{}, false, fmt.Errorf("look at process %d: %w", pid, err)
	}
	if len(list) == 0 {
		return Process{}, false, nil
	}
	session, err := unix.Getsid(pid)
	if errors.Is(err, unix.ESRCH) {
		return Process{}, false, nil
	}
	if err != nil {
		return Process{}, false, fmt.Errorf("look at process %d: %w", pid, err)
	}
	p := list[0]
	start := p.Proc.P_starttime
	return Process{
		PID: pid, Group: int(p.Eproc.Pgid), Session: session,
		Start: fmt.Sprintf("%d.%06d", start.Sec, start.Usec),
	}, p.Proc.P_stat != zombie, nil
}

// livePIDs lists the processes of this machine.
func livePIDs() ([]int, error) {
	list, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, p := range list {
		pids = append(pids, int(p.Proc.P_pid))
	}
	return pids, nil
}

// environment is what a process was started with, among it NAME=value texts with a
// zero byte after each; empty where it cannot be read.
func environment(pid int) []byte {
	text, _ := unix.SysctlRaw("kern.procargs2", pid) // another user's, or gone
	return text
}

// bootID tells this start of the machine from others.
func bootID() (string, error) {
	boot, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return "", fmt.Errorf("boot time: %w", err)
	}
	return fmt.Sprint(boot.Sec), nil
}
