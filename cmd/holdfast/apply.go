package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/cmd/internal/apply"
)

// applied is what `apply` answers.
type applied struct {
	DryRun  bool           `json:"dry_run"`
	Changes []apply.Change `json:"changes"`
	Done    int            `json:"done"` // of the changes; all unless something failed
}

func newApply(c *cli) *cobra.Command {
	var files []string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "apply -f FILE…",
		Short: "Bring teams, limits, bots and the policy to what files say",
		Long: `Apply reads YAML or JSON documents with teams, limits, bots and policy (or a policy
alone), shows what differs from the server, and changes that, in this order: teams,
limits, bots, policy. What the files do not name is left as it is; nothing is removed.
limits and policy are whole settings: what they leave out goes back to its default.
A second apply of the same files finds nothing to do.`,
		Example: `  holdfast apply -f examples/fleet.yaml --dry-run
  holdfast apply -f teams.yaml -f policy.yaml
  cat fleet.yaml | holdfast apply -f -`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return usagef("-f is missing (allowed: YAML or JSON files, or - for standard input)")
			}
			var texts []apply.File
			for _, name := range files {
				text, err := c.readFile(name)
				if err != nil {
					return err
				}
				texts = append(texts, apply.File{Name: name, Text: text})
			}
			fleet, err := apply.Read(texts)
			if err != nil {
				return err
			}
			server, err := c.connect()
			if err != nil {
				return err
			}
			plan, err := apply.NewPlan(cmd.Context(), server, fleet)
			if err != nil {
				return err
			}
			answer := applied{DryRun: dryRun, Changes: plan.Changes()}
			if !c.structured() {
				if err := writeChanges(c.stdout, answer.Changes); err != nil {
					return err
				}
			}
			if !dryRun {
				err = plan.Apply(cmd.Context(), func(apply.Change) { answer.Done++ })
			}
			if printErr := c.print(answer, func(w io.Writer) error { return writeApplied(w, answer) }); err == nil {
				err = printErr
			}
			return err
		},
	}
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "YAML or JSON file, - for standard input; repeat for several (required)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would change and change nothing")
	return cmd
}

// writeChanges shows a plan as a diff.
func writeChanges(w io.Writer, changes []apply.Change) error {
	for _, change := range changes {
		sign := "~"
		if change.Action == apply.ActionCreate {
			sign = "+"
		}
		if _, err := fmt.Fprintf(w, "%s %s\n", sign, change.What); err != nil {
			return err
		}
		for _, f := range change.Fields {
			line := fmt.Sprintf("    ~ %s: %s -> %s", f.Path, f.From, f.To)
			switch {
			case f.From == "":
				line = fmt.Sprintf("    + %s: %s", f.Path, f.To)
			case f.To == "":
				line = fmt.Sprintf("    - %s: %s", f.Path, f.From)
			}
			if _, err := fmt.Fprintln(w, line); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeApplied(w io.Writer, answer applied) error {
	text := "nothing to do"
	switch {
	case len(answer.Changes) == 0:
	case answer.DryRun:
		text = counted(len(answer.Changes)) + "; nothing was changed"
	default:
		text = fmt.Sprintf("%d of %s done", answer.Done, counted(len(answer.Changes)))
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

func counted(changes int) string {
	if changes == 1 {
		return "1 change"
	}
	return fmt.Sprintf("%d changes", changes)
}
