package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/cmd/internal/yamlfile"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

func newBots(c *cli) *cobra.Command {
	list := newBotsList(c)
	cmd := &cobra.Command{
		Use:   "bots",
		Short: "List and write bots",
		Long: `Bots are what runs are of. A name is looked up among the team's own bots, then among
the platform's, then in the catalog that is built in; "bots --team T" shows what each
name is for a team.`,
		Example: `  holdfast bots --team web
  holdfast bots show review-pr
  holdfast bots set lint --team web -- make lint
  holdfast bots set review-pr -f review.yaml`,
		RunE: onlySubcommandsOr(list.RunE),
		Args: cobra.ArbitraryArgs,
	}
	cmd.Flags().AddFlagSet(list.Flags())
	cmd.AddCommand(list, newBotsShow(c), newBotsSet(c), newBotsRemove(c))
	return cmd
}

func newBotsList(c *cli) *cobra.Command {
	var team string
	cmd := listing[api.Bot]{
		short: "List bots as they resolve for a team, or the platform's", example: "  holdfast bots list --team web -o yaml",
		header: []string{"BOT", "TIER", "FROM", "LANE", "BUDGET", "RUNS"}, empty: "no bots",
		row: func(b api.Bot) []string {
			budget := "-"
			if b.BudgetUSD != nil {
				budget = b.BudgetUSD.Dollars()
			}
			return []string{b.Bot, b.Tier, or(b.Origin), b.Lane, budget, or(clip(strings.Join(b.Command, " ")+b.Prompt, 60))}
		},
	}.all(c, func(server *client.Client, ctx context.Context, window client.Window) (api.Page[api.Bot], error) {
		return server.Bots(ctx, team, window)
	})
	cmd.Flags().StringVarP(&team, "team", "t", "", "as they resolve for this team (default: the platform's)")
	return cmd
}

// clip shortens a text for a table and takes line ends out of it.
func clip(text string, n int) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return string(runes)
}

func newBotsShow(c *cli) *cobra.Command {
	var team string
	cmd := &cobra.Command{
		Use: "show BOT", Short: "Show one bot as it resolves for a team, or the platform's",
		Long:    "Show prints a bot as YAML that \"bots set -f\" reads back once the lines tier, team and\norigin are taken out.",
		Example: "  holdfast bots show review-pr --team web", Args: exactly("BOT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := c.connect()
			if err != nil {
				return err
			}
			bot, err := server.Bot(cmd.Context(), team, args[0])
			if err != nil {
				return err
			}
			return c.print(bot, func(w io.Writer) error { return encode(w, formatYAML, bot) })
		},
	}
	cmd.Flags().StringVarP(&team, "team", "t", "", "as it resolves for this team (default: the platform's)")
	return cmd
}

const botsSetHelp = `Set writes a bot: from a file, or as a command that is given behind two dashes. With
--team it is the team's own, without it the platform's. Runs that were admitted keep the
bot that they were admitted with.

The file's fields are lane (command), command, inputs, env, budget_usd, min_budget_usd,
max_duration, retries (how often a lost run comes back by itself), repo_url and ref (the
commit that a run starts in), needs, prompt, model and description, as in:

  lane: command
  command: [./review, "{{pr}}"]
  inputs: {pr: {required: true}, depth: {default: "2"}}
  repo_url: https://github.com/acme/review-bot
  budget_usd: 1.50
  retries: 2`

func newBotsSet(c *cli) *cobra.Command {
	var team, file, description string
	var budget, minBudget usdFlag
	cmd := &cobra.Command{
		Use:   "set BOT (-f FILE | -- CMD ARG…)",
		Short: "Write a bot of a team, or of the platform",
		Long:  botsSetHelp,
		Example: `  holdfast bots set lint --team web --budget 0.50 -- make lint
  holdfast bots set review-pr -f review.yaml`,
		Args: exactly("BOT", "CMD?", "ARG…"),
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		dash := cmd.ArgsLenAtDash()
		switch {
		case len(args) == 0 || dash == 0:
			return usagef("BOT is missing; usage: %s", cmd.UseLine())
		case dash < 0 && len(args) > 1, dash > 1:
			return usagef("unexpected argument %q; usage: %s", args[1], cmd.UseLine())
		case (file == "") == (len(args) < 2):
			return usagef("either -f FILE or a command behind -- is needed; usage: %s", cmd.UseLine())
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		body := api.BotBody{Lane: "command", Command: args[1:]}
		if file != "" {
			text, err := c.readFile(file)
			if err != nil {
				return err
			}
			body = api.BotBody{}
			if err := yamlfile.Decode(file, text, &body); err != nil {
				return err
			}
		}
		if budget.value != nil {
			body.BudgetUSD = budget.value
		}
		if minBudget.value != nil {
			body.MinBudgetUSD = minBudget.value
		}
		if description != "" {
			body.Description = description
		}
		server, err := c.connect()
		if err != nil {
			return err
		}
		stored, created, err := server.PutBot(cmd.Context(), team, args[0], body)
		if err != nil {
			return err
		}
		return c.print(stored, func(w io.Writer) error {
			word := "changed"
			if created {
				word = "created"
			}
			_, err := fmt.Fprintf(w, "bot %s %s\n", api.Identity{Bot: stored.Bot, Tier: stored.Tier, Team: stored.Team}, word)
			return err
		})
	}
	flags := cmd.Flags()
	flags.StringVarP(&team, "team", "t", "", "write this team's own bot (default: the platform's)")
	flags.StringVarP(&file, "file", "f", "", "YAML or JSON file, - for standard input")
	flags.Var(&budget, "budget", "most that a run of it may spend, in dollars")
	flags.Var(&minBudget, "min-budget", "least that is worth running with, in dollars")
	flags.StringVar(&description, "description", "", "what it does, for people")
	return cmd
}

func newBotsRemove(c *cli) *cobra.Command {
	var team string
	cmd := &cobra.Command{
		Use: "rm BOT", Short: "Remove a bot of a team, or of the platform",
		Long:    "Rm removes a bot that was written. A name that the platform or the catalog also has\nfalls back to that. Runs that were admitted are not touched.",
		Example: "  holdfast bots rm lint --team web", Args: exactly("BOT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.did(cmd, map[string]any{"bot": args[0], "removed": true}, fmt.Sprintf("bot %s is removed", args[0]), func(ctx context.Context, server *client.Client) error {
				return server.DeleteBot(ctx, team, args[0])
			})
		},
	}
	cmd.Flags().StringVarP(&team, "team", "t", "", "remove this team's own bot (default: the platform's)")
	return cmd
}
