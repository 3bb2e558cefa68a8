package runner_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runner"
)

func TestARunIsClaimedStartedReportedAndLeavesOnlyItsLog(t *testing.T) {
	q := newFake()
	asked := make(chan queue.Claim, 64)
	q.claims(func(_ context.Context, c queue.Claim) (queue.Grant, error) { asked <- c; return granted, nil })
	r := newRig(t, q, runner.Options{Name: "r7", Heartbeat: time.Minute, Clock: clocktest.New()})
	r.deliver(agentRun("print=hello", "report={\"cost_usd\": 0.12}\n{\"cost_usd\": \"0.000001\"}\n", "print=bye"))

	claim := next(t, asked)
	if len(claim.Nonce) < 20 {
		t.Errorf("the claim's nonce is %q", claim.Nonce)
	}
	if diff := cmp.Diff(queue.Claim{Run: "R1", Publication: 3, Generation: 2, Runner: "r7", Nonce: claim.Nonce}, claim); diff != "" {
		t.Errorf("the claim: %s", diff)
	}
	common := queue.Report{Version: 1, Run: "R1", Attempt: 1, Runner: "r7", At: clocktest.T0}
	started, ended := common, common
	started.Kind, started.Sequence = queue.ReportStarted, 1
	if diff := cmp.Diff(started, next(t, r.reports)); diff != "" {
		t.Errorf("the started report: %s", diff)
	}
	ended.Kind, ended.Sequence, ended.Ending, ended.ExitCode, ended.Spent = queue.ReportEnded, 2, queue.EndFinished, new(int), 120_001
	if diff := cmp.Diff(ended, r.endOf(t)); diff != "" {
		t.Errorf("the ended report: %s", diff)
	}
	if text := r.log(t, agentRun()); text != "hello\nbye\n" {
		t.Errorf("the log is %q", text)
	}
	empty(t, filepath.Join(r.dir, "work"))
	empty(t, filepath.Join(r.dir, "children"))
}

func TestAFailureTellsTheCodeAndTheLastLine(t *testing.T) {
	r := newRig(t, newFake(), runner.Options{})
	ended := r.run(t, agentRun("print=first", "print=no such branch", "exit=7"))
	if ended.Ending != queue.EndFailed || ended.ExitCode == nil || *ended.ExitCode != 7 || ended.Detail != "exit code 7: no such branch" {
		t.Errorf("%+v", ended)
	}
}

func TestACommandThatCannotBeStartedIsReportedAsThat(t *testing.T) {
	for name, command := range map[string][]string{
		"not found": {"no-such-program"}, "not executable": {"/etc/passwd"}, "no command": nil, "a zero byte": {"true", "a\x00b"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newFake(), runner.Options{})
			m := agentRun()
			m.Bot.Command = command
			ended := r.run(t, m)
			if ended.Ending != queue.EndStartFailed || ended.Detail == "" || ended.ExitCode != nil {
				t.Errorf("%+v", ended)
			}
			empty(t, filepath.Join(r.dir, "work"))
			empty(t, filepath.Join(r.dir, "children"))
		})
	}
}

func TestNothingStartsWithoutTheServersGo(t *testing.T) {
	for _, row := range []struct {
		name  string
		grant queue.Grant
		err   error
		want  queue.Disposition
	}{
		{"drop", queue.Grant{Verdict: queue.GrantDrop}, nil, queue.Drop},
		{"stop", queue.Grant{Verdict: queue.GrantStop}, nil, queue.Drop},
		{"later", queue.Grant{Verdict: queue.GrantLater}, nil, queue.Later},
		{"a verdict that nobody knows", queue.Grant{Verdict: "maybe"}, nil, queue.Later},
		{"no answer", queue.Grant{}, errors.New("no responders"), queue.Later},
		{"go and an error", granted, errors.New("half an answer"), queue.Later},
	} {
		t.Run(row.name, func(t *testing.T) {
			q := newFake()
			q.claims(func(context.Context, queue.Claim) (queue.Grant, error) { return row.grant, row.err })
			r := newRig(t, q, runner.Options{})
			touched := filepath.Join(t.TempDir(), "touched")
			r.deliver(agentRun("touch=" + touched))
			if got := next(t, r.ended); got != row.want {
				t.Errorf("the message ended as %q, want %q", got, row.want)
			}
			if _, err := os.Stat(touched); err == nil {
				t.Error("the command ran")
			}
			if len(r.reports) > 0 {
				t.Errorf("something was reported: %+v", <-r.reports)
			}
		})
	}
}

