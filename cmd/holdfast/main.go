// Command holdfast reserves capacity for fleets of AI agents, and holds it. The one
// binary is the server of one machine (`holdfast dev`), the runner of a command on
// the caller's machine (`holdfast exec`), the simulator and every client command.
package main

import (
	"os"

	"golang.org/x/term"

	"github.com/holdfast-io/holdfast/pkg/runner"
)

func main() {
	if code, hidden := runner.HiddenMain(os.Args[1:]); hidden {
		os.Exit(code)
	}
	c := &cli{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ(),
		stdoutTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		stderrTerminal: term.IsTerminal(int(os.Stderr.Fd())),
	}
	if width, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
		c.width = width
	}
	os.Exit(c.run(os.Args[1:]))
}
