package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// blockUntilExit returns nil when the child has ended.
func blockUntilExit(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// processOf looks a process up, without the boot; a zombie is not alive.
func processOf(pid int) (Process, bool, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return Process{}, false, nil
	}
	if err != nil {
		return Process{}, false, fmt.Errorf("look at process %d: %w", pid, err)
	}
	// "pid (name) state ppid pgrp …": the name may hold blanks and parentheses.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return Process{}, false, fmt.Errorf("look at process %d: %d fields", pid, len(fields))
	}
	group, err := strconv.Atoi(fields[2])
	if err != nil {
		return Process{}, false, fmt.Errorf("look at process %d: %w", pid, err)
	}
	session, err := strconv.Atoi(fields[3])
	if err != nil {
		return Process{}, false, fmt.Errorf("look at process %d: %w", pid, err)
	}
	alive := fields[0] != "Z" && fields[0] != "X"
	return Process{PID: pid, Group: group, Session: session, Start: fields[19]}, alive, nil
}

// livePIDs lists the processes of this machine that this user may know of.
func livePIDs() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// environment is what a process was started with, as NAME=value texts with a zero
// byte after each; empty where it cannot be read.
func environment(pid int) []byte {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ") // another user's, or gone
	return append([]byte{0}, text...)
}

// bootID tells this start of the machine from others.
func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
