package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/api"
)

// policyCheck is what `policy check` answers.
type policyCheck struct {
	Valid    bool               `json:"valid"`
	Effects  []api.PolicyEffect `json:"effects"`
	Warnings []string           `json:"warnings"`
	// Offline: no server was asked, so there are neither effects nor warnings.
	Offline bool `json:"offline,omitempty"`
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
			policy, _, err := c.readPolicy(file)
			if err != nil {
				return err
			}
			answer := policyCheck{Valid: true, Effects: []api.PolicyEffect{}, Warnings: []string{}, Offline: offline}
			if !offline {
				server, err := c.connect()
				if err != nil {
					return err
				}
				checked, err := server.CheckBudgetFloor(cmd.Context(), policy)
				if err != nil {
					return err
				}
				answer.Effects = append(answer.Effects, checked.Effects...)
				answer.Warnings = append(answer.Warnings, checked.Warnings...)
			}
			return c.print(answer, func(w io.Writer) error {
				if _, err := fmt.Fprintln(w, "the policy is valid"); err != nil || offline {
					return err
				}
				return writeEffects(w, answer.Effects, answer.Warnings)
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "YAML or JSON file, - for standard input (required)")
	cmd.Flags().BoolVar(&offline, "offline", false, "ask no server; check the rules alone")
	return cmd
}

// writeEffects writes what a policy does on each subject while no holder uses
// anything, and what an operator should know of it.
func writeEffects(w io.Writer, effects []api.PolicyEffect, warnings []string) error {
	t := &table{header: []string{"SUBJECT", "CAP", "RESERVED", "WITHHELD", "ORDINARY WORK KEEPS"}, empty: "nothing is withheld on any subject"}
	for _, e := range effects {
		t.add(e.Subject, showLimit(e.Cap), show(e.Written), show(e.Withheld), showLimit(e.Ordinary))
	}
	if err := t.write(w); err != nil {
		return err
	}
	for _, warning := range warnings {
		if _, err := fmt.Fprintln(w, "warning: "+warning); err != nil {
			return err
		}
	}
	return nil
}
