package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/cmd/internal/yamlfile"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

func newWebhooks(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "webhooks",
		Short: "Launch bots for pull and merge requests",
		Long: `Webhooks let GitHub, GitLab and Forgejo (or Gitea) launch a team's bots. The rules of a
webhook are tried in their order; the first that wants an event launches its bot, through
the gate. A delivery launches once, however often it comes.`,
		Example: `  holdfast webhooks create reviews --team web --forge github --rules rules.yaml
  holdfast webhooks create reviews --team web --forge github --repo 'acme/*' --bot review-pr
  holdfast webhooks deliveries 01JDXV6J9QK4W9T6Z3N8M5R2PA --team web`,
		RunE: onlySubcommands,
		Args: cobra.ArbitraryArgs,
	}
	cmd.AddCommand(newWebhooksList(c), newWebhooksCreate(c), newWebhooksSet(c), newWebhooksDeliveries(c), newWebhooksRemove(c))
	return cmd
}

// ofTeam is a command that is about things of one team.
func ofTeam(cmd *cobra.Command, team *string) *cobra.Command {
	teamFlag(cmd, team)
	return cmd
}

func newWebhooksList(c *cli) *cobra.Command {
	return listing[api.Webhook]{
		short: "List a team's webhooks, without their secrets", example: "  holdfast webhooks list --team web",
		header: []string{"WEBHOOK", "NAME", "FORGE", "STATUS", "BOTS", "PATH"},
		empty:  "no webhooks",
		row: func(h api.Webhook) []string {
			return []string{h.ID, h.Name, h.Forge, map[bool]string{true: "enabled", false: "disabled"}[h.Enabled], botsOf(h.Rules), h.Path}
		},
	}.ofTeam(c, (*client.Client).Webhooks)
}

func botsOf(rules []api.WebhookRule) string {
	var bots []string
	for _, r := range rules {
		bots = append(bots, r.Bot)
	}
	return strings.Join(bots, ", ")
}

// ruleFlags are the rules of a webhook: a file of them, or one on the command line.
type ruleFlags struct {
	file, repo, bot, base string
	actions, labels       []string
	draft, forks          oneOf
	budget                usdFlag
	inputs                []string
}

func (f *ruleFlags) add(cmd *cobra.Command) {
	f.draft = oneOf{allowed: []string{"include", "exclude", "only"}}
	f.forks = f.draft
	flags := cmd.Flags()
	flags.StringVar(&f.file, "rules", "", "`FILE` with the rules as YAML or JSON, such as rules: [{repo: acme/*, bot: review-pr}]; - is standard input")
	flags.StringVarP(&f.bot, "bot", "b", "", "instead of a file: the bot of the only rule")
	flags.StringVar(&f.repo, "repo", "", "with --bot: repositories, such as acme/* or acme/**")
	flags.StringVar(&f.base, "base", "", "with --bot: branches to be merged into, such as main")
	flags.StringSliceVar(&f.actions, "action", nil, "with --bot: what happened, such as opened or labeled (default opened, reopened, synchronize, ready_for_review)")
	flags.StringSliceVar(&f.labels, "label", nil, "with --bot: one of these labels must be there")
	flags.Var(&f.draft, "draft", "with --bot: whether drafts count (default exclude)")
	flags.Var(&f.forks, "forks", "with --bot: whether pull requests of strangers count (default exclude)")
	flags.Var(&f.budget, "budget", "with --bot: most that a run may spend, in dollars")
	flags.StringArrayVarP(&f.inputs, "input", "i", nil, "with --bot: input of the bot, as NAME=VALUE; {{number}}, {{repo}}, {{url}} and so on stand for the event's")
}

// rules are what the flags say; none when they say nothing.
func (f *ruleFlags) rules(c *cli) ([]api.WebhookRule, error) {
	switch {
	case f.file != "" && f.bot != "":
		return nil, usagef("--rules and --bot exclude each other (allowed: a file of rules, or the bot of the only one)")
	case f.file != "":
		text, err := c.readFile(f.file)
		if err != nil {
			return nil, err
		}
		var doc struct {
			Rules []api.WebhookRule `json:"rules"`
		}
		if err := yamlfile.Decode(f.file, text, &doc); err != nil {
			return nil, err
		}
		return doc.Rules, nil
	case f.bot == "":
		return nil, nil
	}
	rule := api.WebhookRule{
		Repo: f.repo, Base: f.base, Actions: f.actions, Labels: f.labels, Draft: f.draft.value, Forks: f.forks.value, Bot: f.bot, BudgetUSD: f.budget.value,
	}
	for _, pair := range f.inputs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usagef("--input %q is not an input (allowed: NAME=VALUE)", holdfast.Clip(pair, 60))
		}
		if rule.Inputs == nil {
			rule.Inputs = map[string]string{}
		}
		rule.Inputs[name] = value
	}
	return []api.WebhookRule{rule}, nil
}

