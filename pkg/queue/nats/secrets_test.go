package nats_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/queue/nats"
	"github.com/holdfast-io/holdfast/pkg/secrets"
)

// wire has every message that a NATS carried.
type wire struct {
	mu       sync.Mutex
	messages []string
}

func (w *wire) add(m *natsgo.Msg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.messages = append(w.messages, m.Subject+" "+m.Reply+" "+string(m.Data))
}

func (w *wire) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.messages...)
}

// tap listens to everything.
func tap(t *testing.T, url string) *wire {
	t.Helper()
	nc, err := natsgo.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	w := &wire{}
	if _, err := nc.Subscribe(">", w.add); err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushTimeout(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestSecretsGoOverTheWireSealedToTheAskersKey(t *testing.T) {
	s := elsewhere(t, nil)
	heard := tap(t, s.ClientURL())
	serving, asking := dial(t, nats.Remote{URL: s.ClientURL()}, nats.Options{}), dial(t, nats.Remote{URL: s.ClientURL()}, nats.Options{})
	asked := make(chan queue.SecretsAsk, 100)
	stop := background(t, func(ctx context.Context) error {
		return serving.ServeSecrets(ctx, func(_ context.Context, ask queue.SecretsAsk) (queue.SecretsAnswer, error) {
			asked <- ask
			plain, err := json.Marshal(queue.SecretValues{"forge-token": []byte("open sesame")})
			if err != nil {
				return queue.SecretsAnswer{}, err
			}
			sealed, err := secrets.SealTo(ask.PublicKey, queue.SecretsAbout(ask.Run, ask.Attempt), plain)
			return queue.SecretsAnswer{Sealed: sealed}, err
		})
	})
	defer stop()
	recipient, err := secrets.NewRecipient()
	if err != nil {
		t.Fatal(err)
	}
	ask := queue.SecretsAsk{Run: "R1", Attempt: 2, Runner: "r", Nonce: "n", Names: []string{"forge-token"}, PublicKey: recipient.PublicKey()}
	var answer queue.SecretsAnswer
	eventually(t, "somebody answers", func() bool { // who listens to everything looks like a server that says nothing
		try, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		answer, err = asking.RequestSecrets(try, ask)
		return err == nil
	})
	if got := next(t, asked); got.Run != ask.Run || got.Attempt != 2 || got.Nonce != "n" {
		t.Errorf("the server was asked %+v", got)
	}
	plain, err := recipient.Open(queue.SecretsAbout("R1", 2), answer.Sealed)
	if err != nil || !strings.Contains(string(plain), "forge-token") {
		t.Fatalf("the asker reads %q, %v", plain, err)
	}
	eventually(t, "the answer was on the wire", func() bool { return len(heard.all()) >= 2 })
	for _, m := range heard.all() {
		for _, secret := range []string{"open sesame", "b3BlbiBzZXNhbWU"} { // as it is, and as JSON writes bytes
			if strings.Contains(m, secret) {
				t.Errorf("the wire carried the secret: %s", m)
			}
		}
	}
}

func TestAnErrorOfTheServerIsNoAnswerAboutSecretsAndARefusalIsOne(t *testing.T) {
	s := elsewhere(t, nil)
	bus := dial(t, nats.Remote{URL: s.ClientURL()}, nats.Options{})
	answers := map[string]func() (queue.SecretsAnswer, error){
		"refused": func() (queue.SecretsAnswer, error) { return queue.SecretsAnswer{Refused: "not yours"}, nil },
		"error":   func() (queue.SecretsAnswer, error) { return queue.SecretsAnswer{}, errors.New("the store is away") },
		"nothing": func() (queue.SecretsAnswer, error) { return queue.SecretsAnswer{}, nil },
		"panic":   func() (queue.SecretsAnswer, error) { panic("broken") },
	}
	stop := background(t, func(ctx context.Context) error {
		return bus.ServeSecrets(ctx, func(_ context.Context, ask queue.SecretsAsk) (queue.SecretsAnswer, error) {
			return answers[string(ask.Run)]()
		})
	})
	defer stop()
	asking := func(run string) (answer queue.SecretsAnswer, err error) {
		eventually(t, "somebody answers", func() bool {
			answer, err = bus.RequestSecrets(t.Context(), queue.SecretsAsk{Run: message(run, 1).Run})
			return !errors.Is(err, natsgo.ErrNoResponders)
		})
		return answer, err
	}
	if answer, err := asking("refused"); err != nil || answer.Refused != "not yours" {
		t.Errorf("a refusal came as %+v, %v", answer, err)
	}
	for _, run := range []string{"error", "nothing", "panic"} {
		if answer, err := asking(run); err == nil {
			t.Errorf("%s came as the answer %+v", run, answer)
		}
	}
}
