package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// newHelp is `holdfast help COMMAND…`.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND…]", Short: "Show the help of a command",
		Example: "  holdfast help\n  holdfast help policy reserve",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("there is no command %q (allowed: a command of holdfast --help)", clip(strings.Join(args, " "), 80))
			}
			return found.Help()
		},
	}
}

// newCompletion prints the completion scripts of shells.
func newCompletion(c *cli) *cobra.Command {
	shell := oneOf{allowed: []string{"bash", "zsh", "fish"}}
	return &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "Print the completion script of a shell",
		Long: "Completion prints a script that lets a shell complete commands and flags.",
		Example: `  source <(holdfast completion bash)
  holdfast completion zsh > "${fpath[1]}/_holdfast"
  holdfast completion fish > ~/.config/fish/completions/holdfast.fish`,
		Args:      exactly("bash|zsh|fish"),
		ValidArgs: shell.allowed,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := shell.Set(args[0]); err != nil {
				return usagef("SHELL: %s", err)
			}
			switch shell.value {
			case "bash":
				return cmd.Root().GenBashCompletionV2(c.stdout, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(c.stdout)
			}
			return cmd.Root().GenFishCompletion(c.stdout, true)
		},
	}
}
