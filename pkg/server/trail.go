package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/audit"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// trailKind says how the audit trail learns of a route's successes. Refusals of a
// route that changes something are always noted.
type trailKind int

const (
	// recorded is written before the answer: the default, so that a new route cannot
	// forget it.
	recorded trailKind = iota
	// noted is written soon after, in batches: what comes by the thousand.
	noted
	// renewed leaves no row: a heartbeat moves a lease, and its run tells the rest.
	renewed
	// keptElsewhere is written by the package that acts, before it acts.
	keptElsewhere
	// readsOnly is a write by its method only: it changes nothing.
	readsOnly
)

// requestID is the header that names a request, in its answer, in the log and in the
// audit trail.
const requestID = "X-Request-Id"

// acts is what one call did.
type acts struct {
	request string
	entries []audit.Entry
	about   holdfast.TeamID // the team of what was asked, where the path does not name it
}

// identified gives every request an id: the caller's own where it is one, else a new
// one.
func (s *Server) identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestID)
		if !validRequestID(id) {
			var random [12]byte
			_, _ = rand.Read(random[:]) // never fails, see its documentation
			id = hex.EncodeToString(random[:])
		}
		w.Header().Set(requestID, id)
		next.ServeHTTP(w, r)
	})
}

func validRequestID(id string) bool {
	return id != "" && len(id) <= 64 && !strings.ContainsFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	})
}

// about says which team a call is about, where its path does not.
func (c call) about(team string) {
	if folded, err := teamID(team); err == nil && c.In(folded) { // what another team is asked in vain is none of its rows
		c.acts.about = folded
	}
}

// noteAudit says what a call did, in the words of people; the way of a request writes
// it. A call that says nothing is recorded by its route.
func (s *Server) noteAudit(_ context.Context, c call, team holdfast.TeamID, action, target string, detail map[string]string) {
	c.acts.entries = append(c.acts.entries, audit.Entry{Action: action, Target: target, Team: team, Detail: detail})
}

// noteRun says what a call did with a run.
func (s *Server) noteRun(c call, action string, run runs.Run) {
	c.acts.entries = append(c.acts.entries, audit.Entry{
		Action: action, Target: string(run.ID), Team: run.Team, Decision: run.DecisionID, Detail: map[string]string{"bot": run.Identity.String()},
	})
}

// recordActs writes what a call did. The act has happened: a trail that cannot be
// written is said in the log and undoes nothing.
func (s *Server) recordActs(r *http.Request, rt route, c call) {
	if !rt.changes() || rt.trail == renewed || rt.trail == keptElsewhere {
		return
	}
	entries := c.acts.entries
	if len(entries) == 0 {
		entries = []audit.Entry{{Action: rt.id, Target: target(r), Team: teamOf(c)}}
	}
	saving, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 5*time.Second)
	defer cancel()
	for _, entry := range entries {
		entry = c.signed(r, entry)
		if rt.trail != recorded {
			s.deps.Audit.Note(entry)
			continue
		}
		if _, err := s.deps.Audit.Record(saving, entry); err != nil {
			s.log.Error("an act could not be recorded in the audit trail", "actor", entry.Actor, "action", entry.Action, "target", entry.Target, "request", entry.Request, "error", err)
		}
	}
}

// noteRefusal notes that somebody was told no: who may not, who is not known, what is
// not there for them, and what the gate refused. Bad input is no refusal.
func (s *Server) noteRefusal(r *http.Request, rt route, c call, f *failure) {
	if !rt.changes() {
		return
	}
	p := f.problem
	switch {
	case p.Reason != "":
	case p.Status == http.StatusUnauthorized, p.Status == http.StatusForbidden, p.Status == http.StatusNotFound:
	default:
		return
	}
	detail := map[string]string{"status": http.StatusText(p.Status)}
	for name, value := range map[string]string{"code": p.Code, "reason": p.Reason, "cause": p.Cause} {
		if value != "" {
			detail[name] = value
		}
	}
	s.deps.Audit.Note(c.signed(r, audit.Entry{
		Action: rt.id, Target: target(r), Team: teamOf(c), Outcome: audit.Refused, Decision: p.DecisionID, Detail: detail,
	}))
}

// signed adds who did it and from where.
func (c call) signed(r *http.Request, e audit.Entry) audit.Entry {
	e.Actor, e.Account, e.Token, e.Request, e.IP = c.Name, c.Account, c.TokenID, c.acts.request, peer(r)
	if e.Actor == "" {
		e.Actor = audit.Nobody
	}
	return e
}

// target is what a request is about, where the handler does not say it.
func target(r *http.Request) string {
	return holdfast.Clip(strings.TrimPrefix(r.URL.Path, "/api/"), 200)
}

// teamOf is the team whose trail a call belongs to.
func teamOf(c call) holdfast.TeamID {
	switch {
	case c.team != "":
		return c.team
	case c.acts.about != "":
		return c.acts.about
	}
	return c.Team
}

// peer is the address of who is connected: a proxy's where one stands in front, because
// what a caller says of itself proves nothing.
func peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return host
}
