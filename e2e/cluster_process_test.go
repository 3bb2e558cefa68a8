package e2e_test

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

// clusterToken is the operator's in every cluster of these tests.
const clusterToken = "hf_the-operator-of-a-cluster-in-a-test-0123456789"

// errNotAsked says that these tests were not asked to run.
var errNotAsked = errors.New("NOT TESTED: clusters over MongoDB. Set HOLDFAST_TEST_MONGO_URI to a server, or HOLDFAST_REQUIRE_MONGO=1 to let scripts/mongo-up start one (make test-mongo)")

// mongoURI is the address of the MongoDB that the clusters of these tests share: the
// one that is named, else one of our own where the tests were asked to run. A missing
// one fails them then; elsewhere they are skipped out loud.
var mongoURI = sync.OnceValues(func() (string, error) {
	if uri := os.Getenv("HOLDFAST_TEST_MONGO_URI"); uri != "" {
		return uri, nil
	}
	if os.Getenv("HOLDFAST_REQUIRE_MONGO") != "1" {
		return "", errNotAsked
	}
	cmd := exec.Command("../scripts/mongo-up")
	cmd.Env = append(os.Environ(), "HOLDFAST_MONGO_INSTANCE="+cmp.Or(os.Getenv("HOLDFAST_MONGO_INSTANCE"), "test"))
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, log.String())
	}
	return strings.TrimSpace(string(out)), nil
})

// proc is one process of a cluster.
type proc struct {
	cmd    *exec.Cmd
	ready  string
	output *tail
	exited chan struct{}
}

// spawn starts the binary and waits until it says that it is ready.
func spawn(t *testing.T, env []string, args ...string) *proc {
	t.Helper()
	p := &proc{cmd: exec.Command(binary, args...), output: &tail{}, exited: make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr = append(environment(), env...), p.output
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.kill() })
	ready := make(chan string, 1)
	go func() {
		defer close(p.exited)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
				ready <- text
			}
		}
		p.cmd.Wait()
	}()
	select {
	case p.ready = <-ready:
	case <-p.exited:
		t.Fatalf("%s ended before it was ready\n%s", args[0], p.output)
	case <-time.After(60 * time.Second):
		t.Fatalf("%s is not ready after a minute\n%s", args[0], p.output)
	}
	return p
}

// kill ends the process as a crash does.
func (p *proc) kill() {
	p.cmd.Process.Kill()
	<-p.exited
}

// term ends it politely and gives its exit code.
func (p *proc) term(t *testing.T, within time.Duration) int {
	t.Helper()
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(within):
		t.Fatalf("it is still there %v after TERM\n%s", within, p.output)
	}
	return p.cmd.ProcessState.ExitCode()
}

// cluster is a NATS, servers and runners as processes, over a database of its own.
type cluster struct {
	t        *testing.T
	dir      string
	env      []string
	database string
	natsAddr string
	nats     *proc
	marker   string // in the arguments of every child
}

// The times of these tests, from which follows how long anything may take.
const (
	clusterLease  = 4 * time.Second
	clusterReturn = clusterLease + 500*time.Millisecond + 200*time.Millisecond // lease + skew + sweep
	// machineSlack is what a loaded machine may add.
	machineSlack = 6 * time.Second
)

func newCluster(t *testing.T) *cluster {
	t.Helper()
	uri, err := mongoURI()
	switch {
	case errors.Is(err, errNotAsked):
		fmt.Fprintln(os.Stderr, err)
		t.Skip(err)
	case err != nil:
		t.Fatalf("no MongoDB for the cluster: %v", err)
	}
	return newClusterOver(t, uri)
}

// newClusterOver is a cluster over the MongoDB at that address.
func newClusterOver(t *testing.T, uri string) *cluster {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, dir: t.TempDir(), database: "test_" + strings.ToLower(rand.Text()[:12]), natsAddr: listener.Addr().String(), marker: "cluster-" + rand.Text()[:10]}
	listener.Close()
	c.env = []string{
		"HOLDFAST_MONGO_URI=" + uri, "HOLDFAST_MONGO_DATABASE=" + c.database, "HOLDFAST_NATS_URL=nats://" + c.natsAddr,
		"HOLDFAST_LEASE=" + clusterLease.String(), "HOLDFAST_HEARTBEAT=500ms", "HOLDFAST_SWEEP_EVERY=200ms", "HOLDFAST_LAUNCH_LEASE=2s",
		"HOLDFAST_POLICY_TTL=1s", "HOLDFAST_CLOCK_SKEW=500ms", "HOLDFAST_OPERATOR_TOKEN=" + clusterToken, "HOLDFAST_LOG_LEVEL=info",
	}
	c.startNATS()
	return c
}

