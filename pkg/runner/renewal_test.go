package runner_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runner"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

func TestAClaimWithoutAnAnswerIsAskedAgainUnderItsNonceAndOneWithAnAnswerIsNot(t *testing.T) {
	for _, row := range []struct {
		name   string
		first  queue.Grant
		err    error
		change func(*queue.RunMessage)
		same   bool
	}{
		{name: "no answer", err: errors.New("timeout"), same: true},
		{name: "later", first: queue.Grant{Verdict: queue.GrantLater}, same: true},
		{name: "drop", first: queue.Grant{Verdict: queue.GrantDrop}},
		{name: "no answer, and a newer publication", err: errors.New("timeout"), change: func(m *queue.RunMessage) { m.Publication++ }},
		{name: "no answer, and a newer generation", err: errors.New("timeout"), change: func(m *queue.RunMessage) { m.Generation++ }},
	} {
		t.Run(row.name, func(t *testing.T) {
			q := newFake()
			asked := make(chan queue.Claim, 64)
			var claims atomic.Int64
			q.claims(func(_ context.Context, c queue.Claim) (queue.Grant, error) {
				asked <- c
				if claims.Add(1) == 1 {
					return row.first, row.err
				}
				return granted, nil
			})
			r := newRig(t, q, runner.Options{Heartbeat: time.Minute})
			m := agentRun("hold")
			r.deliver(m)
			next(t, r.ended)
			if row.change != nil {
				row.change(&m)
			}
			r.deliver(m)
			first, second := next(t, asked), next(t, asked)
			if (first.Nonce == second.Nonce) != row.same {
				t.Errorf("the nonces are %s and %s", first.Nonce, second.Nonce)
			}
			if row.same { // its lease began with the first asking, so it is renewed at once
				if c := next(t, asked); c.Attempt != 1 {
					t.Errorf("%+v, want a renewal", c)
				}
			}
			r.cancel("R1")
			r.endOf(t)
		})
	}
}

func TestTheQueuesWordsForAStopAreTheRunDocuments(t *testing.T) {
	if queue.StopCancelled != string(runs.ReasonCancelled) || queue.StopLeaseLost != string(runs.ReasonLeaseLost) {
		t.Errorf("%q and %q against %q and %q", queue.StopCancelled, queue.StopLeaseLost, runs.ReasonCancelled, runs.ReasonLeaseLost)
	}
}

func TestHeartbeatsRenewTheClaimExtendTheMessageAndTellTheSpend(t *testing.T) {
	q := newFake()
	asked := make(chan queue.Claim, 1024)
	q.claims(func(_ context.Context, c queue.Claim) (queue.Grant, error) { asked <- c; return granted, nil })
	r := newRig(t, q, runner.Options{})
	r.deliver(agentRun("report={\"cost_usd\": 1.5}\n", "hold"))
	next(t, asked)
	last := int64(1) // the started report's
	for {
		c := next(t, asked)
		if c.Attempt != 1 || c.Sequence != last+1 || c.Run != "R1" || c.Publication != 3 || c.Generation != 2 {
			t.Fatalf("heartbeat %+v after sequence %d", c, last)
		}
		last = c.Sequence
		if c.Spent == 1_500_000 {
			break
		}
	}
	next(t, r.extended)
	r.cancel("R1")
	if ended := r.endOf(t); ended.Sequence <= last || ended.Spent != 1_500_000 {
		t.Errorf("%+v after sequence %d", ended, last)
	}
}

func TestWhatEndsAChildDecidesItsEnding(t *testing.T) {
	stop := func(reason string) func(context.Context, queue.Claim) (queue.Grant, error) {
		return func(_ context.Context, c queue.Claim) (queue.Grant, error) {
			if c.Attempt > 0 {
				return queue.Grant{Verdict: queue.GrantStop, Reason: reason}, nil
			}
			return granted, nil
		}
	}
	for _, row := range []struct {
		name   string
		answer func(context.Context, queue.Claim) (queue.Grant, error)
		words  []string
		lasts  time.Duration
		want   queue.Ending
		detail string
	}{
		{name: "its budget", words: []string{"report={\"cost_usd\": 99}\n{\"cost_usd\": 1}\n", "hold"}, want: queue.EndBudget, detail: "spent $100.00 of $100.00"},
		{name: "its deadline", words: []string{"hold"}, lasts: 300 * time.Millisecond, want: queue.EndDeadline, detail: "ran longer than 300ms"},
		{name: "a cancelled heartbeat", answer: stop(queue.StopCancelled), words: []string{"hold"}, want: queue.EndCancelled},
		{name: "a closed allocation", answer: stop(queue.StopLeaseLost), words: []string{"hold"}, want: queue.EndLeaseLost},
		{name: "a reason that nobody knows", answer: stop("?"), words: []string{"hold"}, want: queue.EndLeaseLost},
		{name: "a newer attempt", answer: func(_ context.Context, c queue.Claim) (queue.Grant, error) {
			if c.Attempt > 0 {
				return queue.Grant{Verdict: queue.GrantDrop}, nil
			}
			return granted, nil
		}, words: []string{"hold"}, want: queue.EndLeaseLost},
	} {
		t.Run(row.name, func(t *testing.T) {
			q := newFake()
			if row.answer != nil {
				q.claims(row.answer)
			}
			r := newRig(t, q, runner.Options{})
			m := agentRun(row.words...)
			m.Bot.MaxDuration = holdfast.Duration(row.lasts)
			ended := r.run(t, m)
			if ended.Ending != row.want || ended.Detail != row.detail {
				t.Errorf("it ended as %s, %q; want %s, %q", ended.Ending, ended.Detail, row.want, row.detail)
			}
		})
	}
}

