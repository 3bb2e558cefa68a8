// Package embedded keeps the ledger and the records of one machine in two SQLite
// files: the twin of `holdfast dev`. What it acknowledged survives kill -9 and the
// loss of power: every commit is synced (WAL, synchronous=FULL) before anybody is
// answered.
//
// Each file has one writer goroutine, which takes all that is queued, makes one
// transaction of it and answers when that is synced. So a write costs one sync when
// it comes alone and a small part of one when many come together. Reads that need
// no order with the writes use connections of their own.
//
// The files may be read with any SQLite tool while they are in use; they must not be
// written by anybody else, because the ledger's open entries are also in memory. The
// two files are two: nothing rests on a write to both.
//
// Reading order: open.go, engine.go (files, the writer, transactions), health.go,
// ledger.go and the ledger_*.go beside it, records.go.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"modernc.org/sqlite"

	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// The names of the two files in the store's folder.
const (
	LedgerFile  = "ledger.db"
	RecordsFile = "records.db"
)

// Options configure a [Store]; the zero value is the documented default.
type Options struct {
	// Readers is how many connections read each file beside the writer; 0 is 4.
	Readers int
	// IdleSubjects is how many subjects without an open allocation stay in memory;
	// 0 is 10,000. The others are read again when they are asked.
	IdleSubjects int
	// KeepClosed is how long a closed allocation stays answerable at least; 0 is
	// 90 days.
	KeepClosed time.Duration
}

// Store is the two opened files. All its parts may be used from any number of
// goroutines. One process at a time may have a folder open; the caller sees to it.
type Store struct {
	ledger  *Ledger
	records *Records
}

// Open opens the files in the folder, creating what is missing: the folder with mode
// 0700, the files with 0600. It reads the open allocations, so its cost grows with
// these and not with what was closed. ctx bounds the opening only.
func Open(ctx context.Context, dir string, options Options) (*Store, error) {
	if options.Readers == 0 {
		options.Readers = 4
	}
	if options.IdleSubjects == 0 {
		options.IdleSubjects = 10_000
	}
	if options.KeepClosed == 0 {
		options.KeepClosed = 90 * 24 * time.Hour
	}
	// Half the time of a commit and the same promise; where the platform has only
	// the slower call there is nothing to switch.
	if _, err := sqlite.Fdatasync(true); err != nil && !errors.Is(err, sqlite.ErrFdatasyncUnavailable) {
		return nil, fmt.Errorf("switch to fdatasync: %w", err)
	}
	if err := makeFolder(dir); err != nil {
		return nil, fmt.Errorf("open the store in %s: %w", dir, err)
	}
	ledger, err := openLedger(ctx, filepath.Join(dir, LedgerFile), options)
	if err != nil {
		return nil, fmt.Errorf("open the ledger in %s: %w", dir, err)
	}
	recs, err := openRecords(ctx, filepath.Join(dir, RecordsFile), options)
	if err != nil {
		return nil, fmt.Errorf("open the records in %s: %w", dir, errors.Join(err, ledger.close()))
	}
	return &Store{ledger: ledger, records: recs}, nil
}

// Ledger is the ledger's store.
func (s *Store) Ledger() capacityledger.Store { return s.ledger }

// Records is the records' store.
func (s *Store) Records() records.DB { return s.records }

// Close finishes the writes under way, refuses later ones as unavailable, and closes
// the files. Closing again does nothing.
func (s *Store) Close() error { return errors.Join(s.ledger.close(), s.records.close()) }

// makeFolder creates the folder and syncs its parent, so that the folder's own name
// survives a loss of power.
func makeFolder(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(filepath.Clean(dir)))
}

// syncFolder makes the names in a folder durable.
func syncFolder(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
