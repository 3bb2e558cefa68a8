package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

func newMembers(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "members",
		Short: "List, add and remove the members of a team",
		Long: `Members are the accounts with a role in a team: a viewer may look, a member may launch, an
admin may also change the team's bots, tokens, secrets and members. A role that comes from
a group of the logins' provider is changed there.`,
		Example: `  holdfast members list --team web
  holdfast members set ann --team web --role admin
  holdfast members rm ann --team web`,
		RunE: onlySubcommands,
		Args: cobra.ArbitraryArgs,
	}
	cmd.AddCommand(newMembersList(c), newMembersSet(c), newMembersRemove(c))
	return cmd
}

func newMembersList(c *cli) *cobra.Command {
	return listing[api.Member]{
		short: "List who has a role in a team", example: "  holdfast members list --team web",
		header: []string{"ACCOUNT", "NAME", "KIND", "ROLE", "FROM"},
		empty:  "no members; the team's own tokens are listed by `holdfast tokens list`",
		row: func(m api.Member) []string {
			account := m.Account
			if m.Disabled {
				account += " (disabled)"
			}
			return []string{account, or(m.Name), m.Kind, m.Role, m.Source}
		},
	}.ofTeam(c, (*client.Client).Members)
}

func newMembersSet(c *cli) *cobra.Command {
	var team string
	role := oneOf{value: "member", allowed: []string{"viewer", "member", "admin"}}
	cmd := &cobra.Command{
		Use: "set ACCOUNT", Aliases: []string{"add"}, Short: "Give an account a role in a team",
		Example: "  holdfast members set ann --team web --role admin", Args: exactly("ACCOUNT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needTeam(cmd); err != nil {
				return err
			}
			server, err := c.connect()
			if err != nil {
				return err
			}
			member, err := server.PutMember(cmd.Context(), team, args[0], role.value)
			if err != nil {
				return err
			}
			return c.print(member, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s is %s of %s\n", member.Account, member.Role, team)
				return err
			})
		},
	}
	teamFlag(cmd, &team)
	cmd.Flags().Var(&role, "role", "what the account may do in the team")
	return cmd
}

func newMembersRemove(c *cli) *cobra.Command {
	var team string
	cmd := &cobra.Command{
		Use: "rm ACCOUNT", Aliases: []string{"remove"}, Short: "Take an account's role in a team",
		Example: "  holdfast members rm ann --team web", Args: exactly("ACCOUNT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needTeam(cmd); err != nil {
				return err
			}
			return c.did(cmd, map[string]any{"account": args[0], "team": team, "removed": true}, fmt.Sprintf("%s is no member of %s any more", args[0], team), func(ctx context.Context, server *client.Client) error {
				return server.RemoveMember(ctx, team, args[0])
			})
		},
	}
	teamFlag(cmd, &team)
	return cmd
}
