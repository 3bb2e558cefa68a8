// Package secrets keeps what must not be read by whoever sees a database, a backup or
// a wire: it seals values at rest under keys that the process is given ([Keyring]),
// keeps the secrets of teams in that form ([Vault]), and seals them to one receiver for
// the way to a runner ([Recipient], [SealTo]).
//
// All of it is from the standard library: AES-256-GCM with random nonces at rest, HPKE
// (RFC 9180) on the way. docs/adr/0007-sealing.md says why.
package secrets

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast"
)

var (
	// ErrNoKey: this process was given no key, so nothing can be sealed or opened.
	ErrNoKey = errors.New("secrets are off: no key was given, see HOLDFAST_SECRETS_KEY")
	// ErrSealed: none of the keys opens the text, it was changed, or it is about
	// something else.
	ErrSealed = errors.New("the sealed text cannot be opened with the keys that were given")
)

const (
	keySize = 32
	maxKeys = 16
	// version begins every sealed text and is part of what is authenticated.
	version = "v1"
)

// Keyring seals and opens. The first key seals; all of them open, so that a new key is
// put in front of the old one, and the old one is taken away when everything was
// written again. A nil Keyring has no key: both verbs answer [ErrNoKey]. It is safe for
// concurrent use.
type Keyring struct {
	keys []key
}

type key struct {
	id   string // the beginning of the key's hash, which tells keys apart and nothing of them
	aead cipher.AEAD
}

// NewKey makes the text of a new key.
func NewKey() string {
	var secret [keySize]byte
	_, _ = rand.Read(secret[:]) // never fails, see its documentation
	return hex.EncodeToString(secret[:])
}

// ParseKeyring reads keys of 64 hexadecimal digits each, separated by blanks, line
// breaks or commas. An empty text is a nil Keyring. The error never holds a key.
func ParseKeyring(text string) (*Keyring, error) {
	const allowed = "64 hexadecimal digits, as `openssl rand -hex 32` prints them; several keys are separated by commas, the first one seals"
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,\t\r\n", r) })
	if len(words) == 0 {
		return nil, nil
	}
	if len(words) > maxKeys {
		return nil, &holdfast.InvalidError{Problem: fmt.Sprintf("there are %d keys", len(words)), Allowed: fmt.Sprintf("at most %d", maxKeys)}
	}
	k := &Keyring{}
	for i, word := range words {
		raw, err := hex.DecodeString(word)
		if err != nil || len(raw) != keySize {
			return nil, &holdfast.InvalidError{Problem: fmt.Sprintf("key %d of %d is not one", i+1, len(words)), Allowed: allowed}
		}
		block, err := aes.NewCipher(raw)
		if err != nil {
			return nil, fmt.Errorf("secrets key: %w", err)
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, fmt.Errorf("secrets key: %w", err)
		}
		hash := sha256.Sum256(append([]byte("holdfast key id "), raw...))
		k.keys = append(k.keys, key{id: hex.EncodeToString(hash[:4]), aead: aead})
	}
	return k, nil
}

// Seal seals a value. about says what it is ("team/web/forge-token"), is required, and
// must be said again to open it, so that a sealed text that was moved elsewhere in the
// database opens nothing.
func (k *Keyring) Seal(about string, plain []byte) (string, error) {
	switch {
	case k == nil:
		return "", ErrNoKey
	case about == "":
		return "", &holdfast.InvalidError{Field: "about", Problem: "is empty", Allowed: "what the value is"}
	}
	first := k.keys[0]
	sealed := first.aead.Seal(nil, nil, plain, bound(about)) //nolint:gosec // this cipher makes a random nonce of its own
	return version + "." + first.id + "." + base64.RawURLEncoding.EncodeToString(sealed), nil
}

// Open opens what [Keyring.Seal] sealed about the same thing.
func (k *Keyring) Open(about, sealed string) ([]byte, error) {
	if k == nil {
		return nil, ErrNoKey
	}
	parts := strings.Split(sealed, ".")
	if len(parts) != 3 || parts[0] != version {
		return nil, ErrSealed
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return nil, ErrSealed
	}
	for _, key := range k.keys {
		if key.id != parts[1] {
			continue
		}
		if plain, err := key.aead.Open(nil, nil, raw, bound(about)); err == nil {
			return plain, nil
		}
	}
	return nil, ErrSealed
}

// Stale says that a text was sealed by another key than the first, and should be
// sealed again when it is written.
func (k *Keyring) Stale(sealed string) bool {
	return k != nil && !strings.HasPrefix(sealed, version+"."+k.keys[0].id+".")
}

func bound(about string) []byte { return []byte("holdfast " + version + "\x00" + about) }
