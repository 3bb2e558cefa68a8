package runner

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-io/holdfast"
)

// LogPath is the file with the output of an attempt. It is there from the attempt's
// start and grows while it runs.
func LogPath(dir string, run holdfast.RunID, attempt int) string {
	return filepath.Join(dir, "runs", string(run), strconv.Itoa(attempt)+".log")
}

// LatestLog is the log of the run's last attempt that has one, and its number. It
// is fs.ErrNotExist when the run never started here.
func LatestLog(dir string, run holdfast.RunID) (path string, attempt int, err error) {
	if !filepath.IsLocal(string(run)) || strings.ContainsRune(string(run), filepath.Separator) {
		return "", 0, fmt.Errorf("log of a run: %w", fs.ErrNotExist)
	}
	entries, err := os.ReadDir(filepath.Dir(LogPath(dir, run, 1)))
	if err != nil {
		return "", 0, fmt.Errorf("log of a run: %w", err)
	}
	for _, e := range entries {
		n, err := strconv.Atoi(strings.TrimSuffix(e.Name(), ".log"))
		if err == nil && n > attempt {
			attempt = n
		}
	}
	if attempt == 0 {
		return "", 0, fmt.Errorf("log of a run: %w", fs.ErrNotExist)
	}
	return LogPath(dir, run, attempt), attempt, nil
}

// ringSize is how much of the last output is kept in memory.
const ringSize = 64 << 10

// output takes what a child prints. The log file gets the beginning, up to a limit;
// the end is kept in memory and added when the child has ended, with a line between
// that says what is missing. Writing never fails: a full disk must not stop the
// child or block it, so what cannot be written is only counted.
type output struct {
	mu      sync.Mutex
	file    *os.File
	room    int64 // that the beginning may still take
	tail    []byte
	tailMax int
	written int64 // of the output into the file
	total   int64
	failed  error // the first error of the file
}

// newOutput opens the log of an attempt. limit is how large it may become, but for
// the line that says that it was cut.
func newOutput(path string, limit int64) (*output, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	tail := min(ringSize, limit/2)
	return &output{file: file, room: limit - tail, tailMax: int(tail)}, nil
}

// Write implements io.Writer; it always takes everything.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total += int64(len(p))
	head := p[:min(int64(len(p)), o.room)]
	o.room -= int64(len(head))
	o.put(head)
	o.tail = append(o.tail, p[max(0, len(p)-o.tailMax):]...)
	if over := len(o.tail) - o.tailMax; over > 0 {
		o.tail = append(o.tail[:0], o.tail[over:]...)
	}
	return len(p), nil
}

func (o *output) put(p []byte) {
	if o.failed != nil || len(p) == 0 {
		return
	}
	n, err := o.file.Write(p)
	o.written += int64(n)
	o.failed = err
}

// close adds what the file lacks of the end and closes it.
func (o *output) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if missing := o.total - o.written; missing > 0 && o.failed == nil {
		tail := o.tail[max(0, int64(len(o.tail))-missing):]
		if left := missing - int64(len(tail)); left > 0 {
			_, o.failed = fmt.Fprintf(o.file, "\n[holdfast: the log was cut here, %d bytes are left out]\n", left)
		}
		o.put(tail)
	}
	if err := o.file.Close(); o.failed == nil {
		o.failed = err
	}
	return o.failed
}

// lastLine is the last line of the output that is not blank, shortened.
func (o *output) lastLine() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := bytes.TrimSpace(o.tail)
	return holdfast.Clip(strings.TrimSpace(string(text[bytes.LastIndexByte(text, '\n')+1:])), 200)
}
