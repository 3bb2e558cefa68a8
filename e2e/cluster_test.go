package e2e_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

func TestTwoServersGiveTheLastSlotOnceAndBothServeItsRun(t *testing.T) {
	c := newCluster(t)
	a, b := c.server("a"), c.server("b")
	c.runner("x")
	c.runner("y")
	c.stage(a, 1)
	for round := range 10 {
		var mu sync.Mutex
		var won []string
		var all sync.WaitGroup
		for i := range 32 {
			all.Go(func() {
				run, err := []*clusterServer{a, b}[i%2].Launch(t.Context(), worker("0.05"), "")
				var refused *client.Refused
				switch {
				case err == nil:
					mu.Lock()
					won = append(won, run.ID)
					mu.Unlock()
				case !errors.As(err, &refused) || refused.Problem.Reason != "concurrency_cap_exceeded":
					t.Error(err)
				}
			})
		}
		all.Wait()
		if len(won) == 0 {
			t.Fatalf("round %d: nobody got the slot", round)
		}
		// Whoever came after the first one's end may have had it too; never two at once.
		for _, id := range won {
			run := ended(t, b, id, 30*time.Second)
			if run.Status != "finished" || run.Attempt != 1 {
				t.Errorf("round %d: %s is %s after %d attempts", round, id, run.Status, run.Attempt)
			}
		}
		eventually(t, 10*time.Second, "the slot is back", func() bool { return slotsHeld(t, a) == 0 })
	}
	c.runOnce()
	neverTwoAtOnce(t, b)
}

// neverTwoAtOnce: of the finished runs no two overlap, as their documents have it.
func neverTwoAtOnce(t *testing.T, s *clusterServer) {
	t.Helper()
	page, err := s.Runs(t.Context(), client.RunFilter{Team: "acme", Window: client.Window{Limit: 500}})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(page.Items, func(x, y api.Run) int { return x.StartedAt.Compare(y.StartedAt) })
	for i := 1; i < len(page.Items); i++ {
		if before, run := page.Items[i-1], page.Items[i]; run.StartedAt.Before(before.EndedAt.Add(-50*time.Millisecond)) && run.CreatedAt.Before(before.EndedAt.Add(-50*time.Millisecond)) {
			t.Errorf("%s began at %v, before %s ended at %v", run.ID, run.StartedAt, before.ID, before.EndedAt)
		}
	}
}

// runOnce: no run's command began twice.
func (c *cluster) runOnce() {
	c.t.Helper()
	for run, n := range c.executions() {
		if n != 1 {
			c.t.Errorf("the command of %s began %d times", run, n)
		}
	}
}

func TestAServerKilledWhileItLaunchesLosesNothingThatItAnswered(t *testing.T) {
	c := newCluster(t)
	b := c.server("b")
	c.stage(b, 64)
	c.runner("x")
	answered := map[string]bool{}
	for round := range rounds(t, "HOLDFAST_TEST_CLUSTER_ROUNDS", 4) {
		a := c.server("a")
		var mu sync.Mutex
		var callers sync.WaitGroup
		n := 0
		for range 8 {
			callers.Go(func() {
				for {
					run, err := a.Launch(t.Context(), worker("0.05"), "")
					var refused *client.Refused
					if errors.As(err, &refused) {
						time.Sleep(10 * time.Millisecond)
						continue
					}
					if err != nil {
						return
					}
					mu.Lock()
					answered[run.ID] = true
					n++
					mu.Unlock()
				}
			})
		}
		eventually(t, 30*time.Second, "a launches", func() bool { mu.Lock(); defer mu.Unlock(); return n > 10+7*round })
		a.kill()
		callers.Wait()
	}
	for id := range answered {
		if run := ended(t, b, id, 60*time.Second); run.Status != "finished" || run.Attempt != 1 {
			t.Errorf("%s was answered and is %s (%s) after %d attempts", id, run.Status, run.StatusReason, run.Attempt)
		}
	}
	eventually(t, clusterReturn+machineSlack, "what was not answered holds nothing", func() bool { return slotsHeld(t, b) == 0 })
	c.runOnce()
	t.Logf("%d launches were answered", len(answered))
}

