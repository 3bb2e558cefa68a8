package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"

	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/pkg/auth"
)

// ErrInUse: another process has the folder.
var ErrInUse = errors.New("the data folder is in use")

// lockFile is held by the operating system for as long as the process lives. It is
// the same for every process that has a folder, so that no two share one.
const lockFile = "dev.lock"

// folder is the locked data folder. Whoever holds its lock knows that every former
// holder is dead.
type folder struct {
	path string
	lock *flock.Flock
}

// openFolder makes the folder, closes it to others and locks it. Files that are
// not ours are left alone.
func openFolder(path string, p config.Process) (*folder, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	if err := os.MkdirAll(absolute, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	if err := os.Chmod(absolute, 0o700); err != nil { //nolint:gosec // a folder needs its execute bit
		return nil, fmt.Errorf("data folder: %w", err)
	}
	lock := flock.New(filepath.Join(absolute, lockFile), flock.SetPermissions(0o600))
	locked, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	if !locked {
		return nil, fmt.Errorf("%w: another holdfast %s has %s; stop it, or give another folder with --data", ErrInUse, p, path)
	}
	return &folder{absolute, lock}, nil
}

func (f *folder) close() error { return f.lock.Close() }

// operatorToken makes the token in the folder the operator's, and writes one when
// there is none.
func (f *folder) operatorToken(ctx context.Context, tokens *auth.Tokens) (string, error) {
	path := filepath.Join(f.path, config.TokenFile)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		text = []byte(auth.NewBearer() + "\n")
		if err := writeWhole(path, text); err != nil {
			return "", fmt.Errorf("write the operator's token: %w", err)
		}
	case err != nil:
		return "", fmt.Errorf("read the operator's token: %w", err)
	}
	bearer := strings.TrimSpace(string(text))
	if err := tokens.EnsureOperator(ctx, bearer); err != nil {
		return "", fmt.Errorf("%s: %w; remove the file to have a new one written", path, err)
	}
	return bearer, nil
}

// writeWhole writes a private file so that a reader sees all of it or nothing, also
// after a crash.
func writeWhole(path string, text []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // fails when it has its name
	_, err = file.Write(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
