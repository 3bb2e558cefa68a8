package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// everyCommand walks the tree.
func everyCommand(t *testing.T, visit func(*testing.T, *cobra.Command)) {
	t.Helper()
	root := newRoot(&cli{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard})
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		t.Run(strings.ReplaceAll(cmd.CommandPath(), " ", "_"), func(t *testing.T) { visit(t, cmd) })
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

func TestEveryCommandHasHelpWithAnExampleOfItself(t *testing.T) {
	seen := 0
	everyCommand(t, func(t *testing.T, cmd *cobra.Command) {
		seen++
		switch {
		case cmd.Short == "" || strings.HasSuffix(cmd.Short, "."):
			t.Errorf("Short is %q, want one phrase without a full stop", cmd.Short)
		case !strings.Contains(cmd.Example, "holdfast"):
			t.Error("there is no Example")
		case cmd.Name() != "sample-agent" && cmd.HasParent() && !strings.Contains(cmd.Example, cmd.CommandPath()):
			t.Errorf("no Example uses %q", cmd.CommandPath())
		case cmd.RunE == nil:
			t.Error("it does nothing, so a wrong argument would print help and exit with 0")
		case cmd.Args == nil && !cmd.DisableFlagParsing:
			t.Error("its arguments are not checked")
		}
	})
	if seen < 40 {
		t.Errorf("only %d commands were looked at", seen)
	}
}

func TestEveryFlagSaysWhatItIs(t *testing.T) {
	everyCommand(t, func(t *testing.T, cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("--%s has no text", f.Name)
			}
		})
	})
}

func TestHelpIsAnswerAndNotFailure(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {}, {"policy", "reserve", "-h"}, {"exec", "--help"}, {"tokens"}, {"help"}, {"help", "policy", "rm"}} {
		code, stdout, stderr := command(nil, "", args...)
		if code != 0 || !strings.Contains(stdout, "Usage:") || stderr != "" {
			t.Errorf("holdfast %v: code %d, stderr %q", args, code, stderr)
		}
	}
}
