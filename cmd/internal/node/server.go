package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/queue/nats"
	"github.com/holdfast-io/holdfast/pkg/server"
)

// Server is one of any number of servers over the same stores and the same NATS. It
// has no state of its own: whatever it knows is stored, so it may be killed at any
// moment, and another one goes on.
type Server struct {
	options     Options
	lobby       *lobby       // until the server is open
	listener    net.Listener // nil until then
	closeStores func() error
	bus         *nats.Bus
	core        *core
	relay       *relay
	health      *health
}

// OpenStores opens what all servers share. It is called again while its error says that
// the stores are unavailable. close gives them back.
type OpenStores func(ctx context.Context) (stores Stores, close func() error, err error)

// reachWithin bounds one try to reach NATS, or to make the queue there.
const reachWithin = 15 * time.Second

// OpenServer takes the port, opens the stores, connects to NATS and makes the queue's
// streams where they are missing. What does not answer yet is waited for, with a line in
// the log for every try, for as long as [config.Options.StartWait] says; the port
// answers meanwhile that the server lives and is not ready. Errors name what could not
// be reached.
func OpenServer(ctx context.Context, o Options, open OpenStores) (s *Server, err error) {
	s = &Server{options: o, closeStores: func() error { return nil }}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
			s = nil
		}
	}()
	if s.lobby, err = openLobby(ctx, o.Settings.Addr, o.Log, nil); err != nil {
		return s, err
	}
	patient, cancel := patience(ctx, o.Settings.StartWait)
	defer cancel()
	w := newWatcher(server.NewBroker(clock.System{}), o.Log)
	s.health = newHealth(o, w)
	var stores Stores
	err = s.lobby.await(patient, o.Log, "records", "the database", func(ctx context.Context) error {
		opened, closing, err := open(ctx)
		if err == nil {
			stores, s.closeStores = opened, closing
		}
		return err
	})
	if err != nil {
		return s, fmt.Errorf("open the database: %w", err)
	}
	if err = s.openQueue(patient, w); err != nil {
		return s, err
	}
	err = s.lobby.await(patient, o.Log, "records", "the database", func(ctx context.Context) error { return s.openCore(ctx, w, stores) })
	if err != nil {
		return s, fmt.Errorf("open the stores: %w", err)
	}
	if s.relay, err = newRelay(s.bus, s.core, o.Log); err != nil {
		return s, err
	}
	if err = s.health.open(ctx, s.core, stores); err != nil {
		return s, err
	}
	s.listener, err = s.lobby.leave(ctx)
	return s, err
}

// openCore builds everything above the stores and the queue.
func (s *Server) openCore(ctx context.Context, w *watcher, stores Stores) error {
	o := s.options.Settings
	rates, err := launch.NewSharedBuckets(ctx, w.watch(stores.Records, o.Lease))
	if err != nil {
		return err
	}
	s.core, err = newCore(ctx, s.options, w, base{
		stores: stores, bus: s.bus, rates: rates,
		serving: server.Options{
			Ready: s.health.notReady, Warnings: s.health.warned, Logs: s.logs(), MetricsToken: o.MetricsToken,
			AllowedHosts: o.AllowedHosts, AnyHost: len(o.AllowedHosts) == 1 && o.AllowedHosts[0] == "*",
		},
	})
	if err != nil {
		return err
	}
	if o.OperatorToken == "" {
		has, err := s.core.tokens.HasOperator(ctx)
		if err == nil && !has {
			s.options.Log.Warn("no operator's token was given, and the database has none: set HOLDFAST_OPERATOR_TOKEN, or nobody can set the deployment up")
		}
		return err
	}
	if err := s.core.tokens.EnsureOperator(ctx, o.OperatorToken); err != nil {
		return fmt.Errorf("the operator's token: %w", err)
	}
	return nil
}

// openQueue connects to NATS and makes the streams.
func (s *Server) openQueue(ctx context.Context, w *watcher) error {
	remote, options := queueOf(s.options, w.queue(), nats.ServerInbox)
	remote.Lost, remote.Back = s.health.queueLost, s.health.queueBack
	err := s.lobby.await(ctx, s.options.Log, "queue", "NATS", func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, reachWithin)
		defer cancel()
		s.bus, err = nats.Dial(ctx, remote, options)
		return err
	})
	if err != nil {
		return err
	}
	err = s.lobby.await(ctx, s.options.Log, "queue", "the queue in NATS", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, reachWithin)
		defer cancel()
		return s.bus.Prepare(ctx)
	})
	if err != nil {
		return fmt.Errorf("prepare the queue: %w", err)
	}
	return nil
}

// queueOf is how a process of many machines reaches the queue.
func queueOf(o Options, events nats.Events, inbox string) (nats.Remote, nats.Options) {
	s := o.Settings
	return nats.Remote{
			URL: s.NATSURL, Name: "holdfast " + processName(s), Inbox: inbox, Creds: s.NATSCreds, NKey: s.NATSNKey, CA: s.NATSCA, Cert: s.NATSCert, Key: s.NATSKey,
		}, nats.Options{
			Lease: s.Lease, Pool: s.Pool, Replicas: s.NATSReplicas, MaxAckPending: s.NATSMaxAckPending, LogBytes: int64(s.LogMiB) << 20, Log: o.Log, Events: events,
		}
}

// processName is the process's own name: as it was set, else that of its machine and
// its number there.
func processName(s config.Options) string {
	host, err := os.Hostname()
	if err != nil {
		host = "holdfast"
	}
	return cmp.Or(s.Name, host+"-"+strconv.Itoa(os.Getpid()))
}

// logs reads the output of runs, which runners ship; nil when none is kept.
func (s *Server) logs() func(context.Context, holdfast.RunID) (server.LogFile, error) {
	if s.options.Settings.LogMiB == 0 {
		return nil
	}
	return func(ctx context.Context, id holdfast.RunID) (server.LogFile, error) {
		run, err := s.core.runs.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		log, err := s.bus.OpenLog(ctx, id, run.Attempt)
		if err != nil {
			return nil, err
		}
		return log, nil
	}
}

// URL is where the API answers.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// Run serves until ctx ends; then it is not ready any more, lets what callers and
// runners asked be answered, and returns nil. started is called once everything runs.
// It sweeps nothing for one lease from its opening on, and after every outage.
func (s *Server) Run(ctx context.Context, started func()) error {
	carriers := append(s.core.carriers(), s.relay.run, s.health.run)
	return s.core.serve(ctx, s.listener, nil, carriers, s.health.serving, started)
}

// Close gives back the port, the connection to NATS and the stores.
func (s *Server) Close() error {
	if s.relay != nil {
		s.relay.close()
	}
	if s.bus != nil {
		s.bus.Close()
	}
	err := s.closeStores()
	switch {
	case s.listener != nil:
		if failed := s.listener.Close(); !errors.Is(failed, net.ErrClosed) {
			err = errors.Join(err, failed)
		}
	case s.lobby != nil:
		err = errors.Join(err, s.lobby.close())
	}
	return err
}
