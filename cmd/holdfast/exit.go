package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

// The exit codes. `exec` passes its command's own code through and adds three
// that commands rarely use.
const (
	exitDone        = 0
	exitFailed      = 1 // the work failed; of launch --wait: the run did not finish
	exitUsage       = 2 // the command line or a file cannot be understood; nothing was done
	exitRefused     = 3 // the gate said no
	exitUnreachable = 4 // nobody could be asked

	exitExecRefused     = 120 // the gate said no; the command was not started
	exitExecUnreachable = 121 // nobody could be asked; the command was not started
	exitExecStopped     = 122 // the command was stopped by its allowance, a window or the fence
)

// exitError is an error with an exit code of its own. A nil err prints nothing: the
// command has already said what there is to say.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exitCode is the code that an error ends the process with.
func exitCode(err error) int {
	var (
		own     *exitError
		usage   *usageError
		invalid *holdfast.InvalidError
		request *client.InvalidRequest
		refused *client.Refused
	)
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &usage), errors.As(err, &invalid), errors.As(err, &request):
		return exitUsage
	case errors.As(err, &refused):
		return exitRefused
	case errors.Is(err, client.ErrUnreachable):
		return exitUnreachable
	}
	return exitFailed
}

// report prints what a command line ended with and returns its exit code. A program
// that asked for JSON gets the server's problem, or an object with the text.
func (c *cli) report(err error) int {
	code := exitCode(err)
	var own *exitError
	if err == nil || errors.As(err, &own) && own.err == nil {
		return code
	}
	problem, answered := client.ProblemOf(err)
	switch {
	case c.format == formatJSON && answered:
		c.reportJSON(problem)
	case c.format == formatJSON:
		c.reportJSON(map[string]any{"error": plain(err), "exit_code": code})
	case answered && problem.Reason != "":
		fmt.Fprint(c.stderr, refusalText(problem))
	default:
		fmt.Fprintf(c.stderr, "holdfast: %s\n", c.advised(err))
	}
	return code
}

// reportJSON writes an error for a program, on one line.
func (c *cli) reportJSON(v any) {
	if text, err := jsonText(v, ""); err == nil {
		_, _ = c.stderr.Write(text)
	}
}

// plain is an error on one line.
func plain(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	return strings.Join(strings.Fields(oneLine(err.Error())), " ")
}

// advised is an error on one line with the way out where there is one.
func (c *cli) advised(err error) string {
	text := plain(err)
	var unauthenticated *client.Unauthenticated
	var forbidden *client.Forbidden
	switch {
	case errors.As(err, &unauthenticated):
		settings, settingsErr := c.settings()
		if settingsErr != nil || settings.Token == "" {
			return text + "; no token was found: set HOLDFAST_TOKEN, or HOLDFAST_DATA to the data folder of `holdfast dev`"
		}
		return text + "; the token came from " + settings.TokenFrom
	case errors.As(err, &forbidden):
		return text + "; ask for a token with a higher role, or use the operator's"
	case errors.Is(err, client.ErrUnreachable):
		return text + "; start one with `holdfast dev`, or set HOLDFAST_URL"
	}
	return text
}

// refusalText is the gate's "no" for people: the reason first, then every number
// once.
func refusalText(p api.Problem) string {
	return refusalWith(p, arithmetic(p.Cap, p.Requested, p.Settled, p.Outstanding, p.Withheld, p.Remaining))
}

// refusalWith is the text with a line of numbers, or without where they stand beside
// it; the sentence of the server then leaves them out.
func refusalWith(p api.Problem, numbers string) string {
	if head, tail, ok := strings.Cut(p.Detail, ": the cap is "); ok && p.Cap != nil {
		_, hint, _ := strings.Cut(tail, " asked")
		p.Detail = head + hint
	}
	var b strings.Builder
	b.WriteString("refused: " + p.Reason)
	if p.Cause != "" {
		b.WriteString(" (" + p.Cause + ")")
	}
	if p.Subject != "" && !strings.HasPrefix(p.Detail, p.Subject) {
		b.WriteString(" on " + p.Subject)
	}
	if p.Detail != "" {
		b.WriteString(": " + plain(errors.New(p.Detail)))
	}
	b.WriteByte('\n')
	if numbers != "" {
		b.WriteString("  " + numbers + "\n")
	}
	for _, h := range p.Holders {
		b.WriteString("  " + h.Holder + ": " + holderNumbers(h) + "\n")
	}
	var next []string
	if p.Retryable != nil && !*p.Retryable {
		next = append(next, "asking again cannot help") // also not after the reset
	} else {
		if p.RetryAfterS > 0 {
			next = append(next, fmt.Sprintf("try again in %s, or keep asking with --wait-for", showSpan(time.Duration(p.RetryAfterS)*time.Second)))
		}
		if !p.ResetAt.IsZero() {
			next = append(next, "resets at "+showTime(p.ResetAt))
		}
	}
	if p.DecisionID != "" {
		next = append(next, "what would help: `holdfast decisions explain "+p.DecisionID+"`")
	}
	if len(next) > 0 {
		b.WriteString("  " + strings.Join(next, "; ") + "\n")
	}
	return b.String()
}

// arithmetic prints the numbers of a judgement that are there.
func arithmetic(limit, requested, settled, outstanding, withheld, remaining *api.Amount) string {
	var parts []string
	if limit == nil && requested != nil {
		parts, remaining = append(parts, "no limit"), nil
	}
	for _, n := range []struct {
		word   string
		amount *api.Amount
	}{{"cap", limit}, {"asked", requested}, {"settled", settled}, {"outstanding", outstanding}, {"withheld", withheld}, {"remaining", remaining}} {
		if n.amount != nil {
			parts = append(parts, n.word+" "+show(*n.amount))
		}
	}
	return strings.Join(parts, ", ")
}