func TestARunnerKilledWhileItRunsGivesItsSlotsBackAndNobodyRunsThemAgain(t *testing.T) {
	c := newCluster(t)
	a, b := c.server("a"), c.server("b")
	c.stage(a, 8)
	x := c.runner("x")
	var lost []string
	for range 3 {
		lost = append(lost, a.mustLaunch(t, "60").ID)
	}
	for _, id := range lost {
		started(t, b, id)
	}
	c.runner("y")
	x.kill()
	killed := time.Now()
	eventually(t, clusterReturn+machineSlack, "the slots are back", func() bool { return slotsHeld(t, b) == 0 })
	t.Logf("the slots were back %.1f s after the runner's death; lease + skew + sweep are %v", time.Since(killed).Seconds(), clusterReturn)
	for _, id := range lost {
		if run := ended(t, b, id, time.Second); run.Status != "failed_resumable" || run.StatusReason != "lease_lost" {
			t.Errorf("%s is %s because of %q", id, run.Status, run.StatusReason)
		}
	}
	c.runner("x") // on the same folder: it ends what its former self left
	if left := processes(t, c.marker); len(left) > 0 {
		t.Errorf("the runner is ready and children of its former self live: %v", left)
	}
	for _, id := range lost {
		eventually(t, 10*time.Second, id+" is told to be interrupted", func() bool {
			run, err := a.Run(t.Context(), id)
			return err == nil && run.Status == "failed_resumable" && run.StatusReason == "interrupted"
		})
	}
	c.runOnce()
	resumed, err := b.Resume(t.Context(), lost[0])
	if err != nil {
		t.Fatal(err)
	}
	if run := started(t, a, resumed.ID); run.Attempt != 2 {
		t.Errorf("it is resumed as attempt %d", run.Attempt)
	}
	if _, err := a.Cancel(t.Context(), resumed.ID); err != nil {
		t.Fatal(err)
	}
	if run := ended(t, b, resumed.ID, 10*time.Second); run.Status != "cancelled" {
		t.Errorf("it is %s", run.Status)
	}
}

func TestTheQueuesDataLostUnderLoadLosesNoAnsweredLaunch(t *testing.T) {
	c := newCluster(t)
	servers := []*clusterServer{c.server("a"), c.server("b")}
	c.stage(servers[0], 256)
	c.runner("x")
	c.runner("y")
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	answered := map[string]bool{}
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for ctx.Err() == nil {
				run, err := servers[i%2].Launch(ctx, worker("0.3"), "")
				if err != nil { // refused, or 503 while NATS is away
					time.Sleep(20 * time.Millisecond)
					continue
				}
				mu.Lock()
				answered[run.ID] = true
				mu.Unlock()
			}
		})
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(answered) }
	eventually(t, 30*time.Second, "launches are answered", func() bool { return count() > 20 })
	c.nats.kill()
	if err := os.RemoveAll(filepath.Join(c.dir, "nats")); err != nil {
		t.Fatal(err)
	}
	before := count()
	c.startNATS()
	eventually(t, 30*time.Second, "launches are answered again", func() bool { return count() > before+10 })
	cancel()
	callers.Wait()
	statuses := map[string]int{}
	for id := range answered {
		run := ended(t, servers[1], id, 90*time.Second)
		word := run.Status
		if run.StatusReason != "" {
			word += " " + run.StatusReason
		}
		statuses[word]++
		honest := run.Status == "finished" || (run.Status == "failed_resumable" && (run.StatusReason == "lease_lost" || run.StatusReason == "interrupted"))
		if !honest {
			t.Errorf("%s was answered and is %s", id, word)
		}
	}
	for run, n := range c.executions() {
		if n != 1 && answered[run] {
			t.Errorf("the command of %s began %d times", run, n)
		}
	}
	eventually(t, clusterReturn+machineSlack, "nothing is held", func() bool { return slotsHeld(t, servers[0]) == 0 })
	t.Logf("%d launches were answered: %v", len(answered), statuses)
}

