package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/cmd/internal/incident"
	"github.com/holdfast-io/holdfast/cmd/internal/node"
	"github.com/holdfast-io/holdfast/examples"
	"github.com/holdfast-io/holdfast/pkg/client"
	"github.com/holdfast-io/holdfast/pkg/simulate"
)

func newDemo(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "demo", Short: "Play the incident with a reservation in a scratch folder, and check every promise",
		Long: `Demo starts a dev of its own on a free port in a scratch folder, plays the incident with real
child processes, checks everything that it prints as promised, and removes the folder. It
ends with 1 when a promise was not kept.`,
		Example: `  holdfast demo`,
		Args:    exactly(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.demo(cmd.Context()) },
	}
}

// demo runs a node for as long as the play takes.
func (c *cli) demo(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "holdfast-demo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	settings := config.Defaults()
	settings.Data, settings.Addr = dir, "127.0.0.1:0"
	log := slog.New(slog.NewTextHandler(c.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	began := time.Now()
	n, err := node.Open(ctx, node.Options{Settings: settings, Version: thisVersion().Version, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	ctx, end := context.WithCancel(ctx)
	defer end()
	running, inner := errgroup.WithContext(ctx)
	running.Go(func() error {
		return n.Run(inner, func() {
			running.Go(func() error {
				defer end()
				return c.seedAndPlay(inner, n)
			})
		})
	})
	if err := running.Wait(); err != nil {
		if errors.Is(err, incident.ErrBroken) {
			return &exitError{exitFailed, err}
		}
		return err
	}
	fmt.Fprintf(c.stdout, "\nevery promise was kept, in %.0f s\n", time.Since(began).Seconds())
	return nil
}

func (c *cli) seedAndPlay(ctx context.Context, n *node.Node) error {
	server, err := client.New(n.URL(), n.Token(), client.Options{})
	if err != nil {
		return err
	}
	if err := incident.Seed(ctx, server); err != nil {
		return err
	}
	return c.play(ctx, server)
}

// simulateExample replays the embedded example and says for whom it reserves.
func simulateExample(ctx context.Context) (simulate.Result, holders, error) {
	text := map[string][]byte{}
	for _, name := range []string{"policy.yaml", "caps.yaml"} {
		content, err := examples.Files.ReadFile(name)
		if err != nil {
			return simulate.Result{}, nil, err
		}
		text[name] = content
	}
	_, policy, err := decodePolicy("policy.yaml", text["policy.yaml"])
	if err != nil {
		return simulate.Result{}, nil, err
	}
	caps, err := decodeCaps("caps.yaml", text["caps.yaml"])
	if err != nil {
		return simulate.Result{}, nil, err
	}
	file, err := examples.Files.Open("trace.csv")
	if err != nil {
		return simulate.Result{}, nil, err
	}
	defer func() { _ = file.Close() }() // it is in memory
	trace, err := simulate.ReadFrom("trace.csv", file, simulate.ReadOptions{Span: simulate.DefaultSpan, Model: simulate.DefaultModel})
	if err != nil {
		return simulate.Result{}, nil, err
	}
	reserved := holders{}
	for _, r := range policy.Reservations {
		reserved[r.Holder()] = true
	}
	result, err := simulate.Run(ctx, simulate.Input{Trace: trace, Policy: policy, Caps: &caps})
	return result, reserved, err
}
