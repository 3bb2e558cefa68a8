package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// WatchArgument is the first argument of the hidden command that outlives a killed
// parent; a program that is a [Watch.Program] calls [WatchMain] when it sees it.
const WatchArgument = "__exec-watch"

const (
	lineDescriptor = 3 // the watcher's end of the pipe
	farewell       = '.'
	// watchPoll is how often a watcher looks whether anybody still lives.
	watchPoll = 50 * time.Millisecond
)

// Watch says whom a watcher ends, and how.
type Watch struct {
	Program string // calls [WatchMain] when its first argument is [WatchArgument]
	// Report is the absolute path of the child's report file. Every process whose
	// environment names it is the child's, also one that left the group.
	Report string
	Grace  time.Duration // between TERM and KILL
}

// Watcher is a process that ends a child when the process that started both dies
// without a word, also by kill -9. It sees that by a pipe whose write end only this
// process has: no other inherits it, and the system closes it whatever the end was.
// The watcher has a session of its own and only /dev/null as its streams, so neither
// Ctrl-C nor a closed terminal reaches it and nobody waits for what it could write.
// What it cannot see is a parent that lives and does nothing (a stopped one).
type Watcher struct {
	line *os.File
	pid  int
}

// StartWatcher starts a watcher. It is started before its child, so that there is no
// moment in which the child lives unwatched; it does not wait until the watcher is
// up, since what it is told stays in the pipe. The caller must call [Watcher.Dismiss].
func StartWatcher(w Watch) (*Watcher, error) {
	if !filepath.IsAbs(w.Report) { // an empty mark would be everybody's
		return nil, fmt.Errorf("watcher: the report file %q has no absolute path", w.Report)
	}
	read, write, err := os.Pipe() // both close on exec
	if err != nil {
		return nil, fmt.Errorf("watcher: %w", err)
	}
	defer read.Close()
	command := exec.Command(w.Program, WatchArgument)
	command.Dir, command.Env = "/", []string{} // with a mark of its own it would be taken for a child
	command.ExtraFiles = []*os.File{read}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		write.Close()
		return nil, fmt.Errorf("start the watcher: %w", err)
	}
	watcher := &Watcher{line: write, pid: command.Process.Pid}
	_ = command.Process.Release() // it ends after this process, or shortly before
	if err := watcher.tell(w); err != nil {
		watcher.Dismiss()
		return nil, err
	}
	return watcher, nil
}

// Over tells whom to watch; it is meant to be [Spec.Started].
func (w *Watcher) Over(p Process) error { return w.tell(p) }

func (w *Watcher) tell(what any) error {
	text, err := json.Marshal(what)
	if err == nil {
		_, err = w.line.Write(append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("tell the watcher: %w", err)
	}
	return nil
}

// Dismiss says that there is nothing to watch any more; the watcher ends by itself. A
// second call does nothing, nor does one of a nil watcher. It must not be deferred
// over the life of the child: a panic would say farewell, too.
func (w *Watcher) Dismiss() {
	if w != nil {
		_, _ = w.line.Write([]byte{farewell}) // a watcher that is gone watches nothing
		_ = w.line.Close()
	}
}

// WatchMain is the watcher's whole life. It returns the process' exit code: 0 when it
// was dismissed or everybody is gone, 1 when somebody could not be ended, 2 when it
// was not started by [StartWatcher].
func WatchMain() int {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	closeInherited(lineDescriptor)
	text, err := io.ReadAll(os.NewFile(lineDescriptor, "line"))
	if err == nil && bytes.HasSuffix(text, []byte{farewell}) {
		return 0
	}
	var (
		watch   Watch
		process Process
		told    = json.NewDecoder(bytes.NewReader(text))
	)
	if err != nil || told.Decode(&watch) != nil || !filepath.IsAbs(watch.Report) {
		fmt.Fprintln(os.Stderr, "holdfast: "+WatchArgument+" is for holdfast itself")
		return 2
	}
	// Without a process the parent died while it started one. The pipe closed when the
	// new one executed the command, so its environment has the mark already.
	_ = told.Decode(&process)
	if err := endAll(process, watch); err != nil {
		return 1
	}
	return 0
}

// endAll ends the process' group and what carries the mark: TERM, and KILL for what
// is left after the grace.
func endAll(p Process, w Watch) error {
	entries := []journalEntry{{Process: p}}
	if p.PID <= 1 {
		entries = nil
	}
	marker := []byte("\x00" + reportVariable + "=" + w.Report + "\x00")
	found, err := match(entries, marker)
	if err != nil {
		return err
	}
	for pid := range found {
		_ = syscall.Kill(pid, syscall.SIGTERM) // gone already
		_ = syscall.Kill(pid, syscall.SIGCONT) // a stopped process hears nothing else
	}
	grace := time.NewTimer(w.Grace)
	defer grace.Stop()
	tick := time.NewTicker(watchPoll)
	defer tick.Stop()
	for len(found) > 0 {
		select {
		case <-tick.C:
			if found, err = match(entries, marker); err != nil {
				return err
			}
		case <-grace.C:
			_, err := killAll(context.Background(), entries, marker)
			return err
		}
	}
	return nil
}

// closeInherited closes what whoever started the parent left open for it (a pipe that
// somebody waits on), beyond the last descriptor that is this program's. Everything
// that the Go runtime opened closes on exec, so what does not was inherited.
func closeInherited(last int) {
	for _, fd := range descriptors() {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); fd > last && err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}
