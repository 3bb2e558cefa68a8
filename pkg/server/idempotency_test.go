package server_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
	"github.com/holdfast-io/holdfast/pkg/server"
)

const probe = `{"team":"acme","bot":"probe"}`

func TestTheSameKeyAndBodyReplayAnAcceptance(t *testing.T) {
	w := build(t, nil)
	w.limits("acme", `{"max_concurrent_runs":5}`)
	first := w.call("acme/member", "POST", "/api/runs", probe, "Idempotency-Key", "k1").want(202)
	again := w.call("acme/member", "POST", "/api/runs", probe, "Idempotency-Key", "k1").want(202)
	if first.body != again.body || again.header.Get("Idempotency-Replayed") != "true" || again.header.Get("Content-Type") != "application/json" {
		t.Errorf("the replay differs:\n%s%s%v", first.body, again.body, again.header)
	}
	if n := w.outstanding("team/acme/slots"); n != 1 || w.queue.published() != 1 {
		t.Errorf("%d slots and %d messages for one key", n, w.queue.published())
	}
	other := w.call("acme/admin", "POST", "/api/runs", probe, "Idempotency-Key", "k1").want(202)
	if other.body == first.body {
		t.Error("another token's key replays this token's run")
	}
	w.clock.Advance(25 * time.Hour)
	late := w.call("acme/member", "POST", "/api/runs", probe, "Idempotency-Key", "k1").want(202)
	if late.body == first.body {
		t.Error("a key is kept longer than 24 hours")
	}
}

func TestTheSameKeyJudgesARefusalAgain(t *testing.T) {
	w := build(t, nil)
	w.limits("acme", `{"max_concurrent_runs":1}`)
	run := w.launched("acme/member", probe)
	w.call("acme/member", "POST", "/api/runs", probe, "Idempotency-Key", "k").problem(429)
	w.call("acme/member", "POST", "/api/runs", probe, "Idempotency-Key", "k").problem(429)
	w.call("acme/member", "POST", "/api/runs/"+run.ID+"/cancel", "").want(200)
	w.call("acme/member", "POST", "/api/runs", probe, "Idempotency-Key", "k").want(202)
}

func TestAKeyWithAnotherBodyIs422(t *testing.T) {
	w := build(t, nil)
	w.call("acme/member", "POST", "/api/runs", probe, "Idempotency-Key", "k").want(202)
	p := w.call("acme/member", "POST", "/api/runs", `{"team":"acme","bot":"review-pr"}`, "Idempotency-Key", "k").problem(422)
	if p.Code != "key_reused" {
		t.Errorf("the code is %q", p.Code)
	}
	w.call("acme/member", "POST", "/api/launch/preview", probe, "Idempotency-Key", "k").problem(422)
}

func TestAKeyWhoseFirstCallIsRunningIs409(t *testing.T) {
	w := build(t, nil)
	gate, entered := make(chan struct{}), make(chan struct{})
	w.queue.set(func(q *fakeQueue) { q.gate, q.entered = gate, entered })
	answers := make(chan reply)
	go func() { answers <- w.call("acme/member", "POST", "/api/runs", probe, "Idempotency-Key", "k") }()
	<-entered
	r := w.call("acme/member", "POST", "/api/runs", probe, "Idempotency-Key", "k")
	if p := r.problem(409); p.Code != "in_progress" || r.header.Get("Retry-After") != "1" {
		t.Errorf("code %q, Retry-After %q", p.Code, r.header.Get("Retry-After"))
	}
	close(gate)
	first := <-answers
	first.want(202)
	w.queue.set(func(q *fakeQueue) { q.gate, q.entered = nil, nil })
	if again := w.call("acme/member", "POST", "/api/runs", probe, "Idempotency-Key", "k").want(202); again.body != first.body {
		t.Error("the key does not replay what the first call was answered")
	}
}

func TestACallThatDiedIsAnsweredWithTheRunThatItMade(t *testing.T) {
	w := build(t, nil)
	gate, entered := make(chan struct{}), make(chan struct{})
	w.queue.set(func(q *fakeQueue) { q.gate, q.entered = gate, entered })
	answers := make(chan reply)
	go func() { answers <- w.call("acme/member", "POST", "/api/runs", probe, "Idempotency-Key", "k") }()
	<-entered // the document is written, the answer is not: as if the process died here
	w.clock.Advance(3 * time.Minute)
	var second api.Run
	w.call("acme/member", "POST", "/api/runs", probe, "Idempotency-Key", "k").want(202).into(&second)
	if n := w.outstanding("team/acme/slots"); n != 1 {
		t.Errorf("%d slots for one key", n)
	}
	close(gate)
	var first api.Run
	r := <-answers
	r.want(202).into(&first)
	if first.ID != second.ID {
		t.Errorf("one key made the runs %s and %s", first.ID, second.ID)
	}
}

