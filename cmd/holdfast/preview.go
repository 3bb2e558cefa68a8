package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func newPreview(c *cli) *cobra.Command {
	var flags launchFlags
	cmd := &cobra.Command{
		Use:   "preview BOT",
		Short: "Say what a launch would get now, and why",
		Long: `Preview runs the gate's checks for a launch without taking anything, and prints each
with its arithmetic. Exit code 3 says that the launch would be refused.`,
		Example: `  holdfast preview review-pr --team web
  holdfast preview feature-dev --team web --budget 20 -o json`,
		Args: exactly("BOT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := flags.request(args[0])
			if err != nil {
				return err
			}
			server, err := c.connect()
			if err != nil {
				return err
			}
			preview, err := server.Preview(cmd.Context(), request)
			if err != nil {
				return err
			}
			err = c.print(preview, func(w io.Writer) error {
				switch {
				case preview.Admitted && preview.Identity != nil && preview.BudgetUSD != nil:
					_, err = fmt.Fprintf(w, "would be admitted as %s with a budget of %s%s\n", preview.Identity, preview.BudgetUSD.Dollars(), cut(preview.AskedUSD, preview.CutBy))
				case preview.Admitted:
					_, err = fmt.Fprintln(w, "would be admitted")
				case preview.Refusal != nil:
					_, err = fmt.Fprint(w, "would be "+refusalWith(*preview.Refusal, "")) // the numbers are in the table
				default:
					_, err = fmt.Fprintln(w, "would be refused")
				}
				if err != nil {
					return err
				}
				return writeChecks(w, preview.Checks)
			})
			if err == nil && !preview.Admitted {
				return &exitError{code: exitRefused}
			}
			return err
		},
	}
	flags.add(cmd.Flags())
	flags.addInputs(cmd.Flags())
	return cmd
}
