package node_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/cmd/internal/node"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/queue/nats"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runner"
	"github.com/holdfast-io/holdfast/pkg/runner/sampleagent"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

// TestMain lets the test binary be what a runner starts: the child wrapper and the
// sample agent of the built-in bots.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if code, hidden := runner.HiddenMain(os.Args[1:]); hidden {
			os.Exit(code)
		}
		if os.Args[1] == "sample-agent" {
			os.Exit(sampleagent.Main(os.Args[2:], os.Stdout, os.Getenv))
		}
	}
	os.Exit(m.Run())
}

const operatorToken = "hf_the-operator-of-these-tests-0123456789"

// cluster is a NATS and stores that the servers of a test share, in its process.
type cluster struct {
	t       *testing.T
	nats    *server.Server
	dir     string // of NATS
	port    int
	url     string // of NATS, when it is another than that of this process
	stores  node.Stores
	records *cutRecords
	log     *lockedBuffer
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	db := &cutRecords{DB: memory.NewRecords()}
	c := &cluster{t: t, dir: t.TempDir(), port: server.RANDOM_PORT, records: db, stores: node.Stores{Ledger: memory.NewLedger(), Records: db}, log: &lockedBuffer{}}
	c.startNATS()
	t.Cleanup(c.stopNATS)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.log.String())
		}
	})
	return c
}

func (c *cluster) startNATS() {
	c.t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: c.port, JetStream: true, StoreDir: c.dir, NoLog: true, NoSigs: true})
	if err != nil {
		c.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		c.t.Fatal("NATS is not ready")
	}
	var port int
	if _, err := fmt.Sscanf(s.ClientURL(), "nats://127.0.0.1:%d", &port); err != nil {
		c.t.Fatal(err)
	}
	c.nats, c.port = s, port
}

// open gives every server the same stores.
func (c *cluster) open(context.Context) (node.Stores, func() error, error) {
	return c.stores, func() error { return nil }, nil
}

func (c *cluster) stopNATS() { c.nats.Shutdown(); c.nats.WaitForShutdown() }

// settings are short, so that everything happens within seconds.
func (c *cluster) settings(p config.Process, name string) node.Options {
	s := config.DefaultsOf(p)
	s.Lease, s.Heartbeat, s.SweepEvery, s.LaunchLease = 3*time.Second, 300*time.Millisecond, 200*time.Millisecond, 2*time.Second
	s.PolicyTTL, s.ClockSkew = 30*time.Second, 200*time.Millisecond
	s.NATSURL, s.Name, s.Addr, s.OperatorToken = cmp.Or(c.url, fmt.Sprintf("nats://127.0.0.1:%d", c.port)), name, "127.0.0.1:0", operatorToken
	return node.Options{Settings: s, Version: "test", Log: slog.New(slog.NewTextHandler(c.log, nil))}
}

// member is a server that runs.
type member struct {
	*client.Client
	url  string
	stop func()
}

func (c *cluster) server(name string) *member {
	c.t.Helper()
	return c.serverWith(c.settings(config.Server, name))
}

// serverWith is a server with settings of its own.
func (c *cluster) serverWith(o node.Options) *member {
	c.t.Helper()
	name := o.Settings.Name
	s, err := node.OpenServer(c.t.Context(), o, c.open)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.Run(ctx, func() { close(started) }) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ended, s.Close()); err != nil {
			c.t.Errorf("server %s ended with %v", name, err)
		}
	})
	c.t.Cleanup(stop)
	<-started
	operator, err := client.New(s.URL(), operatorToken, client.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	return &member{operator, s.URL(), stop}
}

// runner executes runs until stop; drain says how long what is under way may go on.
func (c *cluster) runner(name string) (stop func(drain time.Duration)) {
	c.t.Helper()
	o := c.settings(config.Runner, name)
	o.Settings.Data = c.t.TempDir()
	r, err := node.OpenRunner(c.t.Context(), o)
	if err != nil {
		c.t.Fatal(err)
	}
	taking, endTaking := context.WithCancel(context.Background())
	last, endLast := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(taking, last) }()
	var once sync.Once
	stop = func(drain time.Duration) {
		once.Do(func() {
			endTaking()
			timer := time.AfterFunc(drain, endLast)
			defer timer.Stop()
			if err := errors.Join(<-ended, r.Close()); err != nil {
				c.t.Errorf("runner %s ended with %v", name, err)
			}
			endLast()
		})
	}
	c.t.Cleanup(func() { stop(0) })
	return stop
}

