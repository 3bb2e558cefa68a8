package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

func newSecrets(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets",
		Short: "Set, list and remove a team's secrets",
		Long: `Secrets are values that the runs of a team need and nobody may read: they are sealed
before they are stored, no command and no route shows them, and a runner gets one only
while it executes a run that needs it, sealed to a key of that one run.

forge-token is the token with which the repositories of a team's bots are cloned. It is
never part of an address, a command line or the environment of an agent.`,
		Example: `  holdfast secrets set forge-token --team web < token.txt
  holdfast secrets list --team web
  holdfast secrets rm forge-token --team web`,
		RunE: onlySubcommands,
		Args: cobra.ArbitraryArgs,
	}
	cmd.AddCommand(newSecretsList(c), newSecretsSet(c), newSecretsRemove(c))
	return cmd
}

func newSecretsList(c *cli) *cobra.Command {
	return listing[api.Secret]{
		short: "List the names of a team's secrets", example: "  holdfast secrets list --team web",
		header: []string{"SECRET", "CREATED", "CHANGED", "BY"},
		empty:  "no secrets",
		row: func(s api.Secret) []string {
			return []string{s.Name, showTime(s.CreatedAt), showTime(s.UpdatedAt), s.UpdatedBy}
		},
	}.ofTeam(c, (*client.Client).Secrets)
}

func newSecretsSet(c *cli) *cobra.Command {
	var team, file string
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Set a secret to what standard input or a file holds",
		Long: `Set reads the value from standard input, or from the file that --from-file names; never
from the command line, which everybody on the machine can read. One line break at its end
is left out.`,
		Example: `  holdfast secrets set forge-token --team web < token.txt
  holdfast secrets set forge-token --team web --from-file /run/secrets/forge`,
		Args: exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needTeam(cmd); err != nil {
				return err
			}
			value, err := secretValue(cmd.InOrStdin(), file)
			if err != nil {
				return err
			}
			server, err := c.connect()
			if err != nil {
				return err
			}
			stored, created, err := server.PutSecret(cmd.Context(), team, args[0], value)
			if err != nil {
				return err
			}
			return c.print(stored, func(w io.Writer) error {
				how := "is changed"
				if created {
					how = "is kept"
				}
				_, err := fmt.Fprintf(w, "secret %s of team %s %s; it counts for runs that begin from now on\n", stored.Name, team, how)
				return err
			})
		},
	}
	teamFlag(cmd, &team)
	cmd.Flags().StringVar(&file, "from-file", "", "file that holds the value (default: standard input)")
	return cmd
}

// maxSecretInput is one byte more than a value may have.
const maxSecretInput = 64<<10 + 2

// secretValue reads a value; an error never holds it.
func secretValue(stdin io.Reader, file string) (string, error) {
	from := stdin
	if file != "" {
		opened, err := os.Open(file)
		if err != nil {
			return "", &holdfast.InvalidError{Field: "--from-file", Problem: err.Error(), Allowed: "a file that can be read"}
		}
		defer opened.Close()
		from = opened
	}
	text, err := io.ReadAll(io.LimitReader(from, maxSecretInput))
	if err != nil {
		return "", fmt.Errorf("read the value: %w", err)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if value == "" {
		return "", &holdfast.InvalidError{Field: "value", Problem: "there is none", Allowed: "the value on standard input, or in the file of --from-file"}
	}
	return value, nil
}

func newSecretsRemove(c *cli) *cobra.Command {
	var team string
	cmd := &cobra.Command{
		Use: "rm NAME", Aliases: []string{"delete"}, Short: "Remove a secret",
		Example: "  holdfast secrets rm forge-token --team web", Args: exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := needTeam(cmd); err != nil {
				return err
			}
			return c.did(cmd, map[string]any{"name": args[0], "removed": true}, fmt.Sprintf("secret %s of team %s is removed", args[0], team), func(ctx context.Context, server *client.Client) error {
				return server.DeleteSecret(ctx, team, args[0])
			})
		},
	}
	teamFlag(cmd, &team)
	return cmd
}
