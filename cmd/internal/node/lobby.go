package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/queue/nats"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// lobby answers on a process's port while nothing stands behind it yet: it lives, and
// it is not ready. A server hands its port over to the API; a runner keeps its lobby
// for as long as it lives, because it has no API.
type lobby struct {
	listener *net.TCPListener
	server   *http.Server
	served   chan error
	ready    func() map[string]string // what is wrong, beside what is waited for

	mu      sync.Mutex
	waiting map[string]string
}

// openLobby takes the port and answers on it. ready may be nil.
func openLobby(ctx context.Context, addr string, log *slog.Logger, ready func() map[string]string) (*lobby, error) {
	listener, err := listen(ctx, addr)
	if err != nil {
		return nil, err
	}
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("listen on %s: it is no TCP address", addr), listener.Close())
	}
	l := &lobby{listener: tcp, served: make(chan error, 1), ready: ready, waiting: map[string]string{}}
	l.server = &http.Server{
		Handler: http.HandlerFunc(l.answer), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() { l.served <- l.server.Serve(lent{tcp}) }()
	return l, nil
}

// lent is a listener that whoever serves on it may close without closing the port.
type lent struct{ *net.TCPListener }

// Close makes Accept return and leaves the port open: who connects meanwhile waits.
func (l lent) Close() error { return l.SetDeadline(time.Unix(1, 0)) }

// answer is the whole API of a process that has none.
func (l *lobby) answer(w http.ResponseWriter, r *http.Request) {
	status := http.StatusServiceUnavailable
	var body any
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		body = api.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: "this process is starting; ask again in some seconds"}
	case r.URL.Path == "/healthz":
		status, body = http.StatusOK, api.Health{Status: "ok"}
	case r.URL.Path == "/readyz":
		health := api.Health{Status: "not_ready", Checks: l.problems()}
		if len(health.Checks) == 0 {
			status, health = http.StatusOK, api.Health{Status: "ok"}
		}
		body = health
	default:
		body = api.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: "this process is starting; /readyz says what it waits for"}
	}
	kind := "application/json"
	if _, problem := body.(api.Problem); problem {
		kind = "application/problem+json"
		w.Header().Set("Retry-After", "2")
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a caller that hung up
}

func (l *lobby) problems() map[string]string {
	l.mu.Lock()
	problems := maps.Clone(l.waiting)
	l.mu.Unlock()
	if l.ready != nil {
		maps.Copy(problems, l.ready())
	}
	return problems
}

// await tries until it succeeds, waiting longer each time, while what fails may come
// to life by itself. ctx bounds it; the last error is returned then. A nil lobby waits
// in the same way and shows it nowhere.
func (l *lobby) await(ctx context.Context, log *slog.Logger, check, what string, try func(context.Context) error) error {
	l.set(check, "waiting for "+what)
	defer l.set(check, "")
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		err := try(ctx)
		if err == nil || !mayCome(err) {
			return err
		}
		log.Warn("waiting for "+what, "error", err)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
	}
}

const firstWait, longestWait = 250 * time.Millisecond, 5 * time.Second

// mayCome says whether an error of a start is one that ends by itself: what is asked
// is not there yet. A setting that is wrong is not.
func mayCome(err error) bool {
	return errors.Is(err, capacityledger.ErrUnavailable) || errors.Is(err, records.ErrUnavailable) || nats.Away(err)
}

// set says what is waited for; an empty text is nothing any more.
func (l *lobby) set(check, text string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, check)
	if text != "" {
		l.waiting[check] = text
	}
}

// leave ends the lobby and hands its port over; callers who come in between wait.
func (l *lobby) leave(ctx context.Context) (net.Listener, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := l.server.Shutdown(ctx); err != nil {
		_ = l.server.Close() // who is still being answered is cut off
	}
	if err := <-l.served; !errors.Is(err, http.ErrServerClosed) {
		return nil, fmt.Errorf("take over the port: %w", err)
	}
	if err := l.listener.SetDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("take over the port: %w", err)
	}
	return l.listener, nil
}

// close gives the port back.
func (l *lobby) close() error {
	_ = l.server.Close()
	err := <-l.served
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	if closed := l.listener.Close(); !errors.Is(closed, net.ErrClosed) {
		err = errors.Join(err, closed)
	}
	return err
}

// patience bounds a start; zero is for ever.
func patience(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	if most == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, most)
}
