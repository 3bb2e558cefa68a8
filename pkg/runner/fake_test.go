package runner_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runner"
)

// fake is a queue that a test plays by hand.
type fake struct {
	deliveries chan queue.Delivery
	ended      chan queue.Disposition
	reports    chan queue.Report
	extended   chan struct{} // never blocks

	mu      sync.Mutex
	answer  func(context.Context, queue.Claim) (queue.Grant, error)
	publish func(queue.Report) error
	notice  func(holdfast.RunID)
}

var _ runner.Queue = (*fake)(nil)

// newFake grants every claim.
func newFake() *fake {
	return &fake{
		deliveries: make(chan queue.Delivery, 16), ended: make(chan queue.Disposition, 16), reports: make(chan queue.Report, 64), extended: make(chan struct{}, 1),
		answer:  func(context.Context, queue.Claim) (queue.Grant, error) { return granted, nil },
		publish: func(queue.Report) error { return nil },
	}
}

var granted = queue.Grant{Verdict: queue.GrantGo, Attempt: 1, Budget: 100 * holdfast.OneUSD}

func (f *fake) deliver(m queue.RunMessage) {
	f.deliveries <- queue.Delivery{Message: m, Count: 1, Extend: func() error {
		select {
		case f.extended <- struct{}{}:
		default:
		}
		return nil
	}}
}

func (f *fake) claims(answer func(context.Context, queue.Claim) (queue.Grant, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

func (f *fake) Work(ctx context.Context, _ int, handle func(context.Context, queue.Delivery) queue.Disposition) error {
	var handlers sync.WaitGroup
	defer handlers.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case d := <-f.deliveries:
			handlers.Go(func() { f.ended <- handle(ctx, d) })
		}
	}
}

func (f *fake) RequestClaim(ctx context.Context, c queue.Claim) (queue.Grant, error) {
	f.mu.Lock()
	answer := f.answer
	f.mu.Unlock()
	return answer(ctx, c)
}

func (f *fake) PublishReport(_ context.Context, r queue.Report) error {
	f.mu.Lock()
	publish := f.publish
	f.mu.Unlock()
	if err := publish(r); err != nil {
		return err
	}
	f.reports <- r
	return nil
}

func (f *fake) CancelNotices(notice func(holdfast.RunID)) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notice = notice
	return func() {}, nil
}

func (f *fake) cancel(run holdfast.RunID) {
	f.mu.Lock()
	notice := f.notice
	f.mu.Unlock()
	notice(run)
}

// rig is a runner on a fake queue.
type rig struct {
	*fake
	dir  string
	stop func() // ends the runner and waits for it
}

func newRig(t *testing.T, q *fake, o runner.Options) *rig {
	t.Helper()
	o.DataDir = t.TempDir()
	orElse(&o.ReportEvery, 5*time.Millisecond)
	orElse(&o.StopGrace, 200*time.Millisecond)
	orElse(&o.DrainGrace, 200*time.Millisecond)
	orElse(&o.Heartbeat, 20*time.Millisecond)
	r, err := runner.New(q, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := next(t, done); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return &rig{fake: q, dir: o.DataDir, stop: stop}
}

func orElse[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// agentRun is a run of the test agent.
func agentRun(words ...string) queue.RunMessage {
	return queue.RunMessage{
		Run: "R1", Team: "acme", Publication: 3, Generation: 2,
		Bot: holdfast.Bot{
			Name: "probe", Lane: holdfast.LaneCommand, Command: append([]string{"holdfast", "agent"}, words...),
			Env: map[string]string{"GORACE": noExitSleep},
		},
	}
}

// noExitSleep keeps a child that is this binary, built with the race detector, from
// sleeping a second when it ends.
const noExitSleep = "atexit_sleep_ms=0"

// run executes one run to its end and returns its ended report.
func (r *rig) run(t *testing.T, m queue.RunMessage) queue.Report {
	t.Helper()
	r.deliver(m)
	return r.endOf(t)
}

// endOf waits for the ended report, and for the message to be done with.
func (r *rig) endOf(t *testing.T) queue.Report {
	t.Helper()
	for {
		report := next(t, r.reports)
		if report.Kind != queue.ReportEnded {
			continue
		}
		if d := next(t, r.ended); d != queue.Done {
			t.Errorf("the message ended as %q, want done", d)
		}
		return report
	}
}

func (r *rig) log(t *testing.T, m queue.RunMessage) string {
	t.Helper()
	text, err := os.ReadFile(runner.LogPath(r.dir, m.Run, 1))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// next is the next value, which must come.
func next[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// eventually waits until holds; what it waits for happens in another process.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("never: %s", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// pidIn waits for a process to write its pid into a file.
func pidIn(t *testing.T, path string) int {
	t.Helper()
	var pid int
	eventually(t, "a pid in "+filepath.Base(path), func() bool {
		text, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(string(text))
		return err == nil
	})
	return pid
}

// alive says whether a process runs; a zombie does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	if runtime.GOOS != "linux" {
		return true
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && len(text) > 0
}

func empty(t *testing.T, folder string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if len(names) > 0 {
		t.Errorf("%s holds %s", filepath.Base(folder), strings.Join(names, ", "))
	}
}