func TestACallThatCouldNotTellIsTakenUpAtOnce(t *testing.T) {
	w := build(t, nil)
	w.queue.set(func(q *fakeQueue) { q.fail = errors.New("the queue is away") })
	p := w.call("acme/member", "POST", "/api/runs", probe, "Idempotency-Key", "k").problem(503)
	if p.Code != "store_unavailable" || strings.Contains(p.Detail, "away") {
		t.Errorf("the problem is %+v", p)
	}
	if n := w.outstanding("team/acme/slots"); n != 0 {
		t.Errorf("a failed launch holds %d slots", n)
	}
	w.queue.set(func(q *fakeQueue) { q.fail = nil })
	run := w.launched("acme/member", probe, "Idempotency-Key", "k")
	if run.Status != "queued" {
		t.Errorf("the repetition is %s", run.Status)
	}
}

func TestASecretIsNotKeptForAReplay(t *testing.T) {
	w := build(t, nil)
	body := `{"name":"ci","role":"member"}`
	var issued api.TokenIssued
	w.call("acme/admin", "POST", "/api/teams/acme/tokens", body, "Idempotency-Key", "k").want(201).into(&issued)
	if issued.Secret == "" {
		t.Fatal("no secret")
	}
	r := w.call("acme/admin", "POST", "/api/teams/acme/tokens", body, "Idempotency-Key", "k")
	if p := r.problem(409); p.Code != "done_before" || strings.Contains(r.body, issued.Secret) {
		t.Errorf("the repetition is %s", r.body)
	}
}

func TestWritesWithoutADocumentReplayToo(t *testing.T) {
	w := build(t, nil)
	w.call("operator", "PUT", "/api/bots/gone", `{"lane":"claw","prompt":"p"}`).want(201)
	w.call("operator", "DELETE", "/api/bots/gone", "", "Idempotency-Key", "k").want(204)
	w.call("operator", "DELETE", "/api/bots/gone", "", "Idempotency-Key", "k").want(204)
	w.call("operator", "DELETE", "/api/bots/gone", "").problem(404)
}

func TestHostileKeysAreRefused(t *testing.T) {
	w := build(t, nil)
	for _, key := range []string{strings.Repeat("k", 201), "caf\u00e9", "tab\there"} {
		if p := w.call("acme/member", "POST", "/api/runs", probe, "Idempotency-Key", key).problem(400); p.Errors[0].Field != "Idempotency-Key" {
			t.Errorf("%q: %+v", key, p.Errors)
		}
	}
	if w.queue.published() != 0 {
		t.Error("a launch under a bad key went through")
	}
}

func TestOldKeysAreForgotten(t *testing.T) {
	w := build(t, nil)
	w.call("acme/member", "POST", "/api/runs", probe, "Idempotency-Key", "old").want(202)
	w.clock.Advance(23 * time.Hour)
	first := w.call("acme/member", "POST", "/api/runs", probe, "Idempotency-Key", "young").want(202)
	w.clock.Advance(2 * time.Hour)
	if err := server.ForgetKeys(t.Context(), w.server); err != nil {
		t.Fatal(err)
	}
	if n, err := server.CountKeys(t.Context(), w.server); err != nil || n != 1 {
		t.Errorf("%d keys, %v; want 1", n, err)
	}
	if again := w.call("acme/member", "POST", "/api/runs", probe, "Idempotency-Key", "young").want(202); again.body != first.body {
		t.Error("a young key was forgotten")
	}
}

// The store fails while the run of a call that died is looked for. The key does not
// forget the run over it.
func TestACallThatDiedIsNotForgottenWhenTheNextOnesFail(t *testing.T) {
	for _, failing := range [][]bool{{true}, {false, true}, {true, true}, {false, true, true}, {false, true, false, true}} { // which readings of the run fail
		w := build(t, nil)
		gate, entered := make(chan struct{}), make(chan struct{})
		w.queue.set(func(q *fakeQueue) { q.gate, q.entered = gate, entered })
		answers := make(chan reply, 1)
		go func() { answers <- w.call("acme/member", "POST", "/api/runs", probe, "Idempotency-Key", "k") }()
		<-entered // the document is written, the answer is not: as if the process died here
		w.clock.Advance(3 * time.Minute)
		w.queue.set(func(q *fakeQueue) { q.gate, q.entered = nil, nil })
		left := failing
		w.faults.Before(func(_ context.Context, o recordstest.Operation) error {
			if o.Collection != "runs" || o.Verb != "get" || len(left) == 0 {
				return nil
			}
			fails := left[0]
			if left = left[1:]; fails {
				return records.ErrUnavailable
			}
			return nil
		})
		var second, first api.Run
		again := w.call("acme/member", "POST", "/api/runs", probe, "Idempotency-Key", "k")
		for tries := 0; again.status == 503 && tries < 9; tries++ {
			again = w.call("acme/member", "POST", "/api/runs", probe, "Idempotency-Key", "k")
		}
		w.faults.Before(nil)
		close(gate)
		r := <-answers
		r.want(202).into(&first)
		again.want(202).into(&second)
		if n := w.outstanding("team/acme/slots"); n != 1 || first.ID != second.ID || len(left) > 0 {
			t.Errorf("readings failed %v: one key made the runs %s and %s and holds %d slots", failing, first.ID, second.ID, n)
		}
	}
}
