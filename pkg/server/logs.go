package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// LogFile is the output of one attempt, as far as it is written.
type LogFile interface {
	io.Reader
	io.Seeker
	io.Closer
}

// maxTail bounds how far back a tail is looked for, in bytes.
const maxTail = 8 << 20

type logsInput struct {
	runInput
	Tail   int  `query:"tail" minimum:"1" maximum:"100000" doc:"only the last lines; absent: all"`
	Follow bool `query:"follow" doc:"go on until the run has ended"`
}

// logs copies a run's output. What a program printed is sent as it is, as plain text
// that no browser may take for something else.
func (s *Server) logs(w http.ResponseWriter, r *http.Request, c call, in logsInput) error {
	run, err := s.run(r.Context(), c, in.Run)
	if err != nil {
		return err
	}
	if s.options.Logs == nil || run.External {
		return notFound("output: this run's output is kept elsewhere")
	}
	file, err := s.openLog(r.Context(), run.ID, in.Follow)
	if errors.Is(err, fs.ErrNotExist) {
		return notFound("output yet")
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if in.Tail > 0 {
		if err := seekTail(file, in.Tail); err != nil {
			return fmt.Errorf("read the end of the output: %w", err)
		}
	}
	out := newStream(w, s.options.Stall)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; sandbox")
	w.WriteHeader(http.StatusOK)
	s.copyLog(out, r, file, run, in.Follow)
	return nil
}

// openLog opens the output; with follow it waits for it while the run is to come.
func (s *Server) openLog(ctx context.Context, id holdfast.RunID, follow bool) (LogFile, error) {
	tick := time.NewTicker(s.options.PollLogs)
	defer tick.Stop()
	for {
		file, err := s.options.Logs(ctx, id)
		if !follow || !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
		if ended, stateErr := s.ended(ctx, id); stateErr != nil || ended {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// copyLog copies what is written, and with follow what comes until the run has ended or
// the caller may see it no longer.
func (s *Server) copyLog(w *streamWriter, r *http.Request, file LogFile, run runs.Run, follow bool) {
	tick, look := time.NewTicker(s.options.PollLogs), time.NewTicker(s.options.KeepAlive)
	defer tick.Stop()
	defer look.Stop()
	for last := !follow; ; {
		if _, err := io.Copy(w, file); err != nil || w.Flush() != nil || last {
			return
		}
		// The state is asked before the file is read for the last time, so that what
		// was written before the end is not lost.
		ended, err := s.ended(r.Context(), run.ID)
		last = err != nil || ended
		if last {
			continue
		}
		select {
		case <-r.Context().Done():
			return
		case <-look.C:
			if s.shut(r, run.Team) {
				return
			}
		case <-tick.C:
		}
	}
}

func (s *Server) ended(ctx context.Context, id holdfast.RunID) (bool, error) {
	run, err := s.deps.Runs.Get(ctx, id)
	return err == nil && run.Status.Ended(), err
}

// seekTail goes to where the last lines begin.
func seekTail(file LogFile, lines int) error {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	const block = 64 << 10
	buffer := make([]byte, block)
	at, found := size, 0
	for at > 0 && size-at < maxTail {
		from := max(0, at-block)
		part := buffer[:at-from]
		if _, err := file.Seek(from, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.ReadFull(file, part); err != nil {
			return err
		}
		for i := len(part); i > 0; {
			i = bytes.LastIndexByte(part[:i], '\n')
			if i < 0 {
				break
			}
			if from+int64(i) == size-1 {
				continue // the end of the last line begins no further one
			}
			if found++; found == lines {
				_, err := file.Seek(from+int64(i)+1, io.SeekStart)
				return err
			}
		}
		at = from
	}
	_, err = file.Seek(at, io.SeekStart)
	return err
}
