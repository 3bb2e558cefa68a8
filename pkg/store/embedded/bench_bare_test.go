package embedded_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/holdfast-io/holdfast"
)

// bare is what the driver can do without a ledger: the same pragmas, one writer
// goroutine with group commit, two statements per reserve (the subject's row up, the
// allocation's row in) and two per settle (the subject's row down, the allocation's
// row out). It judges nothing, keeps no history and looks nothing up.
type bare struct {
	conn             *sql.Conn
	up, insert, drop *sql.Stmt
	queue            chan bareOp
	subjects         []string
	keys             []holdfast.Subject
}

type bareOp struct {
	reserve bool
	id      string
	subject string
	done    chan error
}

func newBare(b *testing.B, keys []holdfast.Subject) *bare {
	b.Helper()
	pragmas := "?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)&_pragma=cache_size(-32768)&_pragma=wal_autocheckpoint(2000)&_pragma=journal_size_limit(67108864)"
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "bare.db")+pragmas)
	if err != nil {
		b.Fatal(err)
	}
	conn, err := db.Conn(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for _, s := range []string{
		"CREATE TABLE subject (id TEXT PRIMARY KEY, outstanding INTEGER NOT NULL) WITHOUT ROWID",
		"CREATE TABLE allocation (id TEXT PRIMARY KEY, subject TEXT NOT NULL, holder TEXT NOT NULL, amount INTEGER NOT NULL, expires INTEGER NOT NULL) WITHOUT ROWID",
	} {
		if _, err := conn.ExecContext(b.Context(), s); err != nil {
			b.Fatal(err)
		}
	}
	prepare := func(text string) *sql.Stmt {
		s, err := conn.PrepareContext(b.Context(), text)
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	w := &bare{
		conn: conn, queue: make(chan bareOp, 4*callers), keys: keys,
		up:     prepare("INSERT INTO subject (id, outstanding) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET outstanding = outstanding + excluded.outstanding"),
		insert: prepare("INSERT INTO allocation (id, subject, holder, amount, expires) VALUES (?, ?, ?, ?, ?)"),
		drop:   prepare("DELETE FROM allocation WHERE id = ?"),
	}
	for _, key := range keys {
		w.subjects = append(w.subjects, key.String())
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.write()
	}()
	b.Cleanup(func() {
		close(w.queue)
		<-ended
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	return w
}

// write is the group-commit loop: all that is queued is one transaction.
func (w *bare) write() {
	ctx := context.Background()
	var batch []bareOp
	for op := range w.queue {
		batch = append(batch[:0], op)
		for more := true; more && len(batch) < 256; {
			select {
			case next, open := <-w.queue:
				if more = open; open {
					batch = append(batch, next)
				}
			default:
				more = false
			}
		}
		_, err := w.conn.ExecContext(ctx, "BEGIN IMMEDIATE")
		for i := 0; i < len(batch) && err == nil; i++ {
			err = w.apply(ctx, batch[i])
		}
		if err == nil {
			_, err = w.conn.ExecContext(ctx, "COMMIT")
		}
		for _, op := range batch {
			op.done <- err
		}
	}
}

func (w *bare) apply(ctx context.Context, op bareOp) error {
	if op.reserve {
		if _, err := w.up.ExecContext(ctx, op.subject, 1); err != nil {
			return err
		}
		_, err := w.insert.ExecContext(ctx, op.id, op.subject, "platform/review-pr", 1, 1_800_000_000_000)
		return err
	}
	if _, err := w.up.ExecContext(ctx, op.subject, -1); err != nil {
		return err
	}
	_, err := w.drop.ExecContext(ctx, op.id)
	return err
}

func (w *bare) contender() contender {
	return contender{"bare", func(caller, n int) error {
		at := (n*31 + caller) % len(w.subjects)
		id := string(holdfast.NewAllocationID(benchRun(n), w.keys[at], 0))
		done := make(chan error, 1)
		for _, reserve := range []bool{true, false} {
			w.queue <- bareOp{reserve, id, w.subjects[at], done}
			if err := <-done; err != nil {
				return err
			}
		}
		return nil
	}}
}
