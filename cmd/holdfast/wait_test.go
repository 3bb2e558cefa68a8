package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

// standing is a cli whose clock moves only by what is slept.
func standing() (*cli, *[]time.Duration) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	slept := new([]time.Duration)
	return &cli{
		stdout: io.Discard, stderr: io.Discard,
		now:    func() time.Time { return now },
		jitter: func() float64 { return 0.5 },
		pause: func(ctx context.Context, d time.Duration) error {
			now = now.Add(d)
			*slept = append(*slept, d)
			return ctx.Err()
		},
	}, slept
}

func no(retryable bool, after int64) error {
	return &client.Refused{Problem: api.Problem{Status: 429, Reason: "concurrency_cap_exceeded", Subject: "team/web/slots", Retryable: &retryable, RetryAfterS: after}}
}

var (
	errGone = fmt.Errorf("%w: connection refused", client.ErrUnreachable)
	errBusy = &client.Failed{Problem: api.Problem{Status: 503, Title: "Store unavailable", RetryAfterS: 2}}
	errSick = &client.Failed{Problem: api.Problem{Status: 500, Title: "Internal error"}}
	errBad  = &client.InvalidRequest{Problem: api.Problem{Status: 400}}
)

// asking answers one after the other, the last one for ever.
func asking(tries *int, answers ...error) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		err := answers[min(*tries, len(answers)-1)]
		*tries++
		if err != nil {
			return "", err
		}
		return "admitted", nil
	}
}

func TestAskingAgainHappensOnlyWhereItCanHelp(t *testing.T) {
	s := time.Second
	rows := []struct {
		name    string
		span    time.Duration
		answers []error
		tries   int
		slept   []time.Duration
		last    error
	}{
		{"admitted at once", time.Minute, []error{nil}, 1, nil, nil},
		{"without --wait-for it asks once", 0, []error{no(true, 1), nil}, 1, nil, no(true, 1)},
		{"the server's Retry-After is kept", time.Minute, []error{no(true, 7), no(true, 3), nil}, 3, []time.Duration{7 * s, 3 * s}, nil},
		{"without one the pauses double", time.Minute, []error{no(true, 0), no(true, 0), no(true, 0), nil}, 4, []time.Duration{s, 2 * s, 4 * s}, nil},
		{"a long Retry-After is not slept through", time.Hour, []error{no(true, 86_400), nil}, 2, []time.Duration{maxPause}, nil},
		{"a refusal that nothing can mend is final", time.Minute, []error{no(false, 1), nil}, 1, nil, no(false, 1)},
		{"a store that could not tell is asked again", time.Minute, []error{errBusy, nil}, 2, []time.Duration{2 * s}, nil},
		{"any other failure is final", time.Minute, []error{errSick, nil}, 1, nil, errSick},
		{"a bad request is final", time.Minute, []error{errBad, nil}, 1, nil, errBad},
		{"a server that never answered is final", time.Minute, []error{errGone, nil}, 1, nil, errGone},
		{"a server that answered before may restart", time.Minute, []error{no(true, 1), errGone, nil}, 3, []time.Duration{s, s}, nil},
		{"the last answer is the answer when time is up", 5 * s, []error{no(true, 2)}, 4, []time.Duration{2 * s, 2 * s, s}, no(true, 2)},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			c, slept := standing()
			tries := 0
			_, err := askUntil(t.Context(), c, row.span, asking(&tries, row.answers...))
			if fmt.Sprint(err) != fmt.Sprint(row.last) || tries != row.tries {
				t.Errorf("%d tries and %v, want %d and %v", tries, err, row.tries, row.last)
			}
			if diff := cmp.Diff(row.slept, *slept); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPausesAreSpreadByAFifthEitherWay(t *testing.T) {
	for random, want := range map[float64]time.Duration{0: 8 * time.Second, 0.5: 10 * time.Second, 1: 12 * time.Second} {
		c, slept := standing()
		c.jitter = func() float64 { return random }
		tries := 0
		if _, err := askUntil(t.Context(), c, time.Minute, asking(&tries, no(true, 10), nil)); err != nil || len(*slept) != 1 || (*slept)[0] != want {
			t.Errorf("at %v it slept %v, want %v (%v)", random, *slept, want, err)
		}
	}
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	c, _ := standing()
	ctx, cancel := context.WithCancel(t.Context())
	c.pause = func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() }
	tries := 0
	_, err := askUntil(ctx, c, time.Hour, asking(&tries, no(true, 1)))
	if tries != 1 || err == nil {
		t.Errorf("%d tries, %v", tries, err)
	}
}

func TestProgressIsDrawnOnATerminalAndToldOnceInAPipe(t *testing.T) {
	const once = "holdfast: waiting for up to 1m0s: concurrency_cap_exceeded on team/web/slots\n"
	for _, terminal := range []bool{false, true} {
		c, _ := standing()
		var stderr strings.Builder
		c.stderr, c.stderrTerminal = &stderr, terminal
		tries := 0
		if _, err := askUntil(t.Context(), c, time.Minute, asking(&tries, no(true, 1), no(true, 1), nil)); err != nil {
			t.Fatal(err)
		}
		shown := strings.Contains(stderr.String(), "concurrency_cap_exceeded on team/web/slots")
		if !shown || (!terminal && stderr.String() != once) || (terminal && !strings.HasSuffix(stderr.String(), "\r\x1b[K")) {
			t.Errorf("terminal %v: %q", terminal, stderr.String())
		}
	}
}

func TestEachSortOfErrorHasItsExitCode(t *testing.T) {
	rows := []struct {
		err  error
		want int
	}{
		{nil, 0}, {errors.New("x"), 1}, {usagef("x"), 2}, {errBad, 2}, {no(true, 1), 3}, {fmt.Errorf("launch: %w", no(false, 0)), 3}, {errGone, 4}, {errBusy, 1},
		{&client.NotFound{}, 1}, {&client.Conflict{}, 1}, {&client.Unauthenticated{}, 1}, {&client.Forbidden{}, 1}, {&exitError{code: 122}, 122}, {context.Canceled, 1},
	}
	for _, row := range rows {
		if got := exitCode(row.err); got != row.want {
			t.Errorf("%T %v has the code %d, want %d", row.err, row.err, got, row.want)
		}
	}
}
