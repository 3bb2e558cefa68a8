package server_test

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/server"
)

// patience is how long a stream may take to say or do what it must.
const patience = 10 * time.Second

// follow opens what has no end, and reads it up to a line.
func (w *world) follow(who, path, line string) stream {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	w.t.Cleanup(cancel)
	response := w.open(ctx, who, path)
	w.t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != 200 {
		w.t.Fatalf("%s: %d", path, response.StatusCode)
	}
	s := stream{w.t, bufio.NewScanner(response.Body)}
	s.line(line)
	return s
}

// ends reads a stream to its end, which must come, and be the server's.
func (s stream) ends() {
	s.t.Helper()
	for s.lines.Scan() {
		if strings.HasPrefix(s.lines.Text(), "data:") {
			s.t.Errorf("it still saw %s", s.lines.Text())
		}
	}
	if err := s.lines.Err(); err != nil {
		s.t.Errorf("it went on: %v", err)
	}
}

func TestAStreamEndsWithTheRoleThatOpenedIt(t *testing.T) {
	t.Parallel()
	w := build(t, func(_ *world, o *server.Options) { o.KeepAlive = 5 * time.Millisecond })
	w.people()
	const beat = ": still here"
	team, all, stays := w.follow("several", "/api/events?team=acme", beat), w.follow("root", "/api/events", beat), w.follow("several", "/api/events?team=third", beat)
	w.call("operator", "DELETE", "/api/teams/acme/members/several", "").want(204)
	team.ends()
	w.call("operator", "PATCH", "/api/accounts/root", `{"operator":false}`).want(200)
	all.ends()
	stays.line(beat)
	stays.line(beat)
}

func TestALogThatIsFollowedEndsWithTheRoleThatOpenedIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "1.log")
	if err := os.WriteFile(path, []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := build(t, func(_ *world, o *server.Options) {
		o.KeepAlive = 5 * time.Millisecond
		o.Logs = func(context.Context, holdfast.RunID) (server.LogFile, error) { return os.Open(path) }
	})
	w.person("guest", auth.Membership{Team: "acme", Role: auth.Viewer})
	run := w.launched("acme/member", probe)
	log := w.follow("guest", "/api/runs/"+run.ID+"/logs?follow=true", "one")
	w.call("operator", "DELETE", "/api/teams/acme/members/guest", "").want(204)
	log.ends() // the run lives on
}

func TestAReplayIsForWhoIsStillInTheTeam(t *testing.T) {
	t.Parallel()
	w := build(t, nil)
	w.person("guest", auth.Membership{Team: "acme", Role: auth.Member})
	first := w.launched("guest", probe, "Idempotency-Key", "k")
	if again := w.launched("guest", probe, "Idempotency-Key", "k"); again.ID != first.ID {
		t.Fatalf("the replay is of run %s, want %s", again.ID, first.ID)
	}
	w.call("operator", "DELETE", "/api/teams/acme/members/guest", "").want(204)
	w.call("guest", "POST", "/api/runs", probe, "Idempotency-Key", "k").problem(404)
}
