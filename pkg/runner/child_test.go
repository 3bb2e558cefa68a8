package runner_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runner"
)

func child(t *testing.T, s runner.Spec, words ...string) *runner.Child {
	t.Helper()
	s.Argv = append([]string{mustExecutable(t), "agent"}, words...)
	s.Env = append(s.Env, "GORACE="+noExitSleep)
	c, err := runner.StartChild(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAChildGetsTheStreamsThatItIsGiven(t *testing.T) {
	for name, wrapper := range map[string]string{"directly": "", "wrapped": mustExecutable(t)} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			c := child(t, runner.Spec{Stdin: strings.NewReader("a line\n"), Stdout: &out, Stderr: &out, Wrapper: wrapper}, "print=hello", "cat", "exit=4")
			result := c.Wait()
			if result.Ending != queue.EndFailed || result.ExitCode != 4 || out.String() != "hello\na line\n" {
				t.Errorf("%+v, output %q", result, out.String())
			}
		})
	}
}

func TestAChildWithoutAnEnvironmentHasAnEmptyOne(t *testing.T) {
	var out bytes.Buffer
	c, err := runner.StartChild(runner.Spec{Argv: []string{mustExecutable(t), "agent", "environment"}, Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	c.Wait()
	if !strings.Contains(out.String(), `"env":[]`) && !strings.Contains(out.String(), `"env":null`) {
		t.Errorf("it printed %s", out.String())
	}
}

func TestACommandThatCannotRunIsAStartError(t *testing.T) {
	for name, wrapper := range map[string]string{"directly": "", "wrapped": mustExecutable(t)} {
		t.Run(name, func(t *testing.T) {
			var wrong *runner.StartError
			if _, err := runner.StartChild(runner.Spec{Argv: []string{"/no/such/program"}, Wrapper: wrapper}); !errors.As(err, &wrong) || !strings.Contains(err.Error(), "no such file") {
				t.Errorf("a missing program: %v", err)
			}
			if _, err := runner.StartChild(runner.Spec{Wrapper: wrapper}); !errors.As(err, &wrong) {
				t.Errorf("no program: %v", err)
			}
		})
	}
}

func TestAnErrorOfStartedEndsTheChildBeforeItsCommandRuns(t *testing.T) {
	touched := filepath.Join(t.TempDir(), "touched")
	full := errors.New("the disk is full")
	self := mustExecutable(t)
	var pid int
	_, err := runner.StartChild(runner.Spec{
		Argv: []string{self, "agent", "touch=" + touched}, Wrapper: self,
		Started: func(p runner.Process) error { pid = p.PID; return full },
	})
	var wrong *runner.StartError
	if !errors.Is(err, full) || errors.As(err, &wrong) {
		t.Errorf("StartChild: %v", err)
	}
	if alive(pid) {
		t.Error("the child is alive")
	}
	if _, err := os.Stat(touched); err == nil {
		t.Error("the command ran")
	}
}

func TestTheFirstStopNamesTheEndingAndOneAfterTheEndDoesNothing(t *testing.T) {
	c := child(t, runner.Spec{}, "hold")
	c.Stop(queue.EndBudget, time.Minute)
	c.Stop(queue.EndCancelled, 0)
	if result := c.Wait(); result.Ending != queue.EndBudget || result.Signal != syscall.SIGTERM {
		t.Errorf("%+v", result)
	}
	c = child(t, runner.Spec{})
	if result := c.Wait(); result.Ending != queue.EndFinished {
		t.Errorf("%+v", result)
	}
	c.Stop(queue.EndCancelled, 0)
	c.Signal(syscall.SIGINT)
	if result := c.Wait(); result.Ending != queue.EndFinished {
		t.Errorf("after a late stop: %+v", result)
	}
}

func TestASignalGoesToTheWholeGroup(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	c := child(t, runner.Spec{}, "pid="+pid, "hold")
	pidIn(t, pid)
	c.Signal(syscall.SIGINT)
	if result := c.Wait(); result.Ending != queue.EndFailed || result.Signal != syscall.SIGINT || result.ExitCode != -1 {
		t.Errorf("%+v", result)
	}
}

func TestAStoppedChildStillHearsTheEnd(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	c := child(t, runner.Spec{}, "on-term-exit=5", "pid="+pid, "hold")
	leader := pidIn(t, pid)
	if err := syscall.Kill(leader, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.Stop(queue.EndCancelled, time.Minute)
	if result := c.Wait(); result.ExitCode != 5 {
		t.Errorf("%+v", result)
	}
}

func TestWhatIsLeftOfTheGroupDiesWithTheCommand(t *testing.T) {
	dir := t.TempDir()
	c, err := runner.StartChild(runner.Spec{
		Argv: []string{"sh", "-c", `"$0" agent grandchild="$1"; while [ ! -s "$1" ]; do sleep 0.01; done`, mustExecutable(t), filepath.Join(dir, "pid")},
		Env:  []string{"PATH=" + os.Getenv("PATH")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if result := c.Wait(); result.Ending != queue.EndFinished {
		t.Errorf("%+v", result)
	}
	pid := pidIn(t, filepath.Join(dir, "pid"))
	eventually(t, "the grandchild is gone", func() bool { return !alive(pid) })
}

func TestAStrayThatHoldsTheOutputDoesNotHoldTheChild(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	var out bytes.Buffer
	c := child(t, runner.Spec{Stdout: &out}, "stray="+pid, "print=done")
	if result := c.Wait(); result.Ending != queue.EndFinished || out.String() != "done\n" {
		t.Errorf("%+v, output %q", result, out.String())
	}
	stray := pidIn(t, pid)
	if err := syscall.Kill(stray, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestSpendIsToldWhileTheChildLivesAndReadToTheEndAfter(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report")
	told := make(chan holdfast.MicroUSD, 8)
	c := child(t, runner.Spec{
		Env: []string{"HOLDFAST_REPORT=" + report}, ReportFile: report, ReportEvery: time.Millisecond,
		OnSpend: func(c *runner.Child, total holdfast.MicroUSD) {
			told <- total
			c.Stop(queue.EndBudget, time.Minute)
		},
	}, "report={\"cost_usd\": 0.4}\nno line\n{\"cost_usd\": 0.1}", "hold")
	if got := next(t, told); got != 400_000 {
		t.Errorf("told %s", got)
	}
	if result := c.Wait(); result.Spent != 500_000 || result.Skipped != 1 || result.Ending != queue.EndBudget {
		t.Errorf("%+v", result)
	}
	if c.Spent() != 500_000 {
		t.Errorf("spent %s", c.Spent())
	}
}
