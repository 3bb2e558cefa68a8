package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/pkg/client"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "holdfast-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "holdfast")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, "../cmd/holdfast")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// rounds is how often a loop runs: its default, or what the campaign asks for.
func rounds(t *testing.T, name string, normal int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return normal
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is not a number of rounds", name, text)
	}
	return n
}

// short are the settings of loops that kill: everything happens within seconds.
var short = []string{
	"HOLDFAST_LEASE=3s", "HOLDFAST_HEARTBEAT=500ms", "HOLDFAST_SWEEP_EVERY=200ms",
	"HOLDFAST_LAUNCH_LEASE=2s", "HOLDFAST_POLICY_TTL=1s", "HOLDFAST_CLOCK_SKEW=500ms",
}

// dev is one `holdfast dev` process.
type dev struct {
	cmd   *exec.Cmd
	data  string
	url   string
	token string
	*client.Client
	output *tail
	exited chan error
}

// tail keeps what a process printed, for failures.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *tail) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *tail) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start runs `dev` on a folder and waits until it says that it is ready.
func start(t *testing.T, data string, env ...string) *dev {
	t.Helper()
	return startWith(t, data, nil, env...)
}

// startWith is start with further arguments.
func startWith(t *testing.T, data string, args []string, env ...string) *dev {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"dev", "--data", data, "--addr", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(environment(), env...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d := &dev{cmd: cmd, data: data, output: &tail{}, exited: make(chan error, 1)}
	cmd.Stderr = d.output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			fmt.Fprintln(d.output, lines.Text())
			if url, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
				ready <- url
			}
		}
		d.exited <- cmd.Wait()
	}()
	select {
	case d.url = <-ready:
	case err := <-d.exited:
		t.Fatalf("dev ended before it was ready: %v\n%s", err, d.output)
	case <-time.After(60 * time.Second):
		cmd.Process.Kill()
		t.Fatalf("dev is not ready after a minute\n%s", d.output)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	token, err := os.ReadFile(filepath.Join(data, "operator.token"))
	if err != nil {
		t.Fatalf("dev is ready and has no operator.token: %v", err)
	}
	d.token = strings.TrimSpace(string(token))
	d.Client = d.as(t, d.token)
	return d
}

// as is a client with another token.
func (d *dev) as(t *testing.T, token string) *client.Client {
	t.Helper()
	c, err := client.New(d.url, token, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// environment is the test's own without any Holdfast setting.
func environment() []string {
	var kept []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "HOLDFAST_") {
			kept = append(kept, entry)
		}
	}
	return kept
}

// kill ends the process as a crash does and waits until it is gone.
func (d *dev) kill(t *testing.T) {
	t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-d.exited
}

// stop ends the process politely and gives its exit code.
func (d *dev) stop(t *testing.T, signal syscall.Signal) int {
	t.Helper()
	if err := d.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	select {
	case <-d.exited:
	case <-time.After(15 * time.Second):
		t.Fatalf("dev is still there 15 s after %v\n%s", signal, d.output)
	}
	return d.cmd.ProcessState.ExitCode()
}

func command(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(environment(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// eventually waits until ok says that something happened.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s still not: %s", within, what)
		}
	}
}

// busyPort is a port that somebody listens on until the test ends.
func busyPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener.Addr().String()
}

// process is a line of the process table.
type process struct {
	pid, parent int
	args        string
}

// processes lists the living processes whose arguments hold a word.
func processes(t *testing.T, word string) []process {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ps", "-axww", "-o", "pid=,ppid=,stat=,args=").Output()
	if err != nil {
		t.Fatal(err)
	}
	var found []process
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || strings.HasPrefix(fields[2], "Z") || !strings.Contains(line, word) {
			continue
		}
		pid, _ := strconv.Atoi(fields[0])
		parent, _ := strconv.Atoi(fields[1])
		found = append(found, process{pid, parent, strings.Join(fields[3:], " ")})
	}
	return found
}

func itoa(n int) string { return strconv.Itoa(n) }
