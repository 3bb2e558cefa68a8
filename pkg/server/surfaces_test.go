package server_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/audit"
	"github.com/holdfast-io/holdfast/pkg/board"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/schedule"
	"github.com/holdfast-io/holdfast/pkg/secrets"
	"github.com/holdfast-io/holdfast/pkg/server"
	"github.com/holdfast-io/holdfast/pkg/webhook"
)

// surfaces are those of a world.
func (w *world) surfaces(db records.DB, keys *secrets.Keyring) server.Surfaces {
	ctx := w.t.Context()
	s := server.Surfaces{
		Schedules: must(schedule.New(ctx, db, w.clock)), Cards: must(board.New(ctx, db, w.clock)), Webhooks: must(webhook.New(ctx, db, w.clock, keys)),
	}
	s.Receiver = must(webhook.NewReceiver(s.Webhooks, w.launch, w.runs, webhook.Options{Clock: w.clock}))
	w.boards, w.dead = s.Cards, &fakeDead{letters: map[uint64]queue.DeadLetter{}}
	s.Dead = w.dead
	return s
}

// fakeDead keeps dead letters.
type fakeDead struct {
	mu      sync.Mutex
	letters map[uint64]queue.DeadLetter
	fail    error
}

func (f *fakeDead) DeadLetters(_ context.Context, after uint64, limit int) (list []queue.DeadLetter, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, seq := range slices.Sorted(maps.Keys(f.letters)) {
		if seq > after && len(list) < limit {
			list = append(list, f.letters[seq])
		}
	}
	return list, f.fail
}

func (f *fakeDead) DeadLetter(_ context.Context, seq uint64) (queue.DeadLetter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, ok := f.letters[seq]
	if !ok {
		return d, errors.Join(queue.ErrNoDeadLetter, f.fail)
	}
	return d, f.fail
}

func (f *fakeDead) DropDeadLetter(_ context.Context, seq uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.letters, seq)
	return f.fail
}

