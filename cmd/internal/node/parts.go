package node

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/queue/nats"
	"github.com/holdfast-io/holdfast/pkg/runner"
	"github.com/holdfast-io/holdfast/pkg/server"
	"github.com/holdfast-io/holdfast/pkg/store/embedded"
)

// runnerName is what the embedded runner calls itself.
const runnerName = "dev"

// parts is everything that a node of one machine is made of: a core over the embedded
// twins, and a runner.
type parts struct {
	*core
	store  *embedded.Store
	queue  *nats.Server
	bus    *nats.Bus // the server's connection
	work   *nats.Bus // the runner's; nil without a runner
	runner *runner.Runner
}

// readiness is what /readyz asks.
type readiness interface {
	notReady(ctx context.Context) map[string]string
	warned() []string
}

// openParts opens the stores and the queue and builds everything above them.
func openParts(ctx context.Context, dir string, o Options, ready readiness) (p *parts, err error) {
	p = &parts{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
			p = nil
		}
	}()
	w := newWatcher(server.NewBroker(clock.System{}), o.Log)
	if p.store, err = embedded.Open(ctx, dir, embedded.Options{}); err != nil {
		return p, fmt.Errorf("open the stores: %w", err)
	}
	if err = p.openQueue(dir, o, w); err != nil {
		return p, fmt.Errorf("open the queue: %w", err)
	}
	p.core, err = newCore(ctx, o, w, base{
		stores: Stores{Ledger: p.store.Ledger(), Records: p.store.Records()}, bus: p.bus,
		serving: server.Options{
			Ready: ready.notReady, Warnings: ready.warned,
			Logs: func(_ context.Context, run holdfast.RunID) (server.LogFile, error) { return openLog(dir, run) },
		},
	})
	if err != nil {
		return p, fmt.Errorf("open the stores: %w", err)
	}
	return p, p.openRunner(dir, o)
}

func (p *parts) openQueue(dir string, o Options, w *watcher) (err error) {
	p.queue, err = nats.Start(nats.Options{Dir: dir, Sync: true, OnePool: true, Lease: o.Settings.Lease, Log: o.Log, Events: w.queue()})
	if err != nil {
		return err
	}
	if p.bus, err = p.queue.Connect("server"); err != nil {
		return err
	}
	if o.Settings.Runners > 0 {
		p.work, err = p.queue.Connect("runner")
	}
	return err
}

// openLog opens the output of a run's newest attempt.
func openLog(dir string, run holdfast.RunID) (*os.File, error) {
	path, _, err := runner.LatestLog(dir, run)
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}

func (p *parts) openRunner(dir string, o Options) (err error) {
	s := o.Settings
	if s.Runners == 0 {
		return nil
	}
	p.runner, err = runner.New(p.work, runner.Options{
		Name: runnerName, DataDir: dir, Slots: s.Runners, Lease: s.Lease, Heartbeat: s.Heartbeat, Clock: p.clock, Log: o.Log, Events: p.watcher.metrics.Runner(),
		Secrets: p.work, CloneWithin: s.CloneWithin, CloneLimit: int64(s.CloneMiB) << 20,
	})
	return err
}

// close gives back what was opened, newest first.
func (p *parts) close() error {
	for _, bus := range []*nats.Bus{p.work, p.bus} {
		if bus != nil {
			bus.Close()
		}
	}
	if p.queue != nil {
		p.queue.Close()
	}
	if p.store != nil {
		return p.store.Close()
	}
	return nil
}
