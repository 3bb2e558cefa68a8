package main

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/cmd/internal/clusterdemo"
)

func newClusterDemo(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "cluster-demo", Short: "Play a deployment of many machines on this one, and check every promise",
		Long: `Cluster-demo runs two servers, two runners and a NATS as processes of this machine, over the
MongoDB that HOLDFAST_MONGO_URI names (in a database of its own, which stays there). It
shows the last slot being raced for at both servers, a server and a runner killed with -9,
and the capacity coming back. It ends with 1 when a promise was not kept. "make
cluster-demo" starts a MongoDB for it.`,
		Example: `  HOLDFAST_MONGO_URI=mongodb://127.0.0.1:27017 holdfast cluster-demo`,
		Hidden:  true,
		Args:    exactly(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.clusterDemo(cmd.Context()) },
	}
}

func (c *cli) clusterDemo(ctx context.Context) error {
	uri := c.getenv("HOLDFAST_MONGO_URI")
	if uri == "" {
		return usagef("HOLDFAST_MONGO_URI is missing: the address of a MongoDB; make cluster-demo starts one")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "holdfast-cluster")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	err = clusterdemo.Run(ctx, clusterdemo.Options{
		Binary: self, MongoURI: uri, Database: "holdfast_demo_" + strings.ToLower(rand.Text()[:8]), Dir: dir, Out: c.stdout, Bars: c.drawBars,
	})
	if errors.Is(err, clusterdemo.ErrBroken) {
		return &exitError{exitFailed, err}
	}
	return err
}