func TestASecondDeliveryOfARunThatIsExecutedHereStartsNothing(t *testing.T) {
	q := newFake()
	var claims atomic.Int64
	q.claims(func(_ context.Context, c queue.Claim) (queue.Grant, error) {
		if c.Attempt == 0 {
			claims.Add(1)
		}
		return granted, nil
	})
	r := newRig(t, q, runner.Options{})
	pid := filepath.Join(t.TempDir(), "pid")
	r.deliver(agentRun("pid="+pid, "hold"))
	pidIn(t, pid)
	r.deliver(agentRun("pid="+pid, "hold"))
	if d := next(t, r.ended); d != queue.Leave {
		t.Errorf("the second delivery ended as %q, want leave", d)
	}
	r.cancel("R1")
	r.endOf(t)
	if n := claims.Load(); n != 1 {
		t.Errorf("%d attempts were claimed, want 1", n)
	}
}

func TestADeadlineKillsAChildThatIgnoresTermTogetherWithItsDescendants(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, newFake(), runner.Options{})
	m := agentRun("ignore-term", "grandchild="+filepath.Join(dir, "grandchild"), "stray="+filepath.Join(dir, "stray"), "pid="+filepath.Join(dir, "leader"), "hold")
	m.Bot.MaxDuration = holdfast.Duration(time.Second)
	r.deliver(m)
	pids := []int{pidIn(t, filepath.Join(dir, "leader")), pidIn(t, filepath.Join(dir, "grandchild")), pidIn(t, filepath.Join(dir, "stray"))}
	if ended := r.endOf(t); ended.Ending != queue.EndDeadline || ended.ExitCode != nil {
		t.Errorf("%+v", ended)
	}
	for i, pid := range pids {
		eventually(t, fmt.Sprintf("process %d of the child is gone", i), func() bool { return !alive(pid) })
	}
}

func TestWhatACommandLeavesRunningIsKilledWhenItEnds(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, newFake(), runner.Options{})
	m := agentRun("grandchild="+filepath.Join(dir, "grandchild"), "stray="+filepath.Join(dir, "stray"), "print=done")
	m.Bot.Command = []string{"sh", "-c", `"$0" agent grandchild="$1"/grandchild stray="$1"/stray; while [ ! -s "$1"/grandchild ] || [ ! -s "$1"/stray ]; do sleep 0.01; done`, mustExecutable(t), dir}
	if ended := r.run(t, m); ended.Ending != queue.EndFinished {
		t.Errorf("%+v", ended)
	}
	for _, name := range []string{"grandchild", "stray"} {
		pid := pidIn(t, filepath.Join(dir, name))
		eventually(t, name+" is gone", func() bool { return !alive(pid) })
	}
}