func TestARenewalMayChangeTheBudgetAndOneThatSaysNothingKeepsIt(t *testing.T) {
	q := newFake()
	renewals := make(chan queue.Claim, 1024)
	q.claims(func(_ context.Context, c queue.Claim) (queue.Grant, error) {
		if c.Attempt == 0 {
			return granted, nil
		}
		renewals <- c
		if c.Spent == 0 {
			return queue.Grant{Verdict: queue.GrantGo}, nil // no budget named: still 100 dollars
		}
		return queue.Grant{Verdict: queue.GrantGo, Budget: 3 * holdfast.OneUSD}, nil
	})
	r := newRig(t, q, runner.Options{})
	m := agentRun()
	m.Bot.Command = []string{"sh", "-c", `for step in 2 1; do
		while [ ! -e go-$step ]; do sleep 0.01; done
		echo "{\"cost_usd\": $step}" >> $HOLDFAST_REPORT
	done; sleep 60`}
	r.deliver(m)
	renewedTwice(t, renewals, 0)
	touch(t, filepath.Join(r.dir, "work", "R1-1", "workspace", "go-2"))
	renewedTwice(t, renewals, 2*holdfast.OneUSD)
	touch(t, filepath.Join(r.dir, "work", "R1-1", "workspace", "go-1"))
	if ended := r.endOf(t); ended.Ending != queue.EndBudget || ended.Spent != 3*holdfast.OneUSD {
		t.Errorf("%+v", ended)
	}
}

// renewedTwice returns when a renewal with that spend was answered: another was asked
// after it.
func renewedTwice(t *testing.T, renewals <-chan queue.Claim, spent holdfast.MicroUSD) {
	t.Helper()
	for n := 0; n < 2; {
		if c := next(t, renewals); c.Spent == spent {
			n++
		}
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAChildIsStoppedWhenNoRenewalIsAcknowledgedForThreeQuartersOfALease(t *testing.T) {
	q := newFake()
	q.claims(func(ctx context.Context, c queue.Claim) (queue.Grant, error) {
		if c.Attempt == 0 {
			return granted, nil
		}
		<-ctx.Done() // the answer never comes
		return queue.Grant{}, ctx.Err()
	})
	fenced := make(chan holdfast.RunID, 1)
	r := newRig(t, q, runner.Options{Lease: 800 * time.Millisecond, Events: runner.Events{Fenced: func(run holdfast.RunID) { fenced <- run }}})
	ended := r.run(t, agentRun("hold"))
	if ended.Ending != queue.EndLeaseLost {
		t.Errorf("it ended as %s", ended.Ending)
	}
	if run := next(t, fenced); run != "R1" {
		t.Errorf("run %s was fenced", run)
	}
}

func TestAnAcknowledgedRenewalKeepsAChildAliveOverSeveralLeases(t *testing.T) {
	q := newFake()
	renewals := make(chan struct{}, 1024)
	fails := atomic.Int64{}
	q.claims(func(_ context.Context, c queue.Claim) (queue.Grant, error) {
		if c.Attempt > 0 {
			renewals <- struct{}{}
			if fails.Add(1)%2 == 0 { // every second one is lost
				return queue.Grant{}, errors.New("no answer")
			}
		}
		return granted, nil
	})
	lease := 400 * time.Millisecond
	r := newRig(t, q, runner.Options{Lease: lease, Heartbeat: 50 * time.Millisecond})
	r.deliver(agentRun("hold"))
	for range 24 { // three leases of heartbeats
		next(t, renewals)
	}
	r.cancel("R1")
	if ended := r.endOf(t); ended.Ending != queue.EndCancelled {
		t.Errorf("it ended as %s", ended.Ending)
	}
}

func TestACancelNoticeBeforeTheStartStartsNothing(t *testing.T) {
	q := newFake()
	r := newRig(t, q, runner.Options{})
	q.claims(func(context.Context, queue.Claim) (queue.Grant, error) {
		r.cancel("R1")
		return granted, nil
	})
	r.deliver(agentRun("hold"))
	if first := next(t, r.reports); first.Kind != queue.ReportEnded || first.Ending != queue.EndCancelled {
		t.Errorf("the first report is %+v", first)
	}
	if d := next(t, r.ended); d != queue.Done {
		t.Errorf("the message ended as %q", d)
	}
}

func TestTheEndIsReportedAfterTheStart(t *testing.T) {
	q := newFake()
	ended := make(chan struct{}, 1)
	q.publish = func(r queue.Report) error {
		if r.Kind == queue.ReportEnded {
			ended <- struct{}{}
			return nil
		}
		select { // a slow queue: long enough for the child to end
		case <-ended:
			t.Error("the end was reported while the start was")
		case <-time.After(300 * time.Millisecond):
		}
		return nil
	}
	r := newRig(t, q, runner.Options{})
	r.run(t, agentRun())
}

func TestANoticeForAnotherRunChangesNothing(t *testing.T) {
	r := newRig(t, newFake(), runner.Options{})
	pid := filepath.Join(t.TempDir(), "pid")
	r.deliver(agentRun("pid="+pid, "hold"))
	leader := pidIn(t, pid)
	r.cancel("R2")
	if !alive(leader) {
		t.Error("the child was stopped")
	}
	r.cancel("R1")
	r.endOf(t)
	if alive(leader) {
		t.Error("the child is alive")
	}
}
