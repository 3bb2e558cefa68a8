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
	options  Options
	listener net.Listener
	bus      *nats.Bus
	core     *core
	relay    *relay
	health   *health
}

// reachWithin is how long a server or a runner looks for NATS when it starts.
const reachWithin = 60 * time.Second

// OpenServer takes the port, connects to NATS, makes the queue's streams where they
// are missing, and builds the server over the stores, which stay the caller's. Errors
// name what could not be reached.
func OpenServer(ctx context.Context, o Options, stores Stores) (s *Server, err error) {
	s = &Server{options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
			s = nil
		}
	}()
	if s.listener, err = listen(ctx, o.Settings.Addr); err != nil {
		return s, err
	}
	w := newWatcher(server.NewBroker(clock.System{}), o.Log)
	rates, err := launch.NewSharedBuckets(ctx, watched{stores.Records, w.outage})
	if err != nil {
		return s, fmt.Errorf("open the stores: %w", err)
	}
	s.health = newHealth(o, w)
	if err = s.openQueue(ctx, w); err != nil {
		return s, err
	}
	s.core, err = newCore(ctx, o, w, base{
		stores: stores, bus: s.bus, rates: rates,
		serving: server.Options{
			Ready: s.health.notReady, Logs: s.logs(), MetricsToken: o.Settings.MetricsToken,
			AllowedHosts: o.Settings.AllowedHosts, AnyHost: len(o.Settings.AllowedHosts) == 1 && o.Settings.AllowedHosts[0] == "*",
		},
	})
	if err != nil {
		return s, fmt.Errorf("open the stores: %w", err)
	}
	if o.Settings.OperatorToken != "" {
		if err = s.core.tokens.EnsureOperator(ctx, o.Settings.OperatorToken); err != nil {
			return s, fmt.Errorf("the operator's token: %w", err)
		}
	}
	if s.relay, err = newRelay(s.bus, s.core, o.Log); err != nil {
		return s, err
	}
	return s, s.health.open(ctx, s.core, stores)
}

// openQueue connects to NATS and makes the streams.
func (s *Server) openQueue(ctx context.Context, w *watcher) (err error) {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	remote, options := queueOf(s.options, w.queue())
	remote.Lost, remote.Back = s.health.queueLost, s.health.queueBack
	if s.bus, err = nats.Dial(ctx, remote, options); err != nil {
		return err
	}
	if err = s.bus.Prepare(ctx); err != nil {
		return fmt.Errorf("prepare the queue: %w", err)
	}
	return nil
}

// queueOf is how a process of many machines reaches the queue.
func queueOf(o Options, events nats.Events) (nats.Remote, nats.Options) {
	s := o.Settings
	return nats.Remote{
			URL: s.NATSURL, Name: "holdfast " + processName(s), Creds: s.NATSCreds, NKey: s.NATSNKey, CA: s.NATSCA, Cert: s.NATSCert, Key: s.NATSKey,
		}, nats.Options{
			Lease: s.Lease, Replicas: s.NATSReplicas, MaxAckPending: s.NATSMaxAckPending, LogBytes: int64(s.LogMiB) << 20, Log: o.Log, Events: events,
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

// Close gives back the port and the connection to NATS.
func (s *Server) Close() error {
	if s.relay != nil {
		s.relay.close()
	}
	if s.bus != nil {
		s.bus.Close()
	}
	if s.listener != nil {
		if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
	}
	return nil
}
