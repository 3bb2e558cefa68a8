package main

import (
	"io"

	"github.com/spf13/cobra"
)

func newAudit(c *cli) *cobra.Command {
	var window windowFlags
	cmd := &cobra.Command{
		Use:     "audit",
		Short:   "List administrative acts, newest first",
		Long:    "Audit lists who changed teams, tokens, bots and settings, and who took an allocation\naway.",
		Example: "  holdfast audit\n  holdfast audit --limit 200 -o json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := window.check(); err != nil {
				return err
			}
			server, err := c.connect()
			if err != nil {
				return err
			}
			page, err := server.Audit(cmd.Context(), window.Window)
			if err != nil {
				return err
			}
			return c.print(page, func(w io.Writer) error {
				t := &table{header: []string{"AT", "WHO", "ACTION", "TARGET", "DETAIL"}, empty: "nothing was changed yet"}
				for _, e := range page.Items {
					t.add(showTime(e.At), e.Actor, e.Action, e.Target, or(clip(e.Detail, 80)))
				}
				return writePage(w, t, page.NextCursor)
			})
		},
	}
	window.add(cmd.Flags())
	return cmd
}
