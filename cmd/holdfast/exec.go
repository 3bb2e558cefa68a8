package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
	"github.com/holdfast-io/holdfast/pkg/runner"
)

// The exit codes of a shell for a command that cannot be run.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
	exitBySignal      = 128 // and the signal's number
)

// execution is one `holdfast exec`.
type execution struct {
	c          *cli
	server     *client.Client
	request    api.LaunchRequest
	waitFor    waitFlag
	unheld     bool // --on-unreachable run
	statusFile string
	argv       []string
	status     execStatus
}

// execStatus is what --status-file says: which of the codes an exit code was.
type execStatus struct {
	// Outcome: asking, running, exited (the code is the command's own), stopped,
	// refused, unreachable, failed (nothing was started).
	Outcome  string `json:"outcome"`
	ExitCode int    `json:"exit_code"`
	// StoppedBy: budget_exceeded, lease_lost (the fence), cancelled_by_caller, or what
	// the server said.
	StoppedBy  string            `json:"stopped_by,omitempty"`
	Reason     string            `json:"reason,omitempty"` // of a refusal
	DecisionID string            `json:"decision_id,omitempty"`
	Run        string            `json:"run,omitempty"`
	BudgetUSD  holdfast.MicroUSD `json:"budget_usd"`
	SpentUSD   holdfast.MicroUSD `json:"spent_usd"`
	Settled    bool              `json:"settled"`
	Unheld     bool              `json:"unheld,omitempty"` // it ran without an admission
}

func newExec(c *cli) *cobra.Command {
	var flags launchFlags
	e := &execution{c: c}
	unreachable := oneOf{value: "fail", allowed: []string{"fail", "run"}}
	cmd := &cobra.Command{
		Use:   "exec --team T --bot B [flags] -- CMD ARG…",
		Short: "Run a command here under an admission of the gate",
		Long: `Exec asks the gate, runs the command on this machine while it renews what was granted,
and settles at the end with what the command spent: a CI job or a shell is held to its
allowance like any other run. The command gets this environment without HOLDFAST_TOKEN,
and appends lines like {"cost_usd": 0.12} to the file that HOLDFAST_REPORT names.

The command's exit code is passed through. Three more say why it did not run, or not to
its end: 120 refused by the gate, 121 server unreachable at the start, 122 stopped because
the allowance was spent, the run was cancelled, or the server was out of reach for so long
that the capacity may be somebody else's. --status-file says which it was.

When exec itself is killed, also with kill -9, the command and what it started are ended at
once: nobody would renew what they hold. The lease then gives the capacity back.

--wait-for asks again after a second, then after ever longer pauses, up to what the server
says; after a refusal of the launch rate or of a maintenance, when the server says so.`,
		Example: `  holdfast exec --team web --bot review-pr -- make test
  holdfast exec --team web --bot feature-dev --budget 2 --wait-for 30m -- ./agent.sh
  holdfast exec --team web --bot review-pr --on-unreachable run --status-file status.json -- make test`,
		Annotations: map[string]string{ownSignals: ""},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("CMD is missing; usage: %s", cmd.UseLine())
			}
			return nil
		},
	}
	cmd.Flags().SetInterspersed(false)
	flags.add(cmd.Flags())
	cmd.Flags().StringVarP(&flags.bot, "bot", "b", "", "bot that the command runs as (required)")
	cmd.Flags().Var(&e.waitFor, "wait-for", "keep asking for so long until the command is admitted")
	cmd.Flags().Var(&unreachable, "on-unreachable", "what to do when the server cannot be reached at the start")
	cmd.Flags().StringVar(&e.statusFile, "status-file", "", "write as JSON how it went")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := required(cmd, "bot", "a bot's name; see holdfast bots"); err != nil {
			return err
		}
		request, err := flags.request(flags.bot)
		if err != nil {
			return err
		}
		request.External = true
		e.request, e.argv, e.unheld = request, args, unreachable.value == "run"
		return e.run(cmd.Context())
	}
	return cmd
}

// run is the whole story: ask, run, settle. Nothing is reserved for a command that
// cannot be run.
func (e *execution) run(ctx context.Context) error {
	if err := e.note(execStatus{Outcome: "asking"}); err != nil {
		return usagef("--status-file: %s (allowed: a file that you may write)", err)
	}
	if _, err := exec.LookPath(e.argv[0]); err != nil {
		code := exitNotFound
		if errors.Is(err, os.ErrPermission) {
			code = exitNotExecutable
		}
		return e.end(execStatus{Outcome: "failed", ExitCode: code}, fmt.Errorf("%w; nothing was reserved", err))
	}
	var err error
	if e.server, err = e.c.connect(); err != nil {
		return e.end(execStatus{Outcome: "failed", ExitCode: exitCode(err)}, err)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)

	run, caught, err := e.admit(ctx, signals)
	switch {
	case caught != 0:
		return e.end(execStatus{Outcome: "failed", ExitCode: exitBySignal + int(caught), Run: run.ID, Settled: run.ID != ""}, errors.New("interrupted before the command was started"))
	case err != nil && unreachable(err) && e.unheld:
		fmt.Fprintf(e.c.stderr, "holdfast: %s; the command runs without an admission\n", plain(err))
		return e.work(ctx, api.Run{}, signals)
	case err != nil:
		return e.refused(err)
	}
	return e.work(ctx, run, signals)
}

