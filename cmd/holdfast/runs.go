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
	"github.com/holdfast-io/holdfast/pkg/runs"
)

func newRuns(c *cli) *cobra.Command {
	list := newRunsList(c)
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List, follow and steer runs",
		Long:  "Runs lists runs, newest first; its subcommands show, follow, cancel, resume and explain one.",
		Example: `  holdfast runs --team web --status running
  holdfast runs logs 01JDXV6J9QK4W9T6Z3N8M5R2PA --follow
  holdfast runs explain 01JDXV6J9QK4W9T6Z3N8M5R2PA`,
		RunE: onlySubcommandsOr(list.RunE),
		Args: cobra.ArbitraryArgs,
	}
	cmd.Flags().AddFlagSet(list.Flags())
	cmd.AddCommand(list, newRunsShow(c), newRunsLogs(c), newRunsCancel(c), newRunsResume(c), newRunsExplain(c))
	return cmd
}

// onlySubcommandsOr does work without an argument; an argument that is no
// subcommand is a usage error that names them.
func onlySubcommandsOr(work func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return onlySubcommands(cmd, args)
		}
		return work(cmd, args)
	}
}

// windowFlags choose a page of a list.
type windowFlags struct{ client.Window }

func (f *windowFlags) add(flags *pflag.FlagSet) {
	flags.IntVar(&f.Limit, "limit", 50, "at most so many rows, 1 to 500")
	flags.StringVar(&f.Cursor, "cursor", "", "go on where the page before ended")
}

func (f *windowFlags) check() error {
	if f.Limit < 1 || f.Limit > 500 {
		return usagef("--limit %d is out of bounds (allowed: 1 to 500)", f.Limit)
	}
	return nil
}

// writePage writes a table and, when there is more, how to get it.
func writePage(w io.Writer, t *table, nextCursor string) error {
	if err := t.write(w); err != nil || nextCursor == "" {
		return err
	}
	_, err := fmt.Fprintf(w, "there are more: add --cursor %s\n", nextCursor)
	return err
}

func newRunsList(c *cli) *cobra.Command {
	var filter client.RunFilter
	since := sinceFlag{now: c.clock}
	status := oneOf{kind: "STATUS"}
	for _, s := range runs.Statuses() {
		status.allowed = append(status.allowed, string(s))
	}
	cmd := listing[api.Run]{
		short: "List runs, newest first", example: "  holdfast runs list --team web --since 2h\n  holdfast runs list --status failed_resumable -o json",
		header: []string{"RUN", "TEAM", "BOT", "STATUS", "REASON", "SPENT", "BUDGET", "CREATED"}, empty: "no runs",
		row: func(r api.Run) []string {
			return []string{r.ID, r.Team, r.Identity.String(), r.Status, or(r.StatusReason), r.SpentUSD.Dollars(), r.BudgetUSD.Dollars(), showTime(r.CreatedAt)}
		},
	}.all(c, func(server *client.Client, ctx context.Context, window client.Window) (api.Page[api.Run], error) {
		filter.Window, filter.Since, filter.Status = window, since.at, status.value
		return server.Runs(ctx, filter)
	})
	flags := cmd.Flags()
	ownTeamFlag(flags, &filter.Team, "only this team's")
	flags.StringVarP(&filter.Bot, "bot", "b", "", "only this bot's")
	flags.Var(&status, "status", "only of this status: "+strings.Join(status.allowed, ", "))
	flags.Var(&since, "since", "only those created since: 30m, 2h, 7d or a time")
	return cmd
}

// oneRun is a subcommand that does one thing with one run.
func oneRun(c *cli, cmd *cobra.Command, do func(context.Context, *client.Client, string) error) *cobra.Command {
	cmd.Args = exactly("RUN")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		server, err := c.connect()
		if err != nil {
			return err
		}
		return do(cmd.Context(), server, args[0])
	}
	return cmd
}

func newRunsShow(c *cli) *cobra.Command {
	return oneRun(c, &cobra.Command{
		Use: "show RUN", Short: "Show one run with what it holds",
		Example: "  holdfast runs show 01JDXV6J9QK4W9T6Z3N8M5R2PA",
	}, func(ctx context.Context, server *client.Client, id string) error {
		run, err := server.Run(ctx, id)
		if err != nil {
			return err
		}
		return c.print(run, func(w io.Writer) error { return writeRun(w, run) })
	})
}

