package runner_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/queue/nats"
	"github.com/holdfast-io/holdfast/pkg/runner"
)

var _ runner.Queue = (*nats.Bus)(nil)

// ledger is the least that a server must remember to answer claims: who executes.
type ledger struct {
	mu       sync.Mutex
	attempts map[holdfast.RunID]int
	dropped  chan holdfast.RunID
	reports  chan queue.Report
}

func (l *ledger) claim(_ context.Context, c queue.Claim) (queue.Grant, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Attempt == 0 {
		if l.attempts[c.Run] > 0 {
			l.dropped <- c.Run
			return queue.Grant{Verdict: queue.GrantDrop}, nil
		}
		l.attempts[c.Run] = 1
	}
	return queue.Grant{Verdict: queue.GrantGo, Attempt: 1, Budget: 10 * holdfast.OneUSD}, nil
}

// served is an embedded queue with a server on it.
func served(t *testing.T, o nats.Options) (*nats.Server, *nats.Bus, *ledger) {
	t.Helper()
	o.Dir = t.TempDir()
	server, err := nats.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	bus := connect(t, server)
	l := &ledger{attempts: map[holdfast.RunID]int{}, dropped: make(chan holdfast.RunID, 16), reports: make(chan queue.Report, 64)}
	loop(t, func(ctx context.Context) error { return bus.ServeClaims(ctx, l.claim) })
	loop(t, func(ctx context.Context) error {
		return bus.Reports(ctx, func(_ context.Context, r queue.Report) error { l.reports <- r; return nil })
	})
	eventually(t, "the server answers", func() bool {
		_, err := bus.RequestClaim(t.Context(), queue.Claim{Run: "WARM"})
		return err == nil
	})
	return server, bus, l
}

func connect(t *testing.T, server *nats.Server) *nats.Bus {
	t.Helper()
	bus, err := server.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	return bus
}

func loop(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := next(t, done); err != nil {
			t.Errorf("loop: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func runnerOn(t *testing.T, server *nats.Server, o runner.Options) (dir string, stop func()) {
	t.Helper()
	o.DataDir, o.ReportEvery, o.StopGrace, o.DrainGrace = t.TempDir(), 5*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond
	r, err := runner.New(connect(t, server), o)
	if err != nil {
		t.Fatal(err)
	}
	return o.DataDir, loop(t, r.Run)
}

func queuedRun(name holdfast.RunID, words ...string) queue.RunMessage {
	m := agentRun(words...)
	m.Run, m.Identity = name, holdfast.PlatformBot("probe")
	return m
}

func publish(t *testing.T, bus *nats.Bus, m queue.RunMessage) {
	t.Helper()
	if err := bus.Publish(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func gone(t *testing.T, bus *nats.Bus, run holdfast.RunID) {
	t.Helper()
	eventually(t, "the message is gone", func() bool {
		there, err := bus.Queued(t.Context(), "", run)
		return err == nil && !there
	})
}

func TestRunsGoThroughTheRealQueueFromPublishToTheirEndedReports(t *testing.T) {
	server, bus, l := served(t, nats.Options{})
	runnerOn(t, server, runner.Options{Slots: 2, Heartbeat: 50 * time.Millisecond})
	runs := []holdfast.RunID{"R1", "R2", "R3", "R4", "R5"}
	for _, run := range runs {
		publish(t, bus, queuedRun(run, "report={\"cost_usd\": 0.5}\n"))
	}
	kinds := map[holdfast.RunID][]queue.ReportKind{}
	for range 2 * len(runs) {
		r := next(t, l.reports)
		kinds[r.Run] = append(kinds[r.Run], r.Kind)
		if r.Kind == queue.ReportEnded && (r.Ending != queue.EndFinished || r.Spent != 500_000) {
			t.Errorf("%+v", r)
		}
	}
	for _, run := range runs {
		if diff := cmp.Diff([]queue.ReportKind{queue.ReportStarted, queue.ReportEnded}, kinds[run]); diff != "" {
			t.Errorf("%s: %s", run, diff)
		}
		gone(t, bus, run)
	}
}

func TestAMessageThatComesAgainStartsNothingTwice(t *testing.T) {
	ended := make(chan string, 64)
	server, bus, l := served(t, nats.Options{Lease: 400 * time.Millisecond, Events: nats.Events{Ended: func(d string) { ended <- d }}}) // ack wait 200 ms
	starts := make(chan queue.RunMessage, 16)
	o := runner.Options{ // the first extension would come after a minute: far too late
		Lease: 2 * time.Minute, Heartbeat: time.Minute, Events: runner.Events{Started: func(m queue.RunMessage) { starts <- m }},
	}
	runnerOn(t, server, o)
	runnerOn(t, server, o)
	release := filepath.Join(t.TempDir(), "release")
	m := queuedRun("R1")
	m.Bot.Command = []string{"sh", "-c", `while [ ! -e "$0" ]; do sleep 0.01; done`, release}
	publish(t, bus, m)
	next(t, starts)
	// Delivered again: to the runner that executes it, which leaves it, or to the other,
	// whose claim is refused.
	if d := next(t, ended); d != "leave" && d != "drop" {
		t.Errorf("the second delivery ended as %s", d)
	}
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []queue.ReportKind{queue.ReportStarted, queue.ReportEnded} {
		if r := next(t, l.reports); r.Kind != want || r.Attempt != 1 {
			t.Errorf("%+v, want %s", r, want)
		}
	}
	gone(t, bus, "R1")
	if len(starts)+len(l.reports) != 0 {
		t.Errorf("%d more starts and %d more reports", len(starts), len(l.reports))
	}
}

func TestAMessageThatIsDeliveredAfterItsRunEndedIsDropped(t *testing.T) {
	server, bus, l := served(t, nats.Options{})
	starts := make(chan queue.RunMessage, 16)
	runnerOn(t, server, runner.Options{Events: runner.Events{Started: func(m queue.RunMessage) { starts <- m }}})
	publish(t, bus, queuedRun("R1"))
	next(t, l.reports)
	next(t, l.reports)
	gone(t, bus, "R1")
	again := queuedRun("R1")
	again.Publication++
	publish(t, bus, again)
	next(t, l.dropped)
	gone(t, bus, "R1")
	if len(starts) != 1 {
		t.Errorf("%d starts, want 1", len(starts))
	}
}

func TestACancelThroughTheQueueStopsTheChildAtOnce(t *testing.T) {
	server, bus, l := served(t, nats.Options{})
	runnerOn(t, server, runner.Options{Heartbeat: 20 * time.Second})
	publish(t, bus, queuedRun("R1", "hold"))
	if r := next(t, l.reports); r.Kind != queue.ReportStarted {
		t.Errorf("%+v", r)
	}
	if err := bus.Cancel(t.Context(), "R1"); err != nil {
		t.Fatal(err)
	}
	if r := next(t, l.reports); r.Ending != queue.EndCancelled {
		t.Errorf("%+v", r)
	}
	gone(t, bus, "R1")
}

func TestAShutDownRunnerReportsThroughTheQueueBeforeItEnds(t *testing.T) {
	server, bus, l := served(t, nats.Options{})
	_, stop := runnerOn(t, server, runner.Options{})
	publish(t, bus, queuedRun("R1", "hold"))
	next(t, l.reports)
	stop()
	if r := next(t, l.reports); r.Ending != queue.EndInterrupted {
		t.Errorf("%+v", r)
	}
	gone(t, bus, "R1")
}
