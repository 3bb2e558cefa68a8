package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/cmd/internal/node"
)

const runnerLong = `Runner executes runs for the servers of a deployment of many machines. It speaks to NATS
only and never sees the database. Any number of them may run; each run is executed by one.

Its folder keeps workspaces, output and the journal of its children, and is locked while it
runs. When a runner is killed, its children are ended by the next one on the same folder,
and their runs become failed_resumable; without a next one the servers do so after the
lease.

On INT or TERM it takes no more runs and lets those under way finish, for as long as
--drain says; then, or on a second signal, it ends them, and they become failed_resumable
(interrupted). It exits with 0.

Each setting below is also read from the environment (HOLDFAST_NATS_CREDS for --nats-creds)
and from holdfast.yaml in the folder, or the file that --config names. The address of NATS
may hold a password and is no flag: set HOLDFAST_NATS_URL, or name a file that holds it.`

func newRunner(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "runner", Short: "Run one of the runners of a deployment of many machines",
		Long: runnerLong,
		Example: `  HOLDFAST_NATS_URL=nats://nats:4222 holdfast runner --data /var/lib/holdfast --runners 4
  HOLDFAST_NATS_URL=tls://nats:4222 holdfast runner --nats-creds /run/secrets/runner.creds --drain 10m`,
		Args:        exactly(),
		Annotations: map[string]string{ownSignals: ""},
	}
	load := c.settingFlags(cmd, config.Runner)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		settings, err := load()
		if err != nil {
			return err
		}
		return c.runRunner(cmd.Context(), settings)
	}
	return cmd
}

// runRunner executes runs until the process is told to end.
func (c *cli) runRunner(ctx context.Context, settings config.Options) (err error) {
	log := c.logger(settings)
	taking, last, stop := draining(ctx, settings.Drain, log)
	defer stop()
	r, err := node.OpenRunner(taking, node.Options{Settings: settings, Version: thisVersion().Version, Log: log})
	switch {
	case err != nil && taking.Err() != nil: // told to end while it waited
		return nil
	case err != nil:
		return inUse(err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	fmt.Fprintf(c.stdout, "ready %s, %d runs at a time\n", r.Name(), settings.Runners)
	return r.Run(taking, last)
}
