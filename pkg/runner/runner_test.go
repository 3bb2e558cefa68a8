package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runner"
	"github.com/holdfast-io/holdfast/pkg/runs"
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

func TestAClaimWithoutAnAnswerIsAskedAgainUnderItsNonceAndOneWithAnAnswerIsNot(t *testing.T) {
	for _, row := range []struct {
		name   string
		first  queue.Grant
		err    error
		change func(*queue.RunMessage)
		same   bool
	}{
		{name: "no answer", err: errors.New("timeout"), same: true},
		{name: "later", first: queue.Grant{Verdict: queue.GrantLater}, same: true},
		{name: "drop", first: queue.Grant{Verdict: queue.GrantDrop}},
		{name: "no answer, and a newer publication", err: errors.New("timeout"), change: func(m *queue.RunMessage) { m.Publication++ }},
		{name: "no answer, and a newer generation", err: errors.New("timeout"), change: func(m *queue.RunMessage) { m.Generation++ }},
	} {
		t.Run(row.name, func(t *testing.T) {
			q := newFake()
			asked := make(chan queue.Claim, 64)
			var claims atomic.Int64
			q.claims(func(_ context.Context, c queue.Claim) (queue.Grant, error) {
				asked <- c
				if claims.Add(1) == 1 {
					return row.first, row.err
				}
				return granted, nil
			})
			r := newRig(t, q, runner.Options{Heartbeat: time.Minute})
			m := agentRun("hold")
			r.deliver(m)
			next(t, r.ended)
			if row.change != nil {
				row.change(&m)
			}
			r.deliver(m)
			first, second := next(t, asked), next(t, asked)
			if (first.Nonce == second.Nonce) != row.same {
				t.Errorf("the nonces are %s and %s", first.Nonce, second.Nonce)
			}
			if row.same { // its lease began with the first asking, so it is renewed at once
				if c := next(t, asked); c.Attempt != 1 {
					t.Errorf("%+v, want a renewal", c)
				}
			}
			r.cancel("R1")
			r.endOf(t)
		})
	}
}

func TestTheQueuesWordsForAStopAreTheRunDocuments(t *testing.T) {
	if queue.StopCancelled != string(runs.ReasonCancelled) || queue.StopLeaseLost != string(runs.ReasonLeaseLost) {
		t.Errorf("%q and %q against %q and %q", queue.StopCancelled, queue.StopLeaseLost, runs.ReasonCancelled, runs.ReasonLeaseLost)
	}
}

func TestHeartbeatsRenewTheClaimExtendTheMessageAndTellTheSpend(t *testing.T) {
	q := newFake()
	asked := make(chan queue.Claim, 1024)
	q.claims(func(_ context.Context, c queue.Claim) (queue.Grant, error) { asked <- c; return granted, nil })
	r := newRig(t, q, runner.Options{})
	r.deliver(agentRun("report={\"cost_usd\": 1.5}\n", "hold"))
	next(t, asked)
	last := int64(1) // the started report's
	for {
		c := next(t, asked)
		if c.Attempt != 1 || c.Sequence != last+1 || c.Run != "R1" || c.Publication != 3 || c.Generation != 2 {
			t.Fatalf("heartbeat %+v after sequence %d", c, last)
		}
		last = c.Sequence
		if c.Spent == 1_500_000 {
			break
		}
	}
	next(t, r.extended)
	r.cancel("R1")
	if ended := r.endOf(t); ended.Sequence <= last || ended.Spent != 1_500_000 {
		t.Errorf("%+v after sequence %d", ended, last)
	}
}

func TestWhatEndsAChildDecidesItsEnding(t *testing.T) {
	stop := func(reason string) func(context.Context, queue.Claim) (queue.Grant, error) {
		return func(_ context.Context, c queue.Claim) (queue.Grant, error) {
			if c.Attempt > 0 {
				return queue.Grant{Verdict: queue.GrantStop, Reason: reason}, nil
			}
			return granted, nil
		}
	}
	for _, row := range []struct {
		name   string
		answer func(context.Context, queue.Claim) (queue.Grant, error)
		words  []string
		lasts  time.Duration
		want   queue.Ending
		detail string
	}{
		{name: "its budget", words: []string{"report={\"cost_usd\": 99}\n{\"cost_usd\": 1}\n", "hold"}, want: queue.EndBudget, detail: "spent $100.00 of $100.00"},
		{name: "its deadline", words: []string{"hold"}, lasts: 300 * time.Millisecond, want: queue.EndDeadline, detail: "ran longer than 300ms"},
		{name: "a cancelled heartbeat", answer: stop(queue.StopCancelled), words: []string{"hold"}, want: queue.EndCancelled},
		{name: "a closed allocation", answer: stop(queue.StopLeaseLost), words: []string{"hold"}, want: queue.EndLeaseLost},
		{name: "a reason that nobody knows", answer: stop("?"), words: []string{"hold"}, want: queue.EndLeaseLost},
		{name: "a newer attempt", answer: func(_ context.Context, c queue.Claim) (queue.Grant, error) {
			if c.Attempt > 0 {
				return queue.Grant{Verdict: queue.GrantDrop}, nil
			}
			return granted, nil
		}, words: []string{"hold"}, want: queue.EndLeaseLost},
	} {
		t.Run(row.name, func(t *testing.T) {
			q := newFake()
			if row.answer != nil {
				q.claims(row.answer)
			}
			r := newRig(t, q, runner.Options{})
			m := agentRun(row.words...)
			m.Bot.MaxDuration = holdfast.Duration(row.lasts)
			ended := r.run(t, m)
			if ended.Ending != row.want || ended.Detail != row.detail {
				t.Errorf("it ended as %s, %q; want %s, %q", ended.Ending, ended.Detail, row.want, row.detail)
			}
		})
	}
}

