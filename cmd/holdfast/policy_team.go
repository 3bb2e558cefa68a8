package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/api"
)

// showTeamPolicy prints what of the policy and of the limits touches a team.
func (c *cli) showTeamPolicy(cmd *cobra.Command, team string) error {
	server, err := c.connect()
	if err != nil {
		return err
	}
	view, err := server.TeamPolicy(cmd.Context(), team)
	if err != nil {
		return err
	}
	return c.print(view, func(w io.Writer) error { return writeTeamPolicy(w, view) })
}

func writeTeamPolicy(w io.Writer, view api.TeamPolicy) error {
	if err := writeStanding(w, view.Policy); err != nil {
		return err
	}
	t := &table{header: []string{"SUBJECT", "CAP", "RESERVED", "ORDINARY WORK KEEPS"}}
	for _, s := range view.Subjects {
		var parts []string
		for _, part := range s.Reserved {
			parts = append(parts, show(part.Amount)+" for "+part.Holder)
		}
		t.add(s.Subject, showLimit(s.Cap), or(strings.Join(parts, ", ")), showLimit(s.Ordinary))
	}
	if err := t.write(w); err != nil {
		return err
	}
	rate := func(n *int64) string {
		if n == nil {
			return "no limit"
		}
		return fmt.Sprintf("%d a minute", *n)
	}
	lines := []string{"", "launches: " + rate(view.LaunchesPerMinute)}
	if view.Organisation != "" {
		lines = append(lines, "launches of the organisation "+view.Organisation+": "+rate(view.OrganisationLaunchesPerMinute))
	}
	budget := "budget of a run where nobody names one: " + view.DefaultRunUSD.Dollars()
	if view.MaxRunUSD != nil {
		budget += "; at most " + view.MaxRunUSD.Dollars()
	}
	lines = append(lines, budget)
	for _, r := range view.Reservations {
		text := ""
		if r.Note != "" {
			text = clip(r.Note, 200)
		}
		if !r.SuspendedUntil.IsZero() {
			text = strings.TrimPrefix(text+"; lent out until "+showTime(r.SuspendedUntil), "; ")
		}
		if text != "" {
			lines = append(lines, r.Holder+": "+text)
		}
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}
