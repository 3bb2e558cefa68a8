package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/cmd/internal/yamlfile"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/simulate"
)

const simulateLong = `Simulate replays a trace of agent runs against a policy, through the gate and the ledger
of a server on a simulated clock, without and with the policy, and shows both sides: what
the holder of a reservation gained, what the others lost, and what lay idle. It asks no
server and changes nothing.

A TRACE is a CSV file with a header, a file of one JSON object a line, or a folder of
Claude Code transcripts such as ~/.claude/projects (a team is a project, a run a session).
Columns are found by name; all are optional, and what is missing is assumed in the open:

%s
--map takes another column for one of these; --assign says who is which bot where the
trace does not, by tenant, repo or model. Rows without a bot are the bot "default" of
their team.

Without --caps the caps are the 75th percentile of the trace's own peaks, because a
reservation creates no cap. A caps file has platform and teams ("*" is every team), each
with max_concurrent_runs and monthly_usd, teams also with monthly_runs and
launches_per_minute, and windows with five_hour and week, each with usd (what a full
window is worth) and cap_percent.`

func newSimulate(c *cli) *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use: "simulate TRACE… --policy FILE", Short: "Replay a usage trace against a policy and show both sides",
		Long: fmt.Sprintf(simulateLong, columnHelp()),
		Example: `  holdfast simulate examples/trace.csv --policy examples/policy.yaml --caps examples/caps.yaml
  holdfast simulate ~/.claude/projects --policy policy.yaml --assign tenant=my-project,bot=review-pr
  holdfast simulate usage.csv --policy new.yaml --against current.yaml --map bot=workload -o json`,
		Args: exactly("TRACE…"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := required(cmd, "policy", "a YAML or JSON file with reservations"); err != nil {
				return err
			}
			in, err := f.input(c, args)
			if err != nil {
				return err
			}
			result, err := simulate.Run(cmd.Context(), in)
			if err != nil {
				return err
			}
			return c.print(result, result.Text)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.policy, "policy", "", "the policy, a YAML or JSON file (required)")
	flags.StringVar(&f.against, "against", "", "another policy, to be compared with the first")
	flags.StringVar(&f.caps, "caps", "", "what runs are judged against, a YAML or JSON file")
	flags.DurationVar(&f.span, "span", simulate.DefaultSpan, "over how long rows without a time are spread")
	flags.StringArrayVar(&f.maps, "map", nil, "take a column of the trace, OURS=COLUMN; repeatable")
	flags.StringArrayVar(&f.assign, "assign", nil, "say who is which bot, tenant=T,bot=B; repeatable, the first that fits")
	flags.StringVar(&f.model, "model", simulate.DefaultModel, "prices tokens where the trace names no model, or one without a price")
	flags.DurationVar(&f.patience, "patience", 0, "how long a refused run keeps asking; 0: a refusal is final")
	return cmd
}

type simulateFlags struct {
	policy, against, caps, model string
	span, patience               time.Duration
	maps, assign                 []string
}

// input reads everything that the flags name.
func (f simulateFlags) input(c *cli, traces []string) (simulate.Input, error) {
	read := simulate.ReadOptions{Span: f.span, Model: f.model, Map: map[string]string{}}
	in := simulate.Input{Patience: f.patience}
	switch {
	case f.span <= 0:
		return in, &holdfast.InvalidError{Field: "span", Problem: fmt.Sprintf("%s is no time to spread rows over", f.span), Allowed: "a positive duration such as 24h"}
	case f.patience < 0:
		return in, &holdfast.InvalidError{Field: "patience", Problem: fmt.Sprintf("%s is negative", f.patience), Allowed: "0 or a duration such as 30m"}
	}
	for _, text := range f.maps {
		if err := simulate.ParseMap(read.Map, text); err != nil {
			return in, err
		}
	}
	for _, text := range f.assign {
		assignment, err := simulate.ParseAssignment(text)
		if err != nil {
			return in, err
		}
		read.Assign = append(read.Assign, assignment)
	}
	var err error
	if _, in.Policy, err = c.readPolicy(f.policy); err != nil {
		return in, err
	}
	if f.against != "" {
		var against budgetfloor.Policy
		if _, against, err = c.readPolicy(f.against); err != nil {
			return in, err
		}
		in.Against = &against
	}
	if f.caps != "" {
		text, err := c.readFile(f.caps)
		if err != nil {
			return in, err
		}
		caps, err := decodeCaps(f.caps, text)
		if err != nil {
			return in, err
		}
		in.Caps = &caps
	}
	in.Trace, err = simulate.Read(traces, read)
	return in, err
}

// decodeCaps reads a caps file.
func decodeCaps(name string, text []byte) (simulate.Caps, error) {
	var caps simulate.Caps
	if err := yamlfile.Decode(name, text, &caps); err != nil {
		return caps, err
	}
	checked, err := caps.Checked()
	if bad, ok := errors.AsType[*holdfast.InvalidError](err); ok {
		return caps, &holdfast.InvalidError{Field: name + ": " + bad.Field, Problem: bad.Problem, Allowed: bad.Allowed}
	}
	return checked, err
}

// columnHelp lists the columns of a trace for the help page.
func columnHelp() string {
	var b strings.Builder
	for _, column := range simulate.Columns() {
		fmt.Fprintf(&b, "  %-20s %s\n", column.Name, column.Meaning)
		if len(column.Aliases) > 0 {
			fmt.Fprintf(&b, "  %-20s also: %s\n", "", strings.Join(column.Aliases, ", "))
		}
	}
	return b.String()
}
