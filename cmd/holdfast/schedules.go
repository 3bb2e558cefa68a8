package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
	"github.com/holdfast-io/holdfast/pkg/surface"
)

func newSchedules(c *cli) *cobra.Command {
	list := newSchedulesList(c)
	cmd := &cobra.Command{
		Use:   "schedules",
		Short: "Launch bots by the clock",
		Long: `Schedules launch bots at the times that five cron fields name on the clock of a time
zone. Each launch goes through the gate; what it refuses is shown as the schedule's last
error, and what may pass by itself is tried again until the next tick.`,
		Example: `  holdfast schedules set nightly --team web --bot docs-writer --cron "30 2 * * *" --time-zone Europe/Berlin
  holdfast schedules --team web
  holdfast schedules pause web.nightly`,
		RunE: onlySubcommandsOr(list.RunE),
		Args: cobra.ArbitraryArgs,
	}
	cmd.Flags().AddFlagSet(list.Flags())
	cmd.AddCommand(list, newSchedulesShow(c), newSchedulesSet(c), newSchedulesEnable(c, "pause", false), newSchedulesEnable(c, "resume", true), newSchedulesRemove(c))
	return cmd
}

func newSchedulesList(c *cli) *cobra.Command {
	var team string
	cmd := listing[api.Schedule]{
		short: "List schedules with their next tick and last error", example: "  holdfast schedules list --team web -o json",
		header: []string{"SCHEDULE", "BOT", "CRON", "ZONE", "NEXT", "LAST RUN", "MISSED", "LAST ERROR"},
		empty:  "no schedules; `holdfast schedules set --help` shows how to make one",
		row: func(s api.Schedule) []string {
			next, missed := showTime(s.NextAt), ""
			if !s.Enabled {
				next = "paused"
			}
			if s.Missed > 0 {
				missed = fmt.Sprintf("%d since %s", s.Missed, showTime(s.MissedSince))
			}
			return []string{s.ID, s.Bot, s.Cron, s.TimeZone, next, or(s.LastRun), or(missed), or(whyRefused(s.LastError))}
		},
	}.all(c, func(server *client.Client, ctx context.Context, window client.Window) (api.Page[api.Schedule], error) {
		return server.Schedules(ctx, team, window)
	})
	cmd.Flags().StringVarP(&team, "team", "t", "", "only this team's")
	return cmd
}

// whyRefused is a refusal for a table.
func whyRefused(r *api.LaunchRefusal) string {
	switch {
	case r == nil:
		return ""
	case r.Cause != "":
		return r.Reason + " (" + r.Cause + ")"
	case r.Reason == surface.ReasonInvalid && r.Detail != "":
		return r.Reason + ": " + r.Detail // which field it was is all that helps
	}
	return r.Reason
}

func writeSchedule(w io.Writer, s api.Schedule) error {
	next := showTime(s.NextAt)
	if !s.Enabled {
		next = "paused"
	}
	rows := [][2]string{
		{"schedule", s.ID}, {"bot", s.Bot}, {"cron", s.Cron + " in " + s.TimeZone}, {"catch up", s.CatchUp}, {"next", next}, {"last run", or(s.LastRun)},
	}
	if s.Missed > 0 {
		rows = append(rows, [2]string{"missed", fmt.Sprintf("%d since %s: no server ran, or none could launch", s.Missed, showTime(s.MissedSince))})
	}
	if e := s.LastError; e != nil {
		rows = append(rows, [2]string{"last error", whyRefused(e) + " at " + showTime(e.At)}, [2]string{"", e.Detail})
	}
	return writeRows(w, append(rows, warningRows(s.Warnings)...))
}

// warningRows are rows that say what would refuse a launch for good.
func warningRows(warnings []string) [][2]string {
	var rows [][2]string
	for _, warning := range warnings {
		rows = append(rows, [2]string{"warning", warning})
	}
	return rows
}

// writeRows writes names and values below one another.
func writeRows(w io.Writer, rows [][2]string) error {
	for _, row := range rows {
		if _, err := fmt.Fprintf(w, "%-14s %s\n", row[0], oneLine(row[1])); err != nil {
			return err
		}
	}
	return nil
}

// scheduleID is the one argument of what is about one schedule.
func scheduleID(cmd *cobra.Command, args []string) error {
	if err := exactly("SCHEDULE")(cmd, args); err != nil {
		return err
	}
	if !strings.Contains(args[0], ".") {
		return usagef("%q is not a schedule's id (allowed: TEAM.NAME, as `holdfast schedules` shows it, such as web.%s)", args[0], args[0])
	}
	return nil
}

func newSchedulesShow(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show SCHEDULE", Short: "Show one schedule", Example: "  holdfast schedules show web.nightly", Args: scheduleID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.oneSchedule(cmd, func(ctx context.Context, server *client.Client) (api.Schedule, error) {
				return server.Schedule(ctx, args[0])
			})
		},
	}
}

