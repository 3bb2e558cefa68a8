package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/pkg/secrets"
)

// keyFile is where dev keeps the key that seals the secrets of teams, when none is
// given to it. It is made once and never changed; a copy of the folder has both, the
// sealed values and the key.
const keyFile = "secrets.key"

// keyringOf are the keys that a process was given; nil without any.
func keyringOf(s config.Options) (*secrets.Keyring, error) {
	keys, err := secrets.ParseKeyring(s.SecretsKey)
	if err != nil {
		return nil, holdfast.InField("HOLDFAST_SECRETS_KEY", err)
	}
	return keys, nil
}

// secretsKey is the text of the keys in the folder; it makes one where there is none.
func (f *folder) secretsKey() (string, error) {
	path := filepath.Join(f.path, keyFile)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		text = []byte(secrets.NewKey() + "\n")
		if err := writeWhole(path, text); err != nil {
			return "", fmt.Errorf("write the key of secrets: %w", err)
		}
	case err != nil:
		return "", fmt.Errorf("read the key of secrets: %w", err)
	}
	if _, err := secrets.ParseKeyring(string(text)); err != nil {
		return "", holdfast.InField(path, err)
	}
	return string(text), nil
}
