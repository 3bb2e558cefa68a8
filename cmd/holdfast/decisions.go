package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

func newDecisions(c *cli) *cobra.Command {
	list := newDecisionsList(c)
	cmd := &cobra.Command{
		Use:   "decisions",
		Short: "List what the gate decided, and why",
		Long: `Decisions lists admissions and refusals of the gate, newest first, kept for 8 days.
"decisions show" prints one with all its arithmetic.`,
		Example: `  holdfast decisions --team web --since 1h
  holdfast decisions --reason concurrency_cap_exceeded
  holdfast decisions show 01JDXV6J9QK4W9T6Z3N8M5R2PA`,
		RunE: onlySubcommandsOr(list.RunE),
		Args: cobra.ArbitraryArgs,
	}
	cmd.Flags().AddFlagSet(list.Flags())
	cmd.AddCommand(list, newDecisionsShow(c), newDecisionsExplain(c))
	return cmd
}

func newDecisionsList(c *cli) *cobra.Command {
	var filter client.DecisionFilter
	since := sinceFlag{now: c.clock}
	reason := oneOf{kind: "REASON"}
	for _, r := range holdfast.DenyReasons() {
		reason.allowed = append(reason.allowed, string(r))
	}
	cause := oneOf{allowed: []string{string(holdfast.CauseReserved)}}
	cmd := listing[api.Decision]{
		short: "List decisions, newest first", example: "  holdfast decisions list --team web --cause capacity_reserved -o json",
		header: []string{"DECISION", "AT", "TEAM", "BOT", "OUTCOME", "SUBJECT", "TIMES"}, empty: "no decisions",
		row: func(d api.Decision) []string {
			return []string{d.ID, showTime(d.At), d.Team, bot(d), outcome(d), or(d.Subject), fmt.Sprint(max(1, d.Count))}
		},
	}.all(c, func(server *client.Client, ctx context.Context, window client.Window) (api.Page[api.Decision], error) {
		filter.Window, filter.Since, filter.Reason, filter.Cause = window, since.at, reason.value, cause.value
		return server.Decisions(ctx, filter)
	})
	flags := cmd.Flags()
	ownTeamFlag(flags, &filter.Team, "only this team's")
	flags.StringVarP(&filter.Bot, "bot", "b", "", "only of this bot")
	flags.Var(&reason, "reason", "only refusals of this reason")
	flags.Var(&cause, "cause", "only refusals of this cause")
	flags.Var(&since, "since", "only since: 30m, 2h, 7d or a time")
	return cmd
}

func bot(d api.Decision) string {
	if d.Identity != nil {
		return d.Identity.String()
	}
	return d.Bot
}

func outcome(d api.Decision) string {
	if d.Admitted {
		return "admitted"
	}
	if d.Cause != "" {
		return d.Reason + " (" + d.Cause + ")"
	}
	return d.Reason
}

func newDecisionsShow(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show DECISION", Short: "Show one decision with its arithmetic",
		Example: "  holdfast decisions show 01JDXV6J9QK4W9T6Z3N8M5R2PA",
		Args:    exactly("DECISION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := c.connect()
			if err != nil {
				return err
			}
			decision, err := server.Decision(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.print(decision, func(w io.Writer) error { return writeDecision(w, decision) })
		},
	}
}

func writeDecision(w io.Writer, d api.Decision) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s for team %s at %s: %s\n", d.ID, bot(d), d.Team, showTime(d.At), outcome(d))
	if d.Run != "" {
		fmt.Fprintf(&b, "run %s\n", d.Run)
	}
	if d.Detail != "" {
		fmt.Fprintf(&b, "%s\n", d.Detail)
	}
	if d.Count > 1 {
		fmt.Fprintf(&b, "%d times within a second\n", d.Count)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	if err := writeChecks(w, d.Checks); err != nil {
		return err
	}
	for _, h := range d.Holders {
		if _, err := fmt.Fprintf(w, "held by %s: %s\n", h.Holder, holderNumbers(h)); err != nil {
			return err
		}
	}
	return nil
}

// writeChecks writes the gate's checks in the order in which they ran.
func writeChecks(w io.Writer, checks []api.Check) error {
	t := &table{header: []string{"CHECK", "VERDICT", "SUBJECT", "ARITHMETIC"}, empty: "no checks ran"}
	for _, check := range checks {
		verdict := check.Verdict
		if check.Reason != "" {
			verdict += ": " + check.Reason
		}
		if check.Cause != "" {
			verdict += " (" + check.Cause + ")"
		}
		numbers := arithmetic(check.Cap, check.Requested, check.Settled, check.Outstanding, check.Withheld, check.Remaining)
		switch {
		case check.Allowance != nil && check.Verdict == "pass":
			numbers = strings.TrimPrefix(numbers+", granted "+show(*check.Allowance), ", ")
		case numbers == "":
			numbers = check.Detail
		}
		t.add(check.Name, verdict, or(check.Subject), or(numbers))
	}
	return t.write(w)
}