// admit asks the gate until it says yes. A signal ends the waiting; what was granted
// to an ask that was already under way is given back.
func (e *execution) admit(ctx context.Context, signals <-chan os.Signal) (api.Run, syscall.Signal, error) {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	type answer struct {
		run api.Run
		err error
	}
	answers := make(chan answer, 1)
	key := newKey()
	go func() {
		run, err := askUntil(waiting, e.c, e.waitFor.span, func(context.Context) (api.Run, error) {
			// An ask that is under way is always heard to its end: only its answer says what
			// has to be given back.
			return e.server.Launch(context.WithoutCancel(ctx), e.request, key)
		})
		answers <- answer{run, err}
	}()
	select {
	case got := <-answers:
		return got.run, 0, got.err
	case caught := <-signals:
		stop()
		number, _ := caught.(syscall.Signal)
		got := <-answers
		if got.err == nil {
			if _, err := e.settle(ctx, got.run, 0, "cancelled"); err != nil {
				fmt.Fprintf(e.c.stderr, "holdfast: run %s could not be settled (%s); its lease gives it back\n", got.run.ID, plain(err))
			}
		}
		return got.run, number, got.err
	}
}

// unreachable says that nobody could tell, whichever way.
func unreachable(err error) bool {
	var failed *client.Failed
	return errors.Is(err, client.ErrUnreachable) || errors.As(err, &failed) && failed.Problem.Status >= http.StatusInternalServerError
}

// refused ends an execution that was not admitted.
func (e *execution) refused(err error) error {
	status := execStatus{Outcome: "failed", ExitCode: exitCode(err)}
	var no *client.Refused
	switch {
	case errors.As(err, &no):
		status = execStatus{Outcome: "refused", ExitCode: exitExecRefused, Reason: no.Problem.Reason, DecisionID: no.Problem.DecisionID}
	case unreachable(err):
		status = execStatus{Outcome: "unreachable", ExitCode: exitExecUnreachable}
	}
	return e.end(status, err)
}

// end notes how it went and is the error that ends the process with its code. A nil
// err says nothing more.
func (e *execution) end(status execStatus, err error) error {
	if noteErr := e.note(status); noteErr != nil {
		fmt.Fprintf(e.c.stderr, "holdfast: --status-file: %s\n", noteErr)
	}
	return &exitError{status.ExitCode, err}
}

// note writes the status file, whole or not at all.
func (e *execution) note(status execStatus) error {
	e.status = status
	if e.statusFile == "" {
		return nil
	}
	text, err := jsonText(status, "")
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(e.statusFile), ".holdfast-status-*")
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(file.Name(), e.statusFile)
	}
	if err != nil {
		_ = os.Remove(file.Name()) // what is left of a file that nobody asked for
	}
	return err
}

// environment is what the command gets: the caller's own, without the token, and
// what the run is.
func (e *execution) environment(run api.Run, report string) []string {
	ours := map[string]string{
		"HOLDFAST_RUN": run.ID, "HOLDFAST_TEAM": run.Team, "HOLDFAST_BOT": run.Identity.Bot,
		"HOLDFAST_ATTEMPT": fmt.Sprint(run.Attempt), "HOLDFAST_BUDGET_USD": run.BudgetUSD.String(), "HOLDFAST_REPORT": report,
	}
	if run.Repo != "" {
		ours["HOLDFAST_REPO"] = run.Repo
	}
	var env []string
	for _, entry := range e.c.environ {
		name, _, _ := strings.Cut(entry, "=")
		_, replaced := ours[name]
		if name != "HOLDFAST_TOKEN" && (!replaced || run.ID == "") {
			env = append(env, entry)
		}
	}
	if run.ID == "" {
		return env
	}
	for name, value := range ours {
		env = append(env, name+"="+value)
	}
	return env
}

// start starts the command on this process' own streams. A terminal is handed over,
// so that the command can read from it and Ctrl-C reaches it. started is told the
// process; nil is allowed.
func (e *execution) start(run api.Run, report string, started func(runner.Process) error, spent func(*runner.Child, holdfast.MicroUSD)) (*runner.Child, error) {
	spec := runner.Spec{
		Argv: e.argv, Env: e.environment(run, report), Stdin: e.c.stdin, Stdout: e.c.stdout, Stderr: e.c.stderr,
		ReportFile: report, OnSpend: spent, Started: started,
	}
	if input, isFile := e.c.stdin.(*os.File); isFile && e.c.foreground(input) {
		spec.Terminal = input
	}
	return runner.StartChild(spec)
}
