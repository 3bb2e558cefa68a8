package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/cmd/internal/config"
)

// cli is what every command is given: where it reads and writes, the environment,
// and the flags that all commands share. A test makes one of its own.
type cli struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string

	stdoutTerminal bool // tables may be bars, and lines as wide as width
	stderrTerminal bool // progress may be shown
	width          int  // of the terminal behind stdout; 0 when there is none

	format format // -o
	url    string // --url, empty when it was not typed

	// Of tests; nil is the real thing.
	now    func() time.Time
	pause  func(context.Context, time.Duration) error
	jitter func() float64

	working bool // a command's own work began: what fails from here on is no usage error
}

// ownSignals is the annotation of a command that looks after INT and TERM itself;
// every other command has its context ended by them.
const ownSignals = "own-signals"

// run executes one command line and returns the process' exit code.
func (c *cli) run(args []string) int {
	root := newRoot(c)
	root.SetArgs(args)
	root.SetIn(c.stdin)
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	err := root.ExecuteContext(context.Background())
	if err != nil && !c.working {
		err = asUsage(err)
	}
	return c.report(err)
}

// begin wraps the work of every command below cmd: it marks where usage ends and
// work begins, and ends the context on INT and TERM.
func (c *cli) begin(cmd *cobra.Command) {
	cmd.SuggestionsMinimumDistance = 2
	for _, sub := range cmd.Commands() {
		c.begin(sub)
	}
	work := cmd.RunE
	if work == nil {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.working = true
		c.defaultTeam(cmd)
		if _, own := cmd.Annotations[ownSignals]; !own {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			cmd.SetContext(ctx)
		}
		return work(cmd, args)
	}
}

// getenv is one name of the environment.
func (c *cli) getenv(name string) string { return config.Env(c.environ, name) }

// settings is how the server is reached: the flags, else the environment, else the
// operator's token in the data folder.
func (c *cli) settings() (config.Client, error) { return config.LoadClient(c.environ, c.url, "") }

// usageError is a command line that cannot be understood; exit code 2.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// asUsage marks what the flag parser said of a command line.
func asUsage(err error) error {
	var usage *usageError
	if errors.As(err, &usage) {
		return err
	}
	return &usageError{err.Error()}
}

// exactly is the check of a command with these positional arguments, each of which
// must be given. A name that ends in "?" may be left out, one that ends in "…" may
// repeat; both only at the end.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		least, most := 0, len(names)
		for _, name := range names {
			switch {
			case strings.HasSuffix(name, "?"):
			case strings.HasSuffix(name, "…"):
				least, most = least+1, 1<<20
			default:
				least++
			}
		}
		switch {
		case len(args) < least:
			return usagef("%s is missing; usage: %s", strings.TrimRight(names[len(args)], "…?"), cmd.UseLine())
		case len(args) > most && most == 0:
			return usagef("unexpected argument %q: %s takes none; see %s --help", args[0], cmd.CommandPath(), cmd.CommandPath())
		case len(args) > most:
			return usagef("unexpected argument %q; usage: %s", args[most], cmd.UseLine())
		}
		return nil
	}
}
