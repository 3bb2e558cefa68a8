package e2e_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

// outages is load on the servers of a cluster, and what they answered.
type outages struct {
	mu       sync.Mutex
	answered []string
	refused  int     // 503: a store or the queue is away
	denied   []error // no room, or so it was said
	surprise []error // what no outage explains
	stop     func()
}

// loadServers launches through all servers until stop.
func loadServers(t *testing.T, servers ...*clusterServer) *outages {
	t.Helper()
	o := &outages{}
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for i := range 4 {
		callers.Go(func() {
			for ctx.Err() == nil {
				run, err := servers[i%len(servers)].Launch(ctx, worker("0.05"), "")
				o.note(ctx, run, err)
				sleep(ctx, 50*time.Millisecond)
			}
		})
	}
	o.stop = sync.OnceFunc(func() { cancel(); callers.Wait() })
	t.Cleanup(o.stop)
	return o
}

func (o *outages) note(ctx context.Context, run api.Run, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var refused *client.Refused
	var failed *client.Failed
	switch {
	case err == nil:
		o.answered = append(o.answered, run.ID)
	case ctx.Err() != nil:
	case errors.As(err, &refused):
		o.denied = append(o.denied, err)
	case errors.As(err, &failed) && failed.Problem.Status == http.StatusServiceUnavailable:
		o.refused++
	default:
		o.surprise = append(o.surprise, err)
	}
}

func (o *outages) counts() (answered, refused int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.answered), o.refused
}

// through is a MongoDB's address by way of a link.
func through(t *testing.T, uri string) (*link, string) {
	t.Helper()
	u, err := url.Parse(uri)
	if err != nil {
		t.Fatal("the address of the MongoDB cannot be read")
	}
	host, _, _ := strings.Cut(u.Host, ",")
	if u.Port() == "" {
		host += ":27017"
	}
	l := newLink(t, host)
	u.Host = l.listener.Addr().String()
	q := u.Query()
	q.Set("directConnection", "true") // else the driver looks for the others by itself
	u.RawQuery = q.Encode()
	return l, u.String()
}

// What servers share is taken away under load, for a moment and for longer than a lease.
// They say so, answer 503, and when it is back nothing that was answered is lost, nobody
// who could not renew is expired for it, and nothing stays held.
func TestWhatServersShareIsTakenAwayUnderLoad(t *testing.T) {
	for name, c := range map[string]struct {
		check string
		cut   func(*testing.T, *cluster) (*link, string)
	}{
		"MongoDB": {"records", func(t *testing.T, c *cluster) (*link, string) {
			at := slices.IndexFunc(c.env, func(e string) bool { return strings.HasPrefix(e, "HOLDFAST_MONGO_URI=") })
			l, uri := through(t, strings.TrimPrefix(c.env[at], "HOLDFAST_MONGO_URI="))
			return l, "HOLDFAST_MONGO_URI=" + uri
		}},
		"NATS": {"queue", func(t *testing.T, c *cluster) (*link, string) {
			l := newLink(t, c.natsAddr)
			return l, "HOLDFAST_NATS_URL=nats://" + l.listener.Addr().String()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl := newCluster(t)
			cl.env = append(cl.env, "HOLDFAST_LEASE="+outageLease.String())
			link, env := c.cut(t, cl)
			direct := cl.env
			cl.env = append(slices.Clone(direct), env)
			a, b := cl.server("a"), cl.server("b")
			cl.env = direct
			cl.runner("x")
			cl.stage(a, 64)
			takenAway(t, cl, link, c.check, a, b)
		})
	}
}

// The times of these tests: the lease outlives a short outage by far, so that a slow
// machine does not lose it.
const (
	outageLease  = 10 * time.Second
	outageShort  = outageLease / 8
	outageReturn = outageLease + clusterReturn - clusterLease
)

func takenAway(t *testing.T, c *cluster, l *link, check string, a, b *clusterServer) {
	live := a.mustLaunch(t, "3")
	started(t, b, live.ID)
	o := loadServers(t, a, b)
	eventually(t, 30*time.Second, "launches are answered", func() bool { n, _ := o.counts(); return n > 5 })

	l.cut()
	time.Sleep(outageShort) // a moment: no fence and no lease ends
	l.mend()
	if run := ended(t, b, live.ID, 30*time.Second); run.Status != "finished" || run.Attempt != 1 {
		t.Errorf("a run that lived through a short outage is %s (%s) after %d attempts", run.Status, run.StatusReason, run.Attempt)
	}

	request := worker("0.05")
	request.External = true
	held, err := a.Launch(t.Context(), request, "")
	if err != nil {
		t.Fatal(err)
	}
	l.cut()
	began := time.Now()
	for _, s := range []*clusterServer{a, b} {
		eventually(t, 30*time.Second, "the server says that it is not ready", func() bool {
			health, err := s.Ready(t.Context())
			return err == nil && health.Status == "not_ready" && health.Checks[check] != ""
		})
	}
	eventually(t, 30*time.Second, "a launch is answered 503", func() bool { _, n := o.counts(); return n > 0 })
	if left := outageReturn + time.Second - time.Since(began); left > 0 {
		time.Sleep(left) // longer than a lease, skew and sweep
	}
	l.mend()
	for _, s := range []*clusterServer{a, b} {
		eventually(t, 30*time.Second, "the server is ready again", func() bool {
			health, err := s.Ready(t.Context())
			return err == nil && health.Status == "ok"
		})
	}
	if beat, err := b.Heartbeat(t.Context(), held.ID, api.Heartbeat{SpentUSD: 1000}); err != nil || beat.Stop {
		t.Errorf("who could not renew during the outage was expired for it: %+v, %v", beat, err)
	}
	if _, err := a.Settle(t.Context(), held.ID, api.Settle{SpentUSD: 2000, Outcome: "finished"}); err != nil {
		t.Error(err)
	}
	before, refused := o.counts()
	eventually(t, 30*time.Second, "launches are answered again", func() bool { n, _ := o.counts(); return n > before+10 })
	o.stop()
	for _, err := range o.surprise {
		t.Errorf("an answer that no outage explains: %v", err)
	}
	statuses := map[string]int{}
	for _, id := range o.answered {
		run := ended(t, b, id, 60*time.Second)
		statuses[strings.TrimSpace(run.Status+" "+run.StatusReason)]++
		honest := run.Status == "finished" || run.Status == "failed_resumable" && (run.StatusReason == "lease_lost" || run.StatusReason == "interrupted")
		if !honest {
			t.Errorf("%s was answered and is %s (%s)", id, run.Status, run.StatusReason)
		}
	}
	eventually(t, outageReturn+machineSlack, "nothing is held", func() bool { return slotsHeld(t, a) == 0 })
	c.runOnce()
	t.Logf("%d launches were answered, %d were 503: %v", len(o.answered), refused, statuses)
}
