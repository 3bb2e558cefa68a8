package embedded

import (
	"context"
	"errors"
	"strings"
	"time"

	"modernc.org/sqlite"
)

const (
	// probeEvery is how often at most a broken file is tried again because somebody
	// asked.
	probeEvery = time.Second
	// probeWithin bounds the wait for one try; a disk that hangs is not ready.
	probeWithin = 2 * time.Second
)

// Health says which of the two parts, "ledger" and "records", takes no writes, and
// why; empty is healthy. A part is broken from a write that failed until one that
// succeeds. Where nobody writes any more, asking does: at most once a second a broken
// file is tried with a write that changes nothing. A healthy part is asked from
// memory.
func (s *Store) Health(ctx context.Context, now time.Time) map[string]string {
	broken := map[string]string{}
	for name, f := range map[string]*file{"ledger": s.ledger.file, "records": s.records.file} {
		if err := f.health(ctx, now); err != nil {
			broken[name] = "the last write failed: " + brief(err)
		}
	}
	return broken
}

// note remembers how the last batch that wrote, or failed, ended.
func (f *file) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = err
}

func (f *file) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken
}

// health is the file's failure, after a try to write if one is due.
func (f *file) health(ctx context.Context, now time.Time) error {
	f.mu.Lock()
	since := now.Sub(f.probed)
	due := f.broken != nil && (since >= probeEvery || since < 0)
	if due {
		f.probed = now
	}
	f.mu.Unlock()
	if !due {
		return f.failure()
	}
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	// What it says is in the file already, and SQLite writes its page all the same.
	// A failure is noted by the writer.
	_ = f.do(ctx, func(t *tx) error { return t.stampVersion() })
	return f.failure()
}

// brief is the part of an error that means something to an operator: what SQLite
// says, without the statement.
func brief(err error) string {
	var failed *sqlite.Error
	if errors.As(err, &failed) {
		return failed.Error()
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
