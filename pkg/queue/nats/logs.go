package nats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast"
)

// MaxLogChunk is the most that [Bus.AppendLog] takes at once.
const MaxLogChunk = 64 << 10

// offsetHeader says where in the output of its attempt a chunk begins.
const offsetHeader = "Holdfast-Offset"

func logSubject(run holdfast.RunID, attempt int) string {
	return logSubjects + string(run) + "." + strconv.Itoa(attempt)
}

// AppendLog stores a piece of an attempt's output and returns when it is durable. The
// same piece again is the same piece.
func (b *Bus) AppendLog(ctx context.Context, run holdfast.RunID, attempt int, offset int64, chunk []byte) error {
	if err := checkRun(run); err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	m := natsgo.NewMsg(logSubject(run, attempt))
	m.Header.Set(offsetHeader, strconv.FormatInt(offset, 10))
	m.Data = chunk
	id := fmt.Sprintf("%s.%d.%d.%d", run, attempt, offset, len(chunk))
	if _, err := b.js.PublishMsg(ctx, m, jetstream.WithMsgID(id), jetstream.WithExpectStream(logStream)); err != nil {
		return fmt.Errorf("keep the output of %s: %w", run, err)
	}
	return nil
}

// OpenLog opens the output of the newest attempt of a run, at most the attempt named,
// that has any; fs.ErrNotExist says that none has. What is appended later is read as
// well: a read at the end says io.EOF and may be tried again. The context bounds the
// life of the reader.
func (b *Bus) OpenLog(ctx context.Context, run holdfast.RunID, attempt int) (*Log, error) {
	if err := checkRun(run); err != nil {
		return nil, fmt.Errorf("output of a run: %w", fs.ErrNotExist)
	}
	stream, err := b.js.Stream(ctx, logStream)
	if err != nil {
		return nil, fmt.Errorf("output of %s: %w", run, err)
	}
	for ; attempt > 0; attempt-- {
		l := &Log{ctx: ctx, stream: stream, subject: logSubject(run, attempt)}
		switch err := l.more(); {
		case err == nil:
			return l, nil
		case !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("output of %s: %w", run, err)
		}
	}
	return nil, fmt.Errorf("output of %s: %w", run, fs.ErrNotExist)
}

// Log is the output of one attempt as far as the queue has it. It is for one reader.
type Log struct {
	ctx     context.Context // the reader's own life, as of an http.Request
	stream  jetstream.Stream
	subject string
	next    uint64 // the sequence that the next chunk has at least
	end     int64  // the offset behind the last chunk
	text    []byte
	at      int64
}

// more reads the next chunk; io.EOF when there is none yet. Where chunks are missing,
// because the queue kept the newest only, a line says so.
func (l *Log) more() error {
	m, err := l.stream.GetMsg(l.ctx, max(l.next, 1), jetstream.WithGetMsgSubject(l.subject))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return io.EOF
	case err != nil:
		return err
	}
	l.next = m.Sequence + 1
	offset, ours := offsetOf(m)
	if !ours {
		return nil
	}
	data := m.Data
	if again := l.end - offset; again > 0 { // a piece that was sent before, and perhaps more
		data = data[min(again, int64(len(data))):]
		offset = l.end
	}
	if missing := offset - l.end; missing > 0 {
		l.text = fmt.Appendf(l.text, "\n[holdfast: %d bytes of the output are not kept any more]\n", missing)
	}
	l.end = offset + int64(len(data))
	l.text = append(l.text, data...)
	return nil
}

// offsetOf is where a piece begins; false when it is none of ours.
func offsetOf(m *jetstream.RawStreamMsg) (offset int64, ours bool) {
	offset, err := strconv.ParseInt(m.Header.Get(offsetHeader), 10, 64)
	return offset, err == nil && offset >= 0
}

// Read implements io.Reader.
func (l *Log) Read(p []byte) (int, error) {
	for l.at >= int64(len(l.text)) {
		if err := l.more(); err != nil {
			return 0, err
		}
	}
	n, err := bytes.NewReader(l.text[l.at:]).Read(p)
	l.at += int64(n)
	return n, err
}

// Seek implements io.Seeker. The end is what the queue has now.
func (l *Log) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += l.at
	case io.SeekEnd:
		for {
			err := l.more()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return 0, err
			}
		}
		offset += int64(len(l.text))
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek in an output: %w", fs.ErrInvalid)
	}
	l.at = offset
	return offset, nil
}

// Close implements io.Closer.
func (l *Log) Close() error { return nil }
