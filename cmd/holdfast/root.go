package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// commands lists every command, in the order in which help shows them within its
// group.
func commands(c *cli) []*cobra.Command {
	return []*cobra.Command{
		inGroup(groupServe, newDev(c)),
		inGroup(groupServe, newServer(c)),
		inGroup(groupServe, newRunner(c)),
		inGroup(groupServe, newDemo(c)),
		inGroup(groupWork, newLaunch(c)),
		inGroup(groupWork, newExec(c)),
		inGroup(groupWork, newRuns(c)),
		inGroup(groupWork, newBoard(c)),
		inGroup(groupWork, newSchedules(c)),
		inGroup(groupWork, newWebhooks(c)),
		inGroup(groupSee, newCapacity(c)),
		inGroup(groupSee, newPreview(c)),
		inGroup(groupSee, newDecisions(c)),
		inGroup(groupSee, newSimulate(c)),
		inGroup(groupAdmin, newPolicy(c)),
		inGroup(groupAdmin, newApply(c)),
		inGroup(groupAdmin, newTeams(c)),
		inGroup(groupAdmin, newOrgs(c)),
		inGroup(groupAdmin, newAccounts(c)),
		inGroup(groupAdmin, newMembers(c)),
		inGroup(groupAdmin, newTokens(c)),
		inGroup(groupAdmin, newWhoami(c)),
		inGroup(groupAdmin, newSecrets(c)),
		inGroup(groupAdmin, newBots(c)),
		inGroup(groupAdmin, newSettings(c)),
		inGroup(groupAdmin, newDLQ(c)),
		inGroup(groupAdmin, newAudit(c)),
		inGroup(groupAdmin, newDoctor(c)),
		newCompletion(c),
		newVersion(c),
		newSampleAgent(c),
		newNATS(c),
		newReady(c),
		newClusterDemo(c),
	}
}

// The groups of the help page.
const (
	groupServe = "serve"
	groupWork  = "work"
	groupSee   = "see"
	groupAdmin = "admin"
)

func inGroup(group string, cmd *cobra.Command) *cobra.Command {
	cmd.GroupID = group
	return cmd
}

const rootLong = `holdfast reserves capacity for fleets of AI agents, and holds it.

Start everything on this machine with "holdfast dev". The other commands speak to
HOLDFAST_URL (default http://127.0.0.1:7420) with the bearer token in HOLDFAST_TOKEN;
without one they read operator.token in the data folder that dev wrote
(HOLDFAST_DATA, default ./holdfast-data).

Exit codes: 0 done, 1 failed, 2 usage or bad input, 3 refused by the gate,
4 server unreachable. "holdfast exec" passes its command's own code through.`

// What the flag package says of a number or a switch, in the words of its own
// implementation.
var (
	notNumber = regexp.MustCompile(`strconv\.(ParseInt|Atoi): parsing .*: (invalid syntax|value out of range)`)
	notBool   = regexp.MustCompile(`strconv\.ParseBool: parsing .*: invalid syntax`)
)

// newRoot makes the whole command tree for one command line.
func newRoot(c *cli) *cobra.Command {
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "Reserved capacity for fleets of AI agents",
		Long:  rootLong,
		Example: `  holdfast dev --example
  holdfast launch review-pr --team web --wait
  holdfast capacity`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       thisVersion().String(),
		RunE:          onlySubcommands,
		Args:          cobra.ArbitraryArgs,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddGroup(
		&cobra.Group{ID: groupServe, Title: "Serve:"},
		&cobra.Group{ID: groupWork, Title: "Launch and follow runs:"},
		&cobra.Group{ID: groupSee, Title: "See and plan capacity:"},
		&cobra.Group{ID: groupAdmin, Title: "Administer:"},
	)
	flags := root.PersistentFlags()
	flags.VarP(&c.format, "output", "o", "how to print: table, json or yaml")
	flags.StringVar(&c.url, "url", "", "address of the server (default HOLDFAST_URL, else http://127.0.0.1:7420)")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		text := notNumber.ReplaceAllString(err.Error(), "not a whole number (allowed: a whole number)")
		text = notBool.ReplaceAllString(text, "neither true nor false (allowed: true, false)")
		return usagef("%s; see %s --help", text, cmd.CommandPath())
	})
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(newHelp())
	root.AddCommand(commands(c)...)
	root.InitDefaultHelpCmd()
	c.begin(root)
	return root
}

// onlySubcommands is the work of a command that only has subcommands: help without
// an argument, and a usage error that names them with one.
func onlySubcommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	hint := ""
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		hint = fmt.Sprintf("; did you mean %s?", strings.Join(similar, " or "))
	}
	return usagef("unknown command %q for %q%s (allowed: %s)", args[0], cmd.CommandPath(), hint, strings.Join(names, ", "))
}
