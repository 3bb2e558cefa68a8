package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/pkg/client"
)

// The pauses between two asks. A refusal says how long to wait, but capacity also
// comes back early (a run ends, an operator lends a reserve out), so no pause is
// longer than maxPause.
const (
	firstPause = time.Second
	maxPause   = 30 * time.Second
)

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
		again, hint, why := worthAsking(err, answered)
		answered = answered || !errors.Is(err, client.ErrUnreachable)
		left := span - c.clock().Sub(started)
		if !again || left <= 0 {
			return answer, err
		}
		next := pause
		if hint > 0 {
			next = hint
		} else {
			pause = min(2*pause, maxPause)
		}
		next = min(time.Duration(float64(min(next, maxPause))*(0.8+0.4*c.random())), left)
		line.tell("waiting for up to %s: %s", showSpan(span), why)
		line.show("waiting: %s; asked %d times, giving up in %s", why, tries, showSpan(left))
		if err := c.sleep(ctx, next); err != nil {
			return answer, err
		}
	}
}

// worthAsking says whether asking again can help, how long the server wants to be
// left alone, and why it is waited.
func worthAsking(err error, answered bool) (again bool, pause time.Duration, why string) {
	var refused *client.Refused
	var failed *client.Failed
	switch {
	case errors.As(err, &refused):
		why = refused.Problem.Reason
		if refused.Problem.Subject != "" {
			why += " on " + refused.Problem.Subject
		}
		return refused.Retryable(), refused.RetryAfter(), why
	case errors.As(err, &failed) && failed.Problem.Status == http.StatusServiceUnavailable:
		return true, time.Duration(failed.Problem.RetryAfterS) * time.Second, strings.ToLower(failed.Problem.Title)
	case errors.Is(err, client.ErrUnreachable):
		return answered, 0, "the server cannot be reached"
	}
	return false, 0, ""
}
