package embedded

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"modernc.org/sqlite"
)

// errClosed is what a closed file answers.
var errClosed = errors.New("the store is closed")

// file is one SQLite file with its writer goroutine and its reading connections.
type file struct {
	readers *sql.DB
	conn    driver.Conn // the writer's, used by its goroutine alone once that runs

	mu      sync.Mutex
	queue   []*task
	closing bool
	broken  error     // of the last batch that failed; nil since one was written after it
	probed  time.Time // when it was last tried whether the file takes writes again

	wake  chan struct{} // capacity 1: there is something in the queue, or it is closing
	ended chan struct{} // closed when the writer goroutine has returned

	closeOnce sync.Once
	closeErr  error

	hooks hooks
	tx    tx
}

// hooks let the owner of a file keep memory beside it. They run on the writer's
// goroutine.
type hooks struct {
	// flush comes after the last task of a batch, before the commit.
	flush func(*tx) error
	// committed comes after a batch that is durable now.
	committed func()
	// failed comes after a batch was rolled back: what it changed in memory is undone
	// here. Saying true runs the batch once more.
	failed func(error) (again bool)
}

// task is one caller's part of a batch. run may be called on the writer's goroutine
// only; an error of it fails the whole batch, so it is kept for a file that cannot
// be read or written. What the caller learns otherwise it leaves in its own variables.
type task struct {
	run  func(*tx) error
	done chan error
}

// maxBatch bounds one transaction, and with it the wait of the first caller in it.
const maxBatch = 256

// openFile opens or creates a file and applies its schema; prepare then runs on the
// writer's connection before the writer starts.
func openFile(ctx context.Context, path, schema string, readers int, h hooks, prepare func(*tx) error) (*file, error) {
	created, err := createFile(path)
	if err != nil {
		return nil, err
	}
	conn, err := (&sqlite.Driver{}).Open(dsn(path, "cache_size(-32768)", "wal_autocheckpoint(2000)", "journal_size_limit(67108864)"))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db, err := sql.Open("sqlite", dsn(path, "query_only(1)"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s for reading: %w", path, err), conn.Close())
	}
	db.SetMaxOpenConns(readers)
	db.SetMaxIdleConns(readers)
	f := &file{readers: db, conn: conn, wake: make(chan struct{}, 1), ended: make(chan struct{}), hooks: h}
	f.tx = tx{conn: conn, statements: map[string]driver.Stmt{}}
	if err := f.prepare(ctx, path, schema, created, prepare); err != nil {
		return nil, errors.Join(err, f.tx.close(), conn.Close(), db.Close())
	}
	go f.write()
	return f, nil
}

func (f *file) prepare(ctx context.Context, path, schema string, created bool, prepare func(*tx) error) error {
	if err := f.tx.migrate(schema); err != nil {
		return fmt.Errorf("prepare %s: %w", path, err)
	}
	if created {
		if err := syncFolder(filepath.Dir(path)); err != nil {
			return fmt.Errorf("sync the folder of %s: %w", path, err)
		}
	}
	if prepare != nil {
		if err := prepare(&f.tx); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
	}
	if err := f.readers.PingContext(ctx); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// createFile makes sure that only the owner can read the file; SQLite gives the
// files beside it the same mode.
func createFile(path string) (created bool, err error) {
	_, err = os.Stat(path)
	created = errors.Is(err, os.ErrNotExist)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	return created, errors.Join(f.Chmod(0o600), f.Close())
}

// dsn names the file with the pragmas that both sides share and those given. An
// operator's own SQLite tool may hold a lock for a moment; it is waited for.
func dsn(path string, pragmas ...string) string {
	values := url.Values{}
	for _, p := range append([]string{"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "fullfsync(1)"}, pragmas...) {
		values.Add("_pragma", p)
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: values.Encode()}).String()
}

// do queues the task's work and waits until it is durable. A caller whose context
// ends is told so; its work may still happen.
func (f *file) do(ctx context.Context, run func(*tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := &task{run: run, done: make(chan error, 1)}
	f.mu.Lock()
	if f.closing {
		f.mu.Unlock()
		return errClosed
	}
	f.queue = append(f.queue, t)
	f.mu.Unlock()
	f.signal()
	select {
	case err := <-t.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *file) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// write is the writer goroutine: it takes all that is queued, at most maxBatch, and
// makes one transaction of it, until the file is closed and the queue is empty.
func (f *file) write() {
	defer close(f.ended)
	var spare []*task
	for {
		f.mu.Lock()
		batch := f.queue
		rest := []*task(nil)
		if len(batch) > maxBatch {
			batch, rest = batch[:maxBatch:maxBatch], append(rest, batch[maxBatch:]...)
		}
		spare = append(spare[:0], rest...)
		f.queue = spare
		closing := f.closing
		f.mu.Unlock()
		switch {
		case len(batch) > 0:
			err := f.commit(batch)
			for _, t := range batch {
				t.done <- err
			}
			clear(batch)
			spare = batch
			f.welcome()
		case closing:
			return
		default:
			spare = batch
			<-f.wake
		}
	}
}

// welcome lets those who were just answered run, for as long as each moment brings
// somebody back: they share the next sync then, and do not wait for the one after it.
// It costs next to nothing when nobody comes.
func (f *file) welcome() {
	waiting := -1
	for range 16 {
		runtime.Gosched()
		f.mu.Lock()
		now := len(f.queue)
		f.mu.Unlock()
		if now == waiting {
			return
		}
		waiting = now
	}
}

// commit runs the batch in one transaction. A batch that only read ends without one.
func (f *file) commit(batch []*task) error {
	for {
		err := f.apply(batch)
		wrote := f.tx.open
		if err == nil {
			err = f.tx.commit()
		}
		if err == nil {
			if wrote {
				f.note(nil)
			}
			if f.hooks.committed != nil {
				f.hooks.committed()
			}
			return nil
		}
		err = errors.Join(err, f.tx.rollback())
		if f.hooks.failed == nil || !f.hooks.failed(err) {
			f.note(err)
			return err
		}
	}
}

// apply does everything of a batch but the commit. A panic is our bug; it fails the
// batch, whose callers then hear of it, and not the process with all it holds.
func (f *file) apply(batch []*task) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a bug in the store: %v\n%s", p, debug.Stack())
		}
	}()
	if err := f.tx.rollback(); err != nil { // of a batch before that could not be ended
		return err
	}
	for _, t := range batch {
		if err := t.run(&f.tx); err != nil {
			return err
		}
	}
	if f.hooks.flush != nil {
		return f.hooks.flush(&f.tx)
	}
	return nil
}

// close lets the writer finish what is queued and closes the connections.
func (f *file) close() error {
	f.closeOnce.Do(func() {
		f.mu.Lock()
		f.closing = true
		f.mu.Unlock()
		f.signal()
		<-f.ended
		f.closeErr = errors.Join(f.readers.Close(), f.tx.close(), f.conn.Close())
	})
	return f.closeErr
}
