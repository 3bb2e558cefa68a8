package config

import (
	"strings"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/secrets"
)

// What a secret looks like is checked where it is read, so that the error names its
// place and comes before anything is waited for. No error holds the text.

func checkMongoURI(text string) error {
	if strings.HasPrefix(text, "mongodb://") || strings.HasPrefix(text, "mongodb+srv://") {
		return nil
	}
	return &holdfast.InvalidError{Problem: "it is not the address of a MongoDB", Allowed: "mongodb://[USER:PASSWORD@]HOST[:PORT][,HOST…]/[?OPTIONS] or mongodb+srv://…"}
}

// checkNATSURL: an address without a scheme is a host.
func checkNATSURL(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		scheme, _, has := strings.Cut(strings.TrimSpace(one), "://")
		switch {
		case !has, scheme == "nats", scheme == "tls", scheme == "ws", scheme == "wss":
		default:
			return &holdfast.InvalidError{Problem: "it is not the address of a NATS", Allowed: "nats://[USER:PASSWORD@]HOST[:PORT] or tls://…, several separated by commas"}
		}
	}
	return nil
}

func checkSecretsKey(text string) error {
	_, err := secrets.ParseKeyring(text)
	return err
}

func checkOperatorToken(text string) error { return auth.CheckBearer(text) }

func anyText(string) error { return nil }
