package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

func newTokens(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tokens",
		Short: "List, issue and revoke a team's tokens",
		Long: `Tokens are how callers prove who they are. A viewer may look, a member may launch, an
admin may also change the team's bots and tokens. A token's text is shown once, when it
is issued.`,
		Example: `  holdfast tokens list --team web
  holdfast tokens create ci --team web --role member --expires-in 90d
  holdfast tokens revoke 01JDXV6J9QK4W9T6Z3N8M5R2PA --team web`,
		RunE: onlySubcommands,
		Args: cobra.ArbitraryArgs,
	}
	cmd.AddCommand(newTokensList(c), newTokensCreate(c), newTokensRevoke(c))
	return cmd
}

// teamFlag adds the flag --team, which the command needs.
func teamFlag(cmd *cobra.Command, team *string) {
	ownTeamFlag(cmd.Flags(), team, "team that it is about (required)")
}

func needTeam(cmd *cobra.Command) error {
	return required(cmd, "team", "the id of a team; see holdfast teams")
}

func newTokensList(c *cli) *cobra.Command {
	return listing[api.Token]{
		short: "List a team's tokens, without their texts", example: "  holdfast tokens list --team web",
		header: []string{"TOKEN", "NAME", "ROLE", "CREATED", "EXPIRES", "LAST USED", "REVOKED"},
		empty:  "no tokens",
		row: func(k api.Token) []string {
			return []string{k.ID, k.Name, k.Role, showTime(k.CreatedAt), showTime(k.ExpiresAt), showTime(k.LastUsedAt), showTime(k.RevokedAt)}
		},
	}.ofTeam(c, (*client.Client).Tokens)
}

func newTokensCreate(c *cli) *cobra.Command {
	var team string
	var expires waitFlag
	role := oneOf{value: "member", allowed: []string{"viewer", "member", "admin"}}
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Issue a token and print it, this once",
		Long:    "Create issues a token. Its text alone goes to standard output, so that a script can\nkeep it; what is known of it goes to standard error.",
		Example: "  export HOLDFAST_TOKEN=$(holdfast tokens create ci --team web)",
		Args:    exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needTeam(cmd); err != nil {
				return err
			}
			server, err := c.connect()
			if err != nil {
				return err
			}
			ask := api.TokenCreate{Name: args[0], Role: role.value}
			if expires.span > 0 {
				ask.ExpiresAt = c.clock().Add(expires.span).UTC().Truncate(time.Second)
			}
			issued, err := server.CreateToken(cmd.Context(), team, ask)
			if err != nil {
				return err
			}
			return c.print(issued, func(w io.Writer) error {
				until := "does not expire"
				if !issued.ExpiresAt.IsZero() {
					until = "expires " + showTime(issued.ExpiresAt)
				}
				fmt.Fprintf(c.stderr, "token %s of team %s, role %s, %s; its text is shown this once:\n", issued.ID, team, issued.Role, until)
				_, err := fmt.Fprintln(w, issued.Secret)
				return err
			})
		},
	}
	teamFlag(cmd, &team)
	cmd.Flags().Var(&role, "role", "what the token may do")
	cmd.Flags().Var(&expires, "expires-in", "how long it is good: 12h, 90d (default: until it is revoked)")
	return cmd
}

func newTokensRevoke(c *cli) *cobra.Command {
	var team string
	cmd := &cobra.Command{
		Use: "revoke TOKEN", Aliases: []string{"rm"}, Short: "End a token at once",
		Example: "  holdfast tokens revoke 01JDXV6J9QK4W9T6Z3N8M5R2PA --team web", Args: exactly("TOKEN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needTeam(cmd); err != nil {
				return err
			}
			return c.revoked(cmd, args[0], func(ctx context.Context, server *client.Client) error { return server.RevokeToken(ctx, team, args[0]) })
		},
	}
	teamFlag(cmd, &team)
	return cmd
}
