package server

import (
	"net/http"
	"time"
)

// streamWriter writes an answer that has no end: it has no deadline as a whole, but
// a reader that takes nothing for a while is cut off, so that nobody can hold the
// server's memory by not reading.
type streamWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
}

// newStream lifts the connection's deadlines. A writer without deadlines, as tests
// use, is written to as it is.
func newStream(w http.ResponseWriter, stall time.Duration) *streamWriter {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Time{})
	return &streamWriter{w, control, stall}
}

// Write implements io.Writer.
func (s *streamWriter) Write(text []byte) (int, error) {
	defer s.watch()()
	return s.w.Write(text)
}

// Flush sends what was written.
func (s *streamWriter) Flush() error {
	defer s.watch()()
	return s.control.Flush()
}

// watch ends the connection's writes unless it is stopped in time.
func (s *streamWriter) watch() (stop func()) {
	long := time.Unix(1, 0) // any instant that has passed
	timer := time.AfterFunc(s.stall, func() { _ = s.control.SetWriteDeadline(long) })
	return func() { timer.Stop() }
}
