package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/cmd/internal/node"
	"github.com/holdfast-io/holdfast/pkg/store/mongo"
)

const serverLong = `Server runs the API, the gate and the sweeps of a deployment of many machines. Any number
of them may run over the same MongoDB and the same NATS: none has state of its own, and
what one admits all others count. Runs are executed by "holdfast runner".

It prints "ready http://…" on stdout when it serves. /readyz answers 200 while the record
store takes writes, the ledger answers, the queue is whole and the clocks agree. On INT or
TERM it is not ready any more, answers what was asked, and exits with 0.

Each setting below is also read from the environment (HOLDFAST_SWEEP_EVERY for
--sweep-every) and from the file that --config names. Secrets are no flags: set
HOLDFAST_MONGO_URI, HOLDFAST_NATS_URL (both required), HOLDFAST_OPERATOR_TOKEN,
HOLDFAST_SECRETS_KEY, HOLDFAST_METRICS_TOKEN and HOLDFAST_OIDC_CLIENT_SECRET, or name
files that hold them.`

func newServer(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "server", Short: "Run one of the servers of a deployment of many machines",
		Long: serverLong,
		Example: `  HOLDFAST_MONGO_URI=mongodb://db:27017 HOLDFAST_NATS_URL=nats://nats:4222 \
    HOLDFAST_OPERATOR_TOKEN_FILE=/run/secrets/operator holdfast server --addr 0.0.0.0:7420 --allowed-hosts holdfast.example.org
  holdfast server --config /etc/holdfast/server.yaml`,
		Args:        exactly(),
		Annotations: map[string]string{ownSignals: ""},
	}
	load := c.settingFlags(cmd, config.Server)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		settings, err := load()
		if err != nil {
			return err
		}
		return c.runServer(cmd.Context(), settings)
	}
	return cmd
}

// runServer serves until the process is told to end.
func (c *cli) runServer(ctx context.Context, settings config.Options) (err error) {
	log := c.logger(settings)
	taking, last, stop := draining(ctx, settings.Drain, log)
	defer stop()
	s, err := node.OpenServer(taking, node.Options{Settings: settings, Version: thisVersion().Version, Log: log}, func(ctx context.Context) (node.Stores, func() error, error) {
		store, err := mongo.Open(ctx, settings.MongoURI, mongo.Options{Database: settings.MongoDatabase, LaunchLease: settings.LaunchLease})
		if err != nil {
			return node.Stores{}, nil, err
		}
		return node.Stores{Ledger: store.Ledger(), Records: store.Records()}, store.Close, nil
	})
	switch {
	case err != nil && taking.Err() != nil: // told to end while it waited
		return nil
	case err != nil:
		return inUse(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	ended := make(chan error, 1)
	go func() {
		ended <- s.Run(taking, func() { fmt.Fprintln(c.stdout, "ready "+s.URL()) })
	}()
	select {
	case err := <-ended:
		return err
	case <-last.Done():
		// A callers' last word is worth the drain and no more: what it was answered is
		// stored, and what is not stored was not answered.
		return &exitError{exitFailed, errors.New("the drain is over and requests were still under way")}
	}
}
