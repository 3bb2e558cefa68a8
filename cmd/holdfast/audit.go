package main

import (
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/client"
)

func newAudit(c *cli) *cobra.Command {
	list := newAuditList(c)
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List what was changed and what was refused, newest first",
		Long: `Audit lists who changed what, and who was told no. A team's admin sees the team's rows, an
operator all. Repeats of a refusal within a minute are one row with their number. A launch
and its refusal lead to their decision; see "holdfast decisions show".`,
		Example: "  holdfast audit\n  holdfast audit list --team web --outcome refused --since 1h",
		RunE:    onlySubcommandsOr(list.RunE),
		Args:    cobra.ArbitraryArgs,
	}
	cmd.Flags().AddFlagSet(list.Flags())
	cmd.AddCommand(list)
	return cmd
}

func newAuditList(c *cli) *cobra.Command {
	var filter client.AuditFilter
	var window windowFlags
	since := sinceFlag{now: c.clock}
	result := oneOf{allowed: []string{"done", "refused"}}
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the audit trail, newest first",
		Example: "  holdfast audit list --team web --actor ann --action token.issued --since 7d\n  holdfast audit list --outcome refused -o json",
		Args:    exactly(),
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := window.check(); err != nil {
			return err
		}
		server, err := c.connect()
		if err != nil {
			return err
		}
		filter.Window, filter.Since, filter.Outcome = window.Window, since.at, result.value
		page, err := server.Audit(cmd.Context(), filter)
		if err != nil {
			return err
		}
		return c.print(page, func(w io.Writer) error {
			t := &table{header: []string{"AT", "WHO", "ACTION", "TARGET", "TEAM", "OUTCOME", "DETAIL"}, empty: "nothing is in the audit trail"}
			for _, e := range page.Items {
				outcome := e.Outcome
				if e.Count > 1 {
					outcome += " x" + strconv.Itoa(e.Count)
				}
				t.add(showTime(e.At), e.Actor, e.Action, clip(e.Target, 60), or(e.Team), outcome, or(clip(e.Detail, 80)))
			}
			return writePage(w, t, page.NextCursor)
		})
	}
	flags := cmd.Flags()
	flags.StringVarP(&filter.Team, "team", "t", "", "only this team's")
	flags.StringVar(&filter.Actor, "actor", "", "only by this account or token, by its name")
	flags.StringVar(&filter.Action, "action", "", "only this action, such as token.issued")
	flags.StringVar(&filter.Target, "target", "", "only about this")
	flags.Var(&result, "outcome", "only what was done, or what was refused")
	flags.Var(&since, "since", "only since: 30m, 2h, 7d or a time")
	window.add(flags)
	return cmd
}
