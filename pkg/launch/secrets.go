package launch

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/secrets"
)

// SecretKeeper opens the secrets of teams; pkg/secrets has one.
type SecretKeeper interface {
	// Reveal opens those that are named and exist.
	Reveal(ctx context.Context, team holdfast.TeamID, names []string) (map[string][]byte, error)
}

// Secrets answers runners that ask for secrets out of a keeper. Only the attempt that
// is running gets any, and only its own team's: another attempt, another runner, a run
// that has ended or was told to stop, and a run of another team are refused alike. An
// error means that nothing is known now.
func (s *Service) Secrets(keeper SecretKeeper) func(context.Context, queue.SecretsAsk) (queue.SecretsAnswer, error) {
	return func(ctx context.Context, ask queue.SecretsAsk) (queue.SecretsAnswer, error) {
		run, err := s.Runs.Get(ctx, ask.Run)
		switch {
		case errors.Is(err, records.ErrNotFound):
			return queue.SecretsAnswer{Refused: "there is no such run"}, nil
		case err != nil:
			return queue.SecretsAnswer{}, unavailable(err)
		}
		if why := notForThem(ask, run); why != "" {
			s.log.WarnContext(ctx, "secrets were refused", "run", ask.Run, "attempt", ask.Attempt, "runner", ask.Runner, "because", why)
			return queue.SecretsAnswer{Refused: why}, nil
		}
		values, err := keeper.Reveal(ctx, run.Team, ask.Names)
		switch {
		case errors.Is(err, secrets.ErrNoKey), errors.Is(err, secrets.ErrSealed):
			s.log.ErrorContext(ctx, "secrets of a run cannot be opened", "run", ask.Run, "team", run.Team, "error", err)
			return queue.SecretsAnswer{Refused: err.Error()}, nil
		case isInvalid(err):
			return queue.SecretsAnswer{Refused: err.Error()}, nil
		case err != nil:
			return queue.SecretsAnswer{}, unavailable(err)
		}
		return sealedFor(ask, values)
	}
}

// notForThem says why an asking gets nothing; empty when it may have what it asks for.
func notForThem(ask queue.SecretsAsk, run runs.Run) string {
	switch {
	case run.Status != runs.Running:
		return "the run is " + string(run.Status)
	case run.CancelAsked:
		return string(runs.ReasonCancelled)
	case ask.Attempt != run.Attempt || ask.Runner != run.Runner:
		return "another attempt of the run was begun"
	case ask.Nonce == "" || subtle.ConstantTimeCompare([]byte(ask.Nonce), []byte(run.ClaimNonce)) == 0:
		return "the attempt was begun by another claim"
	case len(ask.Names) > queue.MaxSecretNames:
		return fmt.Sprintf("at most %d secrets at once", queue.MaxSecretNames)
	}
	return ""
}

func sealedFor(ask queue.SecretsAsk, values map[string][]byte) (queue.SecretsAnswer, error) {
	plain, err := json.Marshal(queue.SecretValues(values))
	if err != nil {
		return queue.SecretsAnswer{}, fmt.Errorf("encode secrets: %w", err)
	}
	sealed, err := secrets.SealTo(ask.PublicKey, queue.SecretsAbout(ask.Run, ask.Attempt), plain)
	if isInvalid(err) {
		return queue.SecretsAnswer{Refused: err.Error()}, nil
	}
	return queue.SecretsAnswer{Sealed: sealed}, err
}
