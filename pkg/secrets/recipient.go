package secrets

import (
	"crypto/ecdh"
	"crypto/hpke"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast"
)

// Recipient is one receiver with a key of its own that lives as long as it is asked
// for once and is written nowhere. What was sealed to it is of no use to whoever
// carried it, nor to the receiver's next asking.
type Recipient struct {
	private hpke.PrivateKey
}

// NewRecipient makes a fresh one.
func NewRecipient() (*Recipient, error) {
	private, err := suite().GenerateKey()
	if err != nil {
		return nil, fmt.Errorf("make a key for one answer: %w", err)
	}
	return &Recipient{private}, nil
}

// PublicKey is what the sender needs.
func (r *Recipient) PublicKey() []byte { return r.private.PublicKey().Bytes() }

// Open opens what was sealed to this recipient about the same thing.
func (r *Recipient) Open(about string, sealed []byte) ([]byte, error) {
	plain, err := hpke.Open(r.private, hpke.HKDFSHA256(), hpke.AES256GCM(), bound(about), sealed)
	if err != nil {
		return nil, errors.New("what came was not sealed to this asking")
	}
	return plain, nil
}

// SealTo seals a value to the recipient that has the public key.
func SealTo(public []byte, about string, plain []byte) ([]byte, error) {
	to, err := suite().NewPublicKey(public)
	if err != nil {
		return nil, &holdfast.InvalidError{Field: "public_key", Problem: "it is not a public key", Allowed: "32 bytes of X25519"}
	}
	sealed, err := hpke.Seal(to, hpke.HKDFSHA256(), hpke.AES256GCM(), bound(about), plain)
	if err != nil {
		return nil, fmt.Errorf("seal to a recipient: %w", err)
	}
	return sealed, nil
}

func suite() hpke.KEM { return hpke.DHKEM(ecdh.X25519()) }
