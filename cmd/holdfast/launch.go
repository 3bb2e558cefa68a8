package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

func newLaunch(c *cli) *cobra.Command {
	var flags launchFlags
	var wait bool
	var waitFor waitFlag
	cmd := &cobra.Command{
		Use:   "launch BOT",
		Short: "Launch a run of a bot",
		Long: `Launch asks the gate for a run. An admitted run holds its slot, its run of the month
and its dollars from now on, and is queued for a runner.

With --wait-for it keeps asking until it is admitted, as long as asking again can
help: after a second, then after ever longer pauses, up to what the server says; after
a refusal of the launch rate or of a maintenance, when the server says so. With --wait it stays until the run has ended; exit code 1 says that the run
did not finish.`,
		Example: `  holdfast launch review-pr --team web
  holdfast launch review-pr --team web --repo acme/widgets --budget 1.50 --wait
  holdfast launch feature-dev --team web --input seconds=5 --wait-for 30m`,
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
			key := newKey()
			run, err := askUntil(cmd.Context(), c, waitFor.span, func(ctx context.Context) (api.Run, error) {
				return server.Launch(ctx, request, key)
			})
			if err != nil {
				return err
			}
			if !wait {
				return c.print(run, func(w io.Writer) error {
					if err := writeAdmitted(w, run); err != nil {
						return err
					}
					return writeFollow(w, run)
				})
			}
			if !c.structured() {
				if err := writeAdmitted(c.stdout, run); err != nil {
					return err
				}
			}
			return c.waitForEnd(cmd.Context(), server, run)
		},
	}
	flags.add(cmd.Flags())
	flags.addInputs(cmd.Flags())
	cmd.Flags().BoolVar(&wait, "wait", false, "stay until the run has ended; exit 1 when it did not finish")
	cmd.Flags().Var(&waitFor, "wait-for", "keep asking for so long until the run is admitted")
	return cmd
}

// cut says that a run gets a smaller budget than its caller asked for, and why; empty
// where it does not.
func cut(asked holdfast.MicroUSD, by string) string {
	why := map[string]string{
		string(runs.CutBot): "its bot's own budget is smaller", string(runs.CutLimits): "max_run_usd of the limits setting is smaller",
		string(runs.CutCapacity): "no more was free",
	}[by]
	if asked == 0 {
		return ""
	}
	return fmt.Sprintf(" (asked %s; %s)", asked.Dollars(), why)
}

// writeFollow says how to follow a run that is not waited for.
func writeFollow(w io.Writer, run api.Run) error {
	_, err := fmt.Fprintf(w, "follow it with `holdfast runs logs %s --follow`; `holdfast runs show %s` says how it stands\n", run.ID, run.ID)
	return err
}

// writeAdmitted says what was reserved for a run.
func writeAdmitted(w io.Writer, run api.Run) error {
	var b strings.Builder
	fmt.Fprintf(&b, "run %s %s as %s, budget %s%s\n", run.ID, run.Status, run.Identity, run.BudgetUSD.Dollars(), cut(run.AskedUSD, run.CutBy))
	for _, a := range run.Allocations {
		fmt.Fprintf(&b, "  %s  %s\n", a.Subject, show(a.Amount))
	}
	if run.Unheld != "" {
		fmt.Fprintf(&b, "  admitted without an allocation: %s\n", run.Unheld)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// How often a run is looked at while it is waited for, beside every time that the
// server tells of it, and how long a server may be gone meanwhile: a machine that
// restarts comes back within that.
const (
	firstLook   = 100 * time.Millisecond
	slowestLook = 5 * time.Second
	patience    = 2 * time.Minute
)

// waitForEnd stays until the run has ended, prints how, and answers with exit code 1
// unless it finished.
func (c *cli) waitForEnd(ctx context.Context, server *client.Client, run api.Run) error {
	line := &progress{c: c}
	defer line.clear()
	look, seen := firstLook, c.clock()
	news, stop := c.newsOf(ctx, server, run)
	defer stop()
	for !run.Ended() {
		line.show("%s %s, spent %s of %s", run.ID, run.Status, run.SpentUSD.Dollars(), run.BudgetUSD.Dollars())
		if err := c.sleepUnless(ctx, look, news); err != nil {
			return &exitError{exitFailed, fmt.Errorf("interrupted; run %s goes on: `holdfast runs show %s` looks at it, `holdfast runs cancel %s` ends it", run.ID, run.ID, run.ID)}
		}
		look = min(look*3/2, slowestLook)
		next, err := server.Run(ctx, run.ID)
		switch {
		case err == nil:
			run, seen = next, c.clock()
		case ctx.Err() != nil:
		case errors.Is(err, client.ErrUnreachable) && c.clock().Sub(seen) < patience:
			line.show("%s: the server cannot be reached", run.ID)
		default:
			return fmt.Errorf("wait for run %s: %w", run.ID, err)
		}
	}
	line.clear()
	if err := c.print(run, func(w io.Writer) error { return writeEnded(w, run) }); err != nil {
		return err
	}
	if run.Status != string(runs.Finished) {
		return &exitError{code: exitFailed}
	}
	return nil
}

// writeEnded says in one line how a run ended and what it used.
func writeEnded(w io.Writer, run api.Run) error {
	text := fmt.Sprintf("run %s %s", run.ID, run.Status)
	if run.StatusReason != "" {
		text += " (" + run.StatusReason + ")"
	}
	if run.Detail != "" {
		text += ": " + run.Detail
	}
	text += fmt.Sprintf("; spent %s of %s", run.SpentUSD.Dollars(), run.BudgetUSD.Dollars())
	if !run.StartedAt.IsZero() && !run.EndedAt.IsZero() {
		text += " in " + showSpan(run.EndedAt.Sub(run.StartedAt))
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
