package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/client"
)

// policyCheck is what `policy check` answers.
type policyCheck struct {
	Valid    bool           `json:"valid"`
	Effects  []policyEffect `json:"effects"`
	Warnings []string       `json:"warnings"`
	// Offline: no server was asked, so there are no effects.
	Offline bool `json:"offline,omitempty"`
}

// policyEffect is what a policy does on one subject while nobody runs.
type policyEffect struct {
	Subject  string        `json:"subject"`
	Cap      *api.Amount   `json:"cap"`
	Withheld api.Amount    `json:"withheld"`
	Ordinary *api.Amount   `json:"ordinary"` // what work without a reservation keeps; null: unlimited
	Shares   []policyShare `json:"shares"`
}

type policyShare struct {
	Holder string     `json:"holder"`
	Amount api.Amount `json:"amount"`
}

func newPolicyCheck(c *cli) *cobra.Command {
	var file string
	var offline bool
	cmd := &cobra.Command{
		Use: "check -f FILE", Short: "Read a policy file and say what it would do",
		Long: `Check reads a policy file, holds it against every rule and prints, for each subject of
the server, the cap, what would be withheld and what ordinary work would keep, and
warns where that is nothing. It changes nothing. --offline asks no server and checks the
rules alone.`,
		Example: "  holdfast policy check -f policy.yaml\n  holdfast policy check -f policy.yaml --offline -o json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := required(cmd, "file", "a YAML or JSON file, or - for standard input"); err != nil {
				return err
			}
			_, policy, err := c.readPolicy(file)
			if err != nil {
				return err
			}
			answer := policyCheck{Valid: true, Effects: []policyEffect{}, Warnings: []string{}, Offline: offline}
			if !offline {
				server, err := c.connect()
				if err != nil {
					return err
				}
				deployed, err := deployment(cmd.Context(), server)
				if err != nil {
					return err
				}
				for _, e := range policy.Effects(deployed, c.clock()) {
					answer.Effects = append(answer.Effects, effectOf(e))
				}
				for _, warning := range policy.Warnings(deployed, c.clock()) {
					answer.Warnings = append(answer.Warnings, warning.Text)
				}
			}
			return c.print(answer, func(w io.Writer) error { return writePolicyCheck(w, answer) })
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "YAML or JSON file, - for standard input (required)")
	cmd.Flags().BoolVar(&offline, "offline", false, "ask no server; check the rules alone")
	return cmd
}

func effectOf(e budgetfloor.Effect) policyEffect {
	out := policyEffect{
		Subject: e.Subject.String(), Cap: api.LimitOf(e.Cap), Withheld: api.AmountOf(e.Withheld), Ordinary: api.LimitOf(e.Ordinary),
		Shares: []policyShare{},
	}
	for _, share := range e.Shares {
		out.Shares = append(out.Shares, policyShare{share.Holder.String(), api.AmountOf(share.Amount)})
	}
	return out
}

func writePolicyCheck(w io.Writer, answer policyCheck) error {
	if _, err := fmt.Fprintln(w, "the policy is valid"); err != nil {
		return err
	}
	if answer.Offline {
		return nil
	}
	t := &table{header: []string{"SUBJECT", "CAP", "WITHHELD", "ORDINARY WORK KEEPS", "FOR"}, empty: "it reserves nothing on any subject of the server"}
	for _, e := range answer.Effects {
		row := []string{e.Subject, showLimit(e.Cap), show(e.Withheld), showLimit(e.Ordinary)}
		for i, share := range e.Shares {
			if i > 0 {
				row = []string{"", "", "", ""}
			}
			t.add(append(row, share.Holder+" "+show(share.Amount))...)
		}
	}
	if err := t.write(w); err != nil {
		return err
	}
	return writeWarnings(w, answer.Warnings)
}

// deployment reads the caps that a policy is weighed against from the server.
func deployment(ctx context.Context, server *client.Client) (budgetfloor.Deployment, error) {
	limits, err := server.Limits(ctx)
	if err != nil {
		return budgetfloor.Deployment{}, fmt.Errorf("read the limits: %w", err)
	}
	caps, err := server.UsageCaps(ctx)
	if err != nil {
		return budgetfloor.Deployment{}, fmt.Errorf("read the usage caps: %w", err)
	}
	deployed := budgetfloor.Deployment{
		PlatformSlots: limits.Platform.MaxConcurrentRuns.Limit(holdfast.UnitSlots),
		PlatformUSD:   limits.Platform.MonthlyUSD.Limit(holdfast.UnitUSD),
		FiveHour:      ceiling(caps.FiveHourPercent, caps.FiveHourMode),
		Week:          ceiling(caps.WeekPercent, caps.WeekMode),
	}
	for cursor := ""; ; {
		page, err := server.Teams(ctx, client.Window{Cursor: cursor})
		if err != nil {
			return budgetfloor.Deployment{}, fmt.Errorf("read the teams: %w", err)
		}
		for _, team := range page.Items {
			deployed.Teams = append(deployed.Teams, budgetfloor.Team{
				ID:    holdfast.TeamID(team.ID),
				Slots: team.Limits.MaxConcurrentRuns.Or(limits.DefaultMaxConcurrentRuns.LimitSetting).Limit(holdfast.UnitSlots),
				USD:   team.Limits.MonthlyUSD.Or(limits.DefaultMonthlyUSD.LimitSetting).Limit(holdfast.UnitUSD),
			})
		}
		if page.NextCursor == "" || page.NextCursor == cursor {
			return deployed, nil
		}
		cursor = page.NextCursor
	}
}

// ceiling is a usage window's cap; zero where it is not enforced.
func ceiling(percent int, mode string) holdfast.BasisPoints {
	if mode == "off" {
		return 0
	}
	return holdfast.BasisPoints(percent) * holdfast.Whole / 100
}