func (c *cluster) team(s *member, id string, slots int64) {
	c.t.Helper()
	limits := api.TeamLimits{MaxConcurrentRuns: holdfast.CountLimit{LimitSetting: holdfast.LimitTo(slots)}}
	if _, err := s.CreateTeam(c.t.Context(), api.TeamCreate{ID: id, Limits: limits}); err != nil {
		c.t.Fatal(err)
	}
}

// launch launches a run of the sample agent that works for some seconds.
func launch(t *testing.T, s *member, team, seconds string) api.Run {
	t.Helper()
	run, err := s.Launch(t.Context(), api.LaunchRequest{Team: team, Bot: "review-pr", Inputs: map[string]string{"seconds": seconds}}, "")
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// until waits for a run to come to a status.
func until(t *testing.T, s *member, id string, want ...string) api.Run {
	t.Helper()
	var run api.Run
	eventually(t, fmt.Sprintf("%s is %v", id, want), func() bool {
		var err error
		run, err = s.Run(t.Context(), id)
		if err != nil {
			return false
		}
		for _, status := range want {
			if run.Status == status {
				return true
			}
		}
		return false
	})
	return run
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func held(t *testing.T, s *member, team string) int {
	t.Helper()
	c, err := s.CapacitySubject(t.Context(), "team/"+team+"/slots")
	if err != nil {
		t.Fatal(err)
	}
	return len(c.Entries)
}

func TestARunLaunchedAtOneServerIsExecutedByARunnerAndSeenAtAnother(t *testing.T) {
	c := newCluster(t)
	a, b := c.server("a"), c.server("b")
	c.runner("r1")
	c.team(a, "acme", 4)
	events := make(chan api.Event, 256)
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		_ = b.Events(watching, "", "", func(e api.Event) error { events <- e; return nil })
	}()
	run := launch(t, a, "acme", "1")
	log, err := b.Logs(t.Context(), run.ID, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(log)
	if err != nil || !bytes.Contains(text, []byte("review-pr")) {
		t.Errorf("the output at the other server reads %q (%v)", text, err)
	}
	ended := until(t, b, run.ID, "finished")
	if ended.SpentUSD == 0 {
		t.Error("the run finished and its spend is not known")
	}
	again, err := a.Logs(t.Context(), run.ID, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	if tail, _ := io.ReadAll(again); bytes.Count(tail, []byte("\n")) != 1 || !bytes.HasSuffix(text, tail) {
		t.Errorf("the last line reads %q", tail)
	}
	eventually(t, "nothing is held", func() bool { return held(t, b, "acme") == 0 })
	seen := map[string]bool{}
	eventually(t, "the other server's stream has the run, the decision and the capacity", func() bool {
		for len(events) > 0 {
			e := <-events
			seen[e.Type] = true
			if e.Run != nil {
				seen[e.Run.Status] = true
			}
		}
		return seen["run"] && seen["decision"] && seen["capacity"] && seen["queued"] && seen["finished"]
	})
}

func TestTheLastSlotIsGivenOnceWhicheverServerIsAsked(t *testing.T) {
	c := newCluster(t)
	servers := []*member{c.server("a"), c.server("b")}
	for round := range 20 {
		team := fmt.Sprintf("team-%d", round)
		c.team(servers[0], team, 1)
		var mu sync.Mutex
		admitted := 0
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				_, err := servers[i%2].Launch(t.Context(), api.LaunchRequest{Team: team, Bot: "probe"}, "")
				var refused *client.Refused
				switch {
				case err == nil:
					mu.Lock()
					admitted++
					mu.Unlock()
				case !errors.As(err, &refused):
					t.Error(err)
				}
			})
		}
		all.Wait()
		if admitted != 1 {
			t.Errorf("round %d: %d were admitted to one slot", round, admitted)
		}
	}
}

func TestTheLaunchRateIsOneBucketOfAllServers(t *testing.T) {
	c := newCluster(t)
	a, b := c.server("a"), c.server("b")
	limits := api.TeamLimits{LaunchesPerMinute: holdfast.CountLimit{LimitSetting: holdfast.LimitTo(6)}}
	if _, err := a.CreateTeam(t.Context(), api.TeamCreate{ID: "acme", Limits: limits}); err != nil {
		t.Fatal(err)
	}
	admitted := 0
	for i := range 12 {
		_, err := []*member{a, b}[i%2].Launch(t.Context(), api.LaunchRequest{Team: "acme", Bot: "probe"}, "")
		var refused *client.Refused
		if err == nil {
			admitted++
		} else if !errors.As(err, &refused) || refused.Problem.Reason != "launch_rate_limited" {
			t.Fatal(err)
		}
	}
	if admitted < 6 || admitted > 7 { // one may come back while twelve are asked
		t.Errorf("%d of 12 launches passed a rate of 6 a minute", admitted)
	}
}