func mustExecutable(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestALogIsBoundedKeepsBothEndsAndSaysWhatIsMissing(t *testing.T) {
	r := newRig(t, newFake(), runner.Options{LogLimit: 2000})
	if ended := r.run(t, agentRun("spew=100000")); ended.Ending != queue.EndFinished {
		t.Fatalf("%+v", ended)
	}
	text := r.log(t, agentRun())
	if len(text) > 2100 || !strings.HasPrefix(text, "line 0000000\n") || !strings.HasSuffix(text, "line 0099999\n") ||
		!strings.Contains(text, "\n[holdfast: the log was cut here, 1298000 bytes are left out]\n") {
		t.Errorf("%d bytes: %.60q … %q", len(text), text, text[max(0, len(text)-60):])
	}
}

func TestAWorkspaceWithReadOnlyFoldersIsRemoved(t *testing.T) {
	r := newRig(t, newFake(), runner.Options{})
	if ended := r.run(t, agentRun("read-only")); ended.Ending != queue.EndFinished {
		t.Fatalf("%+v", ended)
	}
	empty(t, filepath.Join(r.dir, "work"))
}

func TestAShutdownInterruptsTheChildrenAndReportsThem(t *testing.T) {
	for name, words := range map[string][]string{"one that hears TERM": {"on-term-exit=3"}, "one that ignores it": {"ignore-term"}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newFake(), runner.Options{})
			pid := filepath.Join(t.TempDir(), "pid")
			r.deliver(agentRun(append(words, "pid="+pid, "hold")...))
			leader := pidIn(t, pid)
			r.stop()
			if ended := r.endOf(t); ended.Ending != queue.EndInterrupted {
				t.Errorf("%+v", ended)
			}
			if alive(leader) {
				t.Error("the child is alive")
			}
		})
	}
}

func TestAnEndThatCannotBeReportedAtShutdownKeepsTheMessageAndTheJournal(t *testing.T) {
	q := newFake()
	q.publish = func(r queue.Report) error {
		if r.Kind == queue.ReportEnded {
			return errors.New("the queue is gone")
		}
		return nil
	}
	r := newRig(t, q, runner.Options{})
	r.deliver(agentRun("report={\"cost_usd\": 0.5}\n", "hold"))
	next(t, r.reports)
	eventually(t, "the spend is in the file", func() bool {
		text, err := os.ReadFile(filepath.Join(r.dir, "work", "R1-1", "report.jsonl"))
		return err == nil && len(text) > 0
	})
	r.stop()
	if d := next(t, r.ended); d != queue.Later {
		t.Errorf("the message ended as %q, want later", d)
	}
	left, err := runner.KillLeftovers(t.Context(), r.dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]runner.Leftover{{Run: "R1", Attempt: 1, Spent: 500_000, SpentKnown: true}}, left); diff != "" {
		t.Error(diff)
	}
}

func TestAnEndIsReportedAgainUntilItIsDurable(t *testing.T) {
	q := newFake()
	var tries atomic.Int64
	q.publish = func(r queue.Report) error {
		if r.Kind == queue.ReportEnded && tries.Add(1) < 3 {
			return errors.New("the queue is away")
		}
		return nil
	}
	r := newRig(t, q, runner.Options{})
	if ended := r.run(t, agentRun()); ended.Ending != queue.EndFinished || tries.Load() != 3 {
		t.Errorf("%+v after %d tries", ended, tries.Load())
	}
}

func TestOptionsOutOfRangeAreRefused(t *testing.T) {
	for field, o := range map[string]runner.Options{
		"data_dir": {}, "slots": {DataDir: "d", Slots: -1}, "lease": {DataDir: "d", Lease: -1},
		"heartbeat": {DataDir: "d", Lease: 4 * time.Second, Heartbeat: 3 * time.Second},
	} {
		var invalid *holdfast.InvalidError
		if _, err := runner.New(newFake(), o); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestTheLatestLogIsThatOfTheLastAttempt(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := runner.LatestLog(dir, "R1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a log: %v", err)
	}
	for _, attempt := range []int{1, 2, 10} {
		path := runner.LogPath(dir, "R1", attempt)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path, attempt, err := runner.LatestLog(dir, "R1")
	if err != nil || attempt != 10 || path != runner.LogPath(dir, "R1", 10) {
		t.Errorf("%s, %d, %v", path, attempt, err)
	}
	for _, run := range []holdfast.RunID{"..", "../runs/R1", "a/b", ""} {
		if path, _, err := runner.LatestLog(dir, run); err == nil {
			t.Errorf("run %q leads to %s", run, path)
		}
	}
}
