package runner

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

const (
	// shipEvery is how old output becomes before servers can read it.
	shipEvery = 500 * time.Millisecond
	// shipPiece is the most that is shipped at once.
	shipPiece = 64 << 10
)

// shipping follows an attempt's log file and hands what is new in it to the log
// keeper. The file is bounded, so what is shipped is too. A keeper that is away is
// tried again from where it stopped; it never holds the child.
type shipping struct {
	attempt *attempt
	ctx     context.Context // the attempt's own, without its end
	file    *os.File        // nil: nothing is shipped
	offset  int64
	piece   []byte
	stop    chan struct{}
	done    sync.WaitGroup
}

// ship begins to follow the attempt's log; finish must be called.
func (a *attempt) ship(ctx context.Context) *shipping {
	s := &shipping{attempt: a, ctx: context.WithoutCancel(ctx), stop: make(chan struct{})}
	if a.runner.options.Logs == nil {
		return s
	}
	file, err := os.Open(LogPath(a.dir, a.message.Run, a.number))
	if err != nil {
		a.runner.options.Log.Warn("a log cannot be shipped", "run", a.message.Run, "err", err)
		return s
	}
	s.file, s.piece = file, make([]byte, shipPiece)
	s.done.Go(s.follow)
	return s
}

func (s *shipping) follow() {
	tick := time.NewTicker(shipEvery)
	defer tick.Stop()
	told := false
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		err := s.pass()
		if err != nil && !told {
			s.attempt.runner.options.Log.Warn("a log cannot be shipped yet", "run", s.attempt.message.Run, "err", err)
		}
		told = err != nil
	}
}

// pass ships everything that the file has now.
func (s *shipping) pass() error {
	ctx, cancel := context.WithTimeout(s.ctx, tellWithin)
	defer cancel()
	for {
		n, err := s.file.ReadAt(s.piece, s.offset)
		if n == 0 {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
		m, o := s.attempt.message, s.attempt.runner.options
		if err := o.Logs.AppendLog(ctx, m.Run, s.attempt.number, s.offset, s.piece[:n]); err != nil {
			return err
		}
		s.offset += int64(n)
	}
}

// finish ships the rest, before the end of the attempt is reported: whoever sees the
// end can read all of the output.
func (s *shipping) finish() {
	if s.file == nil {
		return
	}
	close(s.stop)
	s.done.Wait()
	if err := s.pass(); err != nil {
		s.attempt.runner.options.Log.Warn("the end of a log was not shipped", "run", s.attempt.message.Run, "err", err)
	}
	_ = s.file.Close() // it was only read
}
