package runner

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const zombie = 5 // SZOMB of sys/proc.h

// processOf looks a process up; a zombie is not alive.
func processOf(pid int) (Process, bool, error) {
	list, err := unix.SysctlKinfoProcSlice("kern.proc.pid", pid)
	if err != nil {
		return Process{}, false, fmt.Errorf("look at process %d: %w", pid, err)
	}
	if len(list) == 0 {
		return Process{}, false, nil
	}
	boot, err := bootID()
	if err != nil {
		return Process{}, false, err
	}
	p := list[0]
	start := p.Proc.P_starttime
	return Process{
		PID: pid, Group: int(p.Eproc.Pgid), Start: fmt.Sprintf("%d.%06d", start.Sec, start.Usec), Boot: boot,
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
