package webhook_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
	"github.com/holdfast-io/holdfast/pkg/surface"
	"github.com/holdfast-io/holdfast/pkg/surface/surfacetest"
	"github.com/holdfast-io/holdfast/pkg/teams"
	"github.com/holdfast-io/holdfast/pkg/webhook"
)

func TestASignedDeliveryLaunchesTheRulesBotForTheHooksTeam(t *testing.T) {
	for _, forge := range webhook.Forges() {
		t.Run(string(forge), func(t *testing.T) {
			w := newWorld(t)
			bot := holdfast.Bot{Name: "reviewer", Lane: holdfast.LaneCommand, Command: []string{"review", "{{pr}}"}, Inputs: map[string]holdfast.BotInput{"pr": {Required: true}, "sha": {}}}
			if _, _, err := w.Bots.Put(t.Context(), w.Clock.Now(), "acme", bot, "dev"); err != nil {
				t.Fatal(err)
			}
			h := w.hook(forge, webhook.Rule{Bot: "Reviewer", Inputs: map[string]string{"pr": "{{repo}}#{{ number }}", "sha": "{{head_sha}}"}})
			w.launched(h, opened(t, forge, 1))
			run := w.All()[0]
			want := map[webhook.Forge]string{webhook.GitHub: "Acme/widgets#42", webhook.GitLab: "acme/backend/widgets#7", webhook.Forgejo: "acme/widgets#3"}[forge]
			if run.Team != "acme" || run.Caller != "webhook" || run.Inputs["pr"] != want || len(run.Inputs["sha"]) != 40 || run.Identity != holdfast.TeamBot("acme", "reviewer") {
				t.Errorf("%+v", run)
			}
			if !strings.EqualFold(run.Repo, strings.Split(want, "#")[0]) {
				t.Errorf("its repository is %s", run.Repo)
			}
		})
	}
}

func TestADeliveryThatIsNotSignedWithTheHooksSecretIsRefused(t *testing.T) {
	for _, forge := range webhook.Forges() {
		for name, spoil := range map[string]func(*delivery){
			"no signature": func(d *delivery) {
				for _, header := range []string{"X-Hub-Signature-256", "X-Forgejo-Signature", "X-Gitea-Signature", "X-Gitlab-Token"} {
					d.header.Del(header)
				}
			},
			"another secret": func(d *delivery) {
				d.header.Set("X-Gitlab-Token", secret+"x")
				for _, header := range []string{"X-Hub-Signature-256", "X-Forgejo-Signature", "X-Gitea-Signature"} {
					if value := d.header.Get(header); value != "" {
						d.header.Set(header, value[:len(value)-1]+map[bool]string{true: "0", false: "1"}[value[len(value)-1] == '1'])
					}
				}
			},
			"not a digest": func(d *delivery) {
				d.header.Set("X-Gitlab-Token", "")
				d.header.Set("X-Hub-Signature-256", "sha256=zz")
				d.header.Set("X-Forgejo-Signature", "sha256=")
			},
			"a digest of the old kind": func(d *delivery) {
				d.header.Del("X-Gitlab-Token")
				d.header.Del("X-Forgejo-Signature")
				d.header.Del("X-Gitea-Signature")
				d.header.Set("X-Hub-Signature", d.header.Get("X-Hub-Signature-256"))
				d.header.Del("X-Hub-Signature-256")
			},
		} {
			w := newWorld(t)
			h := w.hook(forge)
			d := opened(t, forge, 1)
			spoil(&d)
			before := w.Footprint()
			if _, err := w.receive(h, d); !errors.Is(err, webhook.ErrSignature) {
				t.Errorf("%s, %s: %v", forge, name, err)
			}
			if len(w.deliveries(h)) != 0 || w.Footprint() != before {
				t.Errorf("%s, %s: it left something", forge, name)
			}
		}
	}
	w := newWorld(t)
	h := w.hook(webhook.GitHub)
	d := opened(t, webhook.GitHub, 1)
	d.body = append(d.body, ' ') // the signature is over the bytes, not over what they mean
	if _, err := w.receive(h, d); !errors.Is(err, webhook.ErrSignature) {
		t.Errorf("another body: %v", err)
	}
}

