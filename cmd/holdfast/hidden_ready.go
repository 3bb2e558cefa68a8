package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/client"
)

// newReady asks a server whether it is ready, for the health check of a container
// that has no other program.
func newReady(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "__ready", Short: "Exit with 0 when the server says that it is ready",
		Example: "  holdfast __ready",
		Hidden:  true,
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := c.settings()
			if err != nil {
				return err
			}
			server, err := client.New(settings.URL, "", client.Options{Timeout: 4 * time.Second})
			if err != nil {
				return err
			}
			health, err := server.Ready(cmd.Context())
			if err != nil {
				return err
			}
			if health.Status != "ok" {
				return &exitError{exitFailed, errors.New("the server is not ready")}
			}
			return nil
		},
	}
}