func TestARenewalMayChangeTheBudgetAndOneThatSaysNothingKeepsIt(t *testing.T) {
	q := newFake()
	renewals := make(chan queue.Claim, 1024)
	q.claims(func(_ context.Context, c queue.Claim) (queue.Grant, error) {
		if c.Attempt == 0 {
			return granted, nil
		}
		renewals <- c
		if c.Spent == 0 {
			return queue.Grant{Verdict: queue.GrantGo}, nil // no budget named: still 100 dollars
		}
		return queue.Grant{Verdict: queue.GrantGo, Budget: 3 * holdfast.OneUSD}, nil
	})
	r := newRig(t, q, runner.Options{})
	m := agentRun()
	m.Bot.Command = []string{"sh", "-c", `for step in 2 1; do
		while [ ! -e go-$step ]; do sleep 0.01; done
		echo "{\"cost_usd\": $step}" >> $HOLDFAST_REPORT
	done; sleep 60`}
	r.deliver(m)
	renewedTwice(t, renewals, 0)
	touch(t, filepath.Join(r.dir, "work", "R1-1", "workspace", "go-2"))
	renewedTwice(t, renewals, 2*holdfast.OneUSD)
	touch(t, filepath.Join(r.dir, "work", "R1-1", "workspace", "go-1"))
	if ended := r.endOf(t); ended.Ending != queue.EndBudget || ended.Spent != 3*holdfast.OneUSD {
		t.Errorf("%+v", ended)
	}
}

