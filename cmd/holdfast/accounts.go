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

func newAccounts(c *cli) *cobra.Command {
	list := newAccountsList(c)
	cmd := &cobra.Command{
		Use:   "accounts",
		Short: "List, create and change accounts of people and programs",
		Long: `An account is a person or a program with roles in any number of teams; an operator's may act
everywhere. Its tokens may do what it may, or less. A disabled account's tokens and browser
sessions open nothing from the next request on. Only operators see and change accounts; a
team's admin adds one to the team with "holdfast members".`,
		Example: `  holdfast accounts
  holdfast accounts create ann --email ann@example.com --member web=admin --member payments=viewer
  holdfast accounts create nightly --kind service --member web=member
  holdfast accounts token nightly --name cron --expires-in 90d
  holdfast accounts set ann --disabled`,
		RunE: onlySubcommandsOr(list.RunE),
		Args: cobra.ArbitraryArgs,
	}
	cmd.Flags().AddFlagSet(list.Flags())
	cmd.AddCommand(list, newAccountsShow(c), newAccountsCreate(c), newAccountsSet(c), newAccountsRemove(c), newAccountsToken(c), newAccountsTokens(c), newAccountsRevoke(c))
	return cmd
}

func newAccountsList(c *cli) *cobra.Command {
	return listing[api.Account]{
		short: "List accounts", example: "  holdfast accounts list -o json",
		header: []string{"ACCOUNT", "KIND", "NAME", "STATUS", "ROLES", "LAST SEEN"},
		empty:  "no accounts; create one with `holdfast accounts create NAME`",
		row: func(a api.Account) []string {
			return []string{a.ID, a.Kind, or(a.Name), accountStatus(a), clip(accountRoles(a), 60), showTime(a.LastSeenAt)}
		},
	}.all(c, (*client.Client).Accounts)
}

func accountStatus(a api.Account) string {
	if a.Disabled {
		return "disabled"
	}
	return "active"
}

// accountRoles is what an account may do, for people.
func accountRoles(a api.Account) string {
	var words []string
	if a.Operator || a.GrantedOperator {
		words = append(words, "operator")
	}
	for _, m := range a.Memberships {
		words = append(words, m.Team+"="+m.Role)
	}
	for _, m := range a.Granted {
		words = append(words, m.Team+"="+m.Role+" (login)")
	}
	return or(strings.Join(words, ", "))
}

// oneAccount does one thing with an account and prints the account.
func (c *cli) oneAccount(cmd *cobra.Command, do func(context.Context, *client.Client) (api.Account, error)) error {
	server, err := c.connect()
	if err != nil {
		return err
	}
	a, err := do(cmd.Context(), server)
	if err != nil {
		return err
	}
	return c.print(a, func(w io.Writer) error {
		for _, row := range [][2]string{
			{"account", a.ID}, {"kind", a.Kind}, {"name", or(a.Name)}, {"email", or(a.Email)}, {"status", accountStatus(a)}, {"roles", accountRoles(a)},
			{"created", showTime(a.CreatedAt)}, {"last seen", showTime(a.LastSeenAt)},
		} {
			if _, err := fmt.Fprintf(w, "%-10s %s\n", row[0], row[1]); err != nil {
				return err
			}
		}
		return nil
	})
}

func newAccountsShow(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show ACCOUNT", Short: "Show one account", Example: "  holdfast accounts show ann", Args: exactly("ACCOUNT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.oneAccount(cmd, func(ctx context.Context, server *client.Client) (api.Account, error) {
				return server.Account(ctx, args[0])
			})
		},
	}
}

// membershipsOf reads TEAM=ROLE words.
func membershipsOf(words []string) ([]api.Membership, error) {
	list := []api.Membership{}
	for _, word := range words {
		team, role, ok := strings.Cut(word, "=")
		if !ok || team == "" || (role != "viewer" && role != "member" && role != "admin") {
			return nil, usagef("--member %q is not TEAM=ROLE (allowed roles: viewer, member, admin)", clip(word, 60))
		}
		list = append(list, api.Membership{Team: team, Role: role})
	}
	return list, nil
}

func newAccountsCreate(c *cli) *cobra.Command {
	var ask api.AccountCreate
	var members []string
	kind := oneOf{value: "user", allowed: []string{"user", "service"}}
	cmd := &cobra.Command{
		Use: "create ACCOUNT", Short: "Create an account",
		Long:    "Create makes an account. A person whose provider verified --email logs in as it; a program\ngets a token with \"holdfast accounts token\".",
		Example: "  holdfast accounts create ann --email ann@example.com --member web=admin\n  holdfast accounts create root --operator",
		Args:    exactly("ACCOUNT"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if ask.Memberships, err = membershipsOf(members); err != nil {
				return err
			}
			ask.ID, ask.Kind = args[0], kind.value
			return c.oneAccount(cmd, func(ctx context.Context, server *client.Client) (api.Account, error) {
				return server.CreateAccount(ctx, ask)
			})
		},
	}
	flags := cmd.Flags()
	flags.Var(&kind, "kind", "a person or a program")
	flags.StringVar(&ask.Name, "name", "", "what people call it")
	flags.StringVar(&ask.Email, "email", "", "address of a person; the first login with it takes the account over")
	flags.BoolVar(&ask.Operator, "operator", false, "may act in every team and on the platform")
	flags.StringArrayVar(&members, "member", nil, "a role in a team, as TEAM=ROLE; may be repeated")
	return cmd
}

func newAccountsSet(c *cli) *cobra.Command {
	var name, email string
	var disabled, operator bool
	var members []string
	cmd := &cobra.Command{
		Use: "set ACCOUNT", Short: "Change an account, or disable it",
		Long:    "Set changes what its flags name. --member replaces all roles that were given here.",
		Example: "  holdfast accounts set ann --disabled\n  holdfast accounts set ann --disabled=false --member web=viewer",
		Args:    exactly("ACCOUNT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var patch api.AccountPatch
			flags := cmd.Flags()
			if flags.Changed("name") {
				patch.Name = &name
			}
			if flags.Changed("email") {
				patch.Email = &email
			}
			if flags.Changed("disabled") {
				patch.Disabled = &disabled
			}
			if flags.Changed("operator") {
				patch.Operator = &operator
			}
			if flags.Changed("member") {
				list, err := membershipsOf(members)
				if err != nil {
					return err
				}
				patch.Memberships = &list
			}
			if patch == (api.AccountPatch{}) {
				return usagef("nothing to change (allowed: --name, --email, --disabled, --operator, --member)")
			}
			return c.oneAccount(cmd, func(ctx context.Context, server *client.Client) (api.Account, error) {
				return server.PatchAccount(ctx, args[0], patch)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "name", "", "what people call it")
	flags.StringVar(&email, "email", "", "address of a person")
	flags.BoolVar(&disabled, "disabled", false, "its tokens and sessions open nothing")
	flags.BoolVar(&operator, "operator", false, "may act in every team and on the platform")
	flags.StringArrayVar(&members, "member", nil, "a role in a team, as TEAM=ROLE; may be repeated")
	return cmd
}

func newAccountsRemove(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "rm ACCOUNT", Aliases: []string{"remove"}, Short: "Remove an account with its tokens and sessions",
		Example: "  holdfast accounts rm ann", Args: exactly("ACCOUNT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := c.connect()
			if err != nil {
				return err
			}
			if err := server.DeleteAccount(cmd.Context(), args[0]); err != nil {
				return err
			}
			return c.print(map[string]any{"id": args[0], "removed": true}, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "account %s is removed\n", args[0])
				return err
			})
		},
	}
}