// deadLetter makes a dead letter of a run of acme, and ends the run as a server does.
func (w *world) deadLetter() api.Run {
	w.t.Helper()
	run := w.launched("acme/member", `{"team":"acme","bot":"probe"}`)
	id := holdfast.RunID(run.ID)
	stored, err := w.runs.Update(w.t.Context(), id, func(r *runs.Run) error { r.Published = 1 + queue.Republished; return nil })
	if err != nil {
		w.t.Fatal(err)
	}
	body, err := json.Marshal(queue.RunMessage{
		Version: 1, Run: id, Team: "acme", Bot: holdfast.Bot{Name: "probe", Env: map[string]string{"API_TOKEN": "sesame"}},
		Inputs: map[string]string{"db_password": "sesame", "pr": "42"}, Publication: stored.Published,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	d := queue.DeadLetter{Seq: uint64(len(w.dead.letters) + 1), At: w.clock.Now(), Reason: queue.Exhausted, Run: id, Deliveries: 9, Body: body}
	w.dead.letters[d.Seq] = d
	if err := w.launch.Buried(w.t.Context(), d); err != nil {
		w.t.Fatal(err)
	}
	w.call("acme/viewer", "GET", "/api/runs/"+run.ID, "").want(200).into(&run)
	return run
}

func TestADeadLettersRunHoldsNothingAndAReplayIsJudgedAnew(t *testing.T) {
	w := build(t, nil)
	run := w.deadLetter()
	if run.Status != "failed_resumable" || run.StatusReason != "dead_lettered" {
		t.Fatalf("%+v", run)
	}
	for _, axis := range []holdfast.Axis{holdfast.AxisSlots, holdfast.AxisUSD} {
		period := ""
		if axis == holdfast.AxisUSD {
			period = "2026-03"
		}
		if b := must(w.ledger.Outstanding(t.Context(), holdfast.TeamSubject("acme", axis, period))); b.Outstanding != 0 {
			t.Errorf("it holds %d of %s", b.Outstanding, axis)
		}
	}
	var page api.Page[api.DeadLetter]
	w.call("operator", "GET", "/api/admin/dlq", "").want(200).into(&page)
	if d := page.Items[0]; d.Run != run.ID || d.Team != "acme" || d.RunStatus != "failed_resumable" || d.Reason != "exhausted" || d.Message != "" {
		t.Errorf("%+v", page.Items)
	}
	r := w.call("operator", "GET", "/api/admin/dlq/1", "").want(200)
	if strings.Contains(r.body, "sesame") || !strings.Contains(r.body, "42") {
		t.Errorf("the message is shown as %s", r.body)
	}
	w.limits("acme", `{"max_concurrent_runs":0}`)
	if p := w.call("operator", "POST", "/api/admin/dlq/1/replay", "").problem(429); p.Reason != "concurrency_cap_exceeded" {
		t.Errorf("%+v", p)
	}
	w.limits("acme", `{"max_concurrent_runs":1}`)
	var back api.Run
	w.call("operator", "POST", "/api/admin/dlq/1/replay", "").want(202).into(&back)
	if back.ID != run.ID || back.Status != "queued" || back.Generation != 1 || back.Identity != run.Identity {
		t.Errorf("%+v", back)
	}
	w.call("operator", "POST", "/api/admin/dlq/1/replay", "").problem(404)
	w.dead.letters[2] = queue.DeadLetter{Seq: 2, Reason: queue.Unreadable, Run: "01KKBSWHG0Y0EYCPQJA81Y2SQT", Body: []byte("\xff")}
	w.dead.letters[3] = queue.DeadLetter{Seq: 3, Reason: queue.Exhausted, Run: holdfast.RunID(run.ID), Body: []byte("{}")}
	w.dead.letters[4] = queue.DeadLetter{Seq: 4, Reason: queue.Unreadable, Body: []byte("?")}
	for _, seq := range []string{"2", "3", "4"} { // gone, queued again already, nobody's
		w.call("operator", "POST", "/api/admin/dlq/"+seq+"/replay", "").problem(409)
		w.call("operator", "GET", "/api/admin/dlq/"+seq, "").want(200)
	}
	w.call("operator", "GET", "/api/admin/dlq?limit=2", "").want(200).into(&page)
	if len(page.Items) != 2 || page.NextCursor != "3" {
		t.Errorf("%+v", page)
	}
	w.call("operator", "DELETE", "/api/admin/dlq/2", "").want(204)
	w.call("operator", "DELETE", "/api/admin/dlq/2", "").problem(404)
	w.dead.fail = errors.New("cut")
	if p := w.call("operator", "GET", "/api/admin/dlq", "").problem(503); p.Code != "store_unavailable" {
		t.Errorf("%+v", p)
	}
}

// hook creates a webhook of GitHub for acme.
func (w *world) hook(body string) api.WebhookIssued {
	w.t.Helper()
	var hook api.WebhookIssued
	w.call("acme/admin", "POST", "/api/teams/acme/webhooks", body).want(201).into(&hook)
	return hook
}

// deliver sends a fixture to a webhook as GitHub does.
func (w *world) deliver(hook api.WebhookIssued, event, name, id string) reply {
	w.t.Helper()
	body, err := os.ReadFile("../webhook/testdata/" + name + ".json")
	if err != nil {
		w.t.Fatal(err)
	}
	mac := hmac.New(sha256.New, []byte(hook.Secret))
	mac.Write(body)
	return w.call("", "POST", hook.Path, string(body), "X-GitHub-Event", event, "X-GitHub-Delivery", id, "X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
}

func TestAForgeIsAnsweredByWhatItsDeliveryDid(t *testing.T) {
	w := build(t, nil)
	hook := w.hook(`{"name":"reviews","forge":"github","rules":[{"repo":"acme/*","bot":"probe"}]}`)
	var answer api.WebhookAnswer
	w.deliver(hook, "ping", "github_ping", "0").want(200).into(&answer)
	if !strings.HasPrefix(answer.Ignored, "ping") {
		t.Errorf("a ping is answered %+v", answer)
	}
	w.deliver(hook, "pull_request", "github_opened", "1").want(202).into(&answer)
	run := answer.Run
	w.deliver(hook, "pull_request", "github_opened", "1").want(202).into(&answer)
	if run == "" || answer.Run != run || !answer.Duplicate {
		t.Errorf("a duplicate is answered %+v", answer)
	}
	var shown api.Run
	w.call("acme/viewer", "GET", "/api/runs/"+run, "").want(200).into(&shown)
	if shown.Caller != "webhook" || !strings.EqualFold(shown.Repo, "acme/widgets") {
		t.Errorf("%+v", shown)
	}
	w.limits("acme", `{"max_concurrent_runs":0}`)
	p := w.deliver(hook, "pull_request", "github_opened", "2").problem(429)
	if p.Reason != "concurrency_cap_exceeded" || p.DecisionID == "" {
		t.Errorf("a refusal is answered %+v", p)
	}
	if p := w.call("", "POST", hook.Path, `{}`, "X-GitHub-Event", "pull_request").problem(401); p.Code != "signature" {
		t.Errorf("an unsigned delivery is answered %+v", p)
	}
	w.call("", "POST", "/api/webhooks/gitlab/"+hook.ID, `{}`).problem(404)
	w.call("", "POST", "/api/webhooks/github/nobody", `{}`).problem(404)
	w.call("", "POST", hook.Path, strings.Repeat("x", 6<<20)).problem(413)
	var page api.Page[api.WebhookDelivery]
	w.call("acme/admin", "GET", "/api/teams/acme/webhooks/"+hook.ID+"/deliveries", "").want(200).into(&page)
	outcomes := map[string]string{}
	for _, d := range page.Items {
		outcomes[d.ID] = d.Outcome
	}
	if outcomes["0"] != "ignored" || outcomes["1"] != "launched" || outcomes["2"] != "refused" {
		t.Errorf("the deliveries are %+v", page.Items)
	}
	w.call("acme/admin", "PATCH", "/api/teams/acme/webhooks/"+hook.ID, `{"quiet":true}`).want(200)
	w.deliver(hook, "pull_request", "github_opened", "3").want(200).into(&answer)
	if answer.Refused != "concurrency_cap_exceeded" || answer.DecisionID == "" {
		t.Errorf("a quiet webhook answers %+v", answer)
	}
	rows := w.rows(audit.Filter{Actor: "webhook"})
	if len(rows) != 2 || rows[1].Outcome != audit.Done || rows[1].Target != run || rows[0].Outcome != audit.Refused || rows[0].Count != 2 || rows[0].Team != "acme" {
		t.Errorf("the trail has %+v", rows)
	}
}

func TestAWebhooksSecretIsShownOnceAndStoredSealed(t *testing.T) {
	w := build(t, nil)
	hook := w.hook(`{"name":"n","forge":"github","secret":"sesame sesame sesame","rules":[{"bot":"probe"}]}`)
	if hook.Secret != "sesame sesame sesame" {
		t.Errorf("%+v", hook)
	}
	for _, path := range []string{"/api/teams/acme/webhooks", "/api/teams/acme/webhooks/" + hook.ID, "/api/audit"} {
		if r := w.call("acme/admin", "GET", path, "").want(200); strings.Contains(r.body, "sesame") || strings.Contains(r.body, "sealed") {
			t.Errorf("%s shows %s", path, r.body)
		}
	}
	if strings.Contains(w.log.String(), "sesame") {
		t.Error("the log has the secret")
	}
	if generated := w.hook(`{"name":"n","forge":"github","rules":[{"bot":"probe"}]}`); len(generated.Secret) < 26 {
		t.Errorf("a generated secret is %q", generated.Secret)
	}
}

func TestSchedulesAndCardsAreTheirTeamsAndShowWhatBecameOfThem(t *testing.T) {
	w := build(t, nil)
	var s api.Schedule
	w.call("acme/member", "POST", "/api/schedules", `{"team":"acme","name":"nightly","cron":"30 2 * * *","time_zone":"Europe/Berlin","bot":"probe"}`).want(201).into(&s)
	if s.ID != "acme.nightly" || s.NextAt.Format("15:04") != "01:30" || !s.Enabled || s.CatchUp != "none" || s.TimeZone != "Europe/Berlin" || s.CreatedBy == "" {
		t.Errorf("%+v", s)
	}
	w.call("acme/member", "POST", "/api/schedules", `{"team":"acme","name":"nightly","cron":"@daily","bot":"probe"}`).problem(409)
	if p := w.call("acme/member", "POST", "/api/schedules", `{"team":"acme","name":"x","cron":"* * *","bot":"probe"}`).problem(400); len(p.Errors) != 1 || p.Errors[0].Field != "cron" {
		t.Errorf("%+v", p)
	}
	w.call("acme/member", "POST", "/api/schedules", `{"team":"rival","name":"x","cron":"@daily","bot":"probe"}`).problem(404)
	w.call("operator", "POST", "/api/schedules", `{"team":"nobody","name":"x","cron":"@daily","bot":"probe"}`).problem(404)
	w.call("operator", "POST", "/api/board/cards", `{"team":"nobody","title":"t","bot":"probe"}`).problem(404)
	w.call("acme/member", "PATCH", "/api/schedules/acme.nightly", `{"enabled":false}`).want(200).into(&s)
	if s.Enabled {
		t.Error("it is not paused")
	}
	for _, who := range []string{"rival/admin", "rival/member"} {
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			w.call(who, method, "/api/schedules/acme.nightly", "").problem(404)
		}
		w.call(who, "PATCH", "/api/schedules/acme.nightly", `{"enabled":true}`).problem(404)
	}
	var card api.Card
	w.call("acme/member", "POST", "/api/board/cards", `{"team":"acme","title":"t","bot":"probe","priority":4}`).want(201).into(&card)
	if card.Column != "todo" || len(card.Log) != 1 || card.MaxAttempts != 1 {
		t.Errorf("%+v", card)
	}
	dispatcher := must(board.NewDispatcher(w.boards, w.launch, w.runs, board.Options{Clock: w.clock}))
	if err := dispatcher.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.call("acme/viewer", "GET", "/api/board/cards/"+card.ID, "").want(200).into(&card)
	if card.Column != "doing" || card.Run == "" || card.Log[1].What != "launched" {
		t.Errorf("%+v", card)
	}
	if p := w.call("acme/member", "PATCH", "/api/board/cards/"+card.ID, `{"column":"todo"}`).problem(409); p.Code != "card_busy" {
		t.Errorf("%+v", p)
	}
	w.call("acme/member", "DELETE", "/api/board/cards/"+card.ID, "").problem(409)
	w.call("acme/member", "PATCH", "/api/board/cards/"+card.ID, `{"column":"elsewhere"}`).problem(400)
	w.call("rival/admin", "GET", "/api/board/cards/"+card.ID, "").problem(404)
	var cards api.Page[api.Card]
	w.call("acme/viewer", "GET", "/api/board/cards?column=doing", "").want(200).into(&cards)
	if len(cards.Items) != 1 {
		t.Errorf("%+v", cards)
	}
}

func TestWhatNamesABotThatIsNotThereIsStoredWithAWarning(t *testing.T) {
	w := build(t, nil)
	const missing = "has no bot revew-pr"
	warned := func(what string, warnings []string, want bool) {
		t.Helper()
		if said := strings.Contains(strings.Join(warnings, "\n"), missing); said != want || !want && len(warnings) != 0 {
			t.Errorf("%s has the warnings %q", what, warnings)
		}
	}
	var s api.Schedule
	w.call("acme/member", "POST", "/api/schedules", `{"team":"acme","name":"nightly","cron":"@daily","bot":"revew-pr"}`).want(201).into(&s)
	warned("the new schedule", s.Warnings, true)
	var schedules api.Page[api.Schedule]
	w.call("acme/viewer", "GET", "/api/schedules", "").want(200).into(&schedules)
	warned("the listed schedule", schedules.Items[0].Warnings, true)
	s = api.Schedule{}
	w.call("acme/member", "PATCH", "/api/schedules/acme.nightly", `{"bot":"probe"}`).want(200).into(&s)
	warned("the changed schedule", s.Warnings, false)

	var card api.Card
	w.call("acme/member", "POST", "/api/board/cards", `{"team":"acme","title":"t","bot":"revew-pr"}`).want(201).into(&card)
	warned("the new card", card.Warnings, true)
	var moved api.Card
	w.call("acme/member", "PATCH", "/api/board/cards/"+card.ID, `{"column":"done"}`).want(200).into(&moved)
	warned("the card that is not to be launched", moved.Warnings, false)
	hook := w.hook(`{"name":"n","forge":"github","rules":[{"bot":"probe"},{"bot":"revew-pr"}]}`)
	warned("the new webhook", hook.Warnings, true)
	if len(hook.Warnings) != 1 || !strings.HasPrefix(hook.Warnings[0], "rules[1]: ") {
		t.Errorf("%q", hook.Warnings)
	}
	var changed api.Webhook
	w.call("acme/admin", "PATCH", "/api/teams/acme/webhooks/"+hook.ID, `{"rules":[{"bot":"probe"}]}`).want(200).into(&changed)
	warned("the changed webhook", changed.Warnings, false)
}
