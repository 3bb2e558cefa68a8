package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

func newTeams(c *cli) *cobra.Command {
	list := newTeamsList(c)
	cmd := &cobra.Command{
		Use:   "teams",
		Short: "List, create and limit teams",
		Long:  "Teams lists the teams that the caller may see; its subcommands create, change and\nsuspend one. Writing needs the operator's token.",
		Example: `  holdfast teams
  holdfast teams create web --max-concurrent-runs 3 --monthly-usd 500
  holdfast teams set web --monthly-usd unlimited
  holdfast teams suspend web --reason "the budget is under review"`,
		RunE: onlySubcommandsOr(list.RunE),
		Args: cobra.ArbitraryArgs,
	}
	cmd.Flags().AddFlagSet(list.Flags())
	cmd.AddCommand(list, newTeamsShow(c), newTeamsCreate(c), newTeamsSet(c))
	cmd.AddCommand(newTeamsSuspend(c)...)
	return cmd
}

func newTeamsList(c *cli) *cobra.Command {
	return listing[api.Team]{
		short: "List teams", example: "  holdfast teams list -o json",
		header: []string{"TEAM", "NAME", "STATUS", "CONCURRENT RUNS", "MONTHLY USD", "MONTHLY RUNS", "LAUNCHES/MIN"},
		empty:  "no teams; create one with `holdfast teams create NAME`",
		row:    teamRow,
	}.all(c, (*client.Client).Teams)
}

func teamRow(team api.Team) []string {
	status := "active"
	if team.Suspended {
		status = "suspended"
	}
	l := team.Limits
	return []string{
		team.ID, or(team.Name), status, limitText(l.MaxConcurrentRuns.LimitSetting, holdfast.UnitNone), limitText(l.MonthlyUSD.LimitSetting, holdfast.UnitUSD),
		limitText(l.MonthlyRuns.LimitSetting, holdfast.UnitNone), limitText(l.LaunchesPerMinute.LimitSetting, holdfast.UnitNone),
	}
}

// limitText is a written limit for people.
func limitText(s holdfast.LimitSetting, unit holdfast.Unit) string {
	if s.Inherits() {
		return "inherits"
	}
	if _, set := s.Value(); !set {
		return "unlimited"
	}
	return s.Limit(unit).String()
}

func writeTeam(w io.Writer, team api.Team) error {
	rows := limitedRows("team", teamRow(team), team.SuspendedReason)
	if team.Organisation != "" {
		rows = append(rows, [2]string{"organisation", team.Organisation})
	}
	return writeLimited(w, rows)
}

// limitedRows are a team or an organisation, and why it is suspended.
func limitedRows(what string, row []string, reason string) [][2]string {
	if reason != "" {
		row[2] += " (" + reason + ")"
	}
	var rows [][2]string
	for i, name := range []string{what, "name", "status", "concurrent runs", "monthly usd", "monthly runs", "launches/min"} {
		rows = append(rows, [2]string{name, row[i]})
	}
	return rows
}

func writeLimited(w io.Writer, rows [][2]string) error {
	for _, row := range rows {
		if _, err := fmt.Fprintf(w, "%-16s %s\n", row[0], oneLine(row[1])); err != nil {
			return err
		}
	}
	return nil
}

func newTeamsShow(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show TEAM", Short: "Show one team", Example: "  holdfast teams show web", Args: exactly("TEAM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.oneTeam(cmd, func(ctx context.Context, server *client.Client) (api.Team, error) { return server.Team(ctx, args[0]) })
		},
	}
}

// oneTeam does one thing with a team and prints the team.
func (c *cli) oneTeam(cmd *cobra.Command, do func(context.Context, *client.Client) (api.Team, error)) error {
	return one(c, cmd, do, writeTeam)
}

// limitFlags are the limits of a team as flags.
type limitFlags struct{ concurrent, usd, runs, rate *limitFlag }

// newLimitFlags adds them; inherits says whether there is a default to inherit.
func newLimitFlags(flags *pflag.FlagSet, inherits bool) limitFlags {
	l := limitFlags{countLimit(inherits), usdLimit(inherits), countLimit(inherits), countLimit(inherits)}
	flags.Var(l.concurrent, "max-concurrent-runs", "runs at the same time; 0 lets nothing launch")
	flags.Var(l.usd, "monthly-usd", "dollars in a calendar month")
	flags.Var(l.runs, "monthly-runs", "runs in a calendar month")
	flags.Var(l.rate, "launches-per-minute", "launches in a minute")
	return l
}

