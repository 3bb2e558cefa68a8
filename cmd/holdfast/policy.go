package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/cmd/internal/yamlfile"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/client"
)

func newPolicy(c *cli) *cobra.Command {
	show := newPolicyShow(c)
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Show and edit what is reserved for whom",
		Long: `The policy says what is held back for a bot from everybody else (reservations) and what
one repository may spend (quotas). A reservation never creates a cap, and it never lets
its holder past one.

reserve, quota, suspend and rm change one entry and leave the rest; set replaces the
whole policy with a file's, check reads a file and changes nothing.`,
		Example: `  holdfast policy show
  holdfast policy reserve review-pr --concurrent-runs 2 --monthly-usd 300
  holdfast policy suspend review-pr --for 2h
  holdfast policy check -f policy.yaml
  holdfast policy set -f policy.yaml`,
		RunE: onlySubcommandsOr(show.RunE),
		Args: cobra.ArbitraryArgs,
	}
	cmd.Flags().AddFlagSet(show.Flags())
	cmd.AddCommand(show, newPolicySet(c), newPolicyCheck(c), newPolicyReserve(c), newPolicyQuota(c), newPolicySuspend(c), newPolicyRemove(c))
	return cmd
}

func newPolicyShow(c *cli) *cobra.Command {
	var team string
	cmd := &cobra.Command{
		Use: "show", Short: "Print the policy in force, with its warnings",
		Long: `Show prints the policy; it takes the operator's token. With -o yaml the output can be
edited and read back with "policy set -f". With --team it prints what of the policy and
of the limits touches a team, which any token of the team may ask.`,
		Example: `  holdfast policy show
  holdfast policy show -o yaml > policy.yaml
  holdfast policy show --team web`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if team != "" {
				return c.showTeamPolicy(cmd, team)
			}
			server, err := c.connect()
			if err != nil {
				return err
			}
			policy, err := server.BudgetFloor(cmd.Context())
			if err != nil {
				return err
			}
			return c.printPolicy(policy)
		},
	}
	cmd.Flags().StringVarP(&team, "team", "t", "", "what touches this team")
	return cmd
}

func (c *cli) printPolicy(policy api.BudgetFloor) error {
	return c.print(policy, func(w io.Writer) error {
		if err := writePolicy(w, policy); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		return writeEffects(w, policy.Effects, policy.Warnings)
	})
}

