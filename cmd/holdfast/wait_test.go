package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
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

// rate is a refusal that knows when it ends.
func rate(reason string, after int64) error {
	yes := true
	return &client.Refused{Problem: api.Problem{Status: 429, Reason: reason, Retryable: &yes, RetryAfterS: after}}
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
		{"a full slot is asked for soon, and ever more rarely", time.Minute, []error{no(true, 30), no(true, 30), no(true, 30), nil}, 4, []time.Duration{s, 3 * s / 2, 9 * s / 4}, nil},
		{"never later than the server says", time.Minute, []error{no(true, 2), no(true, 2), no(true, 2), no(true, 2), nil}, 5, []time.Duration{s, 3 * s / 2, 2 * s, 2 * s}, nil},
		{"the pauses grow where the server says nothing", time.Minute, []error{rate("monthly_cost_cap_exceeded", 0), rate("monthly_cost_cap_exceeded", 0), nil}, 3, []time.Duration{s, 3 * s / 2}, nil},
		{"the launch rate knows its next token", time.Minute, []error{rate("launch_rate_limited", 7), rate("launch_rate_limited", 3), nil}, 3, []time.Duration{7 * s, 3 * s}, nil},
		{"a maintenance is not slept through", time.Hour, []error{rate("maintenance", 86_400), nil}, 2, []time.Duration{maxPause}, nil},
		{"a refusal that nothing can mend is final", time.Minute, []error{no(false, 1), nil}, 1, nil, no(false, 1)},
		{"a store that could not tell is asked again", time.Minute, []error{errBusy, nil}, 2, []time.Duration{2 * s}, nil},
		{"any other failure is final", time.Minute, []error{errSick, nil}, 1, nil, errSick},
		{"a bad request is final", time.Minute, []error{errBad, nil}, 1, nil, errBad},
		{"a server that never answered is final", time.Minute, []error{errGone, nil}, 1, nil, errGone},
		{"a server that answered before may restart", time.Minute, []error{no(true, 1), errGone, nil}, 3, []time.Duration{s, 3 * s / 2}, nil},
		{"the last answer is the answer when time is up", 5 * s, []error{no(true, 2)}, 5, []time.Duration{s, 3 * s / 2, 2 * s, s / 2}, no(true, 2)},
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

func TestPausesAreSpreadByAFifthEitherWayButNeverBeyondWhatTheServerSays(t *testing.T) {
	const ms = time.Millisecond
	for _, row := range []struct {
		random float64
		err    error
		want   time.Duration
	}{
		{0, no(true, 30), 800 * ms}, {0.5, no(true, 30), 1000 * ms}, {1, no(true, 30), 1200 * ms}, {1, no(true, 0), 1200 * ms},
		{1, no(true, 1), 1000 * ms}, {0, rate("launch_rate_limited", 10), 10_000 * ms}, {1, rate("launch_rate_limited", 10), 10_000 * ms},
	} {
		c, slept := standing()
		c.jitter = func() float64 { return row.random }
		tries := 0
		if _, err := askUntil(t.Context(), c, time.Minute, asking(&tries, row.err, nil)); err != nil || len(*slept) != 1 || (*slept)[0] != row.want {
			t.Errorf("at %v after %v it slept %v, want %v (%v)", row.random, row.err, *slept, row.want, err)
		}
	}
}

// TestASlotThatComesBackIsFoundSoon: whenever it comes back, it is found after at most
// another half of the time that was waited and a second, and no pause is too long.
func TestASlotThatComesBackIsFoundSoon(t *testing.T) {
	for _, freed := range []time.Duration{1500 * time.Millisecond, 10 * time.Second, time.Minute, 20 * time.Minute} {
		c, slept := standing()
		started := c.clock()
		_, err := askUntil(t.Context(), c, time.Hour, func(context.Context) (string, error) {
			if c.clock().Sub(started) < freed {
				return "", no(true, 30)
			}
			return "admitted", nil
		})
		late := c.clock().Sub(started) - freed
		if err != nil || late > min(freed/2+time.Second, maxPause) || slices.Max(*slept) > maxPause {
			t.Errorf("a slot that is free after %v was found %v later, after %v (%v)", freed, late, *slept, err)
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
