package main

import (
	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/runner/sampleagent"
)

// newSampleAgent is the program that the bots of the built-in catalog run.
func newSampleAgent(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:                "sample-agent [--name N] [--seconds S] [--spend USD] [--fail CODE]",
		Short:              "Behave like an agent: work some seconds, print progress, report spend",
		Example:            "  holdfast exec --team web --bot probe -- holdfast sample-agent --seconds 2 --spend 0.10",
		Hidden:             true,
		DisableFlagParsing: true,
		Annotations:        map[string]string{ownSignals: ""},
		RunE: func(_ *cobra.Command, args []string) error {
			if code := sampleagent.Main(args, c.stdout, c.getenv); code != 0 {
				return &exitError{code: code}
			}
			return nil
		},
	}
}
