package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/pkg/queue"
)

// secretsAnswer is the wire form of an answer: what a server said, or that none is known.
type secretsAnswer struct {
	Answer queue.SecretsAnswer `json:"answer"`
	Err    string              `json:"error,omitempty"`
}

// RequestSecrets asks a server. What comes is sealed to the asking's key, so that
// neither NATS nor whoever listens to it can read it. An error means that no answer is
// known.
func (b *Bus) RequestSecrets(ctx context.Context, ask queue.SecretsAsk) (queue.SecretsAnswer, error) {
	body, err := json.Marshal(ask)
	if err != nil {
		return queue.SecretsAnswer{}, fmt.Errorf("secrets for %s: %w", ask.Run, err)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	reply, err := b.nc.RequestWithContext(ctx, secretSubject, body)
	if err != nil {
		return queue.SecretsAnswer{}, fmt.Errorf("secrets for %s: %w", ask.Run, err)
	}
	var answer secretsAnswer
	switch err := json.Unmarshal(reply.Data, &answer); {
	case err != nil:
		return queue.SecretsAnswer{}, fmt.Errorf("secrets for %s: answer: %w", ask.Run, err)
	case answer.Err != "":
		return queue.SecretsAnswer{}, fmt.Errorf("secrets for %s: the server says: %s", ask.Run, answer.Err)
	}
	return answer.Answer, nil
}

// ServeSecrets answers askings for secrets as [Bus.ServeClaims] answers claims.
func (b *Bus) ServeSecrets(ctx context.Context, answer func(context.Context, queue.SecretsAsk) (queue.SecretsAnswer, error)) error {
	return b.serve(ctx, secretSubject, "secrets", func(ctx context.Context, m *natsgo.Msg) { b.answerSecrets(ctx, m, answer) })
}

func (b *Bus) answerSecrets(ctx context.Context, m *natsgo.Msg, answer func(context.Context, queue.SecretsAsk) (queue.SecretsAnswer, error)) {
	ctx, cancel := context.WithTimeout(ctx, claimWithin)
	defer cancel()
	var reply secretsAnswer
	err := guarded(func() (err error) {
		var ask queue.SecretsAsk
		if err := json.Unmarshal(m.Data, &ask); err != nil {
			return err
		}
		reply.Answer, err = answer(ctx, ask)
		if err == nil && (len(reply.Answer.Sealed) > 0) == (reply.Answer.Refused != "") {
			err = errors.New("neither secrets nor a refusal")
		}
		return err
	})
	if err != nil {
		b.options.Log.Warn("an asking for secrets could not be answered", "err", err)
		reply = secretsAnswer{Err: err.Error()}
	}
	body, err := json.Marshal(reply)
	if err == nil {
		err = m.Respond(body)
	}
	if err != nil {
		b.options.Log.Warn("the answer to an asking for secrets was lost", "err", err)
	}
}
