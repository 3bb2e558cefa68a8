// Package server is the HTTP side of Holdfast: it decodes, calls the packages that
// have the rules, and encodes. It has no rules of its own but who may call what.
//
// Reading order: server.go (what it is made of), routes_*.go (the table of routes
// and their handlers), route.go (the way of a request), decode.go and bind.go (how a
// request is read), problem.go (every answer that is not a success), idempotency.go,
// broker.go and events.go (the event stream), openapi.go and docs.go.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/audit"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/botsource"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/login"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/secrets"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// Deps are what a [Server] is built from; all of them are required.
type Deps struct {
	Records   records.DB // for the idempotency keys
	Launch    *launch.Service
	Runs      *runs.Repository
	Teams     *teams.Repository
	Tokens    *auth.Tokens
	Bots      *botsource.Repository
	Resolver  *botsource.Resolver
	Settings  *platformcfg.Settings
	Decisions *decisions.Recorder
	Audit     *audit.Log
	Secrets   *secrets.Vault
	Surfaces  Surfaces
	Broker    *Broker
}

// Options are a server's settings; a zero field has the stated default.
type Options struct {
	Clock   clock.Clock // nil: the machine's
	Log     *slog.Logger
	Version string // of the build, in the OpenAPI document; "dev"

	// Logs opens the output of a run's newest attempt; fs.ErrNotExist says that there
	// is none yet. nil: this server has no logs.
	Logs func(ctx context.Context, run holdfast.RunID) (LogFile, error)
	// Ready says what is not ready, by name; empty is ready. nil: always ready.
	Ready func(ctx context.Context) map[string]string
	// Warnings are shown by /readyz to anybody, and change nothing else. nil: none.
	Warnings func() []string
	// Metrics answers /metrics; nil: there is no such page. MetricsToken opens it to
	// callers that are not on loopback; empty: nobody else.
	Metrics      http.Handler
	MetricsToken string

	// Login lets people in with a browser; nil: tokens only.
	Login *login.Service

	// AnyHost switches the check of the Host and Origin headers off, for a server
	// that stands behind names of its own. The default accepts loopback names and
	// AllowedHosts only, so that no web page can reach a server on its reader's own
	// machine under a name that it controls.
	AnyHost      bool
	AllowedHosts []string

	MaxBody        int64         // bytes of a request's body: 1 MiB
	RequestTimeout time.Duration // of one request but a stream: 30 s
	PollLogs       time.Duration // how often a followed log is read: 250 ms
	KeepAlive      time.Duration // how often an event stream sends a comment, and the caller of a stream or a followed log is looked at again: 15 s
	Stall          time.Duration // how long a reader of a stream may take nothing before it is cut off: 30 s
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Version = cmp.Or(o.Version, "dev")
	o.MaxBody = cmp.Or(o.MaxBody, 1<<20)
	o.RequestTimeout = cmp.Or(o.RequestTimeout, 30*time.Second)
	o.PollLogs = cmp.Or(o.PollLogs, 250*time.Millisecond)
	o.KeepAlive = cmp.Or(o.KeepAlive, 15*time.Second)
	o.Stall = cmp.Or(o.Stall, 30*time.Second)
	names := make([]string, 0, len(o.AllowedHosts))
	for _, name := range o.AllowedHosts {
		names = append(names, strings.ToLower(strings.TrimSuffix(name, ".")))
	}
	o.AllowedHosts = names
	return o
}

// Server answers the HTTP API.
type Server struct {
	deps     Deps
	options  Options
	log      *slog.Logger
	clock    clock.Clock
	mux      *http.ServeMux
	document huma.API
	routes   []route
	pages    func() (reference, error) // made when they are first asked for
	keys     *keyring
	handler  http.Handler
}

// New is a server over its parts. It listens to nothing yet, see [Server.Serve].
func New(ctx context.Context, deps Deps, options Options) (*Server, error) {
	if deps.Records == nil || deps.Launch == nil || deps.Runs == nil || deps.Teams == nil || deps.Tokens == nil || deps.Bots == nil ||
		deps.Resolver == nil || deps.Settings == nil || deps.Decisions == nil || deps.Audit == nil || deps.Secrets == nil || deps.Surfaces.missing() || deps.Broker == nil {
		return nil, errors.New("server: a part is missing")
	}
	options = options.withDefaults()
	keys, err := newKeyring(ctx, deps.Records, options.Clock)
	if err != nil {
		return nil, err
	}
	s := &Server{
		deps: deps, options: options, log: options.Log, clock: options.Clock,
		mux: http.NewServeMux(), document: newDocument(options.Version), keys: keys,
	}
	keys.made = func(ctx context.Context, id holdfast.RunID) (bool, error) {
		_, made, err := s.launchedBefore(ctx, id)
		return made, err
	}
	s.runRoutes()
	s.capacityRoutes()
	s.teamRoutes()
	s.organisationRoutes()
	s.teamPolicyRoutes()
	s.botRoutes()
	s.settingRoutes()
	s.auditRoutes()
	s.secretRoutes()
	s.surfaceRoutes()
	s.eventRoutes()
	s.accountRoutes()
	s.meRoutes()
	s.loginSetting()
	slices.SortFunc(s.routes, pathOrder)
	s.pages = sync.OnceValues(s.describe)
	s.openRoutes()
	s.loginRoutes()
	s.mux.HandleFunc("/", s.unmatched)
	s.handler = s.identified(s.protect(s.hosts(s.mux)))
	return s, nil
}

// Handler is the server as an http.Handler. It sets no deadlines on connections;
// [Server.Serve] does.
func (s *Server) Handler() http.Handler { return s.handler }

// OpenAPI is the OpenAPI 3.1 document, as JSON.
func (s *Server) OpenAPI() ([]byte, error) {
	pages, err := s.pages()
	return slices.Clone(pages.openapi), err
}

// shutdown bounds how long requests under way may take once the server ends.
const shutdown = 5 * time.Second

// Serve answers on the listener until the context ends, then closes the event
// streams, lets requests under way finish for some seconds, and returns nil.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       s.options.RequestTimeout,
		WriteTimeout:      s.options.RequestTimeout + 10*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	housekeeping := make(chan struct{})
	working, stop := context.WithCancel(ctx)
	go func() { defer close(housekeeping); s.housekeep(working) }()
	defer func() { stop(); <-housekeeping }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	s.deps.Broker.Close()
	finishing, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdown)
	defer cancel()
	if err := server.Shutdown(finishing); err != nil {
		_ = server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", listener.Addr(), err)
	}
	return nil
}

// housekeepEvery is how often old idempotency keys are removed.
const housekeepEvery = 10 * time.Minute

func (s *Server) housekeep(ctx context.Context) {
	tick := time.NewTicker(housekeepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.keys.forget(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("old idempotency keys could not be removed", "error", err)
		}
		if s.options.Login == nil {
			continue
		}
		if err := s.options.Login.Forget(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("sessions that have expired could not be removed", "error", err)
		}
	}
}