func (c *cli) oneSchedule(cmd *cobra.Command, do func(context.Context, *client.Client) (api.Schedule, error)) error {
	return one(c, cmd, do, writeSchedule)
}

// scheduleFlags describe a schedule.
type scheduleFlags struct {
	launchFlags
	cron, zone string
	catchUp    oneOf
}

func (f *scheduleFlags) add(flags *pflag.FlagSet) {
	f.catchUp = oneOf{allowed: []string{"none", "one"}}
	f.launchFlags.add(flags)
	f.addInputs(flags)
	flags.StringVarP(&f.bot, "bot", "b", "", "bot that is launched")
	flags.StringVar(&f.cron, "cron", "", `when: "minute hour day month weekday", or @hourly, @daily, @weekly, @monthly, @yearly`)
	flags.StringVar(&f.zone, "time-zone", "", "whose clock that is, such as Europe/Berlin (default UTC)")
	flags.Var(&f.catchUp, "catch-up", "what becomes of ticks that came while no server ran: none is launched (the default), or the newest one")
}

func newSchedulesSet(c *cli) *cobra.Command {
	var flags scheduleFlags
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Create a schedule, or change what is named of one",
		Long: `Set creates the schedule of a team by that name; --bot and --cron are needed then. Where
there is one, what is named on the command line is changed and the rest stays.`,
		Example: `  holdfast schedules set nightly --team web --bot docs-writer --cron "30 2 * * *" --time-zone Europe/Berlin --budget 2
  holdfast schedules set nightly --team web --cron "0 4 * * MON-FRI"`,
		Args: exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			want, err := flags.request(flags.bot)
			if err != nil {
				return err
			}
			return c.oneSchedule(cmd, func(ctx context.Context, server *client.Client) (api.Schedule, error) {
				id := flags.team + "." + args[0]
				_, err := server.Schedule(ctx, id)
				var missing *client.NotFound
				if errors.As(err, &missing) {
					return flags.create(ctx, cmd, server, args[0], want)
				}
				if err != nil {
					return api.Schedule{}, err
				}
				return server.PatchSchedule(ctx, id, flags.patch(cmd, want))
			})
		},
	}
	flags.add(cmd.Flags())
	return cmd
}

func (f *scheduleFlags) create(ctx context.Context, cmd *cobra.Command, server *client.Client, name string, want api.LaunchRequest) (api.Schedule, error) {
	if err := required(cmd, "bot", "the bot that a new schedule launches"); err != nil {
		return api.Schedule{}, err
	}
	if err := required(cmd, "cron", `when a new schedule ticks, such as "30 2 * * *"`); err != nil {
		return api.Schedule{}, err
	}
	return server.CreateSchedule(ctx, api.ScheduleCreate{
		Team: f.team, Name: name, Cron: f.cron, TimeZone: f.zone, Bot: want.Bot, Repo: want.Repo, Inputs: want.Inputs, BudgetUSD: want.BudgetUSD,
		Pool: want.Pool, CatchUp: f.catchUp.value,
	})
}

func (f *scheduleFlags) patch(cmd *cobra.Command, want api.LaunchRequest) api.SchedulePatch {
	typed := func(name string, value string) *string {
		if !cmd.Flags().Changed(name) {
			return nil
		}
		return &value
	}
	return api.SchedulePatch{
		Cron: typed("cron", f.cron), TimeZone: typed("time-zone", f.zone), Bot: typed("bot", f.bot), Repo: typed("repo", f.repo), Pool: typed("pool", f.pool),
		CatchUp: typed("catch-up", f.catchUp.value), Inputs: want.Inputs, BudgetUSD: want.BudgetUSD,
	}
}

func newSchedulesEnable(c *cli, verb string, enabled bool) *cobra.Command {
	short := "Stop a schedule; its ticks are not missed, there are none"
	if enabled {
		short = "Let a paused schedule tick again, from now on"
	}
	return &cobra.Command{
		Use: verb + " SCHEDULE", Short: short, Example: "  holdfast schedules " + verb + " web.nightly", Args: scheduleID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.oneSchedule(cmd, func(ctx context.Context, server *client.Client) (api.Schedule, error) {
				return server.PatchSchedule(ctx, args[0], api.SchedulePatch{Enabled: &enabled})
			})
		},
	}
}

func newSchedulesRemove(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "rm SCHEDULE", Short: "Remove a schedule; runs that it launched go on", Example: "  holdfast schedules rm web.nightly", Args: scheduleID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.removed(cmd, "schedule", args[0], func(ctx context.Context, server *client.Client) error { return server.DeleteSchedule(ctx, args[0]) })
		},
	}
}

// removed removes one thing and says so.
func (c *cli) removed(cmd *cobra.Command, what, id string, do func(context.Context, *client.Client) error) error {
	return c.did(cmd, map[string]any{"id": id, "removed": true}, fmt.Sprintf("%s %s is removed", what, id), do)
}
