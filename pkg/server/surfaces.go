package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/board"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/schedule"
	"github.com/holdfast-io/holdfast/pkg/surface"
	"github.com/holdfast-io/holdfast/pkg/webhook"
)

// Surfaces are what launches by itself, as people set it up; all of it is required.
// Its loops are whoever builds the process'.
type Surfaces struct {
	Schedules *schedule.Repository
	Cards     *board.Repository
	Webhooks  *webhook.Repository
	Receiver  *webhook.Receiver
	Dead      DeadLetters
}

// DeadLetters are the messages that no runner could take, see pkg/queue/nats.
type DeadLetters interface {
	DeadLetters(ctx context.Context, after uint64, limit int) ([]queue.DeadLetter, error)
	DeadLetter(ctx context.Context, seq uint64) (queue.DeadLetter, error)
	DropDeadLetter(ctx context.Context, seq uint64) error
}

func (s Surfaces) missing() bool {
	return s.Schedules == nil || s.Cards == nil || s.Webhooks == nil || s.Receiver == nil || s.Dead == nil
}

func (s *Server) surfaceRoutes() {
	s.scheduleRoutes()
	s.boardRoutes()
	s.webhookRoutes()
	s.deadRoutes()
	s.mux.HandleFunc("POST /api/webhooks/{forge}/{webhook}", s.receive)
}

// mine refuses what the path names and a team owns: another team's is not there, and
// the own one needs the route's role.
func (c call) mine(team holdfast.TeamID, what string) error {
	if !c.In(team) {
		return notFound(what)
	}
	c.acts.about = team
	if c.need != "" && !c.May(team, c.need) {
		return fail(http.StatusForbidden, "forbidden", "this needs "+string(c.need)+"; the caller is "+roleWord(c.Principal, team))
	}
	return nil
}

// found names what is not there.
func found(what string, err error) error {
	if errors.Is(err, records.ErrNotFound) {
		return because(notFound(what), err)
	}
	return err
}

// wanted folds the team that a body names, in which the caller must have the route's
// role and which must exist.
func (s *Server) wanted(c call, name string) (holdfast.TeamID, error) {
	c.about(name)
	if name == "" {
		return "", invalid("team", "it is missing", "the id of a team")
	}
	return s.scope(c, name)
}

func refusalOnWire(r surface.Refusal) *api.LaunchRefusal {
	if r.Reason == "" {
		return nil
	}
	return &api.LaunchRefusal{At: utc(r.At), Reason: r.Reason, Cause: r.Cause, Detail: r.Detail, DecisionID: r.DecisionID, Transient: r.Transient}
}

// set takes what a patch names.
func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// patchWork takes what a patch names of the work that is launched.
func patchWork(w *surface.Work, bot, repo, pool *string, inputs map[string]string, budget *holdfast.MicroUSD) {
	set(&w.Bot, bot)
	set(&w.Repo, repo)
	set(&w.Pool, pool)
	if inputs != nil {
		w.Inputs = inputs
	}
	if budget != nil {
		w.BudgetUSD = budget
	}
}