func newWebhooksCreate(c *cli) *cobra.Command {
	var team, secretFile string
	var rules ruleFlags
	var quiet bool
	forge := oneOf{allowed: []string{"github", "gitlab", "forgejo"}}
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a webhook and print its address and secret, this once",
		Long: `Create makes a webhook. The forge is given its address and its secret, and sends it pull
request events (GitHub: "Pull requests"; GitLab: "Merge request events"; Forgejo: "Pull
request" and, for pushes and labels, "Synchronized" and "Labels").`,
		Example: `  holdfast webhooks create reviews --team web --forge github --repo 'acme/*' --bot review-pr --input pr={{number}}
  holdfast webhooks create reviews --team web --forge gitlab --rules rules.yaml --secret-from-file secret.txt`,
		Args: exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needTeam(cmd); err != nil {
				return err
			}
			if err := required(cmd, "forge", "github, gitlab, forgejo"); err != nil {
				return err
			}
			ask := api.WebhookCreate{Name: args[0], Forge: forge.value, Quiet: quiet}
			var err error
			if ask.Rules, err = rules.rules(c); err != nil {
				return err
			}
			if len(ask.Rules) == 0 {
				return usagef("there are no rules (allowed: --rules FILE, or --bot BOT)")
			}
			if secretFile != "" {
				if ask.Secret, err = secretValue(cmd.InOrStdin(), secretFile); err != nil {
					return err
				}
			}
			server, err := c.connect()
			if err != nil {
				return err
			}
			hook, err := server.CreateWebhook(cmd.Context(), team, ask)
			if err != nil {
				return err
			}
			return c.print(hook, func(w io.Writer) error {
				rows := [][2]string{{"webhook", hook.ID}, {"send to", "this server's address, then " + hook.Path}, {"content", "application/json"}, {"secret", hook.Secret + "  (shown this once)"}}
				return writeRows(w, append(rows, warningRows(hook.Warnings)...))
			})
		},
	}
	cmd.Flags().Var(&forge, "forge", "who sends the events (required)")
	cmd.Flags().BoolVar(&quiet, "quiet", false, "answer refusals with 200, for a forge that switches failing webhooks off")
	cmd.Flags().StringVar(&secretFile, "secret-from-file", "", "file with the secret (default: a new one)")
	rules.add(cmd)
	return ofTeam(cmd, &team)
}

func newWebhooksSet(c *cli) *cobra.Command {
	var team, secretFile string
	var rules ruleFlags
	var enabled, quiet bool
	cmd := &cobra.Command{
		Use: "set WEBHOOK", Short: "Change what is named of a webhook",
		Example: `  holdfast webhooks set 01JDXV6J9QK4W9T6Z3N8M5R2PA --team web --rules rules.yaml
  holdfast webhooks set 01JDXV6J9QK4W9T6Z3N8M5R2PA --team web --enabled=false`,
		Args: exactly("WEBHOOK"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needTeam(cmd); err != nil {
				return err
			}
			var patch api.WebhookPatch
			var err error
			if patch.Rules, err = rules.rules(c); err != nil {
				return err
			}
			if cmd.Flags().Changed("enabled") {
				patch.Enabled = &enabled
			}
			if cmd.Flags().Changed("quiet") {
				patch.Quiet = &quiet
			}
			if secretFile != "" {
				secret, err := secretValue(cmd.InOrStdin(), secretFile)
				if err != nil {
					return err
				}
				patch.Secret = &secret
			}
			server, err := c.connect()
			if err != nil {
				return err
			}
			hook, err := server.PatchWebhook(cmd.Context(), team, args[0], patch)
			if err != nil {
				return err
			}
			return c.print(hook, func(w io.Writer) error {
				rows := [][2]string{{"webhook", hook.ID}, {"name", hook.Name}, {"bots", botsOf(hook.Rules)}, {"enabled", fmt.Sprint(hook.Enabled)}, {"quiet", fmt.Sprint(hook.Quiet)}}
				return writeRows(w, append(rows, warningRows(hook.Warnings)...))
			})
		},
	}
	cmd.Flags().BoolVar(&enabled, "enabled", true, "whether it answers at all")
	cmd.Flags().BoolVar(&quiet, "quiet", false, "answer refusals with 200")
	cmd.Flags().StringVar(&secretFile, "secret-from-file", "", "file with a new secret, in force at once")
	rules.add(cmd)
	return ofTeam(cmd, &team)
}

func newWebhooksDeliveries(c *cli) *cobra.Command {
	var team string
	cmd := listing[api.WebhookDelivery]{
		use: "deliveries WEBHOOK", short: "List what came to a webhook in the last week, and what became of it",
		example: "  holdfast webhooks deliveries 01JDXV6J9QK4W9T6Z3N8M5R2PA --team web", args: []string{"WEBHOOK"},
		header: []string{"WHEN", "EVENT", "REPOSITORY", "OUTCOME", "RUN", "WHY"}, empty: "nothing came yet",
		row: func(d api.WebhookDelivery) []string {
			repo := d.Repo
			if d.Number > 0 {
				repo = fmt.Sprintf("%s#%d", d.Repo, d.Number)
			}
			return []string{showTime(d.At), or(d.Event), or(repo), d.Outcome, or(d.Run), or(d.Ignored + whyRefused(d.Refused))}
		},
	}.command(c, needTeam, func(server *client.Client, ctx context.Context, args []string, window client.Window) (api.Page[api.WebhookDelivery], error) {
		return server.WebhookDeliveries(ctx, team, args[0], window)
	})
	return ofTeam(cmd, &team)
}

func newWebhooksRemove(c *cli) *cobra.Command {
	var team string
	cmd := &cobra.Command{
		Use: "rm WEBHOOK", Short: "Remove a webhook", Example: "  holdfast webhooks rm 01JDXV6J9QK4W9T6Z3N8M5R2PA --team web", Args: exactly("WEBHOOK"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needTeam(cmd); err != nil {
				return err
			}
			return c.removed(cmd, "webhook", args[0], func(ctx context.Context, server *client.Client) error {
				return server.DeleteWebhook(ctx, team, args[0])
			})
		},
	}
	return ofTeam(cmd, &team)
}
