package embedded_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
	"github.com/holdfast-io/holdfast/pkg/store/embedded"
)

// folders knows where the stores that a test opened have their files.
type folders struct {
	t     *testing.T
	under map[any]string
	store map[any]*embedded.Store
}

func newFolders(t *testing.T) *folders {
	return &folders{t: t, under: map[any]string{}, store: map[any]*embedded.Store{}}
}

func (f *folders) open(dir string) (*embedded.Store, error) {
	store, err := embedded.Open(f.t.Context(), dir, embedded.Options{IdleSubjects: 3})
	if err != nil {
		return nil, err
	}
	f.t.Cleanup(func() {
		if err := store.Close(); err != nil {
			f.t.Error(err)
		}
	})
	for _, part := range []any{store.Ledger(), store.Records()} {
		f.under[part], f.store[part] = dir, store
	}
	return store, nil
}

// crash opens a copy of what is on the disk right now, while the store goes on.
func (f *folders) crash(part any) (*embedded.Store, error) {
	dir := f.t.TempDir()
	if err := copyFiles(f.under[part], dir); err != nil {
		return nil, err
	}
	return f.open(dir)
}

// copyFiles copies the files that a crash leaves; the index of the WAL is not one.
func copyFiles(from, to string) error {
	for _, name := range []string{embedded.LedgerFile, embedded.LedgerFile + "-wal", embedded.RecordsFile, embedded.RecordsFile + "-wal"} {
		if err := copyFile(filepath.Join(from, name), filepath.Join(to, name)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close() // read only
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		return err
	}
	return target.Close()
}

func TestRecordsConform(t *testing.T) {
	recordstest.Run(t, func(t *testing.T) recordstest.Harness {
		f := newFolders(t)
		return recordstest.Harness{
			Open: func() (records.DB, error) {
				store, err := f.open(t.TempDir())
				if err != nil {
					return nil, err
				}
				return store.Records(), nil
			},
			Reopen: func(part records.DB) (records.DB, error) {
				store, err := f.crash(part)
				if err != nil {
					return nil, err
				}
				return store.Records(), nil
			},
			Close: func(part records.DB) error { return f.store[part].Close() },
		}
	})
}
