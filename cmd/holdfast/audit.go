package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/api"
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
	since := sinceFlag{now: c.clock}
	result := oneOf{allowed: []string{"done", "refused"}}
	cmd := listing[api.AuditEntry]{
		short: "List the audit trail, newest first", example: "  holdfast audit list --team web --actor ann --action token.issued --since 7d\n  holdfast audit list --outcome refused -o json",
		header: []string{"AT", "WHO", "ACTION", "TARGET", "TEAM", "OUTCOME", "DETAIL"}, empty: "nothing is in the audit trail",
		row: func(e api.AuditEntry) []string {
			outcome := e.Outcome
			if e.Count > 1 {
				outcome += " x" + strconv.Itoa(e.Count)
			}
			return []string{showTime(e.At), e.Actor, e.Action, clip(e.Target, 60), or(e.Team), outcome, or(clip(e.Detail, 80))}
		},
	}.all(c, func(server *client.Client, ctx context.Context, window client.Window) (api.Page[api.AuditEntry], error) {
		filter.Window, filter.Since, filter.Outcome = window, since.at, result.value
		return server.Audit(ctx, filter)
	})
	flags := cmd.Flags()
	flags.StringVarP(&filter.Team, "team", "t", "", "only this team's")
	flags.StringVar(&filter.Actor, "actor", "", "only by this account or token, by its name")
	flags.StringVar(&filter.Action, "action", "", "only this action, such as token.issued")
	flags.StringVar(&filter.Target, "target", "", "only about this")
	flags.Var(&result, "outcome", "only what was done, or what was refused")
	flags.Var(&since, "since", "only since: 30m, 2h, 7d or a time")
	return cmd
}
