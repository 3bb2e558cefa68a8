package launch_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/secrets"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// vault is a keeper with a secret of two teams.
func (w *world) vault(keys string) *secrets.Vault {
	w.t.Helper()
	ring := must(secrets.ParseKeyring(keys))(w.t)
	return must(secrets.NewVault(w.ctx, w.db, w.clock, ring))(w.t)
}

// asker is a run that a claim with a nonce began, and who may ask for its secrets.
func (w *world) asker(nonce string) (queue.SecretsAsk, *secrets.Recipient) {
	w.t.Helper()
	id := w.admitted(ask("probe")).ID
	run := w.get(id)
	grant := must(w.Claim(w.ctx, queue.Claim{Run: id, Publication: run.Published, Generation: run.Generation, Runner: "r1", Nonce: nonce}))(w.t)
	if grant.Verdict != queue.GrantGo {
		w.t.Fatalf("the claim was answered with %+v", grant)
	}
	r := must(secrets.NewRecipient())(w.t)
	return queue.SecretsAsk{Run: id, Attempt: grant.Attempt, Runner: "r1", Nonce: nonce, Names: []string{secrets.ForgeToken, "absent"}, PublicKey: r.PublicKey()}, r
}

func opened(t *testing.T, r *secrets.Recipient, ask queue.SecretsAsk, answer queue.SecretsAnswer) map[string]string {
	t.Helper()
	plain, err := r.Open(queue.SecretsAbout(ask.Run, ask.Attempt), answer.Sealed)
	if err != nil {
		t.Fatalf("%+v cannot be opened: %v", answer, err)
	}
	var values queue.SecretValues
	if err := json.Unmarshal(plain, &values); err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for name, value := range values {
		texts[name] = string(value)
	}
	return texts
}

func TestARunningAttemptGetsItsTeamsSecretsSealedToItsKey(t *testing.T) {
	w := newWorld(t)
	w.team("globex", teams.Limits{})
	keeper := w.vault(secrets.NewKey())
	for team, value := range map[holdfast.TeamID]string{"acme": "acme sesame", "globex": "globex sesame"} {
		if _, _, err := keeper.Put(w.ctx, team, secrets.ForgeToken, []byte(value), "op"); err != nil {
			t.Fatal(err)
		}
	}
	ask, r := w.asker("nonce-1")
	answer := must(w.Secrets(keeper)(w.ctx, ask))(t)
	if answer.Refused != "" || strings.Contains(string(answer.Sealed), "sesame") {
		t.Fatalf("answered with %+v", answer)
	}
	if got, want := opened(t, r, ask, answer), (map[string]string{secrets.ForgeToken: "acme sesame"}); !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}

func TestNobodyButTheRunningAttemptGetsASecret(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*queue.SecretsAsk)
		before func(*world, queue.SecretsAsk)
	}{
		"an unknown run":        {change: func(a *queue.SecretsAsk) { a.Run = "01JDXV6J9QK4W9T6Z3N8M5R2PA" }},
		"an earlier attempt":    {change: func(a *queue.SecretsAsk) { a.Attempt-- }},
		"a later attempt":       {change: func(a *queue.SecretsAsk) { a.Attempt++ }},
		"another runner":        {change: func(a *queue.SecretsAsk) { a.Runner = "r2" }},
		"another claim":         {change: func(a *queue.SecretsAsk) { a.Nonce = "nonce-2" }},
		"no claim":              {change: func(a *queue.SecretsAsk) { a.Nonce = "" }},
		"no key":                {change: func(a *queue.SecretsAsk) { a.PublicKey = nil }},
		"too many names":        {change: func(a *queue.SecretsAsk) { a.Names = make([]string, queue.MaxSecretNames+1) }},
		"another team's name":   {change: func(a *queue.SecretsAsk) { a.Names = []string{"../globex/forge-token"} }},
		"a run that has ended":  {before: func(w *world, a queue.SecretsAsk) { w.apply(w.ended(a.Run, a.Attempt, 0, queue.EndFinished)) }},
		"a run that is stopped": {before: func(w *world, a queue.SecretsAsk) { must(w.Cancel(w.ctx, operator, a.Run))(w.t) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			keeper := w.vault(secrets.NewKey())
			if _, _, err := keeper.Put(w.ctx, "acme", secrets.ForgeToken, []byte("sesame"), "op"); err != nil {
				t.Fatal(err)
			}
			ask, _ := w.asker("nonce-1")
			if c.before != nil {
				c.before(w, ask)
			}
			if c.change != nil {
				c.change(&ask)
			}
			answer, err := w.Secrets(keeper)(w.ctx, ask)
			if err != nil || len(answer.Sealed) > 0 || answer.Refused == "" {
				t.Errorf("answered with %+v, %v", answer, err)
			}
		})
	}
}

func TestASecretWithoutItsKeyIsRefusedAndAnOutageIsAnError(t *testing.T) {
	w := newWorld(t)
	if _, _, err := w.vault(secrets.NewKey()).Put(w.ctx, "acme", secrets.ForgeToken, []byte("sesame"), "op"); err != nil {
		t.Fatal(err)
	}
	ask, _ := w.asker("nonce-1")
	for name, keys := range map[string]string{"no key": "", "another key": secrets.NewKey()} {
		if answer, err := w.Secrets(w.vault(keys))(w.ctx, ask); err != nil || answer.Refused == "" || len(answer.Sealed) > 0 {
			t.Errorf("%s: answered with %+v, %v", name, answer, err)
		}
	}
	keeper := w.vault(secrets.NewKey())
	for _, collection := range []string{"runs", "secrets"} {
		w.db.fail(collection, "get")
		if answer, err := w.Secrets(keeper)(w.ctx, ask); !errors.Is(err, launch.ErrUnavailable) {
			t.Errorf("%s away: answered with %+v, %v", collection, answer, err)
		}
		w.db.set(nil)
	}
}