func TestAWrongSignatureIsNotRescuedByARightOneInAnotherHeader(t *testing.T) {
	w := newWorld(t)
	h := w.hook(webhook.Forgejo)
	d := opened(t, webhook.Forgejo, 1)
	d.header.Set("X-Forgejo-Signature", strings.Repeat("0", 64))
	if _, err := w.receive(h, d); !errors.Is(err, webhook.ErrSignature) {
		t.Errorf("%v", err)
	}
}

func TestAHookIsItsForgesAloneAndADisabledOneDoesNotExist(t *testing.T) {
	w := newWorld(t)
	h := w.hook(webhook.GitHub)
	d := opened(t, webhook.GitHub, 1)
	for name, call := range map[string]func() error{
		"another forge": func() error {
			_, err := w.receiver.Receive(t.Context(), webhook.Forgejo, h.ID, d.header, d.body)
			return err
		},
		"no such hook": func() error {
			_, err := w.receiver.Receive(t.Context(), webhook.GitHub, "nobody", d.header, d.body)
			return err
		},
		"a path": func() error {
			_, err := w.receiver.Receive(t.Context(), webhook.GitHub, "../x", d.header, d.body)
			return err
		},
		"disabled": func() error {
			surfacetest.Must(w.hooks.Update(t.Context(), "acme", h.ID, "", func(h *webhook.Hook) error { h.Disabled = true; return nil }))(t)
			_, err := w.receive(h, d)
			return err
		},
	} {
		if err := call(); !errors.Is(err, records.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestADuplicateLaunchesOnceAndItsLosersTakeNothing(t *testing.T) {
	for _, forge := range webhook.Forges() {
		t.Run(string(forge), func(t *testing.T) {
			once := newWorld(t)
			once.launched(once.hook(forge), opened(t, forge, 1))
			want := strings.ReplaceAll(once.Footprint(), string(once.All()[0].ID), "R")

			w := newWorld(t)
			h := w.hook(forge)
			var all sync.WaitGroup
			var mu sync.Mutex
			outcomes := map[string]int{}
			for range 32 {
				all.Go(func() {
					answer, err := w.receive(h, opened(t, forge, 1))
					mu.Lock()
					defer mu.Unlock()
					switch {
					case errors.Is(err, webhook.ErrInProgress):
						outcomes["in progress"]++
					case err != nil || answer.Run == "":
						t.Errorf("%+v, %v", answer, err)
					case answer.Duplicate:
						outcomes["duplicate"]++
					default:
						outcomes["launched"]++
					}
				})
			}
			all.Wait()
			if outcomes["launched"] != 1 || len(w.All()) != 1 {
				t.Fatalf("%v with %d runs", outcomes, len(w.All()))
			}
			if diff := cmp.Diff(want, strings.ReplaceAll(w.Footprint(), string(w.All()[0].ID), "R")); diff != "" {
				t.Errorf("32 deliveries of one took more than one: %s", diff)
			}
			answer := w.launched(h, opened(t, forge, 1))
			if !answer.Duplicate || answer.Run != w.All()[0].ID {
				t.Errorf("%+v", answer)
			}
			w.launched(h, opened(t, forge, 2)) // another delivery is another launch
			if len(w.All()) != 2 {
				t.Errorf("%d runs", len(w.All()))
			}
		})
	}
}

// The order is forced: the duplicate comes while the first one's run is being written.
func TestADuplicateThatComesWhileTheFirstIsLaunchedIsKeptOut(t *testing.T) {
	w := newWorld(t)
	h := w.hook(webhook.GitHub)
	came := 0
	w.DB.Before(func(_ context.Context, op recordstest.Operation) error {
		if op.Verb == "insert" && op.Collection == "runs" && came == 0 {
			came++
			if _, err := w.receive(h, opened(t, webhook.GitHub, 1)); !errors.Is(err, webhook.ErrInProgress) {
				t.Errorf("the duplicate was answered %v, want that the first is in progress", err)
			}
		}
		return nil
	})
	w.launched(h, opened(t, webhook.GitHub, 1))
	if came != 1 || len(w.All()) != 1 {
		t.Errorf("%d duplicates and %d runs", came, len(w.All()))
	}
}

func TestADeliveryThatFailedByAnOutageCanBeSentAgain(t *testing.T) {
	w := newWorld(t)
	h := w.hook(webhook.GitHub)
	w.Queue.Fail(errors.New("cut"))
	if _, err := w.receive(h, opened(t, webhook.GitHub, 1)); err == nil {
		t.Fatal("it launched without a queue")
	}
	if d := w.deliveries(h)[0]; d.Refused.Reason != surface.ReasonUnavailable || d.Run != "" {
		t.Errorf("%+v", d)
	}
	w.Queue.Fail(nil)
	w.launched(h, opened(t, webhook.GitHub, 1))
	if d := w.deliveries(h)[0]; d.Count != 2 || d.Refused.Reason != "" || d.Run == "" || len(w.Queue.All()) != 1 {
		t.Errorf("%+v with %d messages", d, len(w.Queue.All()))
	}
}

func TestARunWhoseAnswerWasLostIsFoundByTheDeliverySentAgain(t *testing.T) {
	w := newWorld(t)
	h := w.hook(webhook.GitHub)
	d := opened(t, webhook.GitHub, 1)
	w.launched(h, d)
	// Undo what was written down of it, as if the process had died behind the launch.
	run := w.All()[0].ID
	table := surfacetest.Must(records.NewTable(t.Context(), w.DB, records.Schema{Name: "webhook_deliveries", Indexes: []records.Index{{Name: "hook"}, {Name: "at"}}},
		func(d webhook.Delivery) string { return d.ID }, func(d webhook.Delivery) map[string]string { return nil }))(t)
	id := h.ID + "/" + d.header.Get("X-GitHub-Delivery")
	surfacetest.Must(table.Update(t.Context(), id, func(k *webhook.Delivery) error {
		k.Run, k.Launch = "", surface.Attempt{Claim: run, ClaimedAt: w.Clock.Now()}
		return nil
	}))(t)
	if _, err := w.receive(h, d); !errors.Is(err, webhook.ErrInProgress) {
		t.Fatalf("%v", err)
	}
	w.Clock.Advance(surface.ClaimFor)
	if answer := w.launched(h, d); answer.Run != run || len(w.All()) != 1 {
		t.Errorf("%+v with %d runs", answer, len(w.All()))
	}
}

func TestARefusalIsTheGatesIsNotedTakesNothingAndIsJudgedAgain(t *testing.T) {
	w := newWorld(t)
	w.Team("acme", surfacetest.Slots(0))
	h := w.hook(webhook.GitHub)
	before := w.Footprint()
	answer, err := w.receive(h, opened(t, webhook.GitHub, 1))
	if err != nil || answer.Denial.Reason != holdfast.DenyConcurrency || answer.Quiet {
		t.Fatalf("%+v, %v", answer, err)
	}
	if diff := cmp.Diff(before, w.Footprint()); diff != "" {
		t.Errorf("a refused delivery took something: %s", diff)
	}
	if d := w.deliveries(h)[0]; d.Refused.Reason != string(holdfast.DenyConcurrency) || d.Refused.DecisionID == "" || d.Bot != "probe" || d.Event != "opened" || d.PR != 42 {
		t.Errorf("%+v", d)
	}
	w.Team("acme", teams.Limits{})
	w.launched(h, opened(t, webhook.GitHub, 1))
}

func TestAnIgnoredDeliveryIsJudgedAgainUnderChangedRules(t *testing.T) {
	w := newWorld(t)
	h := w.hook(webhook.GitHub, webhook.Rule{Repo: "acme/other", Bot: "probe"})
	w.ignored(h, opened(t, webhook.GitHub, 1))
	if d := w.deliveries(h); len(d) != 1 || d[0].Ignored == "" {
		t.Errorf("%+v", d)
	}
	surfacetest.Must(w.hooks.Update(t.Context(), "acme", h.ID, "", func(h *webhook.Hook) error { h.Rules[0].Repo = "acme/*"; return nil }))(t)
	w.launched(h, opened(t, webhook.GitHub, 1))
	if d := w.deliveries(h); len(d) != 1 || d[0].Ignored != "" || d[0].Run == "" {
		t.Errorf("%+v", d)
	}
}

func TestADeliveryThatIsLeftOutForBeingADraftOrAForksSaysSo(t *testing.T) {
	w := newWorld(t)
	h := w.hook(webhook.GitHub, webhook.Rule{Repo: "acme/*", Bot: "probe"})
	elsewhere := w.hook(webhook.GitHub, webhook.Rule{Repo: "elsewhere/*", Bot: "probe"})
	for name, want := range map[string]string{"github_draft": "it is a draft", "github_fork": "it comes from a fork"} {
		d := fixture(t, webhook.GitHub, "pull_request", name, name)
		if why := w.ignored(h, d); !strings.HasSuffix(why, ": "+want) {
			t.Errorf("%s is ignored because %q, want %q", name, why, want)
		}
		if why := w.ignored(elsewhere, d); strings.Contains(why, want) {
			t.Errorf("%s of another repository is ignored because %q", name, why)
		}
	}
}

func TestPingsTestsAndOtherEventsAreAnsweredAndLaunchNothing(t *testing.T) {
	for name, d := range map[string]delivery{
		"ping":                 fixture(t, webhook.GitHub, "ping", "github_ping", "p"),
		"a push":               fixture(t, webhook.GitHub, "push", "github_opened", "p"),
		"assigned":             fixture(t, webhook.GitHub, "pull_request", "github_assigned", "p"),
		"a test of Forgejo":    fixture(t, webhook.Forgejo, "push", "forgejo_test", "p"),
		"a review of Forgejo":  fixture(t, webhook.Forgejo, "pull_request_review_approved", "forgejo_opened", "p"),
		"an approval":          fixture(t, webhook.GitLab, "Merge Request Hook", "gitlab_approved", "p"),
		"a note of GitLab":     fixture(t, webhook.GitLab, "Note Hook", "gitlab_open", "p"),
		"a push hook":          fixture(t, webhook.GitLab, "Push Hook", "gitlab_open", "p"),
		"without any event":    fixture(t, webhook.GitHub, "", "github_opened", "p"),
		"something about them": fixture(t, webhook.GitHub, "pull_request_review", "github_opened", "p"),
	} {
		w := newWorld(t)
		h := w.hook(d.forge, webhook.Rule{Bot: "probe", Actions: webhook.Actions(), Draft: webhook.Include, Forks: webhook.Include})
		if why := w.ignored(h, d); why == "" {
			t.Errorf("%s: no reason", name)
		}
		if len(w.All()) != 0 {
			t.Errorf("%s launched", name)
		}
	}
}

func TestWhatCannotBeReadIsABadRequestAndNoPanic(t *testing.T) {
	for _, forge := range webhook.Forges() {
		for name, body := range map[string]string{
			"empty": "", "no JSON": "{", "a list": "[]", "null": "null", "other types": `{"action":7,"pull_request":"x","object_attributes":[]}`,
			"no repository": `{"action":"opened","number":1,"object_attributes":{"action":"open","iid":1}}`,
			"no number":     `{"action":"opened","repository":{"full_name":"a/b"},"object_attributes":{"action":"open"},"project":{"path_with_namespace":"a/b"}}`,
		} {
			w := newWorld(t)
			h := w.hook(forge)
			answer, err := w.receive(h, signed(forge, eventOf[forge], "x", []byte(body)))
			var bad *holdfast.InvalidError
			if !errors.As(err, &bad) && answer.Ignored == "" {
				t.Errorf("%s, %s: %+v, %v", forge, name, answer, err)
			}
			if len(w.All()) != 0 {
				t.Errorf("%s, %s: it launched", forge, name)
			}
		}
	}
}

func TestAPayloadMayComeAsAForm(t *testing.T) {
	w := newWorld(t)
	h := w.hook(webhook.GitHub)
	d := opened(t, webhook.GitHub, 1)
	form := signed(webhook.GitHub, "pull_request", "1", []byte(url.Values{"payload": {string(d.body)}}.Encode()))
	form.header.Set("Content-Type", "application/x-www-form-urlencoded")
	w.launched(h, form)
}

func TestADeliveryWithoutAnIDIsKnownByItsBody(t *testing.T) {
	for _, forge := range webhook.Forges() {
		w := newWorld(t)
		h := w.hook(forge)
		anonymous := func() delivery {
			d := opened(t, forge, 1)
			for _, name := range []string{"X-GitHub-Delivery", "X-Forgejo-Delivery", "X-Gitea-Delivery", "Idempotency-Key"} {
				d.header.Del(name)
			}
			return d
		}
		w.launched(h, anonymous())
		if answer := w.launched(h, anonymous()); !answer.Duplicate {
			t.Errorf("%s: %+v", forge, answer)
		}
		strange := anonymous()
		for _, name := range []string{"X-GitHub-Delivery", "X-Forgejo-Delivery", "Idempotency-Key"} {
			strange.header.Set(name, "../"+strings.Repeat("x", 9000))
		}
		if answer := w.launched(h, strange); answer.Duplicate {
			t.Errorf("%s: %+v", forge, answer)
		}
	}
}

func TestDeliveriesAreForgottenAfterAWeek(t *testing.T) {
	w := newWorld(t)
	h := w.hook(webhook.GitHub)
	w.launched(h, opened(t, webhook.GitHub, 1))
	w.Clock.Advance(webhook.KeepDeliveries - time.Second)
	w.launched(h, opened(t, webhook.GitHub, 2))
	for _, step := range []struct {
		after time.Duration
		left  int
	}{{0, 2}, {time.Second, 1}} {
		w.Clock.Advance(step.after)
		if err := w.receiver.Forget(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(w.deliveries(h)); n != step.left {
			t.Errorf("%d deliveries, want %d", n, step.left)
		}
	}
}

func TestTheSecretIsKeptSealedAndBoundToItsHook(t *testing.T) {
	w := newWorld(t)
	h := w.hook(webhook.GitHub)
	if strings.Contains(h.Sealed, secret) {
		t.Error("the secret is in the record")
	}
	changed := "another secret of the team"
	surfacetest.Must(w.hooks.Update(t.Context(), "acme", h.ID, changed, func(*webhook.Hook) error { return nil }))(t)
	if _, err := w.receive(h, opened(t, webhook.GitHub, 1)); !errors.Is(err, webhook.ErrSignature) {
		t.Errorf("the old secret: %v", err)
	}
	for _, bad := range []string{"short", strings.Repeat("x", 201), "with a line\nend in it"} {
		var invalid *holdfast.InvalidError
		if _, err := w.hooks.Create(t.Context(), webhook.Hook{Team: "acme", Name: "n", Forge: webhook.GitHub, Rules: h.Rules}, bad); !errors.As(err, &invalid) || invalid.Field != "secret" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestAnotherTeamsHookDoesNotExist(t *testing.T) {
	w := newWorld(t)
	h := w.hook(webhook.GitHub)
	for name, call := range map[string]func() error{
		"get":        func() error { _, err := w.hooks.Get(t.Context(), "globex", h.ID); return err },
		"deliveries": func() error { _, _, err := w.hooks.Deliveries(t.Context(), "globex", h.ID, 0, ""); return err },
		"delete":     func() error { return w.hooks.Delete(t.Context(), "globex", h.ID) },
		"update": func() error {
			_, err := w.hooks.Update(t.Context(), "globex", h.ID, "", func(*webhook.Hook) error { return nil })
			return err
		},
	} {
		if err := call(); !errors.Is(err, records.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzReceive(f *testing.F) {
	for _, forge := range webhook.Forges() {
		f.Add(string(forge), eventOf[forge], opened(f, forge, 1).body)
	}
	f.Fuzz(func(t *testing.T, forge, event string, body []byte) {
		if !slices.Contains(webhook.Forges(), webhook.Forge(forge)) {
			return
		}
		w := newWorld(t)
		h := w.hook(webhook.Forge(forge), webhook.Rule{Bot: "probe", Actions: webhook.Actions(), Draft: webhook.Include, Forks: webhook.Include})
		if _, err := w.receive(h, signed(webhook.Forge(forge), event, "1", body)); err != nil {
			var bad *holdfast.InvalidError
			if !errors.As(err, &bad) {
				t.Errorf("%v", err)
			}
		}
	})
}
