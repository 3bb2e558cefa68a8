package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

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
	path   string
	lock   *flock.Flock
	locked fs.FileInfo // the lock's own file; while it is held no other can look the same
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
	held, err := os.Stat(lock.Path())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the data folder: %w", err), lock.Close())
	}
	return &folder{absolute, lock, held}, nil
}

// ErrFolderGone: the data folder was removed or replaced under the process, so
// nothing that it would acknowledge is durable and another may have its place.
var ErrFolderGone = errors.New("the data folder is gone")

// lookEvery is how often the folder is looked for.
const lookEvery = time.Second

// watch ends with [ErrFolderGone] when the locked file is no longer where it was, and
// with nil when ctx ends.
func (f *folder) watch(ctx context.Context) error {
	looks := time.NewTicker(lookEvery)
	defer looks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-looks.C:
		}
		if now, err := os.Stat(f.lock.Path()); errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, f.locked) {
			return fmt.Errorf("%w: %s was removed or replaced while it was in use; nothing more is acknowledged", ErrFolderGone, f.path)
		}
	}
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