// writePolicy writes the entries in policy order, which is the order in which
// reservations are served where they sum above a cap.
func writePolicy(w io.Writer, policy api.BudgetFloor) error {
	t := &table{header: []string{"RESERVED FOR", "SLOTS", "MONTHLY USD", "5 H", "WEEK", "TEAMS", "LENT OUT UNTIL", "NOTE"}, empty: "nothing is reserved"}
	for _, r := range policy.Reservations {
		teams := "all"
		if len(r.Teams) > 0 {
			teams = strings.Join(r.Teams, ", ")
		}
		t.add(holderOf(r.Bot, r.Tier, r.Team), number(r.ConcurrentRuns), dollars(r.MonthlyUSD), percent(r.FiveHourPercent), percent(r.WeekPercent),
			teams, untilText(r.SuspendedUntil), or(clip(r.Note, 60)))
	}
	if err := t.write(w); err != nil || len(policy.RepoQuotas) == 0 {
		return err
	}
	q := &table{header: []string{"REPOSITORY", "MONTHLY USD", "SHARE", "OF"}}
	for _, quota := range policy.RepoQuotas {
		amount, of := "-", "-"
		if quota.MonthlyUSD != nil {
			amount = quota.MonthlyUSD.Dollars()
		}
		if quota.ShareOf != nil {
			of = holderOf(quota.ShareOf.Bot, quota.ShareOf.Tier, quota.ShareOf.Team)
		}
		q.add(quota.Repo, amount, percent(quota.ReserveSharePercent), of)
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return q.write(w)
}

func holderOf(bot, tier, team string) string {
	if tier == "" {
		tier = string(holdfast.TierPlatform)
	}
	return api.Identity{Bot: bot, Tier: tier, Team: team}.String()
}

func number(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func dollars(m holdfast.MicroUSD) string {
	if m == 0 {
		return "-"
	}
	return m.Dollars()
}

func percent(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", n)
}

// checkedPolicy holds a policy against the rules that the server will hold it
// against, and returns it as the rules read it. where is put before the field.
func checkedPolicy(policy api.BudgetFloor, where string) (budgetfloor.Policy, error) {
	text, err := json.Marshal(api.BudgetFloor{Reservations: policy.Reservations, RepoQuotas: policy.RepoQuotas})
	if err != nil {
		return budgetfloor.Policy{}, fmt.Errorf("encode the policy: %w", err)
	}
	checked, err := budgetfloor.Decode(text)
	var invalid *holdfast.InvalidError
	if errors.As(err, &invalid) && where != "" {
		return checked, &holdfast.InvalidError{Field: strings.TrimSuffix(where+": "+invalid.Field, ": "), Problem: invalid.Problem, Allowed: invalid.Allowed}
	}
	return checked, err
}

// readPolicy reads and checks a policy file.
func (c *cli) readPolicy(file string) (api.BudgetFloor, budgetfloor.Policy, error) {
	text, err := c.readFile(file)
	if err != nil {
		return api.BudgetFloor{}, budgetfloor.Policy{}, err
	}
	return decodePolicy(file, text)
}

// decodePolicy reads the text of a policy file.
func decodePolicy(file string, text []byte) (api.BudgetFloor, budgetfloor.Policy, error) {
	var policy api.BudgetFloor
	if err := yamlfile.Decode(file, text, &policy); err != nil {
		return api.BudgetFloor{}, budgetfloor.Policy{}, err
	}
	checked, err := checkedPolicy(policy, file)
	return policy, checked, err
}

func newPolicySet(c *cli) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "set -f FILE", Short: "Replace the whole policy with a file's",
		Long: `Set replaces the whole policy. A file with the field updated_at replaces only what was
read then: when somebody was faster, nothing is written and the exit code is 1. A file
without it replaces what there is now.`,
		Example: "  holdfast policy set -f policy.yaml", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := required(cmd, "file", "a YAML or JSON file, or - for standard input"); err != nil {
				return err
			}
			policy, _, err := c.readPolicy(file)
			if err != nil {
				return err
			}
			server, err := c.connect()
			if err != nil {
				return err
			}
			if policy.UpdatedAt.IsZero() {
				current, err := server.BudgetFloor(cmd.Context())
				if err != nil {
					return err
				}
				policy.UpdatedAt = current.UpdatedAt
			}
			stored, err := server.PutBudgetFloor(cmd.Context(), policy)
			if err != nil {
				return err
			}
			return c.printPolicy(stored)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "YAML or JSON file, - for standard input (required)")
	return cmd
}

// editFlags are the flags of every command that edits one entry.
type editFlags struct{ dryRun bool }

func (f *editFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the policy as it would be, with its warnings, and write nothing")
}

// editPolicy changes the policy by one edit: read it, edit it, check it, write it
// with the token that was read. When somebody else wrote in between, the same edit
// is replayed on what they wrote, exactly once. A dry run ends with the server's
// check.
func (c *cli) editPolicy(ctx context.Context, f editFlags, edit func(*api.BudgetFloor) error) error {
	server, err := c.connect()
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		policy, err := server.BudgetFloor(ctx)
		if err != nil {
			return err
		}
		if err := edit(&policy); err != nil {
			return err
		}
		if _, err := checkedPolicy(policy, ""); err != nil {
			return err
		}
		edited := api.BudgetFloor{
			Reservations: policy.Reservations, RepoQuotas: policy.RepoQuotas,
			SettingState: api.SettingState{UpdatedAt: policy.UpdatedAt},
		}
		if f.dryRun {
			return c.dryPolicy(ctx, server, edited)
		}
		stored, err := server.PutBudgetFloor(ctx, edited)
		var conflict *client.Conflict
		switch {
		case err == nil:
			return c.printPolicy(stored)
		case try == 1 && errors.As(err, &conflict):
		default:
			return err
		}
	}
}

// dryPolicy prints a policy as the server would store it.
func (c *cli) dryPolicy(ctx context.Context, server *client.Client, policy api.BudgetFloor) error {
	checked, err := server.CheckBudgetFloor(ctx, policy)
	if err != nil {
		return err
	}
	if !c.structured() {
		if _, err := fmt.Fprint(c.stdout, "Nothing was written. The policy would be:\n\n"); err != nil {
			return err
		}
	}
	return c.printPolicy(checked)
}
