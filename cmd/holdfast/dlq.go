package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

func newDLQ(c *cli) *cobra.Command {
	list := newDLQList(c)
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Look at messages that no runner could take, and replay them",
		Long: `A message that cannot be read, or that was delivered too often for a run which was queued
again in vain, becomes a dead letter: its run ends as failed_resumable (dead_lettered) and
gives back what it holds. A replay brings the run back through the gate, judged anew.
Dead letters are kept for a week.`,
		Example: `  holdfast dlq
  holdfast dlq show 12
  holdfast dlq replay 12`,
		RunE: onlySubcommandsOr(list.RunE),
		Args: cobra.ArbitraryArgs,
	}
	cmd.Flags().AddFlagSet(list.Flags())
	cmd.AddCommand(list, newDLQShow(c), newDLQReplay(c), newDLQRemove(c))
	return cmd
}

func newDLQList(c *cli) *cobra.Command {
	return listing[api.DeadLetter]{
		short: "List dead letters, the oldest first", example: "  holdfast dlq list -o json",
		header: []string{"SEQ", "WHEN", "REASON", "DELIVERIES", "RUN", "STATUS NOW", "TEAM", "BOT"}, empty: "no dead letters",
		row: func(d api.DeadLetter) []string {
			return []string{fmt.Sprint(d.Seq), showTime(d.At), d.Reason, fmt.Sprint(d.Deliveries), or(d.Run), or(d.RunStatus), or(d.Team), or(d.Bot)}
		},
	}.all(c, (*client.Client).DeadLetters)
}

// seqOf reads the number of a dead letter.
func seqOf(text string) (int64, error) {
	seq, err := strconv.ParseInt(text, 10, 32)
	if err != nil || seq < 1 {
		return 0, usagef("%q is not the number of a dead letter (allowed: SEQ as `holdfast dlq` shows it)", holdfast.Clip(text, 40))
	}
	return seq, nil
}

func newDLQShow(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show SEQ", Short: "Show a dead letter with its message", Example: "  holdfast dlq show 12", Args: exactly("SEQ"),
		RunE: func(cmd *cobra.Command, args []string) error {
			seq, err := seqOf(args[0])
			if err != nil {
				return err
			}
			server, err := c.connect()
			if err != nil {
				return err
			}
			d, err := server.DeadLetter(cmd.Context(), seq)
			if err != nil {
				return err
			}
			return c.print(d, func(w io.Writer) error {
				return writeRows(w, [][2]string{
					{"dead letter", fmt.Sprint(d.Seq)}, {"since", showTime(d.At)}, {"reason", fmt.Sprintf("%s after %d deliveries", d.Reason, d.Deliveries)},
					{"run", or(d.Run)}, {"status now", or(d.RunStatus)}, {"bot", or(d.Bot)}, {"message", d.Message},
				})
			})
		},
	}
}

func newDLQReplay(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "replay SEQ", Short: "Bring its run back through the gate, and remove it", Example: "  holdfast dlq replay 12", Args: exactly("SEQ"),
		RunE: func(cmd *cobra.Command, args []string) error {
			seq, err := seqOf(args[0])
			if err != nil {
				return err
			}
			server, err := c.connect()
			if err != nil {
				return err
			}
			run, err := server.ReplayDeadLetter(cmd.Context(), seq)
			if err != nil {
				return err
			}
			return c.print(run, func(w io.Writer) error { return writeAdmitted(w, run) })
		},
	}
}

func newDLQRemove(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "rm SEQ", Short: "Remove a dead letter for good; its run stays as it is", Example: "  holdfast dlq rm 12", Args: exactly("SEQ"),
		RunE: func(cmd *cobra.Command, args []string) error {
			seq, err := seqOf(args[0])
			if err != nil {
				return err
			}
			return c.removed(cmd, "dead letter", args[0], func(ctx context.Context, server *client.Client) error { return server.DeleteDeadLetter(ctx, seq) })
		},
	}
}
