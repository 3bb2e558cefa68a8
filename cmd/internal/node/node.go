// Package node puts the processes of Holdfast together: all of it on one machine (what
// `holdfast dev` runs), and the servers and runners of many. It wires and orders; it
// has no rules.
//
// Reading order: core.go (what every server is made of, and how it ends); node.go and
// parts.go (one machine), folder.go (the lock of a folder, the operator's token),
// stores.go (whether its stores are sound);
// server.go, health.go (readiness) and relay.go (what servers tell each other),
// runner.go; observe.go and watched.go (who is told what).
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/pkg/runner"
)

// Options are what a node needs beside its settings.
type Options struct {
	Settings config.Options
	Version  string
	Log      *slog.Logger
}

// Node is an opened deployment of one machine. It holds its folder and its port
// until [Node.Close].
type Node struct {
	options  Options
	folder   *folder
	listener net.Listener
	parts    *parts
	token    string
	ready    atomic.Bool
	warnings []string // found by the opening
}

// Open locks the folder, takes the port, opens the stores and the queue, and puts
// right what a former process left: its children are killed, what they reported is
// applied, its runs get an honest status, what they held comes back, and what was
// queued is queued again. Errors name the way out; a folder in use matches
// [ErrInUse].
func Open(ctx context.Context, o Options) (n *Node, err error) {
	n = &Node{options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
			n = nil
		}
	}()
	if n.folder, err = openFolder(o.Settings.Data, config.Dev); err != nil {
		return n, err
	}
	if n.listener, err = listen(ctx, o.Settings.Addr); err != nil {
		return n, err
	}
	if n.options.Settings.SecretsKey == "" {
		if n.options.Settings.SecretsKey, err = n.folder.secretsKey(); err != nil {
			return n, err
		}
	}
	leftovers, err := runner.KillLeftovers(ctx, n.folder.path)
	if err != nil {
		return n, fmt.Errorf("end what a former process left running: %w", err)
	}
	if n.parts, err = openParts(ctx, n.folder.path, n.options, n); err != nil {
		return n, err
	}
	if n.token, err = n.folder.operatorToken(ctx, n.parts.tokens); err != nil {
		return n, err
	}
	if err = n.recover(ctx, leftovers); err != nil {
		return n, err
	}
	n.crossCheck(ctx)
	return n, nil
}

// ErrPortInUse: somebody else listens on the address.
var ErrPortInUse = errors.New("the address is in use")

func listen(ctx context.Context, addr string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w: something listens on %s already; stop it, or give another address with --addr (port 0 takes a free one)", ErrPortInUse, addr)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return listener, nil
}

// recover settles the account of the former process. Its reports come first, because
// they may say that a run ended well; then what its dead children had spent; then
// the runs themselves.
func (n *Node) recover(ctx context.Context, leftovers []runner.Leftover) error {
	p := n.parts
	if err := p.bus.DrainReports(ctx, p.launch.Apply); err != nil {
		return fmt.Errorf("apply what runners reported: %w", err)
	}
	for _, l := range leftovers {
		n.options.Log.Info("ended what a former process left", "run", l.Run, "attempt", l.Attempt, "killed", l.Killed)
		report := leftover(l, runnerName, p.clock.Now())
		if err := p.launch.Apply(ctx, report); err != nil {
			return fmt.Errorf("end run %s of a former process: %w", l.Run, err)
		}
	}
	if err := p.launch.Recover(ctx); err != nil {
		return fmt.Errorf("put right what a former process left: %w", err)
	}
	return nil
}

// URL is where the API answers.
func (n *Node) URL() string { return "http://" + n.listener.Addr().String() }

// Token is the operator's bearer token.
func (n *Node) Token() string { return n.token }

// Run serves until the context ends, then ends the children, applies their reports
// and returns nil, within ten seconds. started is called once everything runs; the
// API answers before, /readyz with 503.
func (n *Node) Run(ctx context.Context, started func()) error {
	p := n.parts
	fronts := []loop{n.folder.watch}
	if p.runner != nil {
		fronts = append(fronts, p.runner.Run)
	}
	err := p.serve(ctx, n.listener, fronts, p.carriers(), n.ready.Store, started)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), finish/4)
	defer cancel()
	if drained := p.bus.DrainReports(last, p.launch.Apply); drained != nil {
		n.options.Log.Warn("some reports are applied at the next start", "error", drained)
	}
	return errors.Join(err, p.decisions.Flush(last))
}

// Close gives back the port, the stores and the folder.
func (n *Node) Close() error {
	var errs []error
	if n.parts != nil {
		errs = append(errs, n.parts.close())
	}
	if n.listener != nil {
		if err := n.listener.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if n.folder != nil {
		errs = append(errs, n.folder.close())
	}
	return errors.Join(errs...)
}
