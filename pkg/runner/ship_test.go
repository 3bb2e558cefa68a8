package runner_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/queue/nats"
	"github.com/holdfast-io/holdfast/pkg/runner"
)

var _ runner.LogKeeper = (*nats.Bus)(nil)

// keeper keeps output in memory and fails as long as it is told to.
type keeper struct {
	mu    sync.Mutex
	text  []byte
	away  int // calls that fail
	calls chan string
}

func (k *keeper) AppendLog(_ context.Context, _ holdfast.RunID, _ int, offset int64, piece []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case k.calls <- string(piece):
	default:
	}
	if k.away > 0 {
		k.away--
		return errors.New("the keeper is away")
	}
	k.text = append(k.text[:offset], piece...)
	return nil
}

func (k *keeper) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return string(k.text)
}

func TestOutputIsShippedWhileTheChildRunsAndCompleteBeforeItsEndIsReported(t *testing.T) {
	q, k := newFake(), &keeper{away: 2, calls: make(chan string, 64)}
	var shown string
	q.publish = func(r queue.Report) error {
		if r.Kind == queue.ReportEnded {
			shown = k.String()
		}
		return nil
	}
	r := newRig(t, q, runner.Options{Logs: k})
	pid := filepath.Join(t.TempDir(), "pid")
	r.deliver(agentRun("print=early", "spew=20000", "pid="+pid, "on-term-exit=0", "hold"))
	pidIn(t, pid)
	eventually(t, "the output of a living child is shipped", func() bool { return len(k.String()) > 100_000 })
	r.cancel("R1")
	r.endOf(t)
	if want := r.log(t, agentRun()); shown != want || len(want) < 200_000 {
		t.Errorf("when the end was reported %d bytes were shipped of %d", len(shown), len(want))
	}
}

func TestACommandThatWasNotStartedShipsWhy(t *testing.T) {
	k := &keeper{calls: make(chan string, 64)}
	r := newRig(t, newFake(), runner.Options{Logs: k})
	m := agentRun()
	m.Bot.Command = nil
	if ended := r.run(t, m); ended.Ending != queue.EndStartFailed {
		t.Errorf("it ended as %s", ended.Ending)
	}
	if k.String() == "" {
		t.Error("nothing was shipped")
	}
}

func TestNothingStartsWhoseStartCannotBeMadeKnown(t *testing.T) {
	q := newFake()
	q.publish = func(r queue.Report) error {
		if r.Kind == queue.ReportStarted {
			return errors.New("the queue is away")
		}
		return nil
	}
	r := newRig(t, q, runner.Options{})
	touched := filepath.Join(t.TempDir(), "touched")
	if ended := r.run(t, agentRun("touch="+touched)); ended.Ending != queue.EndInterrupted {
		t.Errorf("it ended as %s, want interrupted: it can be gone on with", ended.Ending)
	}
	if _, err := os.Stat(touched); err == nil {
		t.Error("the command ran, and another runner may run it again")
	}
	empty(t, filepath.Join(r.dir, "children"))
}

// draining is a runner that two contexts end.
func draining(t *testing.T, q *fake) (taking, last context.CancelFunc, done chan error) {
	t.Helper()
	r, err := runner.New(q, runner.Options{DataDir: t.TempDir(), Heartbeat: 20 * time.Millisecond, DrainGrace: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	take, taking := context.WithCancel(context.Background())
	live, last := context.WithCancel(context.Background())
	done = make(chan error, 1)
	go func() { done <- r.Drain(take, live) }()
	t.Cleanup(func() { taking(); last() })
	return taking, last, done
}

func TestARunnerThatDrainsLetsItsChildrenFinishAndTakesNothingNew(t *testing.T) {
	q := newFake()
	taking, _, done := draining(t, q)
	pid := filepath.Join(t.TempDir(), "pid")
	q.deliver(agentRun("pid="+pid, "on-term-exit=0", "hold"))
	child := pidIn(t, pid)
	taking()
	for range 3 { // it goes on renewing
		<-q.extended
	}
	if !alive(child) {
		t.Error("the child was stopped when the drain began")
	}
	if err := syscall.Kill(child, syscall.SIGTERM); err != nil { // it finishes by itself
		t.Fatal(err)
	}
	if err := next(t, done); err != nil {
		t.Error(err)
	}
	q.deliver(agentRun())
	for len(q.reports) > 0 {
		if r := next(t, q.reports); r.Kind == queue.ReportEnded && r.Ending != queue.EndFinished {
			t.Errorf("it ended as %s", r.Ending)
		}
	}
	if len(q.deliveries) != 1 {
		t.Error("a message was taken after the drain began")
	}
}

func TestTheEndOfADrainInterruptsWhatStillRuns(t *testing.T) {
	q := newFake()
	taking, last, done := draining(t, q)
	pid := filepath.Join(t.TempDir(), "pid")
	q.deliver(agentRun("ignore-term", "pid="+pid, "hold"))
	child := pidIn(t, pid)
	taking()
	last()
	if err := next(t, done); err != nil {
		t.Error(err)
	}
	if alive(child) {
		t.Error("the child outlived the drain")
	}
	var ended queue.Report
	for len(q.reports) > 0 {
		ended = next(t, q.reports)
	}
	if ended.Kind != queue.ReportEnded || ended.Ending != queue.EndInterrupted {
		t.Errorf("the last report is %+v, want an interrupted end", ended)
	}
}
