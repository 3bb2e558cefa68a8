package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

func newRunsExplain(c *cli) *cobra.Command {
	return oneRun(c, &cobra.Command{
		Use: "explain RUN", Short: "Say how a run came to stand as it does",
		Long:    "Explain tells a run's story: how its earlier attempts ended, what the gate judged last and\nby which numbers, what the run holds now, and how it stands.",
		Example: "  holdfast runs explain 01JDXV6J9QK4W9T6Z3N8M5R2PA",
	}, func(ctx context.Context, server *client.Client, id string) error {
		story, err := server.Explain(ctx, id)
		if err != nil {
			return err
		}
		return c.print(story, func(w io.Writer) error { return c.writeStory(w, story) })
	})
}

func newDecisionsExplain(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "explain DECISION", Short: "Say why the gate decided so, and what would have changed it",
		Long: `Explain tells the story of a refusal or an admission: the checks with their numbers,
who held what, the smallest change that would have admitted a refused launch, and when
it can fit at the earliest.`,
		Example: "  holdfast decisions explain 01JDXV6J9QK4W9T6Z3N8M5R2PA",
		Args:    exactly("DECISION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := c.connect()
			if err != nil {
				return err
			}
			story, err := server.ExplainDecision(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.print(story, func(w io.Writer) error { return c.writeStory(w, story) })
		},
	}
}

// writeStory writes an explanation: the sentences, the way out, the checks, and the
// subjects as they are now.
func (c *cli) writeStory(w io.Writer, story api.Explanation) error {
	var b strings.Builder
	for _, sentence := range story.Summary {
		b.WriteString(oneLine(sentence) + "\n")
	}
	if story.Change != "" {
		b.WriteString("what would have admitted it: " + oneLine(story.Change) + "\n")
	}
	if !story.Earliest.IsZero() {
		b.WriteString("it can fit at the earliest at " + showTime(story.Earliest))
		if story.Until != "" {
			b.WriteString(", " + story.Until)
		}
		b.WriteString("\n")
	}
	if story.Decision != nil {
		fmt.Fprintf(&b, "\nthe gate, %s, decision %s:\n", showTime(story.Decision.At), story.Decision.ID)
		if err := writeChecks(&b, story.Decision.Checks); err != nil {
			return err
		}
	}
	if len(story.Capacity) > 0 {
		b.WriteString("\nthe subjects, now:\n")
		if err := c.writeCapacity(&b, story.Capacity); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
