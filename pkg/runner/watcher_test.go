package runner_test

import (
	"cmp"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runner"
)

// watched starts a watcher and a child that it watches.
func watched(dir string, started func(*runner.Watcher, runner.Process) error, words ...string) (*runner.Watcher, *runner.Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	report := filepath.Join(dir, "report.jsonl")
	watcher, err := runner.StartWatcher(runner.Watch{Program: self, Report: report, Grace: 300 * time.Millisecond})
	if err != nil {
		return nil, nil, err
	}
	child, err := runner.StartChild(runner.Spec{
		Argv: append([]string{self, "agent"}, words...), Env: []string{"HOLDFAST_REPORT=" + report, "GORACE=" + noExitSleep},
		Started: func(p runner.Process) error { return started(watcher, p) },
	})
	return watcher, child, err
}

// doomedWatched is a process with a watched child that dies: by a kill, by a panic when
// its stdin ends, or before it has told the watcher who the child is.
func doomedWatched(dir, how string) {
	started := (*runner.Watcher).Over
	if how == "untold" {
		started = func(*runner.Watcher, runner.Process) error { return syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	}
	_, _, err := watched(dir, started, "ignore-term", "grandchild="+filepath.Join(dir, "grandchild"),
		"stray="+filepath.Join(dir, "stray"), "pid="+filepath.Join(dir, "leader"), "hold")
	if err != nil {
		panic(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	panic("its stdin has ended")
}

func TestAChildDiesWithTheProcessThatHasItWatched(t *testing.T) {
	for _, how := range []string{"killed", "panic"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			doomed := exec.Command(mustExecutable(t), "doomed-watched", dir, how)
			stdin, err := doomed.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := doomed.Start(); err != nil {
				t.Fatal(err)
			}
			var pids []int
			for _, name := range []string{"leader", "grandchild", "stray"} {
				pids = append(pids, pidIn(t, filepath.Join(dir, name)))
			}
			if how == "killed" {
				err = doomed.Process.Kill()
			} else {
				err = stdin.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = doomed.Wait() // it was killed, or panicked
			eventually(t, "the leader, the grandchild and the stray are gone", func() bool { return !slices.ContainsFunc(pids, alive) })
		})
	}
}

func TestAChildDiesAlsoWhenTheWatcherWasNotToldWhoItIs(t *testing.T) {
	dir := t.TempDir()
	_ = doom(t, "doomed-watched", dir, "untold").Wait() // it kills itself once the child runs
	eventually(t, "nobody who was started with the report file is left", func() bool {
		left, err := runner.Marked(filepath.Join(dir, "report.jsonl"))
		return err == nil && len(left) == 0
	})
}

func TestAWatcherThatIsDismissedEndsNobody(t *testing.T) {
	dir := t.TempDir()
	watcher, child, err := watched(dir, (*runner.Watcher).Over, "hold")
	if err != nil {
		t.Fatal(err)
	}
	watcher.Dismiss()
	watcher.Dismiss()
	eventually(t, "the watcher is gone", func() bool { return !alive(watcher.PID()) })
	if !alive(child.Process().PID) {
		t.Error("the child is gone, too")
	}
	child.Stop(queue.EndCancelled, time.Second)
	if result := child.Wait(); result.Signal != syscall.SIGTERM {
		t.Errorf("%+v", result)
	}
}

// TestAWatcherStandsApart: neither the terminal's Ctrl-C nor a signal to the child's
// group reaches it, no TERM ends it, and it keeps nobody's stream open.
func TestAWatcherStandsApart(t *testing.T) {
	dir := t.TempDir()
	inherited, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer inherited.Close()
	// As if whoever started this process had left it open.
	if _, err := unix.FcntlInt(write.Fd(), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	watcher, child, err := watched(dir, (*runner.Watcher).Over, "ignore-term", "pid="+filepath.Join(dir, "leader"), "hold")
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Dismiss()
	defer child.Wait()
	defer child.Stop(queue.EndCancelled, 0)
	write.Close()
	leader := pidIn(t, filepath.Join(dir, "leader"))
	p, err := runner.ProcessOf(watcher.PID())
	if err != nil || p.Session != watcher.PID() || p.Group != watcher.PID() || p.Group == child.Process().Group {
		t.Errorf("the watcher is %+v, the child %+v (%v)", p, child.Process(), err)
	}
	if runtime.GOOS == "linux" {
		eventually(t, "the watcher keeps only what is its own", func() bool {
			open := streams(watcher.PID())
			return len(open) == 4 && open[0] == "/dev/null" && open[1] == "/dev/null" && open[2] == "/dev/null" && strings.HasPrefix(open[3], "pipe:")
		})
		// Which has the read end; nobody but this process has the other.
		line := streams(watcher.PID())[3]
		if slices.Contains(streams(leader), line) {
			t.Errorf("the child has %s, the watcher's pipe", line)
		}
		eventually(t, "the watcher ignores HUP, INT, QUIT and TERM", func() bool {
			text, _ := os.ReadFile("/proc/" + strconv.Itoa(watcher.PID()) + "/status")
			_, mask, _ := strings.Cut(string(text), "SigIgn:")
			ignored, _ := strconv.ParseUint(strings.Fields(mask + " x")[0], 16, 64)
			const want = 1<<(syscall.SIGHUP-1) | 1<<(syscall.SIGINT-1) | 1<<(syscall.SIGQUIT-1) | 1<<(syscall.SIGTERM-1)
			return ignored&want == want
		})
	}
}

// streams are the descriptors of a process that are not its Go runtime's, in order.
func streams(pid int) []string {
	folder := "/proc/" + strconv.Itoa(pid) + "/fd"
	entries, _ := os.ReadDir(folder)
	slices.SortFunc(entries, func(a, b os.DirEntry) int {
		return cmp.Or(len(a.Name())-len(b.Name()), strings.Compare(a.Name(), b.Name()))
	})
	var open []string
	for _, e := range entries {
		target, err := os.Readlink(folder + "/" + e.Name())
		if err == nil && !strings.HasPrefix(target, "anon_inode") && !strings.HasPrefix(target, "/sys/fs/cgroup/") {
			open = append(open, target)
		}
	}
	return open
}

func TestAWatcherNeedsAMarkThatIsNobodyElses(t *testing.T) {
	for _, report := range []string{"", "report.jsonl"} {
		if w, err := runner.StartWatcher(runner.Watch{Program: mustExecutable(t), Report: report}); err == nil {
			w.Dismiss()
			t.Errorf("a watcher was started for the report file %q", report)
		}
	}
}
