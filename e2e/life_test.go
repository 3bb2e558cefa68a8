package e2e_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
)

func TestDemoKeepsEveryPromise(t *testing.T) {
	stdout, stderr, code := command(t, []string{"TMPDIR=" + t.TempDir()}, "demo")
	if code != 0 {
		t.Fatalf("demo ended with %d\n%s\n%s", code, stdout, stderr)
	}
	for _, want := range []string{"capacity_reserved", "review-pr", "every promise was kept"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("demo does not print %q\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout, "BROKEN") {
		t.Errorf("a broken promise ended with 0\n%s", stdout)
	}
}

func TestASecondDevOnTheSameFolderIsRefusedWithOneLine(t *testing.T) {
	d := start(t, t.TempDir())
	stdout, stderr, code := command(t, nil, "dev", "--data", d.data, "--addr", "127.0.0.1:0")
	refusedInOneLine(t, stdout, stderr, code, "--data")
	if _, err := d.Ready(t.Context()); err != nil {
		t.Errorf("the first dev suffers: %v", err)
	}
}

func TestABusyPortIsRefusedWithOneLine(t *testing.T) {
	data := t.TempDir()
	stdout, stderr, code := command(t, nil, "dev", "--data", data, "--addr", busyPort(t))
	refusedInOneLine(t, stdout, stderr, code, "--addr")
	start(t, data).stop(t, syscall.SIGTERM) // the folder was given back
}

func refusedInOneLine(t *testing.T, stdout, stderr string, code int, wayOut string) {
	t.Helper()
	if code != 1 || stdout != "" || strings.Count(strings.TrimSpace(stderr), "\n") != 0 || !strings.Contains(stderr, wayOut) {
		t.Errorf("exit code %d, stdout %q, stderr %q; want 1, nothing, and one line that names %s", code, stdout, stderr, wayOut)
	}
}

func TestDevEndsWithinTenSecondsAndItsRunsAreSettled(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			data := t.TempDir()
			d := start(t, data)
			if _, err := d.CreateTeam(t.Context(), api.TeamCreate{ID: "acme"}); err != nil {
				t.Fatal(err)
			}
			stubborn := api.BotBody{Lane: "command", Command: []string{"sh", "-c", "trap '' TERM INT; echo begun; while true; do sleep 0.1; done"}}
			if _, _, err := d.PutBot(t.Context(), "", "stubborn", stubborn); err != nil {
				t.Fatal(err)
			}
			run, err := d.Launch(t.Context(), api.LaunchRequest{Team: "acme", Bot: "stubborn"}, "")
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, 10*time.Second, "the run is running", func() bool {
				run, err = d.Run(t.Context(), run.ID)
				return err == nil && run.Status == "running"
			})
			began := time.Now()
			if code := d.stop(t, signal); code != 0 {
				t.Errorf("dev ended with %d\n%s", code, d.output)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("dev took %s to end", took)
			}
			again := start(t, data)
			if run, err = again.Run(t.Context(), run.ID); err != nil || run.Status != "failed_resumable" || run.StatusReason != "interrupted" {
				t.Errorf("the run is %s (%s), %v; want failed_resumable (interrupted)", run.Status, run.StatusReason, err)
			}
			if s, err := again.CapacitySubject(t.Context(), "team/acme/slots"); err != nil || s.Outstanding.Value != "0" {
				t.Errorf("its slot did not come back: %+v, %v", s, err)
			}
		})
	}
}

func TestTheDataFolderIsForItsOwnerAlone(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "notes.txt"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	start(t, data)
	if info, err := os.Stat(data); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder has mode %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(filepath.Join(data, "operator.token")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the operator's token has mode %v, %v", info.Mode(), err)
	}
	if text, err := os.ReadFile(filepath.Join(data, "notes.txt")); err != nil || string(text) != "mine" {
		t.Errorf("a file that is not ours was touched: %q, %v", text, err)
	}
}

func TestTheQueueOfDevListensNowhere(t *testing.T) {
	d := start(t, t.TempDir())
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "ss -ltnp 2>/dev/null || lsof -nP -iTCP -sTCP:LISTEN").Output()
	if err != nil || len(out) == 0 {
		// Without a tool that lists listeners the usual port is looked at.
		if conn, err := net.DialTimeout("tcp", "127.0.0.1:4222", time.Second); err == nil {
			conn.Close()
			t.Error("something answers on the queue's usual port")
		}
		return
	}
	listeners := 0
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "pid="+itoa(d.cmd.Process.Pid)+",") || strings.Contains(line, " "+itoa(d.cmd.Process.Pid)+" ") {
			listeners++
		}
	}
	if listeners > 1 {
		t.Errorf("dev listens on %d ports, want the API's alone\n%s", listeners, out)
	}
}

func TestAnExampleFolderIsKeptAndSeededOnlyWhenEmpty(t *testing.T) {
	data := t.TempDir()
	first := startWith(t, data, []string{"--example"})
	eventually(t, 30*time.Second, "the incident is over", func() bool { return strings.Contains(first.output.String(), "Ctrl-C ends it.") })
	for _, want := range []string{"capacity_reserved", "kept ", "launch review-pr --team", "exec --team", "simulate ~/.claude/projects"} {
		if !strings.Contains(first.output.String(), want) {
			t.Errorf("the example does not show %q\n%s", want, first.output)
		}
	}
	if strings.Contains(first.output.String(), "BROKEN") {
		t.Errorf("a promise was broken\n%s", first.output)
	}
	first.stop(t, syscall.SIGINT)
	second := startWith(t, data, []string{"--example"})
	eventually(t, 10*time.Second, "it says what it did", func() bool { return strings.Contains(second.output.String(), "Ctrl-C ends it.") })
	if !strings.Contains(second.output.String(), "is kept as it is") || strings.Contains(second.output.String(), "storm") {
		t.Errorf("the second start seeds again\n%s", second.output)
	}
}
