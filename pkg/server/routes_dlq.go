package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/records"
)

func (s *Server) deadRoutes() {
	gate := []int{http.StatusPaymentRequired, http.StatusConflict, http.StatusTooManyRequests}
	register(s, route{method: "GET", path: "/api/admin/dlq", id: "list-dead-letters", group: "dead letters", who: operators, summary: "List the messages that no runner could take, the oldest first"}, s.listDeadLetters)
	register(s, route{method: "GET", path: "/api/admin/dlq/{seq}", id: "get-dead-letter", group: "dead letters", who: operators, summary: "Show one with its message"}, s.getDeadLetter)
	register(s, route{method: "POST", path: "/api/admin/dlq/{seq}/replay", id: "replay-dead-letter", group: "dead letters", who: operators, status: http.StatusAccepted, problems: gate, summary: "Bring its run back through the gate, and remove it"}, s.replayDeadLetter)
	register(s, route{method: "DELETE", path: "/api/admin/dlq/{seq}", id: "delete-dead-letter", group: "dead letters", who: operators, summary: "Remove one for good; its run stays as it is"}, s.deleteDeadLetter)
}

func (s *Server) listDeadLetters(ctx context.Context, _ call, in pageInput) (answer[api.Page[api.DeadLetter]], error) {
	out := answer[api.Page[api.DeadLetter]]{Body: api.Page[api.DeadLetter]{Items: []api.DeadLetter{}}}
	limit, err := records.PageSize(in.Limit)
	if err != nil {
		return out, err
	}
	after := uint64(0)
	if in.Cursor != "" {
		if after, err = strconv.ParseUint(in.Cursor, 10, 63); err != nil {
			return out, invalid("cursor", "it is not a cursor of this list", "next_cursor as the list answered it")
		}
	}
	list, err := s.deps.Surfaces.Dead.DeadLetters(ctx, after, limit+1)
	if err != nil {
		return out, deadFailure(err)
	}
	if len(list) > limit {
		list = list[:limit]
		out.Body.NextCursor = strconv.FormatUint(list[limit-1].Seq, 10)
	}
	for _, d := range list {
		wire, err := s.deadOnWire(ctx, d)
		if err != nil {
			return out, err
		}
		out.Body.Items = append(out.Body.Items, wire)
	}
	return out, nil
}

// deadFailure tells what is not there from a queue that cannot be asked.
func deadFailure(err error) error {
	if errors.Is(err, queue.ErrNoDeadLetter) {
		return because(notFound("dead letter"), err)
	}
	return fmt.Errorf("%w: %w", launch.ErrUnavailable, err)
}

// deadOnWire is a letter with what is known of its run.
func (s *Server) deadOnWire(ctx context.Context, d queue.DeadLetter) (api.DeadLetter, error) {
	out := api.DeadLetter{Seq: int64(d.Seq), At: utc(d.At), Reason: string(d.Reason), Run: string(d.Run), Pool: d.Pool, Deliveries: d.Deliveries, Bytes: len(d.Body)}
	run, err := s.deps.Runs.Get(ctx, d.Run)
	switch {
	case errors.Is(err, records.ErrNotFound):
		return out, nil
	case err != nil:
		return out, err
	}
	out.Team, out.Bot, out.RunStatus = string(run.Team), run.Identity.String(), string(run.Status)
	return out, nil
}

type deadInput struct {
	Seq int `path:"seq" doc:"the letter's number"`
}

func (s *Server) getDeadLetter(ctx context.Context, _ call, in deadInput) (answer[api.DeadLetter], error) {
	d, err := s.deps.Surfaces.Dead.DeadLetter(ctx, uint64(in.Seq))
	if err != nil {
		return answer[api.DeadLetter]{}, deadFailure(err)
	}
	wire, err := s.deadOnWire(ctx, d)
	wire.Message = masked(d.Body)
	return answer[api.DeadLetter]{Body: wire}, err
}

// maxShown is how much of a message is shown.
const maxShown = 64 << 10

// masked is a message for people: what its inputs and variables hold is left out where
// the name says that it is secret. What cannot be read is not shown, because nobody
// could tell what is secret in it.
func masked(body []byte) string {
	var m queue.RunMessage
	if json.Unmarshal(body, &m) != nil || m.Run == "" {
		kind := "bytes"
		if utf8.Valid(body) {
			kind = "bytes of text"
		}
		return fmt.Sprintf("(not a run message: %d %s)", len(body), kind)
	}
	for _, values := range []map[string]string{m.Inputs, m.Bot.Env} {
		for name := range values {
			if looksSecret(name) {
				values[name] = "(masked)"
			}
		}
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return "(cannot be shown)"
	}
	return string(text[:min(len(text), maxShown)])
}

func looksSecret(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"token", "secret", "passw", "key", "credential", "auth", "cookie"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

func (s *Server) replayDeadLetter(ctx context.Context, c call, in deadInput) (answer[api.Run], error) {
	d, err := s.deps.Surfaces.Dead.DeadLetter(ctx, uint64(in.Seq))
	if err != nil {
		return answer[api.Run]{}, deadFailure(err)
	}
	run, denial, err := s.deps.Launch.Replay(ctx, c.Principal, d)
	switch {
	case errors.Is(err, launch.ErrNotFound):
		return answer[api.Run]{}, because(fail(http.StatusConflict, "run_gone", "the run of this letter is not there any more; remove the letter instead"), err)
	case err != nil:
		return answer[api.Run]{}, err
	case denial.Denied():
		return answer[api.Run]{}, refusal(denial)
	}
	dropping := context.WithoutCancel(ctx)
	if err := s.deps.Surfaces.Dead.DropDeadLetter(dropping, d.Seq); err != nil && !errors.Is(err, queue.ErrNoDeadLetter) {
		s.log.Warn("a dead letter was replayed and could not be removed", "seq", d.Seq, "run", run.ID, "error", err)
	}
	s.noteAudit(ctx, c, run.Team, "dlq.replayed", strconv.Itoa(in.Seq), map[string]string{"run": string(run.ID), "bot": run.Identity.String()})
	return answer[api.Run]{Body: RunOnWire(run)}, nil
}

func (s *Server) deleteDeadLetter(ctx context.Context, c call, in deadInput) (answer[done], error) {
	d, err := s.deps.Surfaces.Dead.DeadLetter(ctx, uint64(in.Seq))
	if err == nil {
		err = s.deps.Surfaces.Dead.DropDeadLetter(ctx, d.Seq)
	}
	if err != nil {
		return answer[done]{}, deadFailure(err)
	}
	var team holdfast.TeamID
	if run, err := s.deps.Runs.Get(ctx, d.Run); err == nil {
		team = run.Team
	}
	s.noteAudit(ctx, c, team, "dlq.removed", strconv.Itoa(in.Seq), map[string]string{"run": string(d.Run)})
	return answer[done]{}, nil
}