// renewedTwice returns when a renewal with that spend was answered: another was asked
// after it.
func renewedTwice(t *testing.T, renewals <-chan queue.Claim, spent holdfast.MicroUSD) {
	t.Helper()
	for n := 0; n < 2; {
		if c := next(t, renewals); c.Spent == spent {
			n++
		}
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAChildIsStoppedWhenNoRenewalIsAcknowledgedForThreeQuartersOfALease(t *testing.T) {
	q := newFake()
	q.claims(func(ctx context.Context, c queue.Claim) (queue.Grant, error) {
		if c.Attempt == 0 {
			return granted, nil
		}
		<-ctx.Done() // the answer never comes
		return queue.Grant{}, ctx.Err()
	})
	fenced := make(chan holdfast.RunID, 1)
	r := newRig(t, q, runner.Options{Lease: 800 * time.Millisecond, Events: runner.Events{Fenced: func(run holdfast.RunID) { fenced <- run }}})
	ended := r.run(t, agentRun("hold"))
	if ended.Ending != queue.EndLeaseLost {
		t.Errorf("it ended as %s", ended.Ending)
	}
	if run := next(t, fenced); run != "R1" {
		t.Errorf("run %s was fenced", run)
	}
}

func TestAnAcknowledgedRenewalKeepsAChildAliveOverSeveralLeases(t *testing.T) {
	q := newFake()
	renewals := make(chan struct{}, 1024)
	fails := atomic.Int64{}
	q.claims(func(_ context.Context, c queue.Claim) (queue.Grant, error) {
		if c.Attempt > 0 {
			renewals <- struct{}{}
			if fails.Add(1)%2 == 0 { // every second one is lost
				return queue.Grant{}, errors.New("no answer")
			}
		}
		return granted, nil
	})
	lease := 400 * time.Millisecond
	r := newRig(t, q, runner.Options{Lease: lease, Heartbeat: 50 * time.Millisecond})
	r.deliver(agentRun("hold"))
	for range 24 { // three leases of heartbeats
		next(t, renewals)
	}
	r.cancel("R1")
	if ended := r.endOf(t); ended.Ending != queue.EndCancelled {
		t.Errorf("it ended as %s", ended.Ending)
	}
}

func TestACancelNoticeBeforeTheStartStartsNothing(t *testing.T) {
	q := newFake()
	r := newRig(t, q, runner.Options{})
	q.claims(func(context.Context, queue.Claim) (queue.Grant, error) {
		r.cancel("R1")
		return granted, nil
	})
	r.deliver(agentRun("hold"))
	if first := next(t, r.reports); first.Kind != queue.ReportEnded || first.Ending != queue.EndCancelled {
		t.Errorf("the first report is %+v", first)
	}
	if d := next(t, r.ended); d != queue.Done {
		t.Errorf("the message ended as %q", d)
	}
}

func TestTheEndIsReportedAfterTheStart(t *testing.T) {
	q := newFake()
	ended := make(chan struct{}, 1)
	q.publish = func(r queue.Report) error {
		if r.Kind == queue.ReportEnded {
			ended <- struct{}{}
			return nil
		}
		select { // a slow queue: long enough for the child to end
		case <-ended:
			t.Error("the end was reported while the start was")
		case <-time.After(300 * time.Millisecond):
		}
		return nil
	}
	r := newRig(t, q, runner.Options{})
	r.run(t, agentRun())
}

func TestANoticeForAnotherRunChangesNothing(t *testing.T) {
	r := newRig(t, newFake(), runner.Options{})
	pid := filepath.Join(t.TempDir(), "pid")
	r.deliver(agentRun("pid="+pid, "hold"))
	leader := pidIn(t, pid)
	r.cancel("R2")
	if !alive(leader) {
		t.Error("the child was stopped")
	}
	r.cancel("R1")
	r.endOf(t)
	if alive(leader) {
		t.Error("the child is alive")
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

func TestAChildSeesOnlyWhatItMay(t *testing.T) {
	t.Setenv("HOLDFAST_TOKEN", "hf_secret")
	t.Setenv("ANTHROPIC_API_KEY", "secret")
	t.Setenv("TZ", "UTC")
	t.Setenv("LANG", "")
	secret, err := os.Open(os.DevNull) // a descriptor that must not be inherited
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	if _, err := syscall.Dup(int(secret.Fd())); err != nil { // one without close-on-exec, above those of the wrapper
		t.Fatal(err)
	}
	r := newRig(t, newFake(), runner.Options{})
	m := agentRun("environment", "{{pr}}", "--title={{title}}", "{{ unknown }}", "{{.Names}}", "{{note}}")
	m.Repo = "acme/widgets"
	m.Bot.Env = map[string]string{"MODE": "fast", "GORACE": noExitSleep, "HOLDFAST_RUN": "forged", "HOLDFAST_TOKEN": "forged"}
	m.Bot.Inputs = map[string]holdfast.BotInput{"pr": {Required: true}, "title": {Default: "none"}, "note": {}}
	m.Inputs = map[string]string{"pr": "7; rm -rf $HOME {{title}}", "extra-value": "x"}
	if ended := r.run(t, m); ended.Ending != queue.EndFinished {
		t.Fatalf("%+v", ended)
	}
	var got struct {
		Env     []string
		Open    []string
		Dir     string
		Content int
		Args    []string
	}
	if err := json.Unmarshal([]byte(r.log(t, m)), &got); err != nil {
		t.Fatal(err)
	}
	work, err := filepath.EvalSymlinks(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	work = filepath.Join(work, "work", "R1-1")
	want := []string{
		"GORACE=" + noExitSleep, "HOLDFAST_ATTEMPT=1", "HOLDFAST_BOT=probe", "HOLDFAST_BUDGET_USD=100.000000", "HOLDFAST_INPUT_EXTRA_VALUE=x", "HOLDFAST_INPUT_NOTE=",
		"HOLDFAST_INPUT_PR=7; rm -rf $HOME {{title}}", "HOLDFAST_INPUT_TITLE=none", "HOLDFAST_REPO=acme/widgets", "HOLDFAST_REPORT=" + work + "/report.jsonl",
		"HOLDFAST_RUN=R1", "HOLDFAST_TEAM=acme", "HOME=" + work + "/workspace", "MODE=fast", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + work + "/tmp", "TZ=UTC",
	}
	slices.Sort(got.Env)
	if diff := cmp.Diff(want, got.Env); diff != "" {
		t.Errorf("the environment: %s", diff)
	}
	if diff := cmp.Diff([]string{"environment", "7; rm -rf $HOME {{title}}", "--title=none", "{{ unknown }}", "{{.Names}}", ""}, got.Args); diff != "" {
		t.Errorf("the arguments: %s", diff)
	}
	if got.Dir != work+"/workspace" || got.Content != 0 {
		t.Errorf("it ran in %s with %d entries", got.Dir, got.Content)
	}
	if diff := cmp.Diff([]string{"0", "1", "2"}, got.Open); diff != "" && got.Open != nil {
		t.Errorf("its descriptors: %s", diff)
	}
}

func TestTheProgramNeverComesFromAnInput(t *testing.T) {
	r := newRig(t, newFake(), runner.Options{})
	m := agentRun()
	m.Bot.Command = []string{"{{program}}"}
	m.Bot.Inputs = map[string]holdfast.BotInput{"program": {}}
	m.Inputs = map[string]string{"program": "true"}
	if ended := r.run(t, m); ended.Ending != queue.EndStartFailed {
		t.Errorf("%+v", ended)
	}
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