func TestProcessesOfAClusterEndPolitely(t *testing.T) {
	c := newCluster(t)
	a, b := c.server("a"), c.server("b")
	c.stage(a, 8)
	x := c.runner("x")
	run := a.mustLaunch(t, "2")
	started(t, a, run.ID)
	log, err := b.Logs(t.Context(), run.ID, 0, false)
	if err == nil {
		log.Close()
	}
	if code := x.term(t, 20*time.Second); code != 0 {
		t.Errorf("the runner ended with %d on TERM\n%s", code, x.output)
	}
	if run := ended(t, b, run.ID, 10*time.Second); run.Status != "finished" {
		t.Errorf("a runner that drains lets its run finish; it is %s (%s)", run.Status, run.StatusReason)
	}
	y := c.runner("y")
	cut := a.mustLaunch(t, "60")
	started(t, a, cut.ID)
	y.cmd.Process.Signal(syscall.SIGTERM)
	eventually(t, 10*time.Second, "it drains", func() bool { return strings.Contains(y.output.String(), "draining") })
	if code := y.term(t, 12*time.Second); code != 0 { // the second one
		t.Errorf("the runner ended with %d on a second TERM\n%s", code, y.output)
	}
	if run := ended(t, b, cut.ID, 5*time.Second); run.Status != "failed_resumable" || run.StatusReason != "interrupted" {
		t.Errorf("what a second TERM cuts is %s (%s)", run.Status, run.StatusReason)
	}
	if left := processes(t, c.marker); len(left) > 0 {
		t.Errorf("children outlive their runner: %v", left)
	}
	for name, s := range map[string]*clusterServer{"a": a, "b": b} {
		if code := s.term(t, 15*time.Second); code != 0 {
			t.Errorf("server %s ended with %d on TERM\n%s", name, code, s.output)
		}
	}
}

// link carries connections while it is not cut.
type link struct {
	listener net.Listener
	mu       sync.Mutex
	open     []net.Conn
	isCut    bool
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener}
	t.Cleanup(func() { l.listener.Close(); l.cut() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil || !l.keep(near, far) {
				near.Close()
				continue
			}
			go func() { io.Copy(far, near); far.Close() }()
			go func() { io.Copy(near, far); near.Close() }()
		}
	}()
	return l
}

func (l *link) keep(ends ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		for _, end := range ends {
			end.Close()
		}
		return false
	}
	l.open = append(l.open, ends...)
	return true
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
	for _, end := range l.open {
		end.Close()
	}
	l.open = nil
}

// mend lets connections through again.
func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = false
}

func TestARunnerThatIsCutOffStopsItsChildBeforeItsSlotIsGivenAway(t *testing.T) {
	c := newCluster(t)
	a := c.server("a")
	c.stage(a, 1)
	l := newLink(t, c.natsAddr)
	c.env = append(c.env, "HOLDFAST_NATS_URL=nats://"+l.listener.Addr().String())
	c.runner("x")
	run := a.mustLaunch(t, "60")
	started(t, a, run.ID)
	l.cut()
	var stopped, back time.Time
	eventually(t, clusterReturn+machineSlack, "the child is stopped and the slot is back", func() bool {
		if stopped.IsZero() && len(processes(t, c.marker)) == 0 {
			stopped = time.Now()
		}
		if back.IsZero() && slotsHeld(t, a) == 0 {
			back = time.Now()
		}
		return !stopped.IsZero() && !back.IsZero()
	})
	if !stopped.Before(back) {
		t.Errorf("the slot was given away %v before the child was stopped", stopped.Sub(back))
	}
	if run := ended(t, a, run.ID, time.Second); run.Status != "failed_resumable" || run.StatusReason != "lease_lost" {
		t.Errorf("it is %s (%s)", run.Status, run.StatusReason)
	}
}

func TestARunnerThatSleptThroughItsLeaseEndsItsChildWhenItWakes(t *testing.T) {
	c := newCluster(t)
	a := c.server("a")
	c.stage(a, 1)
	x := c.runner("x")
	run := a.mustLaunch(t, "60")
	started(t, a, run.ID)
	x.cmd.Process.Signal(syscall.SIGSTOP)
	eventually(t, clusterReturn+machineSlack, "the slot is back", func() bool { return slotsHeld(t, a) == 0 })
	x.cmd.Process.Signal(syscall.SIGCONT)
	eventually(t, 15*time.Second, "the child is ended", func() bool { return len(processes(t, c.marker)) == 0 })
	if run := ended(t, a, run.ID, time.Second); run.Status != "failed_resumable" || run.StatusReason != "lease_lost" {
		t.Errorf("it is %s (%s)", run.Status, run.StatusReason)
	}
}
