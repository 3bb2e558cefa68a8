package queue

import (
	"strconv"

	"github.com/holdfast-io/holdfast"
)

// SecretsAsk is what a runner asks for on behalf of an attempt that it was granted:
// some of the secrets of the run's team. They come sealed to PublicKey, which is made
// for this one asking.
type SecretsAsk struct {
	Run     holdfast.RunID `json:"run"`
	Attempt int            `json:"attempt"`
	Runner  string         `json:"runner"`
	// Nonce is that of the claim which began the attempt: only who made the claim knows it.
	Nonce     string   `json:"nonce"`
	Names     []string `json:"names"`
	PublicKey []byte   `json:"public_key"`
}

// MaxSecretNames is how many secrets may be asked for at once.
const MaxSecretNames = 16

// SecretsAnswer answers a [SecretsAsk]: one of the two is set.
type SecretsAnswer struct {
	// Sealed is a [SecretValues], sealed to the public key about [SecretsAbout]. A name
	// that the team has no secret for is left out.
	Sealed []byte `json:"sealed,omitempty"`
	// Refused says why there is nothing for this attempt, in plain words.
	Refused string `json:"refused,omitempty"`
}

// SecretValues are secrets by name; it is encoded as JSON before it is sealed.
type SecretValues map[string][]byte

// SecretsAbout is what an answer is sealed about: it is of no use to another attempt.
func SecretsAbout(run holdfast.RunID, attempt int) string {
	return "secrets for run " + string(run) + " attempt " + strconv.Itoa(attempt)
}