func (c *cluster) startNATS() {
	c.t.Helper()
	c.nats = spawn(c.t, nil, "__nats", "--data", filepath.Join(c.dir, "nats"), "--listen", c.natsAddr)
}

// clusterServer is a server and a client of it.
type clusterServer struct {
	*proc
	*client.Client
}

func (c *cluster) server(name string) *clusterServer {
	c.t.Helper()
	p := spawn(c.t, c.env, "server", "--name", name, "--addr", "127.0.0.1:0")
	operator, err := client.New(p.ready, clusterToken, client.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.t.Logf("server %s said:\n%s", name, p.output)
		}
	})
	return &clusterServer{p, operator}
}

func (c *cluster) runner(name string) *proc {
	c.t.Helper()
	p := spawn(c.t, c.env, "runner", "--name", name, "--data", filepath.Join(c.dir, name), "--drain", "20s")
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.t.Logf("runner %s said:\n%s", name, p.output)
		}
	})
	return p
}

// stage makes a team and a bot whose runs write a line into a file when they begin,
// so that a run which is executed twice is seen.
func (c *cluster) stage(s *clusterServer, slots int64) {
	c.t.Helper()
	limits := api.TeamLimits{MaxConcurrentRuns: holdfast.CountLimit{LimitSetting: holdfast.LimitTo(slots)}, LaunchesPerMinute: holdfast.CountLimit{LimitSetting: holdfast.Unlimited}}
	if _, err := s.CreateTeam(c.t.Context(), api.TeamCreate{ID: "acme", Limits: limits}); err != nil {
		c.t.Fatal(err)
	}
	script := fmt.Sprintf(`echo "$HOLDFAST_RUN $HOLDFAST_ATTEMPT" >> %s; echo "%s works"; sleep "$1"; echo '{"cost_usd": 0.01}' >> "$HOLDFAST_REPORT"`, c.executed(), c.marker)
	_, _, err := s.PutBot(c.t.Context(), "", "worker", api.BotBody{
		Lane: "command", Command: []string{"sh", "-c", script, c.marker, "{{seconds}}"},
		Inputs: map[string]holdfast.BotInput{"seconds": {Default: "0.1"}},
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) executed() string { return filepath.Join(c.dir, "executed") }

// executions are how often each run's command began.
func (c *cluster) executions() map[string]int {
	c.t.Helper()
	text, err := os.ReadFile(c.executed())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.t.Fatal(err)
	}
	times := map[string]int{}
	for line := range strings.Lines(string(text)) {
		run, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		times[run]++
	}
	return times
}

func worker(seconds string) api.LaunchRequest {
	return api.LaunchRequest{Team: "acme", Bot: "worker", Inputs: map[string]string{"seconds": seconds}}
}

func (s *clusterServer) mustLaunch(t *testing.T, seconds string) api.Run {
	t.Helper()
	run, err := s.Launch(t.Context(), worker(seconds), "")
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// slotsHeld is how many slots of the team are held.
func slotsHeld(t *testing.T, s *clusterServer) int {
	t.Helper()
	c, err := s.CapacitySubject(t.Context(), "team/acme/slots")
	if err != nil {
		t.Fatal(err)
	}
	return len(c.Entries)
}

// started waits until the run's child runs.
func started(t *testing.T, s *clusterServer, id string) api.Run {
	t.Helper()
	var run api.Run
	eventually(t, 30*time.Second, id+" runs", func() bool {
		var err error
		run, err = s.Run(t.Context(), id)
		return err == nil && run.Status == "running" && !run.StartedAt.IsZero()
	})
	return run
}

// ended waits until the run is over.
func ended(t *testing.T, s *clusterServer, id string, within time.Duration) api.Run {
	t.Helper()
	var run api.Run
	eventually(t, within, id+" is over", func() bool {
		var err error
		run, err = s.Run(t.Context(), id)
		return err == nil && run.Ended()
	})
	return run
}