// limits are the limits that were typed, and the names of those that shall inherit.
func (l limitFlags) limits() (limits api.TeamLimits, inherit []string) {
	limits = api.TeamLimits{
		MaxConcurrentRuns: holdfast.CountLimit{LimitSetting: l.concurrent.setting},
		MonthlyUSD:        holdfast.USDLimit{LimitSetting: l.usd.setting},
		MonthlyRuns:       holdfast.CountLimit{LimitSetting: l.runs.setting},
		LaunchesPerMinute: holdfast.CountLimit{LimitSetting: l.rate.setting},
	}
	for _, f := range []struct {
		name string
		flag *limitFlag
	}{{"max_concurrent_runs", l.concurrent}, {"monthly_usd", l.usd}, {"monthly_runs", l.runs}, {"launches_per_minute", l.rate}} {
		if f.flag.typed() && f.flag.setting.Inherits() {
			inherit = append(inherit, f.name)
		}
	}
	return limits, inherit
}

func newTeamsCreate(c *cli) *cobra.Command {
	var create api.TeamCreate
	cmd := &cobra.Command{
		Use: "create TEAM", Short: "Create a team",
		Long:    "Create makes a team. A limit that is left out inherits the platform's default.",
		Example: "  holdfast teams create web --name \"Web shop\" --max-concurrent-runs 3 --monthly-usd 500",
		Args:    exactly("TEAM"),
	}
	flags := cmd.Flags()
	flags.StringVar(&create.Name, "name", "", "name for people")
	flags.StringVar(&create.Organisation, "organisation", "", "organisation that it belongs to")
	limits := newLimitFlags(flags, true)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		create.ID = args[0]
		create.Limits, _ = limits.limits()
		return c.oneTeam(cmd, func(ctx context.Context, server *client.Client) (api.Team, error) {
			return server.CreateTeam(ctx, create)
		})
	}
	return cmd
}

func newTeamsSet(c *cli) *cobra.Command {
	var name, organisation string
	cmd := &cobra.Command{
		Use: "set TEAM", Short: "Change a team's name or limits",
		Long: `Set changes what is typed and leaves the rest. A lowered limit stops nobody who runs;
"unlimited" takes a limit away, "inherit" goes back to the platform's default.`,
		Example: "  holdfast teams set web --max-concurrent-runs 5 --monthly-runs inherit",
		Args:    exactly("TEAM"),
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "name", "", "name for people")
	flags.StringVar(&organisation, "organisation", "", "organisation that it belongs to")
	limits := newLimitFlags(flags, true)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var patch api.TeamPatch
		if flags.Changed("name") {
			patch.Name = &name
		}
		if flags.Changed("organisation") {
			patch.Organisation = &organisation
		}
		typed, inherit := limits.limits()
		if typed != (api.TeamLimits{}) {
			patch.Limits = &typed
		}
		patch.InheritLimits = inherit
		if patch.Name == nil && patch.Organisation == nil && patch.Limits == nil && len(inherit) == 0 {
			return usagef("nothing to change (allowed: --name, --organisation, --max-concurrent-runs, --monthly-usd, --monthly-runs, --launches-per-minute)")
		}
		return c.oneTeam(cmd, func(ctx context.Context, server *client.Client) (api.Team, error) {
			return server.PatchTeam(ctx, args[0], patch)
		})
	}
	return cmd
}

func newTeamsSuspend(c *cli) []*cobra.Command {
	return suspension{
		what: "TEAM", refused: "a team", reinstated: "a suspended team",
		long:    "Suspend refuses every launch of a team until it is reinstated. What runs goes on.",
		example: "holdfast teams %s web", why: "the budget is under review",
	}.commands(func(cmd *cobra.Command, id string, suspended bool, reason string) error {
		return c.oneTeam(cmd, func(ctx context.Context, server *client.Client) (api.Team, error) {
			return server.PatchTeam(ctx, id, api.TeamPatch{Suspended: &suspended, SuspendedReason: &reason})
		})
	})
}

// suspension is what the commands that suspend and reinstate differ by.
type suspension struct {
	what, refused, reinstated string
	long, example, why        string
}

func (s suspension) commands(set func(cmd *cobra.Command, id string, suspended bool, reason string) error) []*cobra.Command {
	var reason string
	suspend := &cobra.Command{
		Use: "suspend " + s.what, Short: "Refuse every launch of " + s.refused, Long: s.long,
		Example: "  " + fmt.Sprintf(s.example, "suspend") + fmt.Sprintf(" --reason %q", s.why), Args: exactly(s.what),
		RunE: func(cmd *cobra.Command, args []string) error { return set(cmd, args[0], true, reason) },
	}
	suspend.Flags().StringVar(&reason, "reason", "", "why; refusals say it")
	return []*cobra.Command{suspend, {
		Use: "reinstate " + s.what, Short: "Let " + s.reinstated + " launch again",
		Example: "  " + fmt.Sprintf(s.example, "reinstate"), Args: exactly(s.what),
		RunE: func(cmd *cobra.Command, args []string) error { return set(cmd, args[0], false, "") },
	}}
}
