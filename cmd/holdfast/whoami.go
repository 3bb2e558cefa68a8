package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

func newWhoami(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "whoami", Short: "Say who the token is, and what it may do",
		Long:    "Whoami prints who the server takes the caller for. Its subcommands are the tokens of the\ncaller's own account.",
		Example: "  holdfast whoami\n  holdfast whoami token laptop --team web --role viewer --expires-in 30d\n  holdfast whoami tokens",
		Args:    cobra.ArbitraryArgs,
		RunE: onlySubcommandsOr(func(cmd *cobra.Command, _ []string) error {
			server, err := c.connect()
			if err != nil {
				return err
			}
			me, err := server.Me(cmd.Context())
			if err != nil {
				return err
			}
			return c.print(me, func(w io.Writer) error { return writeMe(w, me) })
		}),
	}
	cmd.AddCommand(newMyToken(c), newMyTokens(c), newMyRevoke(c))
	return cmd
}

func writeMe(w io.Writer, me api.Me) error {
	what := "a token of a team"
	switch {
	case me.Account != "":
		what = "the account " + me.Account
	case me.Operator:
		what = "the operator's own token"
	}
	may := "nothing: it has no role in any team"
	var roles []string
	for _, m := range me.Memberships {
		roles = append(roles, m.Role+" of "+m.Team)
	}
	switch {
	case me.Operator:
		may = "everything: it is an operator"
	case len(roles) > 0:
		may = strings.Join(roles, ", ")
	}
	if me.Restricted {
		may += " (the token is limited)"
	}
	_, err := fmt.Fprintf(w, "%-8s %s\n%-8s %s\n%-8s %s\n%-8s %s\n", "name", me.Name, "is", what, "may", may, "token", me.TokenID)
	return err
}

// tokenFlags are what a personal token may be limited to.
type tokenFlags struct {
	team    string
	role    oneOf
	expires waitFlag
}

func (f *tokenFlags) add(cmd *cobra.Command) {
	f.role.allowed = []string{"viewer", "member", "admin"}
	flags := cmd.Flags()
	flags.StringVarP(&f.team, "team", "t", "", "the one team that it is limited to (default: all of the account's)")
	flags.Var(&f.role, "role", "the most that it may (default: what the account may)")
	flags.Var(&f.expires, "expires-in", "how long it is good: 12h, 90d (default: until it is revoked)")
}

func (f *tokenFlags) ask(c *cli, name string) api.PersonalTokenCreate {
	ask := api.PersonalTokenCreate{Name: name, Team: f.team, Role: f.role.value}
	if f.expires.span > 0 {
		ask.ExpiresAt = c.clock().Add(f.expires.span).UTC().Truncate(time.Second)
	}
	return ask
}

// issuePersonal issues a token of an account; its text alone goes to standard output.
func (c *cli) issuePersonal(cmd *cobra.Command, issue func(context.Context, *client.Client) (api.PersonalTokenIssued, error)) error {
	server, err := c.connect()
	if err != nil {
		return err
	}
	issued, err := issue(cmd.Context(), server)
	if err != nil {
		return err
	}
	return c.print(issued, func(w io.Writer) error {
		until := "does not expire"
		if !issued.ExpiresAt.IsZero() {
			until = "expires " + showTime(issued.ExpiresAt)
		}
		fmt.Fprintf(c.stderr, "token %s of account %s, %s; its text is shown this once:\n", issued.ID, issued.Account, until)
		_, err := fmt.Fprintln(w, issued.Secret)
		return err
	})
}

// personalTokens lists tokens of an account.
func personalTokens(use, short, example string, args ...string) listing[api.PersonalToken] {
	return listing[api.PersonalToken]{
		use: use, short: short, example: example, args: args,
		header: []string{"TOKEN", "NAME", "TEAM", "ROLE", "CREATED", "EXPIRES", "LAST USED", "REVOKED"}, empty: "no tokens",
		row: func(k api.PersonalToken) []string {
			return []string{k.ID, k.Name, or(k.Team), or(k.Role), showTime(k.CreatedAt), showTime(k.ExpiresAt), showTime(k.LastUsedAt), showTime(k.RevokedAt)}
		},
	}
}

// revoked ends a token.
func (c *cli) revoked(cmd *cobra.Command, id string, revoke func(context.Context, *client.Client) error) error {
	return c.did(cmd, map[string]any{"id": id, "revoked": true}, fmt.Sprintf("token %s is revoked", id), revoke)
}

func newMyToken(c *cli) *cobra.Command {
	var flags tokenFlags
	cmd := &cobra.Command{
		Use: "token NAME", Short: "Issue a token of the own account and print it, this once",
		Example: "  export HOLDFAST_TOKEN=$(holdfast whoami token laptop --team web --role member)", Args: exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.issuePersonal(cmd, func(ctx context.Context, server *client.Client) (api.PersonalTokenIssued, error) {
				return server.CreateMyToken(ctx, flags.ask(c, args[0]))
			})
		},
	}
	flags.add(cmd)
	return cmd
}

func newMyTokens(c *cli) *cobra.Command {
	return personalTokens("tokens", "List the tokens of the own account", "  holdfast whoami tokens").all(c, (*client.Client).MyTokens)
}

func newMyRevoke(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "revoke TOKEN", Short: "End a token of the own account at once",
		Example: "  holdfast whoami revoke 01JDXV6J9QK4W9T6Z3N8M5R2PA", Args: exactly("TOKEN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.revoked(cmd, args[0], func(ctx context.Context, server *client.Client) error { return server.RevokeMyToken(ctx, args[0]) })
		},
	}
}

func newAccountsToken(c *cli) *cobra.Command {
	var flags tokenFlags
	var name string
	cmd := &cobra.Command{
		Use: "token ACCOUNT", Short: "Issue a token of an account and print it, this once",
		Long:    "Token issues a token of any account, which takes an operator; everybody issues their own\nwith \"holdfast whoami token\". Its text alone goes to standard output.",
		Example: "  holdfast accounts token nightly --name cron --team web --expires-in 90d", Args: exactly("ACCOUNT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := required(cmd, "name", "what the token is for"); err != nil {
				return err
			}
			return c.issuePersonal(cmd, func(ctx context.Context, server *client.Client) (api.PersonalTokenIssued, error) {
				return server.CreateAccountToken(ctx, args[0], flags.ask(c, name))
			})
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&name, "name", "", "what the token is for (required)")
	return cmd
}

func newAccountsTokens(c *cli) *cobra.Command {
	return personalTokens("tokens ACCOUNT", "List the tokens of an account", "  holdfast accounts tokens nightly", "ACCOUNT").about(c, (*client.Client).AccountTokens)
}

func newAccountsRevoke(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "revoke ACCOUNT TOKEN", Short: "End a token of an account at once",
		Example: "  holdfast accounts revoke nightly 01JDXV6J9QK4W9T6Z3N8M5R2PA", Args: exactly("ACCOUNT", "TOKEN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.revoked(cmd, args[1], func(ctx context.Context, server *client.Client) error {
				return server.RevokeAccountToken(ctx, args[0], args[1])
			})
		},
	}
}
