package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/surface/surfacetest"
	"github.com/holdfast-io/holdfast/pkg/webhook"
)

const secret = "a secret of the team acme"

// box is a sealer that binds what it seals to its name, as the real one does.
type box struct{}

func (box) Seal(about string, plain []byte) (string, error) {
	return hex.EncodeToString([]byte(about + "\x00" + string(plain))), nil
}

func (box) Open(about, sealed string) ([]byte, error) {
	plain, err := hex.DecodeString(sealed)
	if err != nil || len(plain) < len(about)+1 || string(plain[:len(about)+1]) != about+"\x00" {
		return nil, errors.New("sealed under another name")
	}
	return plain[len(about)+1:], nil
}

// world is the gate with hooks and one replica's receiver.
type world struct {
	*surfacetest.World
	hooks    *webhook.Repository
	receiver *webhook.Receiver
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: surfacetest.New(t)}
	w.hooks = surfacetest.Must(webhook.New(t.Context(), w.DB, w.Clock, box{}))(t)
	w.receiver = surfacetest.Must(webhook.NewReceiver(w.hooks, w.Gate, w.Runs, webhook.Options{Clock: w.Clock}))(t)
	return w
}

// hook is one of acme's with these rules; without any, all that is opened or pushed
// launches probe.
func (w *world) hook(forge webhook.Forge, rules ...webhook.Rule) webhook.Hook {
	w.T.Helper()
	if len(rules) == 0 {
		rules = []webhook.Rule{{Bot: "probe"}}
	}
	h := webhook.Hook{Team: "acme", Name: "reviews", Forge: forge, Rules: rules}
	return surfacetest.Must(w.hooks.Create(w.T.Context(), h, secret))(w.T)
}

// delivery is a fixture as its forge sends it, signed.
type delivery struct {
	forge  webhook.Forge
	header http.Header
	body   []byte
}

func fixture(t testing.TB, forge webhook.Forge, event, name, id string) delivery {
	t.Helper()
	body, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return signed(forge, event, id, body)
}

// signed has the headers that a forge sends with a body.
func signed(forge webhook.Forge, event, id string, body []byte) delivery {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	sum := hex.EncodeToString(mac.Sum(nil))
	d := delivery{forge: forge, header: http.Header{}, body: body}
	set := func(pairs ...string) {
		for i := 0; i < len(pairs); i += 2 {
			d.header.Set(pairs[i], pairs[i+1])
		}
	}
	set("Content-Type", "application/json")
	switch forge {
	case webhook.GitHub:
		set("X-GitHub-Event", event, "X-GitHub-Delivery", id, "X-Hub-Signature-256", "sha256="+sum, "User-Agent", "GitHub-Hookshot/044aadd")
	case webhook.GitLab:
		set("X-Gitlab-Event", event, "X-Gitlab-Token", secret, "X-Gitlab-Event-UUID", "same-for-all", "Idempotency-Key", id)
	case webhook.Forgejo:
		set("X-Forgejo-Event", event, "X-Forgejo-Delivery", id, "X-Forgejo-Signature", sum, "X-Gitea-Event", event, "X-Gitea-Delivery", id,
			"X-Gitea-Signature", sum, "X-GitHub-Event", event, "X-GitHub-Delivery", id, "X-Hub-Signature-256", "sha256="+sum)
	}
	return d
}

func (w *world) receive(h webhook.Hook, d delivery) (webhook.Answer, error) {
	return w.receiver.Receive(context.WithoutCancel(w.T.Context()), d.forge, h.ID, d.header, d.body)
}

// launched demands that a delivery launches, or is known to have.
func (w *world) launched(h webhook.Hook, d delivery) webhook.Answer {
	w.T.Helper()
	answer, err := w.receive(h, d)
	if err != nil || answer.Run == "" {
		w.T.Fatalf("%+v, %v; want a run", answer, err)
	}
	return answer
}

// ignored demands that it launches nothing and is told why.
func (w *world) ignored(h webhook.Hook, d delivery) string {
	w.T.Helper()
	answer, err := w.receive(h, d)
	if err != nil || answer.Ignored == "" || answer.Run != "" {
		w.T.Fatalf("%+v, %v; want that it is ignored", answer, err)
	}
	return answer.Ignored
}

func (w *world) deliveries(h webhook.Hook) []webhook.Delivery {
	w.T.Helper()
	list, _, err := w.hooks.Deliveries(w.T.Context(), "acme", h.ID, 0, "")
	if err != nil {
		w.T.Fatal(err)
	}
	return list
}

var eventOf = map[webhook.Forge]string{webhook.GitHub: "pull_request", webhook.GitLab: "Merge Request Hook", webhook.Forgejo: "pull_request"}

var openedOf = map[webhook.Forge]string{webhook.GitHub: "github_opened", webhook.GitLab: "gitlab_open", webhook.Forgejo: "forgejo_opened"}

// opened is a forge's event of a pull request that was opened.
func opened(t testing.TB, forge webhook.Forge, n int) delivery {
	t.Helper()
	return fixture(t, forge, eventOf[forge], openedOf[forge], fmt.Sprintf("f6266f16-1bf3-46a5-9ea4-%012d", n))
}
