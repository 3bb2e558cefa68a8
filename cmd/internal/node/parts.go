package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/audit"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/botsource"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/queue/nats"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runner"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/server"
	"github.com/holdfast-io/holdfast/pkg/store/embedded"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// runnerName is what the embedded runner calls itself.
const runnerName = "dev"

// parts is everything a node is made of, from the stores up.
type parts struct {
	clock clock.Clock

	store *embedded.Store
	queue *nats.Server
	bus   *nats.Bus // the server's connection
	work  *nats.Bus // the runner's; nil without a runner

	teams     *teams.Repository
	tokens    *auth.Tokens
	bots      *botsource.Repository
	resolver  *botsource.Resolver
	runs      *runs.Repository
	settings  *platformcfg.Settings
	decisions *decisions.Recorder
	audit     *audit.Log

	ledger  *capacityledger.Ledger
	launch  *launch.Service
	broker  *server.Broker
	feed    *server.CapacityFeed
	server  *server.Server
	runner  *runner.Runner
	watcher *watcher
}

// openParts opens the stores and builds everything above them, lowest first. ready
// is asked by /readyz.
func openParts(ctx context.Context, dir string, o Options, ready func(context.Context) map[string]string) (p *parts, err error) {
	p = &parts{clock: clock.System{}}
	p.broker = server.NewBroker(p.clock)
	p.watcher = newWatcher(p.broker, o.Log)
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
			p = nil
		}
	}()
	if p.store, err = embedded.Open(ctx, dir, embedded.Options{}); err != nil {
		return p, fmt.Errorf("open the stores: %w", err)
	}
	if err = p.openRepositories(ctx, p.store.Records(), o); err != nil {
		return p, fmt.Errorf("open the stores: %w", err)
	}
	if err = p.openQueue(dir, o); err != nil {
		return p, fmt.Errorf("open the queue: %w", err)
	}
	if err = p.openLaunch(o); err != nil {
		return p, err
	}
	if err = p.openServer(ctx, dir, o, ready); err != nil {
		return p, err
	}
	return p, p.openRunner(dir, o)
}

func (p *parts) openRepositories(ctx context.Context, db records.DB, o Options) (err error) {
	if p.teams, err = teams.New(ctx, db); err != nil {
		return err
	}
	if p.tokens, err = auth.New(ctx, db, p.clock); err != nil {
		return err
	}
	if p.bots, err = botsource.New(ctx, db); err != nil {
		return err
	}
	p.resolver = botsource.NewResolver(p.bots, botsource.Options{})
	if p.runs, err = runs.New(ctx, db); err != nil {
		return err
	}
	if p.settings, err = platformcfg.New(ctx, db, p.clock, p.watcher.settings(o.Settings.PolicyTTL)); err != nil {
		return err
	}
	if p.decisions, err = decisions.New(ctx, db, p.clock, p.watcher.decisions()); err != nil {
		return err
	}
	p.audit, err = audit.New(ctx, db, p.clock)
	return err
}

func (p *parts) openQueue(dir string, o Options) (err error) {
	p.queue, err = nats.Start(nats.Options{Dir: dir, Sync: true, Lease: o.Settings.Lease, Log: o.Log, Events: p.watcher.queue()})
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

func (p *parts) openLaunch(o Options) (err error) {
	p.ledger = capacityledger.New(p.watcher.metrics.Timed(p.store.Ledger(), stopwatch), capacityledger.Options{Clock: p.clock, Events: p.watcher.ledger()})
	s := o.Settings
	p.launch, err = launch.New(launch.Deps{
		Ledger: p.ledger, Runs: p.runs, Teams: p.teams, Bots: p.resolver, Settings: p.settings,
		Decisions: p.decisions, Audit: p.audit, Queue: p.bus,
	}, launch.Options{
		Clock: p.clock, Lease: s.Lease, Heartbeat: s.Heartbeat, LaunchLease: s.LaunchLease, Skew: s.ClockSkew, SweepEvery: s.SweepEvery,
		Stopwatch: stopwatch, Log: o.Log, Events: p.watcher.launch(), Sweep: capacityledger.SweeperOptions{Events: p.watcher.sweep()},
	})
	return err
}

// stopwatch measures on the machine's monotonic clock.
func stopwatch() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}

func (p *parts) openServer(ctx context.Context, dir string, o Options, ready func(context.Context) map[string]string) (err error) {
	p.feed = server.NewCapacityFeed(p.broker, p.subject, 0, o.Log)
	p.watcher.changed = p.feed.Changed
	p.server, err = server.New(ctx, server.Deps{
		Records: p.store.Records(), Launch: p.launch, Runs: p.runs, Teams: p.teams, Tokens: p.tokens, Bots: p.bots, Resolver: p.resolver,
		Settings: p.settings, Decisions: p.decisions, Audit: p.audit, Broker: p.broker,
	}, server.Options{
		Clock: p.clock, Log: o.Log, Version: o.Version, Ready: ready, Metrics: p.watcher.metrics.Handler(),
		Logs: func(_ context.Context, run holdfast.RunID) (server.LogFile, error) { return openLog(dir, run) },
	})
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

// subject reads one subject as an operator sees it, for the event stream.
func (p *parts) subject(ctx context.Context, s holdfast.Subject) (api.SubjectCapacity, error) {
	view, err := p.launch.CapacitySubject(ctx, auth.Principal{Name: "events", Operator: true}, s)
	if err != nil {
		return api.SubjectCapacity{}, err
	}
	return server.CapacityOnWire(view), nil
}

func (p *parts) openRunner(dir string, o Options) (err error) {
	s := o.Settings
	if s.Runners == 0 {
		return nil
	}
	p.runner, err = runner.New(p.work, runner.Options{
		Name: runnerName, DataDir: dir, Slots: s.Runners, Lease: s.Lease, Heartbeat: s.Heartbeat, Clock: p.clock, Log: o.Log, Events: p.watcher.metrics.Runner(),
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
