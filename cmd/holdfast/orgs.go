package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

func newOrgs(c *cli) *cobra.Command {
	list := newOrgsList(c)
	cmd := &cobra.Command{
		Use:   "orgs",
		Short: "List, create and limit organisations of teams",
		Long: `Orgs lists the organisations; its subcommands create, change and suspend one. An
organisation has limits over all its teams together: a launch takes from its team's and
from the organisation's, and both must admit. A team joins with
"holdfast teams set TEAM --organisation ORG". It needs the operator's token.`,
		Example: `  holdfast orgs
  holdfast orgs create eu --max-concurrent-runs 20 --monthly-usd 2000
  holdfast teams set web --organisation eu
  holdfast orgs suspend eu --reason "the invoice is open"`,
		RunE: onlySubcommandsOr(list.RunE),
		Args: cobra.ArbitraryArgs,
	}
	cmd.Flags().AddFlagSet(list.Flags())
	cmd.AddCommand(list, newOrgsShow(c), newOrgsCreate(c), newOrgsSet(c))
	cmd.AddCommand(newOrgsSuspend(c)...)
	return cmd
}

func newOrgsList(c *cli) *cobra.Command {
	return listing[api.Organisation]{
		short: "List organisations", example: "  holdfast orgs list -o json",
		header: []string{"ORGANISATION", "NAME", "STATUS", "CONCURRENT RUNS", "MONTHLY USD", "MONTHLY RUNS", "LAUNCHES/MIN", "TEAMS"},
		empty:  "no organisations; create one with `holdfast orgs create NAME`",
		row:    orgRow,
	}.all(c, (*client.Client).Organisations)
}

func orgRow(org api.Organisation) []string {
	status := "active"
	if org.Suspended {
		status = "suspended"
	}
	l := org.Limits
	return []string{
		org.ID, or(org.Name), status, orgLimit(l.MaxConcurrentRuns.LimitSetting, holdfast.UnitNone), orgLimit(l.MonthlyUSD.LimitSetting, holdfast.UnitUSD),
		orgLimit(l.MonthlyRuns.LimitSetting, holdfast.UnitNone), orgLimit(l.LaunchesPerMinute.LimitSetting, holdfast.UnitNone), or(strings.Join(org.Teams, ", ")),
	}
}

// orgLimit is an organisation's limit for people. There is nothing that it could
// inherit.
func orgLimit(s holdfast.LimitSetting, unit holdfast.Unit) string {
	return limitText(s.Or(holdfast.Unlimited), unit)
}

// oneOrg does one thing with an organisation and prints the organisation.
func (c *cli) oneOrg(cmd *cobra.Command, do func(context.Context, *client.Client) (api.Organisation, error)) error {
	return one(c, cmd, do, func(w io.Writer, org api.Organisation) error {
		row := orgRow(org)
		return writeLimited(w, append(limitedRows("organisation", row, org.SuspendedReason), [2]string{"teams", row[7]}))
	})
}

func newOrgsShow(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show ORG", Short: "Show one organisation and its teams", Example: "  holdfast orgs show eu", Args: exactly("ORG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.oneOrg(cmd, func(ctx context.Context, server *client.Client) (api.Organisation, error) {
				return server.Organisation(ctx, args[0])
			})
		},
	}
}

func newOrgsCreate(c *cli) *cobra.Command {
	var create api.OrganisationCreate
	cmd := &cobra.Command{
		Use: "create ORG", Short: "Create an organisation",
		Long:    "Create makes an organisation without teams. A limit that is left out is unlimited.",
		Example: "  holdfast orgs create eu --name \"Europe\" --max-concurrent-runs 20 --monthly-usd 2000",
		Args:    exactly("ORG"),
	}
	flags := cmd.Flags()
	flags.StringVar(&create.Name, "name", "", "name for people")
	limits := newLimitFlags(flags, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		create.ID = args[0]
		create.Limits, _ = limits.limits()
		return c.oneOrg(cmd, func(ctx context.Context, server *client.Client) (api.Organisation, error) {
			return server.CreateOrganisation(ctx, create)
		})
	}
	return cmd
}

func newOrgsSet(c *cli) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "set ORG", Short: "Change an organisation's name or limits",
		Long: `Set changes what is typed and leaves the rest. A lowered limit stops nobody who runs;
"unlimited" takes a limit away.`,
		Example: "  holdfast orgs set eu --max-concurrent-runs 25 --monthly-runs unlimited",
		Args:    exactly("ORG"),
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "name", "", "name for people")
	limits := newLimitFlags(flags, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var patch api.OrganisationPatch
		if flags.Changed("name") {
			patch.Name = &name
		}
		typed, _ := limits.limits()
		if typed != (api.TeamLimits{}) {
			patch.Limits = &typed
		}
		if patch.Name == nil && patch.Limits == nil {
			return usagef("nothing to change (allowed: --name, --max-concurrent-runs, --monthly-usd, --monthly-runs, --launches-per-minute)")
		}
		return c.oneOrg(cmd, func(ctx context.Context, server *client.Client) (api.Organisation, error) {
			return server.PatchOrganisation(ctx, args[0], patch)
		})
	}
	return cmd
}

func newOrgsSuspend(c *cli) []*cobra.Command {
	return suspension{
		what: "ORG", refused: "an organisation's teams", reinstated: "a suspended organisation's teams",
		long:    "Suspend refuses every launch of its teams until the organisation is reinstated. What\nruns goes on.",
		example: "holdfast orgs %s eu", why: "the invoice is open",
	}.commands(func(cmd *cobra.Command, id string, suspended bool, reason string) error {
		return c.oneOrg(cmd, func(ctx context.Context, server *client.Client) (api.Organisation, error) {
			return server.PatchOrganisation(ctx, id, api.OrganisationPatch{Suspended: &suspended, SuspendedReason: &reason})
		})
	})
}
