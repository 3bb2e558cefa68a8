package clusterdemo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/pkg/client"
)

// process is one process of the cluster.
type process struct {
	name   string
	cmd    *exec.Cmd
	output *tail
	ready  string // what it said after "ready "
	exited chan struct{}
}

// readyWithin is how long a process may take to begin.
const readyWithin = 30 * time.Second

// start runs the binary and returns when the process says that it is ready.
func (d *demo) start(ctx context.Context, name string, env []string, args ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(d.o.Binary, args...), output: &tail{}, exited: make(chan struct{})}
	p.cmd.Env = append(clean(os.Environ()), env...)
	p.cmd.Stderr = p.output
	// A signal to the demo's terminal is the demo's: it ends its processes in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	d.mu.Lock()
	d.processes = append(d.processes, p)
	d.mu.Unlock()
	said := make(chan string, 1)
	go func() {
		defer close(p.exited)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if text, found := strings.CutPrefix(lines.Text(), "ready "); found {
				said <- text
			}
		}
		_ = p.cmd.Wait() // its exit code says nothing here: most are killed
	}()
	timeout := time.NewTimer(readyWithin)
	defer timeout.Stop()
	select {
	case p.ready = <-said:
		return p, nil
	case <-p.exited:
		return nil, fmt.Errorf("%s ended before it was ready:\n%s", name, p.output)
	case <-timeout.C:
		return nil, fmt.Errorf("%s is not ready after %v:\n%s", name, readyWithin, p.output)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// kill ends a process as a crash does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it is gone already
	<-p.exited
}

// end ends everything that still runs, runners before servers before NATS, so that
// nothing of the demo lives on: TERM twice ends a runner's children too.
func (d *demo) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := len(d.processes) - 1; i >= 0; i-- {
		p := d.processes[i]
		for range 3 {
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-p.exited:
			case <-time.After(700 * time.Millisecond):
				continue
			}
			break
		}
		select {
		case <-p.exited:
		case <-time.After(8 * time.Second):
			p.kill()
		}
	}
}

// clean is an environment without settings of Holdfast.
func clean(environ []string) []string {
	var kept []string
	for _, entry := range environ {
		if !strings.HasPrefix(entry, "HOLDFAST_") {
			kept = append(kept, entry)
		}
	}
	return kept
}

// freePort is a port that nobody listens on now, so that a process which is started
// again can have its former address.
func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}

// server is one of the two servers, which is started twice.
type server struct {
	*process
	*client.Client
	addr string
}

// settings are short, so that everything happens within seconds.
func (d *demo) settings() []string {
	return []string{
		"HOLDFAST_LEASE=" + lease.String(), "HOLDFAST_HEARTBEAT=1s", "HOLDFAST_SWEEP_EVERY=" + sweepEvery.String(),
		"HOLDFAST_LAUNCH_LEASE=" + launchLease.String(), "HOLDFAST_CLOCK_SKEW=" + skew.String(), "HOLDFAST_POLICY_TTL=1s", "HOLDFAST_LOG_LEVEL=warn",
		"HOLDFAST_NATS_URL=" + d.nats,
	}
}

func (d *demo) startServer(ctx context.Context, name, addr string) (s *server, err error) {
	s = &server{addr: addr}
	env := append(d.settings(), "HOLDFAST_MONGO_URI="+d.o.MongoURI, "HOLDFAST_MONGO_DATABASE="+d.o.Database, "HOLDFAST_OPERATOR_TOKEN="+d.token)
	if s.process, err = d.start(ctx, "server "+name, env, "server", "--name", name, "--addr", addr); err != nil {
		return nil, err
	}
	s.Client, err = client.New("http://"+addr, d.token, client.Options{})
	return s, err
}

func (d *demo) startRunner(ctx context.Context, name string) (*process, error) {
	return d.start(ctx, "runner "+name, append(d.settings(), "HOLDFAST_DRAIN=0s"), "runner", "--name", name, "--data", filepath.Join(d.o.Dir, name), "--runners", "8")
}

// tail keeps the last of what a process printed.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const tailMost = 16 << 10

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text.Len() > tailMost {
		t.text.Next(t.text.Len() - tailMost/2)
	}
	return t.text.Write(p)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// errBroken is matched by the error of a play whose promise was not kept.
var errBroken = errors.New("a promise was not kept")
