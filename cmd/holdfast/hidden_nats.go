package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/queue/nats"
)

// newNATS is a NATS for tests and the cluster demo, so that they need nothing
// installed. It has no credentials; a deployment runs NATS's own server.
func newNATS(c *cli) *cobra.Command {
	var dir, listen string
	cmd := &cobra.Command{
		Use: "__nats", Short: "Run a NATS with JetStream on loopback, for tests",
		Example: "  holdfast __nats --data /tmp/queue --listen 127.0.0.1:4222",
		Hidden:  true,
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := nats.Start(nats.Options{Dir: dir, Listen: listen, Bare: true})
			if err != nil {
				return err
			}
			defer server.Close()
			fmt.Fprintln(c.stdout, "ready "+server.URL())
			<-cmd.Context().Done()
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "data", "", "folder for the streams")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "host:port to listen on; port 0 takes a free one")
	return cmd
}
