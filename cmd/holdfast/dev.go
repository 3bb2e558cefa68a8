package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/cmd/internal/incident"
	"github.com/holdfast-io/holdfast/cmd/internal/node"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

const devLong = `Dev runs everything in one process on this machine: the API, the embedded queue and
stores, and a runner of command bots. It needs nothing installed.

All state is in one folder, which is created with mode 0700 and locked while dev runs. What
was acknowledged survives kill -9 and a power cut: when dev is ready again, children of the
former process are dead, their runs are failed_resumable (interrupted) with what they had
spent, nothing is held by the dead, and what was queued is queued.

It prints "ready http://…" on stdout when it serves; the operator's token is then in
operator.token in the folder. On INT or TERM it ends its children, settles their runs and
exits with 0, within ten seconds.

Each setting below is also read from the environment (HOLDFAST_SWEEP_EVERY for
--sweep-every) and from holdfast.yaml in the folder, or the file that --config names.`

func newDev(c *cli) *cobra.Command {
	var example bool
	cmd := &cobra.Command{
		Use: "dev", Short: "Run everything on this machine in one process",
		Long: devLong,
		Example: `  holdfast dev
  holdfast dev --example                      # seeds three teams and plays the incident, once
  holdfast dev --data /var/lib/holdfast --addr 127.0.0.1:7421 --runners 4`,
		Args: exactly(),
	}
	load := c.settingFlags(cmd, config.Dev)
	cmd.Flags().BoolVar(&example, "example", false, "when the folder has no teams: seed three and play the incident")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		settings, err := load()
		if err != nil {
			return err
		}
		return c.serve(cmd.Context(), settings, example)
	}
	return cmd
}

// serve runs a node until the context ends.
func (c *cli) serve(ctx context.Context, settings config.Options, example bool) (err error) {
	log := c.logger(settings)
	n, err := node.Open(ctx, node.Options{Settings: settings, Version: thisVersion().Version, Log: log})
	if err != nil {
		return inUse(err)
	}
	defer func() {
		if err = errors.Join(err, n.Close()); err == nil {
			fmt.Fprintf(c.stdout, "stopped; the state is kept in %s\n", settings.Data)
		}
	}()
	running, stop := errgroup.WithContext(ctx)
	running.Go(func() error {
		return n.Run(stop, func() {
			fmt.Fprintln(c.stdout, "ready "+n.URL())
			if example {
				running.Go(func() error { return c.example(stop, n, settings) })
			}
		})
	})
	return running.Wait()
}

// inUse keeps the line that a person needs of an error that the folder or the port
// is taken.
func inUse(err error) error {
	for _, taken := range []error{node.ErrInUse, node.ErrPortInUse} {
		if errors.Is(err, taken) {
			return &exitError{exitFailed, err}
		}
	}
	return err
}

// example seeds an empty deployment and plays the incident; of one that has teams it
// says that it is kept.
func (c *cli) example(ctx context.Context, n *node.Node, settings config.Options) error {
	server, err := client.New(n.URL(), n.Token(), client.Options{})
	if err != nil {
		return err
	}
	page, err := server.Teams(ctx, client.Window{Limit: 1})
	if err != nil {
		return err
	}
	if len(page.Items) > 0 {
		fmt.Fprintf(c.stdout, "%s has teams already: it is kept as it is, nothing is seeded\n", settings.Data)
		c.pasteLines(settings, n.URL())
		return nil
	}
	if err := incident.Seed(ctx, server); err != nil {
		return err
	}
	err = c.play(ctx, server)
	if errors.Is(err, incident.ErrBroken) {
		fmt.Fprintln(c.stderr, "holdfast: "+err.Error())
		err = nil // it is for the reader to see; the server serves
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the reader pressed Ctrl-C during the play
	}
	c.pasteLines(settings, n.URL())
	return err
}

// pasteLines prints what to try next. What the shell at hand needs to find the
// server stands in front when it is not where clients look by themselves.
func (c *cli) pasteLines(settings config.Options, url string) {
	prefix := ""
	if url != config.DefaultURL {
		prefix += "HOLDFAST_URL=" + url + " "
	}
	if settings.Data != config.Defaults().Data {
		prefix += "HOLDFAST_DATA=" + settings.Data + " "
	}
	self := "holdfast"
	if path := os.Args[0]; strings.Contains(path, "/") {
		self = path
	}
	fmt.Fprintf(c.stdout, `
Try, in another terminal:
  %[1]s capacity
  %[1]s launch review-pr --team web --wait
  %[1]s exec --team web --bot review-pr --budget 0.50 -- sh -c 'echo "{\"cost_usd\": 0.12}" >> $HOLDFAST_REPORT'
%[2]sCtrl-C ends it.
`, prefix+self, c.traceLines(prefix+self))
}

// traceLines replay the reader's own transcripts; who has none yet is given a trace
// that is there first.
func (c *cli) traceLines(self string) string {
	line := "  " + self + " simulate ~/.claude/projects --policy examples/policy.yaml"
	own, err := filepath.Glob(filepath.Join(c.getenv("HOME"), ".claude", "projects", "*", "*.jsonl"))
	if err == nil && len(own) > 0 {
		return line + "\n"
	}
	return "  " + self + " simulate examples/trace.csv --policy examples/policy.yaml --caps examples/caps.yaml\n" + line + "   # once there are transcripts on this machine\n"
}

// play shows the incident on the terminal.
func (c *cli) play(ctx context.Context, server *client.Client) error {
	return incident.Run(ctx, server, incident.Options{Out: c.stdout, Bars: c.drawBars, TwoSides: twoSides})
}

// drawBars draws subjects as bars, in colour on a terminal that has colours.
func (c *cli) drawBars(w io.Writer, subjects []api.SubjectCapacity) error {
	style := barStyle{width: 60, colour: c.stdoutTerminal && c.getenv("NO_COLOR") == "" && c.getenv("TERM") != "dumb"}
	return writeBars(w, subjects, style, c.clock())
}

// twoSides replays the example's day and prints its summary. It says how many runs
// the holders of reservations gained and how many the others lost.
func twoSides(ctx context.Context, out io.Writer) (gained, lost int, err error) {
	result, reserved, err := simulateExample(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, d := range result.Difference {
		if reserved[d.Identity] {
			gained += d.Gained - d.Lost
		} else {
			lost += d.Lost - d.Gained
		}
	}
	for _, line := range result.Summary {
		fmt.Fprintln(out, "  "+line)
	}
	return gained, lost, nil
}

// holders are the identities that a policy reserves something for.
type holders map[holdfast.Identity]bool
