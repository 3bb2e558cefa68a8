package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/client"
)

// The pauses between two asks. What a refusal for want of capacity says about when to
// ask again is a guess: a run may end at any moment, an operator lend a reserve out.
// So the pauses begin short, each is half as long again as the one before, and the
// server's Retry-After only bounds them: what comes back is found after at most about
// half the time that was waited already. What else says no knows when it will not
// any more (the launch rate its next token, a maintenance its end, a server that
// could not tell its own load): that Retry-After is slept as it is, since asking
// earlier is in vain. No pause is longer than maxPause.
const (
	firstPause = time.Second
	maxPause   = 30 * time.Second
)

func longer(pause time.Duration) time.Duration { return min(pause+pause/2, maxPause) }

// progress is one line on the terminal that is written over and over. In a pipe it
// writes nothing; what a reader of a log must know is [progress.tell].
type progress struct {
	c     *cli
	drawn bool
	told  string
}

func (p *progress) show(format string, args ...any) {
	if !p.c.stderrTerminal {
		return
	}
	text := fmt.Sprintf(format, args...)
	if p.c.width > 4 && len(text) >= p.c.width {
		text = text[:p.c.width-1]
	}
	p.drawn = true
	fmt.Fprintf(p.c.stderr, "\r\x1b[K%s", text)
}

// tell writes a whole line, once for each new text, where there is no terminal: the
// log of a CI job says why nothing happens.
func (p *progress) tell(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if p.c.stderrTerminal || text == p.told {
		return
	}
	p.told = text
	fmt.Fprintln(p.c.stderr, "holdfast: "+text)
}

// clear removes the line, so that what follows begins on an empty one.
func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.c.stderr, "\r\x1b[K")
		p.drawn = false
	}
}

// askUntil asks until it is admitted or span has passed; a span of zero asks once.
// It asks again only where that can help: after a refusal that says so, when the
// server could not tell, and, once it has answered, when it cannot be reached. The
// last answer is returned.
func askUntil[T any](ctx context.Context, c *cli, span time.Duration, ask func(context.Context) (T, error)) (T, error) {
	line := &progress{c: c}
	defer line.clear()
	started := c.clock()
	pause, answered := firstPause, false
	for tries := 1; ; tries++ {
		answer, err := ask(ctx)
		if err == nil || ctx.Err() != nil {
			return answer, err
		}
		again, hint, exact, why := worthAsking(err, answered)
		answered = answered || !errors.Is(err, client.ErrUnreachable)
		left := span - c.clock().Sub(started)
		if !again || left <= 0 {
			return answer, err
		}
		next := min(hint, maxPause)
		if !exact || hint <= 0 {
			next = min(time.Duration(float64(pause)*(0.8+0.4*c.random())), maxPause)
			if hint > 0 {
				next = min(next, hint)
			}
			pause = longer(pause)
		}
		next = min(next, left)
		line.tell("waiting for up to %s: %s", showSpan(span), why)
		line.show("waiting: %s; asked %d times, giving up in %s", why, tries, showSpan(left))
		if err := c.sleep(ctx, next); err != nil {
			return answer, err
		}
	}
}

// worthAsking says whether asking again can help, how long the server wants to be
// left alone (zero: it did not say), whether it knows that or guesses, and why it is
// waited.
func worthAsking(err error, answered bool) (again bool, hint time.Duration, exact bool, why string) {
	var refused *client.Refused
	var failed *client.Failed
	switch {
	case errors.As(err, &refused):
		why = refused.Problem.Reason
		if refused.Problem.Subject != "" {
			why += " on " + refused.Problem.Subject
		}
		switch holdfast.DenyReason(refused.Problem.Reason) {
		case holdfast.DenyLaunchRate, holdfast.DenyMaintenance:
			exact = true
		default: // capacity: what comes back comes back unannounced
		}
		return refused.Retryable(), refused.RetryAfter(), exact, why
	case errors.As(err, &failed) && failed.Problem.Status == http.StatusServiceUnavailable:
		return true, time.Duration(failed.Problem.RetryAfterS) * time.Second, true, strings.ToLower(failed.Problem.Title)
	case errors.Is(err, client.ErrUnreachable):
		return answered, 0, false, "the server cannot be reached"
	}
	return false, 0, false, ""
}
