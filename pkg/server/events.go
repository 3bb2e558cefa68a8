package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/auth"
)

func (s *Server) eventRoutes() {
	registerRaw(s, route{
		method: http.MethodGet, path: "/api/events", id: "events", group: "events", who: viewers,
		summary: "Follow what happens, as server-sent events", stream: true, text: "text/event-stream",
		problems: []int{http.StatusTooManyRequests},
	}, s.events)
}

type eventsInput struct {
	Team  string `query:"team" doc:"only this team's events"`
	After string `query:"after" doc:"the id of the last event that was seen; the header Last-Event-ID does the same"`
}

// events streams until the caller goes away or the server ends.
func (s *Server) events(w http.ResponseWriter, r *http.Request, c call, in eventsInput) error {
	team, err := s.scope(c, in.Team)
	if err != nil {
		return err
	}
	after := in.After
	if id := r.Header.Get("Last-Event-ID"); id != "" && len(id) <= maxKey {
		after = id
	}
	subscription, ok := s.deps.Broker.subscribe(c.TokenID, team, after)
	if !ok {
		f := fail(http.StatusTooManyRequests, "too_many_streams", "there are too many event streams, or the server is ending")
		f.problem.RetryAfterS = 5
		f.header = http.Header{"Retry-After": {"5"}}
		return f
	}
	defer s.deps.Broker.leave(subscription)
	out := newStream(w, s.options.Stall)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if _, err := io.WriteString(out, "retry: 2000\n: holdfast\n\n"); err == nil {
		s.pump(out, r, subscription, team)
	}
	return nil
}

// pump writes events until the caller goes away, may see them no longer, or the broker
// ends the subscription.
func (s *Server) pump(w *streamWriter, r *http.Request, subscription *subscriber, team holdfast.TeamID) {
	idle := time.NewTicker(s.options.KeepAlive)
	defer idle.Stop()
	for {
		if err := w.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-idle.C:
			if _, err := io.WriteString(w, ": still here\n\n"); err != nil || s.shut(r, team) {
				return
			}
		case e, open := <-subscription.events:
			if !open {
				if subscription.last != "" {
					_ = writeEvent(w, api.Event{Type: subscription.last, At: s.clock.Now(), Detail: endings[subscription.last]})
					_ = w.Flush()
				}
				return
			}
			if err := writeEvent(w, e); err != nil {
				return
			}
		}
	}
}

// shut says whether the caller that opened a stream of a team may see it no longer: its
// token or its account ended, or the account left the team. A stream of all teams (an
// empty team) is an operator's. When nobody can tell, the stream goes on.
func (s *Server) shut(r *http.Request, team holdfast.TeamID) bool {
	switch principal, err := s.caller(r, route{method: http.MethodGet}); {
	case err != nil:
		return errors.Is(err, auth.ErrUnauthenticated)
	case team == "":
		return !principal.Operator
	default:
		return !principal.In(team)
	}
}

var endings = map[string]string{
	eventDropped: "this stream was too slow and is ended; begin again and read the lists",
	eventClosing: "the server is ending; begin again with the last id",
}

func writeEvent(w io.Writer, e api.Event) error {
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	id := ""
	if e.ID != "" {
		id = "id: " + e.ID + "\n"
	}
	_, err = fmt.Fprintf(w, "%sevent: %s\ndata: %s\n\n", id, e.Type, text)
	return err
}

// scope is the team that a list or a stream is limited to: the one that is asked
// for, or the caller's own. It is empty, which is all teams, for operators only;
// another team does not exist, and who has several names one.
func (s *Server) scope(c call, name string) (holdfast.TeamID, error) {
	team := c.Team
	switch {
	case name != "":
		var err error
		if team, err = teamID(name); err != nil {
			return "", err
		}
	case c.Operator:
		return "", nil
	case team == "":
		return "", invalid("team", "the caller has several teams, and none is named", "one of: "+strings.Join(texts[string](c.Teams()), ", "))
	}
	switch {
	case !c.In(team):
		return "", notFound("team")
	case c.need != "" && !c.May(team, c.need):
		return "", fail(http.StatusForbidden, "forbidden", "this needs "+string(c.need)+"; the caller is "+roleWord(c.Principal, team))
	}
	return team, nil
}
