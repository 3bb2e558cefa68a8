package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/board"
	"github.com/holdfast-io/holdfast/pkg/client"
)

func newBoard(c *cli) *cobra.Command {
	list := newBoardList(c)
	cmd := &cobra.Command{
		Use:   "board",
		Short: "Put work on cards that are launched when they fit",
		Long: `The board has cards in four columns. A card in todo is launched through the gate, the
highest priority first and then the oldest; it goes to doing with its run, and from there
to done, or to blocked with the reason. One that is refused stays in todo, with the reason,
and is tried again later.`,
		Example: `  holdfast board add "write the docs of 2.1" --team web --bot docs-writer --priority 5
  holdfast board --team web
  holdfast board move 01JDXV6J9QK4W9T6Z3N8M5R2PA todo`,
		RunE: onlySubcommandsOr(list.RunE),
		Args: cobra.ArbitraryArgs,
	}
	cmd.Flags().AddFlagSet(list.Flags())
	cmd.AddCommand(list, newBoardShow(c), newBoardAdd(c), newBoardMove(c), newBoardRemove(c))
	return cmd
}

func columns() oneOf {
	column := oneOf{}
	for _, name := range board.Columns() {
		column.allowed = append(column.allowed, string(name))
	}
	return column
}

func newBoardList(c *cli) *cobra.Command {
	var team string
	column := columns()
	cmd := listing[api.Card]{
		short: "List cards, the newest first", example: "  holdfast board list --team web --column blocked",
		header: []string{"CARD", "TEAM", "COLUMN", "PRIORITY", "BOT", "TITLE", "RUN", "REFUSED", "NEXT TRY"},
		empty:  "no cards; `holdfast board add --help` shows how to make one",
		row: func(k api.Card) []string {
			return []string{k.ID, k.Team, k.Column, fmt.Sprint(k.Priority), k.Bot, k.Title, or(k.Run), or(whyRefused(k.Refused)), showTime(k.NotBefore)}
		},
	}.all(c, func(server *client.Client, ctx context.Context, window client.Window) (api.Page[api.Card], error) {
		return server.Cards(ctx, team, column.value, window)
	})
	cmd.Flags().StringVarP(&team, "team", "t", "", "only this team's")
	cmd.Flags().Var(&column, "column", "only of this column")
	return cmd
}

func writeCard(w io.Writer, k api.Card) error {
	err := writeRows(w, append([][2]string{
		{"card", k.ID}, {"title", k.Title}, {"column", k.Column}, {"bot", k.Bot + " of " + k.Team}, {"priority", fmt.Sprint(k.Priority)},
		{"attempts", fmt.Sprintf("%d of %d", k.Attempts, k.MaxAttempts)}, {"run", or(k.Run)},
	}, warningRows(k.Warnings)...))
	if err != nil {
		return err
	}
	t := &table{header: []string{"WHEN", "BY", "WHAT", "REASON", "DETAIL"}, empty: "nothing happened yet"}
	for _, n := range k.Log {
		what := n.What
		if n.Count > 1 {
			what = fmt.Sprintf("%s (%d times)", what, n.Count)
		}
		detail := n.Detail
		if detail == "" {
			detail = n.Run
		}
		t.add(showTime(n.At), n.By, what, or(n.Reason), or(detail))
	}
	return t.write(w)
}

func (c *cli) oneCard(cmd *cobra.Command, do func(context.Context, *client.Client) (api.Card, error)) error {
	return one(c, cmd, do, writeCard)
}

func newBoardShow(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show CARD", Short: "Show a card with its log", Example: "  holdfast board show 01JDXV6J9QK4W9T6Z3N8M5R2PA", Args: exactly("CARD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.oneCard(cmd, func(ctx context.Context, server *client.Client) (api.Card, error) { return server.Card(ctx, args[0]) })
		},
	}
}

func newBoardAdd(c *cli) *cobra.Command {
	var flags launchFlags
	var priority, attempts int
	cmd := &cobra.Command{
		Use: "add TITLE", Short: "Put a card into todo",
		Example: `  holdfast board add "write the docs of 2.1" --team web --bot docs-writer --priority 5 --budget 2`, Args: exactly("TITLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := required(cmd, "bot", "the bot that the card launches"); err != nil {
				return err
			}
			want, err := flags.request(flags.bot)
			if err != nil {
				return err
			}
			return c.oneCard(cmd, func(ctx context.Context, server *client.Client) (api.Card, error) {
				return server.CreateCard(ctx, api.CardCreate{
					Team: flags.team, Title: args[0], Bot: want.Bot, Repo: want.Repo, Inputs: want.Inputs, BudgetUSD: want.BudgetUSD, Pool: want.Pool,
					Priority: priority, MaxAttempts: attempts,
				})
			})
		},
	}
	flags.add(cmd.Flags())
	flags.addInputs(cmd.Flags())
	cmd.Flags().StringVarP(&flags.bot, "bot", "b", "", "bot that is launched (required)")
	cmd.Flags().IntVar(&priority, "priority", 0, "0 to 9, the highest is taken first")
	cmd.Flags().IntVar(&attempts, "attempts", 1, "how many runs the card may have until one finishes, 1 to 10")
	return cmd
}

func newBoardMove(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "move CARD COLUMN", Short: "Move a card to todo, done or blocked",
		Long:    "Move moves a card whose run does not live. In todo it is ready at once, with all its\nattempts; only its launch moves a card to doing.",
		Example: "  holdfast board move 01JDXV6J9QK4W9T6Z3N8M5R2PA todo", Args: exactly("CARD", "COLUMN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			column := columns()
			if err := column.Set(args[1]); err != nil {
				return usagef("COLUMN: %s", err)
			}
			return c.oneCard(cmd, func(ctx context.Context, server *client.Client) (api.Card, error) {
				return server.PatchCard(ctx, args[0], api.CardPatch{Column: &column.value})
			})
		},
	}
}

func newBoardRemove(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "rm CARD", Short: "Remove a card whose run does not live", Example: "  holdfast board rm 01JDXV6J9QK4W9T6Z3N8M5R2PA", Args: exactly("CARD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.removed(cmd, "card", args[0], func(ctx context.Context, server *client.Client) error { return server.DeleteCard(ctx, args[0]) })
		},
	}
}
