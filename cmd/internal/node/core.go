package node

import (
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/audit"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/botsource"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/metrics"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/queue/nats"
	"github.com/holdfast-io/holdfast/pkg/runner"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/secrets"
	"github.com/holdfast-io/holdfast/pkg/server"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// base is what a core stands on: the stores of either twin, a connection to the
// queue, and what differs between one machine and many.
type base struct {
	stores Stores
	bus    *nats.Bus
	rates  launch.RateLimiter // nil: buckets of this process
	// serving has what the API's options add to the core's own.
	serving server.Options
}

// core is everything that answers callers, runners and the clock, in `dev` as in
// `server`.
type core struct {
	clock   clock.Clock
	bus     *nats.Bus
	watcher *watcher
	broker  *server.Broker

	teams     *teams.Repository
	tokens    *auth.Tokens
	bots      *botsource.Repository
	resolver  *botsource.Resolver
	runs      *runs.Repository
	settings  *platformcfg.Settings
	decisions *decisions.Recorder
	audit     *audit.Log
	auditFor  time.Duration // zero is for ever
	vault     *secrets.Vault
	keys      *secrets.Keyring

	ledger *capacityledger.Ledger
	launch *launch.Service
	feed   *server.CapacityFeed
	server *server.Server

	surfaces surfaces
}

// newCore builds everything above the base, lowest first.
func newCore(ctx context.Context, o Options, w *watcher, b base) (*core, error) {
	c := &core{clock: clock.System{}, bus: b.bus, watcher: w, broker: w.broker}
	b.stores.Records = w.watch(b.stores.Records, o.Settings.Lease)
	if err := c.openRepositories(ctx, o.Settings, b.stores); err != nil {
		return nil, err
	}
	if err := c.openLaunch(o, b); err != nil {
		return nil, err
	}
	if err := c.openSurfaces(ctx, b.stores.Records, c.keys, o.Log); err != nil {
		return nil, err
	}
	return c, c.openServer(ctx, o, b)
}

func (c *core) openRepositories(ctx context.Context, s config.Options, stores Stores) (err error) {
	db := stores.Records
	if c.teams, err = teams.New(ctx, db); err != nil {
		return err
	}
	if c.tokens, err = auth.New(ctx, db, c.clock); err != nil {
		return err
	}
	if c.bots, err = botsource.New(ctx, db); err != nil {
		return err
	}
	c.resolver = botsource.NewResolver(c.bots, botsource.Options{})
	if c.runs, err = runs.New(ctx, db); err != nil {
		return err
	}
	if c.settings, err = platformcfg.New(ctx, db, c.clock, c.watcher.settings(s.PolicyTTL)); err != nil {
		return err
	}
	c.watcher.metrics.Policy(func() platformcfg.State {
		standing := c.settings.BudgetFloor.Standing()
		if standing.State == platformcfg.Never && !standing.InDoubt() {
			return "" // nobody has asked yet
		}
		return standing.State
	})
	if c.decisions, err = decisions.New(ctx, db, c.clock, c.watcher.decisions()); err != nil {
		return err
	}
	if c.audit, err = audit.New(ctx, db, c.clock); err != nil {
		return err
	}
	c.auditFor = time.Duration(s.KeepAudit) * 24 * time.Hour
	if c.keys, err = keyringOf(s); err != nil {
		return err
	}
	c.vault, err = secrets.NewVault(ctx, db, c.clock, c.keys)
	return err
}

func (c *core) openLaunch(o Options, b base) (err error) {
	c.ledger = capacityledger.New(c.watcher.metrics.Timed(b.stores.Ledger, stopwatch), capacityledger.Options{Clock: c.clock, Events: c.watcher.ledger()})
	s := o.Settings
	c.launch, err = launch.New(launch.Deps{
		Ledger: c.ledger, Runs: c.runs, Teams: c.teams, Bots: c.resolver, Settings: c.settings,
		Decisions: c.decisions, Audit: c.audit, Queue: c.bus,
	}, launch.Options{
		Clock: c.clock, Lease: s.Lease, Heartbeat: s.Heartbeat, LaunchLease: s.LaunchLease, Skew: s.ClockSkew, SweepEvery: s.SweepEvery,
		Rates: b.rates, Stopwatch: stopwatch, Log: o.Log, Events: c.watcher.launch(), Sweep: capacityledger.SweeperOptions{Events: c.watcher.sweep()},
	})
	if err == nil {
		c.watcher.launching.Store(c.launch)
	}
	return err
}

// stopwatch measures on the machine's monotonic clock.
func stopwatch() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}

