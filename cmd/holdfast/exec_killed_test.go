package main

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// livingIn counts the living processes of a group; a zombie does not live.
func livingIn(t *testing.T, group string) int {
	t.Helper()
	out, err := exec.Command("ps", "-A", "-o", "pgid=,stat=").Output()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == group && !strings.HasPrefix(fields[1], "Z") {
			n++
		}
	}
	return n
}

// TestNothingRunsOnWhenExecIsKilled: nobody renews the lease of a killed exec, so its
// command must not run on under a slot that is somebody else's.
func TestNothingRunsOnWhenExecIsKilled(t *testing.T) {
	server := httptest.NewServer(&gate{lease: time.Minute})
	defer server.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "leader")
	command := exec.Command(self, "exec", "--team", "web", "--bot", "review-pr", "--", "sh", "-c", `echo $$ > "$1".new; mv "$1".new "$1"; sleep 93 & (unset HOLDFAST_REPORT; exec sleep 95) & wait; sleep 94`, "sh", file)
	command.Args[0] = "holdfast" // which TestMain makes of it
	command.Env = append(os.Environ(), "HOLDFAST_URL="+server.URL, "HOLDFAST_TOKEN=hf_secret")
	var output strings.Builder
	command.Stdout, command.Stderr = &output, &output // a pipe: Wait returns when nobody holds it any more, or then
	command.WaitDelay = 12 * time.Second
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	eventually := func(what string, holds func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("never: %s; %s", what, output.String())
			}
		}
	}
	var group string
	eventually("the shell and both its sleeps run, one without the mark", func() bool {
		text, _ := os.ReadFile(file)
		group = strings.TrimSpace(string(text))
		_, err := strconv.Atoi(group)
		return err == nil && livingIn(t, group) == 3
	})
	defer func() { _ = exec.Command("kill", "-KILL", "--", "-"+group).Run() }() // what a failure would leave
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	_ = command.Wait() // it was killed, and nobody has its output open
	eventually("the group is gone", func() bool { return livingIn(t, group) == 0 })
	if took := time.Since(killed); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}
