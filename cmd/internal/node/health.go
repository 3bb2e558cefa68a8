package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/queue/nats"
	"github.com/holdfast-io/holdfast/pkg/records"
)

const (
	// healthEvery is how often a server looks whether it can do its work. It does so by
	// itself and not when it is asked, so that asking costs nothing.
	healthEvery = 2 * time.Second
	// healthWithin bounds one look, and healthOld is when the last one says nothing any
	// more.
	healthWithin, healthOld = 5 * time.Second, 15 * time.Second
	// maxSkew is how far this machine's clock may be from the queue's. Beyond it leases
	// are not safe: the allowed skew of two servers is used up.
	maxSkew = 10 * time.Second
)

// replica is the record that a server writes to show that it can.
type replica struct {
	Name    string    `json:"name"`
	Version string    `json:"version"`
	Seen    time.Time `json:"seen"`
	// Agreed is how the server is set, where all must be set alike.
	Agreed map[string]string `json:"agreed,omitempty"`
}

// replicaKept is how long the record of a server that is gone stays.
const replicaKept = 24 * time.Hour

// health knows whether a server can do its work: write to the record store, read the
// ledger, reach the queue and all its parts, and trust its clock. It also looks after
// the queue's streams, and tells when holders could not renew.
type health struct {
	options  Options
	watcher  *watcher
	clock    clock.Clock
	bus      *nats.Bus
	core     *core
	replicas *records.Table[replica]
	wake     chan struct{}

	mu       sync.Mutex
	running  bool
	looked   time.Time
	skew     time.Duration // as the queue was last seen
	problems map[string]string
	differ   []string // how others are set otherwise
	compared time.Time
}

func newHealth(o Options, w *watcher) *health {
	return &health{options: o, watcher: w, clock: clock.System{}, wake: make(chan struct{}, 1)}
}

// open makes the server's own record and takes the first look.
func (h *health) open(ctx context.Context, c *core, stores Stores) (err error) {
	h.core, h.bus = c, c.bus
	h.replicas, err = records.NewTable(ctx, stores.Records, records.Schema{Name: "replicas"}, func(r replica) string { return r.Name }, nil)
	if err != nil {
		return fmt.Errorf("open the stores: %w", err)
	}
	if err := h.forget(ctx); err != nil {
		h.options.Log.Warn("the records of servers that are gone could not be removed", "error", err)
	}
	h.look(ctx)
	return nil
}

// forget removes what servers left that are long gone.
func (h *health) forget(ctx context.Context) error {
	all, _, err := h.replicas.List(ctx, records.Query{Limit: 1000})
	if err != nil {
		return err
	}
	for _, r := range all {
		if h.clock.Now().Sub(r.Value.Seen) > replicaKept {
			err = errors.Join(err, h.replicas.Delete(ctx, r.Value.Name))
		}
	}
	return err
}

// run looks every period, and at once when the queue came back.
func (h *health) run(ctx context.Context) error {
	tick := time.NewTicker(min(healthEvery, h.options.Settings.Lease/4))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-h.wake:
		}
		h.look(ctx)
	}
}

// look finds out what is wrong. A queue that is away is an outage for as long as it
// is: nobody can renew, so nobody is held dead.
func (h *health) look(ctx context.Context) {
	began := h.clock.Now()
	ctx, cancel := context.WithTimeout(ctx, healthWithin)
	defer cancel()
	var mu sync.Mutex
	found := map[string]string{}
	var looking sync.WaitGroup
	for name, check := range map[string]func(context.Context) error{"records": h.write, "ledger": h.read, "queue": h.queue} {
		looking.Go(func() {
			if err := check(ctx); err != nil {
				mu.Lock()
				found[name] = err.Error()
				mu.Unlock()
				h.watcher.outage()
			}
		})
	}
	looking.Wait()
	h.agree(ctx)
	if h.clock.Now().Sub(began) > h.options.Settings.Lease/2 { // it sat an outage out
		h.watcher.outage()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.skew.Abs() > maxSkew {
		found["clock"] = fmt.Sprintf("this machine's clock and that of NATS are %v apart; at most %v is safe", h.skew.Abs().Round(time.Second), maxSkew)
	}
	h.tell(found)
	h.problems, h.looked = found, h.clock.Now()
}

// tell logs what came and what went; the lock is held.
func (h *health) tell(found map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if _, known := h.problems[name]; !known {
			h.options.Log.Error("not ready", "check", name, "problem", found[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.problems)) {
		if _, still := found[name]; !still {
			h.options.Log.Info("ready again", "check", name)
		}
	}
}

// write shows that the record store takes writes.
func (h *health) write(ctx context.Context) error {
	mine := replica{Name: processName(h.options.Settings), Version: h.options.Version, Seen: h.clock.Now(), Agreed: agreed(h.options.Settings)}
	_, err := h.replicas.Update(ctx, mine.Name, func(r *replica) error { *r = mine; return nil })
	if errors.Is(err, records.ErrNotFound) {
		_, err = h.replicas.Insert(ctx, mine)
	}
	if errors.Is(err, records.ErrExists) || errors.Is(err, records.ErrRevision) { // another one of the same name wrote
		return nil
	}
	return err
}

// read shows that the ledger answers.
func (h *health) read(ctx context.Context) error {
	_, err := h.core.ledger.Subjects(ctx, "", 1)
	return err
}

// queue shows that NATS has every part of the queue, and makes what it lost.
func (h *health) queue(ctx context.Context) error {
	if !h.bus.Connected() {
		return errors.New("NATS cannot be reached")
	}
	skew, err := h.bus.Check(ctx, h.clock)
	if err == nil {
		h.mu.Lock()
		h.skew = skew
		h.mu.Unlock()
	}
	if errors.Is(err, nats.ErrMissing) {
		h.options.Log.Warn("NATS lost a part of the queue; it is made again", "error", err)
		err = h.bus.Prepare(ctx)
	}
	if err != nil {
		return err
	}
	return h.pools(ctx)
}

// pools makes the runner pools that the setting names. While nobody can read it, those
// that are known stay as they are.
func (h *health) pools(ctx context.Context) error {
	setting, state := h.core.settings.RunnerPools.Lookup(ctx)
	if state == platformcfg.Never {
		return nil
	}
	var pools []nats.Pool
	for _, pool := range setting.Pools {
		pools = append(pools, nats.Pool{Name: pool.Name, MaxAckPending: pool.MaxAckPending})
	}
	return h.bus.SetPools(ctx, pools)
}

// queueLost and queueBack are told by the connection.
func (h *health) queueLost() {
	h.watcher.outage()
	h.poke()
}

func (h *health) queueBack() {
	h.watcher.outage()
	h.watcher.broker.Missed()
	h.poke()
}

func (h *health) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// serving is told when the server begins and ends to serve.
func (h *health) serving(yes bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running = yes
}

// notReady says what is not ready; it is what /readyz asks.
func (h *health) notReady(context.Context) map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	problems := maps.Clone(h.problems)
	if problems == nil {
		problems = map[string]string{}
	}
	if !h.running {
		problems["server"] = "starting or ending"
	}
	if age := h.clock.Now().Sub(h.looked); age > healthOld {
		problems["health"] = fmt.Sprintf("nobody has looked for %v", age.Round(time.Second))
	}
	return problems
}