func (c *core) openServer(ctx context.Context, o Options, b base) (err error) {
	c.feed = server.NewCapacityFeed(c.broker, c.subject, 0, o.Log)
	c.watcher.changed, c.feed.Near = c.feed.Changed, c.watcher.metrics.CapacityNear
	serving := b.serving
	serving.Clock, serving.Log, serving.Version, serving.Metrics = c.clock, o.Log, o.Version, c.watcher.metrics.Handler()
	if serving.Login, err = c.openLogin(ctx, o, b); err != nil {
		return err
	}
	c.server, err = server.New(ctx, server.Deps{
		Records: b.stores.Records, Launch: c.launch, Runs: c.runs, Teams: c.teams, Tokens: c.tokens, Bots: c.bots, Resolver: c.resolver,
		Settings: c.settings, Decisions: c.decisions, Audit: c.audit, Secrets: c.vault, Surfaces: c.surfaces.Surfaces, Broker: c.broker,
	}, serving)
	return err
}

// subject reads one subject as an operator sees it, for the event stream.
func (c *core) subject(ctx context.Context, s holdfast.Subject) (api.SubjectCapacity, error) {
	view, err := c.launch.CapacitySubject(ctx, auth.Principal{Name: "events", Operator: true}, s)
	if err != nil {
		return api.SubjectCapacity{}, err
	}
	return server.CapacityOnWire(view), nil
}

// keepAudit deletes what of the audit trail is older than it is kept.
func (c *core) keepAudit(ctx context.Context) error {
	return c.audit.Keep(ctx, c.auditFor, func(deleted int, err error) {
		if err != nil {
			c.watcher.log.Warn("the audit trail could not be cut; the next pass tries again", "error", err)
			return
		}
		c.watcher.log.Info("what was older than the audit trail is kept is deleted", "rows", deleted, "days", int(c.auditFor/(24*time.Hour)))
	})
}

// loop is work that blocks until its context ends.
type loop = func(context.Context) error

// carriers are the loops that answer runners and the clock.
func (c *core) carriers() []loop {
	return append(c.surfaces.loops(),
		c.decisions.Run, c.audit.Run, c.keepAudit, c.feed.Run, c.launch.Run,
		func(ctx context.Context) error {
			return c.watcher.metrics.Run(ctx, metrics.Sources{Ledger: c.ledger, Runs: c.runs, QueueDepth: c.bus.Depth, DeadLetters: c.bus.DeadDepth, Streams: c.broker.Subscribers}, 0)
		},
		func(ctx context.Context) error { return c.bus.ServeClaims(ctx, c.launch.Claim) },
		func(ctx context.Context) error { return c.bus.ServeSecrets(ctx, c.launch.Secrets(c.vault)) },
		func(ctx context.Context) error { return c.bus.Reports(ctx, c.launch.Apply) },
		func(ctx context.Context) error { return c.bus.Buried(ctx, c.launch.Buried) },
	)
}

// finish bounds how long what is under way may take after the context has ended.
const finish = 8 * time.Second

// serve runs until ctx ends or a loop fails. What answers callers and starts children
// (the fronts and the API) ends first; what carries their last words ends after them.
// ready is told when everything runs and when it ends, started when everything runs.
func (c *core) serve(ctx context.Context, listener net.Listener, fronts, carriers []loop, ready func(bool), started func()) error {
	inner, endInner := context.WithCancel(context.WithoutCancel(ctx))
	defer endInner()
	carrying, failed := errgroup.WithContext(inner)
	for _, carry := range carriers {
		carrying.Go(func() error { return carry(failed) })
	}
	outer, outside := errgroup.WithContext(ctx)
	outer.Go(func() error { return c.server.Serve(outside, listener) })
	for _, front := range fronts {
		outer.Go(func() error { return front(outside) })
	}
	outer.Go(func() error { // a carrier that fails ends the whole
		select {
		case <-failed.Done():
			return errors.New("a part of the process ended")
		case <-outside.Done():
			return nil
		}
	})
	ready(true)
	started()
	<-outside.Done()
	ready(false)
	err := outer.Wait()
	endInner()
	err = errors.Join(err, carrying.Wait())
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), finish/4)
	defer cancel()
	return errors.Join(err, c.decisions.Flush(last))
}

// afterAll is the sequence of the report that ends an attempt whose runner is dead:
// above every one that the runner can have sent.
const afterAll = 1 << 40

// leftover is the report of an attempt that a runner which died left.
func leftover(l runner.Leftover, name string, at time.Time) queue.Report {
	return queue.Report{
		Version: queue.MessageVersion, Run: l.Run, Attempt: l.Attempt, Sequence: afterAll, Kind: queue.ReportEnded, Runner: name,
		At: at, Spent: l.Spent, Skipped: l.Skipped, Ending: queue.EndInterrupted, Detail: "the process that ran it died",
	}
}
