package nats_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/pkg/queue/nats"
)

// strait is a wire that can lose what the server says, or be cut, in the middle of
// a call.
type strait struct {
	listener net.Listener
	to       string

	mu   sync.Mutex
	mute bool // what the server says is lost
	shut bool // nobody comes through
	ends []net.Conn
}

func newStrait(t *testing.T, to string) *strait {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &strait{listener: listener, to: to}
	var served sync.WaitGroup
	served.Go(func() { s.serve(&served) })
	t.Cleanup(func() { listener.Close(); s.set(false, true); served.Wait() })
	return s
}

func (s *strait) serve(served *sync.WaitGroup) {
	for {
		near, err := s.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", s.to)
		s.mu.Lock()
		if err != nil || s.shut {
			near.Close()
			if err == nil {
				far.Close()
			}
			s.mu.Unlock()
			continue
		}
		s.ends = append(s.ends, near, far)
		s.mu.Unlock()
		served.Go(func() { _, _ = io.Copy(far, near); far.Close() })
		served.Go(func() { _, _ = io.Copy(said{s, near}, far); near.Close() })
	}
}

// set changes what comes through. Shutting ends what is connected.
func (s *strait) set(mute, shut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute, s.shut = mute, shut
	if shut {
		for _, end := range s.ends {
			end.Close()
		}
		s.ends = nil
	}
}

// said is the way from the server.
type said struct {
	strait *strait
	near   net.Conn
}

func (w said) Write(p []byte) (int, error) {
	w.strait.mu.Lock()
	mute := w.strait.mute
	w.strait.mu.Unlock()
	if mute {
		return len(p), nil
	}
	return w.near.Write(p)
}

// A publication whose answer was lost, or that never arrived, is an error to who
// published; made again it is the same message, once.
func TestAPublicationThatIsCutOffMidCallIsTheSameMessageWhenItIsMadeAgain(t *testing.T) {
	server := elsewhere(t, nil)
	s := newStrait(t, strings.TrimPrefix(server.ClientURL(), "nats://"))
	bus := dial(t, nats.Remote{URL: "nats://" + s.listener.Addr().String()}, nats.Options{Lease: time.Minute})
	if err := bus.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	watcher := dial(t, nats.Remote{URL: server.ClientURL()}, nats.Options{Lease: time.Minute})
	for n, broken := range []struct {
		name       string
		mute, shut bool
		arrives    bool
	}{{"the answer is lost", true, false, true}, {"the wire is cut", false, true, false}} {
		m := message("R"+string(rune('1'+n)), 1)
		s.set(broken.mute, broken.shut)
		soon, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		err := bus.Publish(soon, m)
		cancel()
		if err == nil {
			t.Errorf("%s: the publication was answered", broken.name)
		}
		if queued, err := watcher.Queued(t.Context(), "", m.Run); err != nil || queued != broken.arrives {
			t.Errorf("%s: it is queued %t, %v", broken.name, queued, err)
		}
		s.set(false, true)
		s.set(false, false)
		for err = errors.New("not yet"); err != nil && t.Context().Err() == nil; {
			soon, cancel := context.WithTimeout(t.Context(), time.Second)
			err = bus.Publish(soon, m)
			cancel()
		}
		if left := watcher.RunsLeft(t); left != n+1 {
			t.Errorf("%s: %d messages, want %d", broken.name, left, n+1)
		}
	}
}

func TestAPublicationWhileNATSIsAwayIsAnErrorSoonAndOneAfterItArrives(t *testing.T) {
	t.Parallel()
	s := elsewhere(t, nil)
	way := newStrait(t, s.Addr().String())
	bus := dial(t, nats.Remote{URL: "nats://" + way.listener.Addr().String()}, nats.Options{})
	if err := bus.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	way.set(false, true)
	eventually(t, "the connection is lost", func() bool { return !bus.Connected() })
	began := time.Now()
	if err := bus.Publish(t.Context(), message("R1", 1)); !errors.Is(err, nats.ErrAway) {
		t.Errorf("published to nobody: %v", err)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("the caller waited %v for an answer that was known", took)
	}
	back := make(chan error, 1)
	go func() { back <- bus.Publish(t.Context(), message("R2", 1)) }()
	way.set(false, false)
	if err := <-back; err != nil && !errors.Is(err, nats.ErrAway) {
		t.Errorf("while it comes back: %v", err)
	}
	eventually(t, "the connection is back", bus.Connected)
	publish(t, bus, message("R3", 1))
	if !queued(t, bus, "R3") {
		t.Error("what was published after it came back is not there")
	}
}
