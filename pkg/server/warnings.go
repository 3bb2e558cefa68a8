package server

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/board"
	"github.com/holdfast-io/holdfast/pkg/schedule"
	"github.com/holdfast-io/holdfast/pkg/webhook"
)

// What launches by itself is answered with what would refuse it for good as things
// stand. Nothing is refused for it: the bot may be made later.

func (s *Server) schedulesShown(ctx context.Context) func(schedule.Schedule) api.Schedule {
	f := s.deps.Launch.Foresight()
	return func(k schedule.Schedule) api.Schedule {
		out := scheduleOnWire(k)
		out.Warnings = f.Warnings(ctx, k.Team, k.Bot, k.Inputs, k.Pool)
		return out
	}
}

func (s *Server) cardsShown(ctx context.Context) func(board.Card) api.Card {
	f := s.deps.Launch.Foresight()
	return func(k board.Card) api.Card {
		out := cardOnWire(k)
		if k.Column == board.Todo {
			out.Warnings = f.Warnings(ctx, k.Team, k.Bot, k.Inputs, k.Pool)
		}
		return out
	}
}

func (s *Server) webhooksShown(ctx context.Context) func(webhook.Hook) api.Webhook {
	f := s.deps.Launch.Foresight()
	return func(h webhook.Hook) api.Webhook {
		out := webhookOnWire(h)
		for i, rule := range h.Rules {
			for _, warning := range f.Warnings(ctx, h.Team, rule.Bot, rule.Inputs, "") {
				out.Warnings = append(out.Warnings, fmt.Sprintf("rules[%d]: %s", i, warning))
			}
		}
		return out
	}
}