// writeRun writes what there is to say of a run, one thing a line.
func writeRun(w io.Writer, run api.Run) error {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" && value != "-" {
			fmt.Fprintf(&b, "%-12s %s\n", name, oneLine(value))
		}
	}
	status := run.Status
	if run.StatusReason != "" {
		status += " (" + run.StatusReason + ")"
	}
	line("run", run.ID)
	line("team", run.Team)
	line("bot", run.Identity.String())
	line("status", status)
	line("detail", run.Detail)
	if run.ExitCode != nil {
		line("exit code", fmt.Sprint(*run.ExitCode))
	}
	line("spent", run.SpentUSD.Dollars()+" of "+run.BudgetUSD.Dollars()+cut(run.AskedUSD, run.CutBy))
	line("repo", run.Repo)
	line("pool", run.Pool)
	line("caller", run.Caller)
	line("runner", run.Runner)
	if run.Attempt > 0 {
		line("attempt", fmt.Sprint(run.Attempt))
	}
	if run.Skipped > 0 {
		line("skipped", fmt.Sprintf("%d lines of HOLDFAST_REPORT that could not be read", run.Skipped))
	}
	line("unheld", run.Unheld)
	line("created", showTime(run.CreatedAt))
	line("started", showTime(run.StartedAt))
	line("ended", showTime(run.EndedAt))
	line("retry", retryText(run.Retry))
	if run.Lease != nil {
		line("lease until", showTime(run.Lease.ExpiresAt))
	}
	line("decision", run.DecisionID)
	holds := "holds"
	if run.Ended() {
		holds = "held"
	}
	for _, a := range run.Allocations {
		line(holds, fmt.Sprintf("%s  %s  %s", a.Subject, show(a.Amount), a.ID))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// retryText says how a run stands with coming back by itself; empty: nothing was tried
// and nothing will be.
func retryText(r *api.RunRetry) string {
	switch {
	case r == nil:
		return ""
	case r.GivenUp != "":
		return "given up: " + r.GivenUp
	case r.NotBefore.IsZero() && r.Tries > 0:
		return "came back by itself " + times(r.Tries)
	case r.NotBefore.IsZero():
		return ""
	}
	text := "tried by itself at " + showTime(r.NotBefore)
	if r.Last != "" {
		text += fmt.Sprintf("; refused %s so far, last by %s", times(r.Refusals), r.Last)
	}
	return text
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func newRunsLogs(c *cli) *cobra.Command {
	var tail int
	var follow bool
	cmd := oneRun(c, &cobra.Command{
		Use: "logs RUN", Short: "Print the output of a run",
		Long:    "Logs prints what the newest attempt of a run wrote. -o does not apply to it.",
		Example: "  holdfast runs logs 01JDXV6J9QK4W9T6Z3N8M5R2PA\n  holdfast runs logs 01JDXV6J9QK4W9T6Z3N8M5R2PA --tail 20 --follow",
	}, func(ctx context.Context, server *client.Client, id string) error {
		if tail < 0 {
			return usagef("--tail %d is out of bounds (allowed: 0 for all, or a number of lines)", tail)
		}
		output, err := server.Logs(ctx, id, tail, follow)
		if err != nil {
			return err
		}
		defer func() { _ = output.Close() }()
		if _, err := io.Copy(c.stdout, output); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
			return fmt.Errorf("read the logs of run %s: %w: %w", id, client.ErrUnreachable, err)
		}
		return nil
	})
	cmd.Flags().IntVar(&tail, "tail", 0, "only the last so many lines; 0 prints all")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run has ended")
	return cmd
}

func newRunsCancel(c *cli) *cobra.Command {
	return oneRun(c, &cobra.Command{
		Use: "cancel RUN", Short: "End a run and give back what it holds",
		Long: `Cancel ends a queued run at once. A running one is stopped by its runner (TERM, then
KILL), an external one at its next heartbeat; the answer is then the run as it stands
while that is under way.`,
		Example: "  holdfast runs cancel 01JDXV6J9QK4W9T6Z3N8M5R2PA",
	}, func(ctx context.Context, server *client.Client, id string) error {
		run, err := server.Cancel(ctx, id)
		if err != nil {
			return err
		}
		return c.print(run, func(w io.Writer) error {
			if run.Ended() {
				return writeEnded(w, run)
			}
			_, err := fmt.Fprintf(w, "run %s is being stopped; it is still %s\n", run.ID, run.Status)
			return err
		})
	})
}

func newRunsResume(c *cli) *cobra.Command {
	var wait bool
	var waitFor waitFlag
	cmd := oneRun(c, &cobra.Command{
		Use: "resume RUN", Short: "Bring a run that failed resumably back through the gate",
		Long: `Resume asks the gate for a run that ended as failed_resumable: it is judged again, as
what it was, in the present month, with what is left of its budget.`,
		Example: "  holdfast runs resume 01JDXV6J9QK4W9T6Z3N8M5R2PA --wait",
	}, func(ctx context.Context, server *client.Client, id string) error {
		run, err := askUntil(ctx, c, waitFor.span, func(ctx context.Context) (api.Run, error) { return server.Resume(ctx, id) })
		if err != nil {
			return err
		}
		if wait {
			return c.waitForEnd(ctx, server, run)
		}
		return c.print(run, func(w io.Writer) error { return writeAdmitted(w, run) })
	})
	cmd.Flags().BoolVar(&wait, "wait", false, "stay until the run has ended; exit 1 when it did not finish")
	cmd.Flags().Var(&waitFor, "wait-for", "keep asking for so long until the run is admitted")
	return cmd
}
