package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/cmd/internal/node"
	"github.com/holdfast-io/holdfast/pkg/runner"
)

// TestMain lets the test binary be the program: as "holdfast" in scripts, and as the
// child wrapper, the watcher and the sample agent that this process starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (slices.Contains(runner.HiddenArguments(), os.Args[1]) || os.Args[1] == "sample-agent") {
		main()
		return
	}
	testscript.Main(m, map[string]func(){"holdfast": main})
}

// deployed is a whole deployment in this process.
type deployed struct {
	url, token, data string
}

// deploy starts a node on a free port and a folder of its own, which ends with the
// test.
func deploy(t testing.TB) deployed {
	t.Helper()
	settings := config.Defaults()
	settings.Data, settings.Addr = filepath.Join(t.TempDir(), "data"), "127.0.0.1:0"
	settings.Lease, settings.Heartbeat, settings.SweepEvery = 12*time.Second, time.Second, 500*time.Millisecond
	settings.LaunchLease, settings.PolicyTTL = 6*time.Second, 50*time.Millisecond
	n, err := node.Open(context.Background(), node.Options{Settings: settings, Version: "test", Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- n.Run(ctx, func() { close(started) }) }()
	select {
	case <-started:
	case err := <-ended:
		t.Fatalf("the node ended at once: %v", err)
	}
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Errorf("the node ended with %v", err)
		}
		if err := n.Close(); err != nil {
			t.Errorf("close the node: %v", err)
		}
	})
	return deployed{n.URL(), n.Token(), settings.Data}
}

// command runs one command line in this process and returns its code and output.
func command(environ []string, stdin string, args ...string) (code int, stdout, stderr string) {
	var out, err strings.Builder
	c := &cli{stdin: strings.NewReader(stdin), stdout: &out, stderr: &err, environ: environ}
	code = c.run(args)
	return code, out.String(), err.String()
}

// TestScripts runs the command lines in testdata/script, each against a deployment of its
// own unless its name begins with "alone".
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			t := env.T().(testing.TB)
			env.Setenv("HOLDFAST_DATA", filepath.Join(env.WorkDir, "none"))
			if strings.HasPrefix(filepath.Base(env.WorkDir), "script-alone") {
				env.Setenv("HOLDFAST_URL", "http://127.0.0.1:1")
				return nil
			}
			d := deploy(t)
			env.Setenv("HOLDFAST_URL", d.url)
			env.Setenv("HOLDFAST_TOKEN", d.token)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// code N CMD…: the command ends with exactly that code.
			"code": scriptCode,
			// waitfor RE CMD…: the command is run until its stdout matches.
			"waitfor": scriptWaitFor,
			// runid NAME: the first id in the last stdout becomes a variable.
			"runid": scriptID,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// scriptCode is `code N holdfast ARG…`: the command line must end with that exit
// code; stdout and stderr can be looked at afterwards as after exec.
func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N CMD ARG…")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("%s ended with %s, want %s\nstdout: %s\nstderr: %s", strings.Join(args[1:], " "), got, args[0], ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

// scriptWaitFor is `waitfor RE CMD ARG…`: the command line is run again and again, for
// at most half a minute, until its stdout matches.
func scriptWaitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: waitfor RE CMD ARG…")
	}
	pattern := regexp.MustCompile(`(?m)` + args[0])
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := ts.Exec(args[1], args[2:]...)
		switch {
		case err == nil && pattern.MatchString(ts.ReadFile("stdout")):
			return
		case time.Now().After(end):
			ts.Fatalf("%q never came, the last output is\n%s%s", args[0], ts.ReadFile("stdout"), ts.ReadFile("stderr"))
		}
	}
}

// scriptID is `runid NAME`.
func scriptID(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: runid NAME")
	}
	found := regexp.MustCompile(`"id": "([^"]+)"`).FindStringSubmatch(ts.ReadFile("stdout"))
	if found == nil {
		ts.Fatalf("no id in the last output")
	}
	ts.Setenv(args[0], found[1])
}
