package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
)

func newCapacity(c *cli) *cobra.Command {
	var team string
	cmd := &cobra.Command{
		Use:   "capacity [SUBJECT]",
		Short: "Show what can run out, who holds it and what is free",
		Long: `Capacity shows every subject that the caller may see, or one with its open
allocations. On a terminal each subject is a bar: what is settled, what each holder has
outstanding, what is withheld for a reservation, and what is free for a caller without
one. Elsewhere it is a table: under each subject stand its holders, with what is reserved
for each and what each could still be granted.

A subject is kind/id/axis[@period]: team/web/slots, team/web/usd@2026-11,
team/web/runs@2026-11, platform/all/slots.`,
		Example: `  holdfast capacity
  holdfast capacity --team web
  holdfast capacity team/web/slots
  holdfast capacity -o json`,
		Args: exactly("SUBJECT?"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if cmd.Flags().Changed("team") {
					return usagef("--team and a subject exclude each other (allowed: one of them)")
				}
				return c.showSubject(cmd, args[0])
			}
			server, err := c.connect()
			if err != nil {
				return err
			}
			capacity, err := server.Capacity(cmd.Context(), team)
			if err != nil {
				return err
			}
			return c.print(capacity, func(w io.Writer) error {
				if err := writeStanding(w, capacity.Policy); err != nil {
					return err
				}
				return c.writeCapacity(w, capacity.Subjects)
			})
		},
	}
	ownTeamFlag(cmd.Flags(), &team, "only this team's subjects")
	cmd.AddCommand(newCapacityRelease(c))
	return cmd
}

func (c *cli) showSubject(cmd *cobra.Command, text string) error {
	subject, err := holdfast.ParseSubject(text)
	if err != nil {
		return holdfast.InField("SUBJECT", err)
	}
	server, err := c.connect()
	if err != nil {
		return err
	}
	view, err := server.CapacitySubject(cmd.Context(), subject.String())
	if err != nil {
		return err
	}
	return c.print(view, func(w io.Writer) error {
		if err := c.writeCapacity(w, []api.SubjectCapacity{view}); err != nil {
			return err
		}
		t := &table{header: []string{"ALLOCATION", "HOLDER", "RUN", "AMOUNT", "SPENT", "EXPIRES IN", "RENEWED"}, empty: "nothing is held on it"}
		for _, e := range view.Entries {
			confirmed := "not yet"
			if e.Confirmed {
				confirmed = "yes"
			}
			t.add(e.Allocation, e.Holder, e.Run, show(e.Amount), show(e.Spent), showSpan(e.ExpiresAt.Sub(c.clock())), confirmed)
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		return t.write(w)
	})
}

// writeStanding says that the figures are by a policy that may not be the one that
// is written; nothing while it is known.
func writeStanding(w io.Writer, p api.PolicyStanding) error {
	var text string
	switch p.State {
	case "stale":
		text = "The policy cannot be read; what was known of it at " + p.AsOf.UTC().Format(time.RFC3339) + " stays reserved."
	case "never":
		text = "The policy was never read since the server's start: nothing is held back for anybody."
	default:
		return nil
	}
	if p.Reason != "" {
		text += " (" + p.Reason + ")"
	}
	_, err := fmt.Fprintln(w, text+"\n")
	return err
}

// writeCapacity writes bars on a terminal, and a table elsewhere.
func (c *cli) writeCapacity(w io.Writer, subjects []api.SubjectCapacity) error {
	if len(subjects) > 0 && c.stdoutTerminal {
		style := barStyle{width: max(20, min(c.width-4, 72)), colour: c.getenv("NO_COLOR") == "" && c.getenv("TERM") != "dumb"}
		return writeBars(w, subjects, style, c.clock())
	}
	t := &table{
		header: []string{"SUBJECT, HOLDERS", "CAP", "SETTLED", "OUTSTANDING", "RESERVED", "WITHHELD", "FREE", "OVER"},
		empty:  "nothing was ever reserved, and nothing has a cap",
	}
	for _, s := range subjects {
		t.add(s.Subject, showLimit(s.Cap), show(s.Settled), show(s.Outstanding), "", show(s.Withheld), showLimit(s.Free), show(s.Over))
		for _, h := range byOutstanding(s.Holders) {
			free := "-"
			if h.FreeFor != nil {
				free = show(*h.FreeFor)
			}
			t.add("  "+h.Holder, "", show(h.Settled), show(h.Outstanding), show(h.Reserved), "", free, "")
		}
	}
	return t.write(w)
}

func newCapacityRelease(c *cli) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "release ALLOCATION",
		Short: "Take an allocation away from its run",
		Long: `Release closes an allocation at once and stops the run that holds it. It is for an
operator who knows that the holder is gone and cannot wait for the lease. It is
audited with the reason.`,
		Example: `  holdfast capacity release 01JDXV6J9QK4W9T6Z3N8M5R2PA~team~web~slots --reason "the machine is gone"`,
		Args:    exactly("ALLOCATION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := required(cmd, "reason", "why, for the audit trail"); err != nil {
				return err
			}
			id := holdfast.AllocationID(args[0])
			if _, err := id.Subject(); err != nil {
				return err
			}
			server, err := c.connect()
			if err != nil {
				return err
			}
			answer, err := server.ReleaseAllocation(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return c.print(answer, func(w io.Writer) error {
				text := "closed; its run is being stopped"
				if !answer.Closed {
					text = "it was closed before; nothing changed"
				}
				_, err := fmt.Fprintln(w, text)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept in the audit trail (required)")
	return cmd
}
