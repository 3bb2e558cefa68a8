package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/cmd/internal/yamlfile"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

// family is one setting of the platform as the commands use it: read it, and
// replace it with what a file says.
type family struct {
	name    string
	meaning string
	get     func(context.Context, *client.Client) (any, error)
	put     func(context.Context, *client.Client, string, []byte) (any, error)
}

// families lists the settings; the policy has commands of its own beside this.
func families() []family {
	return []family{
		familyOf("limits", "defaults that teams inherit, ceilings of a run, limits over all teams",
			(*client.Client).Limits, (*client.Client).PutLimits, func(v *api.Limits) *api.SettingState { return &v.SettingState }),
		familyOf("budget-floor", "the policy of reservations and repository quotas",
			(*client.Client).BudgetFloor, (*client.Client).PutBudgetFloor, func(v *api.BudgetFloor) *api.SettingState { return &v.SettingState }),
		familyOf("maintenance", "the fence that refuses every launch",
			(*client.Client).Maintenance, (*client.Client).PutMaintenance, func(v *api.Maintenance) *api.SettingState { return &v.SettingState }),
		familyOf("usage-caps", "the ceilings of the usage windows",
			(*client.Client).UsageCaps, (*client.Client).PutUsageCaps, func(v *api.UsageCaps) *api.SettingState { return &v.SettingState }),
		familyOf("runner-pools", "the runner pools with their ceilings",
			(*client.Client).RunnerPools, (*client.Client).PutRunnerPools, func(v *api.RunnerPools) *api.SettingState { return &v.SettingState }),
		familyOf("login", "what the groups of the logins' provider mean: a role in a team, or operator",
			(*client.Client).LoginRules, (*client.Client).PutLoginRules, func(v *api.LoginRules) *api.SettingState { return &v.SettingState }),
	}
}

func familyOf[T any](
	name, meaning string,
	get func(*client.Client, context.Context) (T, error),
	put func(*client.Client, context.Context, T) (T, error),
	state func(*T) *api.SettingState,
) family {
	return family{
		name: name, meaning: meaning,
		get: func(ctx context.Context, server *client.Client) (any, error) { return get(server, ctx) },
		put: func(ctx context.Context, server *client.Client, file string, text []byte) (any, error) {
			var wanted T
			if err := yamlfile.Decode(file, text, &wanted); err != nil {
				return nil, err
			}
			if state(&wanted).UpdatedAt.IsZero() {
				current, err := get(server, ctx)
				if err != nil {
					return nil, err
				}
				state(&wanted).UpdatedAt = state(&current).UpdatedAt
			}
			return put(server, ctx, wanted)
		},
	}
}

func familyNamed(name string) (family, error) {
	var names []string
	for _, f := range families() {
		if f.name == name {
			return f, nil
		}
		names = append(names, f.name)
	}
	return family{}, usagef("%q is not a setting (allowed: %s)", clip(name, 60), strings.Join(names, ", "))
}

func newSettings(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "settings",
		Short: "Show and replace the platform's settings",
		Long:  settingsLong(),
		Example: `  holdfast settings show limits
  echo '{on: true, message: "back at noon"}' | holdfast settings set maintenance -f -`,
		RunE: onlySubcommands,
		Args: cobra.ArbitraryArgs,
	}
	cmd.AddCommand(newSettingsShow(c), newSettingsSet(c))
	return cmd
}

func settingsLong() string {
	var b strings.Builder
	b.WriteString("Settings are the operator's, one document each:\n\n")
	for _, f := range families() {
		fmt.Fprintf(&b, "  %-14s %s\n", f.name, f.meaning)
	}
	b.WriteString("\nThe policy is easier to edit with \"holdfast policy\".")
	return b.String()
}

func newSettingsShow(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show SETTING", Short: "Print one setting",
		Long:    "Show prints a setting as YAML, or as JSON with -o json. \"settings set -f\" reads it back.",
		Example: "  holdfast settings show limits > limits.yaml", Args: exactly("SETTING"),
		RunE: func(cmd *cobra.Command, args []string) error {
			setting, err := familyNamed(args[0])
			if err != nil {
				return err
			}
			server, err := c.connect()
			if err != nil {
				return err
			}
			value, err := setting.get(cmd.Context(), server)
			if err != nil {
				return err
			}
			return c.print(value, func(w io.Writer) error { return encode(w, formatYAML, value) })
		},
	}
}

func newSettingsSet(c *cli) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "set SETTING -f FILE", Short: "Replace one setting with a file's",
		Long: `Set replaces a whole setting. A file with the field updated_at, as "settings show"
prints it, replaces only what was read then: when somebody was faster, nothing is
written and the exit code is 1. A file without it replaces what there is now.`,
		Example: "  holdfast settings set limits -f limits.yaml", Args: exactly("SETTING"),
		RunE: func(cmd *cobra.Command, args []string) error {
			setting, err := familyNamed(args[0])
			if err != nil {
				return err
			}
			if err := required(cmd, "file", "a YAML or JSON file, or - for standard input"); err != nil {
				return err
			}
			text, err := c.readFile(file)
			if err != nil {
				return err
			}
			server, err := c.connect()
			if err != nil {
				return err
			}
			stored, err := setting.put(cmd.Context(), server, file, text)
			if err != nil {
				return err
			}
			return c.print(stored, func(w io.Writer) error { return encode(w, formatYAML, stored) })
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "YAML or JSON file, - for standard input (required)")
	return cmd
}

// untilText is an instant that may be none.
func untilText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return showTime(t)
}