func TestAPolicyWrittenAtOneServerIsInForceAtAnotherWithoutItsCachesTime(t *testing.T) {
	c := newCluster(t)
	a, b := c.server("a"), c.server("b")
	c.team(a, "acme", 2)
	preview := func() bool {
		p, err := b.Preview(t.Context(), api.LaunchRequest{Team: "acme", Bot: "probe"})
		if err != nil {
			t.Fatal(err)
		}
		return p.Admitted
	}
	if !preview() { // b has read, and would not read again for half a minute
		t.Fatal("nothing is reserved yet")
	}
	_, err := a.PutBudgetFloor(t.Context(), api.BudgetFloor{Reservations: []api.Reservation{{Bot: "review-pr", ConcurrentRuns: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other server withholds what was reserved", func() bool { return !preview() })
}

func TestAServerIsReadyOnlyWhileItsStoreTakesWritesAndTheQueueAnswers(t *testing.T) {
	c := newCluster(t)
	a := c.server("a")
	ready := func() (api.Health, bool) {
		response, err := http.Get(a.url + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		text, _ := io.ReadAll(response.Body)
		return api.Health{Status: string(text)}, response.StatusCode == http.StatusOK
	}
	if health, ok := ready(); !ok {
		t.Fatalf("it is not ready: %+v", health)
	}
	c.records.cut(true)
	eventually(t, "a store that takes no writes is told", func() bool { h, ok := ready(); return !ok && strings.Contains(h.Status, `"records"`) })
	c.records.cut(false)
	eventually(t, "it is ready again", func() bool { _, ok := ready(); return ok })
	c.stopNATS()
	eventually(t, "a queue that is away is told", func() bool { h, ok := ready(); return !ok && strings.Contains(h.Status, `"queue"`) })
	c.startNATS()
	eventually(t, "it is ready again", func() bool { _, ok := ready(); return ok })
}

func TestAQueueThatLosesItsDataUnderLoadLosesNoLaunch(t *testing.T) {
	c := newCluster(t)
	a, b := c.server("a"), c.server("b")
	c.team(a, "acme", 1000)
	var launched []string
	for i := range 12 { // no runner yet: they wait in the queue
		launched = append(launched, launch(t, []*member{a, b}[i%2], "acme", "0.2").ID)
	}
	c.stopNATS()
	if err := os.RemoveAll(c.dir); err != nil {
		t.Fatal(err)
	}
	c.startNATS()
	eventually(t, "the queue is whole again", func() bool {
		h, err := a.Ready(t.Context())
		return err == nil && h.Status == "ok"
	})
	c.runner("r1")
	c.runner("r2")
	for _, id := range launched {
		run := until(t, b, id, "finished")
		if run.Attempt != 1 {
			t.Errorf("%s took %d attempts", id, run.Attempt)
		}
	}
	eventually(t, "nothing is held", func() bool { return held(t, a, "acme") == 0 })
}

func TestALongOutageOfTheQueueExpiresNobodyWhoLives(t *testing.T) {
	c := newCluster(t)
	a := c.server("a")
	c.team(a, "acme", 4)
	external, err := a.Launch(t.Context(), api.LaunchRequest{Team: "acme", Bot: "probe", External: true}, "")
	if err != nil {
		t.Fatal(err)
	}
	c.stopNATS()
	time.Sleep(4500 * time.Millisecond) // longer than the lease, the skew and some sweeps; nobody can tell it from a dead holder
	if n := held(t, a, "acme"); n != 1 {
		t.Errorf("%d slots are held while nobody can renew, want 1", n)
	}
	c.startNATS()
	eventually(t, "after the outage and a lease the silent one is dead", func() bool { return held(t, a, "acme") == 0 })
	until(t, a, external.ID, "failed")
}

func TestARunnerThatDrainsFinishesItsRunsAndOneThatMayNotHandsThemBack(t *testing.T) {
	c := newCluster(t)
	a := c.server("a")
	c.team(a, "acme", 4)
	stop := c.runner("r1")
	patient := launch(t, a, "acme", "1")
	until(t, a, patient.ID, "running")
	eventually(t, "its child runs", func() bool { r, err := a.Run(t.Context(), patient.ID); return err == nil && !r.StartedAt.IsZero() })
	stop(20 * time.Second)
	until(t, a, patient.ID, "finished")

	stop = c.runner("r2")
	cut := launch(t, a, "acme", "60")
	eventually(t, "its child runs", func() bool { r, err := a.Run(t.Context(), cut.ID); return err == nil && !r.StartedAt.IsZero() })
	waiting := launch(t, a, "acme", "0.1")
	until(t, a, waiting.ID, "finished")
	stop(0)
	if run := until(t, a, cut.ID, "failed_resumable"); run.StatusReason != "interrupted" {
		t.Errorf("it is failed_resumable because of %q", run.StatusReason)
	}
	eventually(t, "nothing is held", func() bool { return held(t, a, "acme") == 0 })
}

// cutRecords are records whose connection a test cuts.
type cutRecords struct {
	records.DB
	mu   sync.Mutex
	away bool
}

func (c *cutRecords) cut(away bool) { c.mu.Lock(); c.away = away; c.mu.Unlock() }

func (c *cutRecords) Collection(ctx context.Context, schema records.Schema) (records.Collection, error) {
	inner, err := c.DB.Collection(ctx, schema)
	return cutCollection{inner, c}, err
}

type cutCollection struct {
	records.Collection
	db *cutRecords
}

func (c cutCollection) Replace(ctx context.Context, r records.Record) (records.Record, error) {
	c.db.mu.Lock()
	away := c.db.away
	c.db.mu.Unlock()
	if away {
		return records.Record{}, fmt.Errorf("cut: %w", records.ErrUnavailable)
	}
	return c.Collection.Replace(ctx, r)
}

type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestTheDeployedUsersOfNATSMayDoWhatTheirProcessesDoAndARunnerNothingElse(t *testing.T) {
	t.Setenv("NATS_SERVER_PASSWORD", "pw1")
	t.Setenv("NATS_RUNNER_PASSWORD", "pw2")
	o, err := server.ProcessConfigFile("../../../deploy/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	o.Host, o.Port, o.HTTPPort, o.StoreDir, o.NoLog, o.NoSigs = "127.0.0.1", server.RANDOM_PORT, 0, t.TempDir(), true, true
	o.JetStreamMaxStore = 1 << 30
	c := newCluster(t)
	c.stopNATS()
	c.nats, err = server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	c.nats.Start()
	if !c.nats.ReadyForConnections(20 * time.Second) {
		t.Fatal("NATS is not ready")
	}
	host := c.nats.Addr().String()
	c.url = "nats://server:pw1@" + host
	a := c.server("a")
	c.team(a, "acme", 4)
	c.url = "nats://runner:pw2@" + host
	c.runner("r1")
	run := launch(t, a, "acme", "0.5")
	log, err := a.Logs(t.Context(), run.ID, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(log); err != nil || !bytes.Contains(text, []byte("review-pr")) {
		t.Errorf("the output reads %q (%v)", text, err)
	}
	until(t, a, run.ID, "finished")
	cancelled := launch(t, a, "acme", "60")
	until(t, a, cancelled.ID, "running")
	if _, err := a.Cancel(t.Context(), cancelled.ID); err != nil {
		t.Fatal(err)
	}
	until(t, a, cancelled.ID, "cancelled")

	bus, err := nats.Dial(t.Context(), nats.Remote{URL: c.url, Inbox: nats.RunnerInbox}, nats.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := bus.Publish(short, queue.RunMessage{Run: "R1", Publication: 1}); err == nil {
		t.Error("a runner queued a run")
	}
	if _, err := bus.OpenLog(short, "R1", 1); err == nil {
		t.Error("a runner read the output of a run")
	}
	answer, err := bus.RequestSecrets(t.Context(), queue.SecretsAsk{Run: "R1", Attempt: 1})
	if err != nil || answer.Refused == "" {
		t.Errorf("a runner asked for secrets and heard %+v, %v", answer, err)
	}
	heard := make(chan error, 16)
	nc, err := natsgo.Connect(c.url, natsgo.CustomInboxPrefix(nats.RunnerInbox), natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) { heard <- err }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	for _, subject := range []string{">", "_INBOX.>", nats.ServerInbox + ".>", "holdfast.>", "holdfast.claims", "holdfast.secrets", "holdfast.reports.*", "holdfast.logs.>", "holdfast.queue.>", "holdfast.tell.*"} {
		if _, err := nc.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-heard:
			if !errors.Is(err, natsgo.ErrPermissionViolation) {
				t.Errorf("%s: %v", subject, err)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("a runner may listen to %s", subject)
		}
	}
}
