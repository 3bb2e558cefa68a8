package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/board"
	"github.com/holdfast-io/holdfast/pkg/surface"
)

func (s *Server) boardRoutes() {
	register(s, route{method: "GET", path: "/api/board/cards", id: "list-cards", group: "board", who: viewers, summary: "List the cards of the board, the newest first"}, s.listCards)
	register(s, route{method: "POST", path: "/api/board/cards", id: "create-card", group: "board", who: members, status: http.StatusCreated, summary: "Put work on a card, to be launched when it fits"}, s.createCard)
	register(s, route{method: "GET", path: "/api/board/cards/{card}", id: "get-card", group: "board", who: viewers, summary: "Show a card with its log"}, s.getCard)
	register(s, route{method: "PATCH", path: "/api/board/cards/{card}", id: "patch-card", group: "board", who: members, problems: []int{http.StatusConflict}, summary: "Change a card, or move it"}, s.patchCard)
	register(s, route{method: "DELETE", path: "/api/board/cards/{card}", id: "delete-card", group: "board", who: members, problems: []int{http.StatusConflict}, summary: "Remove a card whose run does not live"}, s.deleteCard)
}

type cardsInput struct {
	Team   string `query:"team" doc:"only this team's; absent: the caller's, or all for an operator"`
	Column string `query:"column" enum:"todo,doing,done,blocked"`
	pageInput
}

func (s *Server) listCards(ctx context.Context, c call, in cardsInput) (answer[api.Page[api.Card]], error) {
	var out answer[api.Page[api.Card]]
	team, err := s.scope(c, in.Team)
	if err != nil {
		return out, err
	}
	list, next, err := s.deps.Surfaces.Cards.List(ctx, board.Filter{Team: team, Column: board.Column(in.Column), Limit: in.Limit, Cursor: in.Cursor})
	if err != nil {
		return out, err
	}
	out.Body = page(list, next, s.cardsShown(ctx))
	return out, nil
}

func cardOnWire(c board.Card) api.Card {
	out := api.Card{
		ID: c.ID, Team: string(c.Team), Title: c.Title, Column: string(c.Column), Bot: c.Bot, Repo: c.Repo, Inputs: c.Inputs, BudgetUSD: c.BudgetUSD,
		Pool: c.Pool, Priority: c.Priority, MaxAttempts: max(1, c.MaxAttempts), Attempts: c.Attempts, Run: string(c.Run), Refusals: c.Refusals,
		Refused: refusalOnWire(c.Refused), Log: make([]api.CardNote, 0, len(c.Log)), CreatedAt: utc(c.CreatedAt), UpdatedAt: utc(c.UpdatedAt), CreatedBy: c.CreatedBy,
	}
	if c.Column == board.Todo {
		out.NotBefore = utc(c.Launch.NotBefore)
	}
	for _, n := range c.Log {
		out.Log = append(out.Log, api.CardNote{At: utc(n.At), By: n.By, What: n.What, Reason: n.Reason, Detail: n.Detail, Run: string(n.Run), Count: n.Count})
	}
	return out
}

type cardCreateInput struct{ Body api.CardCreate }

func (s *Server) createCard(ctx context.Context, c call, in cardCreateInput) (answer[api.Card], error) {
	b := in.Body
	team, err := s.wanted(c, b.Team)
	if err != nil {
		return answer[api.Card]{}, err
	}
	if _, err := s.team(ctx, team); err != nil {
		return answer[api.Card]{}, err
	}
	card, err := s.deps.Surfaces.Cards.Create(ctx, board.Card{
		Team: team, Title: b.Title, Priority: b.Priority, MaxAttempts: b.MaxAttempts, CreatedBy: c.Name,
		Work: surface.Work{Bot: b.Bot, Repo: b.Repo, Inputs: b.Inputs, BudgetUSD: b.BudgetUSD, Pool: b.Pool},
	})
	if err != nil {
		return answer[api.Card]{}, err
	}
	s.noteAudit(ctx, c, team, "card.created", card.ID, map[string]string{"title": card.Title, "bot": card.Bot})
	return answer[api.Card]{Body: s.cardsShown(ctx)(card)}, nil
}

type cardInput struct {
	Card string `path:"card" doc:"the card's id"`
}

func (s *Server) card(ctx context.Context, c call, id string) (board.Card, error) {
	card, err := s.deps.Surfaces.Cards.Get(ctx, id)
	if err != nil {
		return card, found("card", err)
	}
	return card, c.mine(card.Team, "card")
}

func (s *Server) getCard(ctx context.Context, c call, in cardInput) (answer[api.Card], error) {
	card, err := s.card(ctx, c, in.Card)
	if err != nil {
		return answer[api.Card]{}, err
	}
	return answer[api.Card]{Body: s.cardsShown(ctx)(card)}, nil
}

type cardPatchInput struct {
	cardInput
	Body api.CardPatch
}

func (s *Server) patchCard(ctx context.Context, c call, in cardPatchInput) (answer[api.Card], error) {
	was, err := s.card(ctx, c, in.Card)
	if err != nil {
		return answer[api.Card]{}, err
	}
	b := in.Body
	card, err := s.deps.Surfaces.Cards.Edit(ctx, in.Card, c.Name, func(k *board.Card) error {
		if b.Column != nil {
			k.Column = board.Column(*b.Column)
		}
		set(&k.Title, b.Title)
		patchWork(&k.Work, b.Bot, b.Repo, b.Pool, b.Inputs, b.BudgetUSD)
		set(&k.Priority, b.Priority)
		set(&k.MaxAttempts, b.MaxAttempts)
		return nil
	})
	if err != nil {
		return answer[api.Card]{}, cardFailure(err)
	}
	action, detail := "card.changed", map[string]string{"title": card.Title}
	if card.Column != was.Column {
		action, detail = "card.moved", map[string]string{"title": card.Title, "from": string(was.Column), "to": string(card.Column)}
	}
	s.noteAudit(ctx, c, card.Team, action, card.ID, detail)
	return answer[api.Card]{Body: s.cardsShown(ctx)(card)}, nil
}

func cardFailure(err error) error {
	if errors.Is(err, board.ErrBusy) {
		return because(fail(http.StatusConflict, "card_busy", "the card's run lives or is being launched; cancel the run first"), err)
	}
	return found("card", err)
}

func (s *Server) deleteCard(ctx context.Context, c call, in cardInput) (answer[done], error) {
	card, err := s.card(ctx, c, in.Card)
	if err == nil {
		err = cardFailure(s.deps.Surfaces.Cards.Delete(ctx, in.Card))
	}
	if err != nil {
		return answer[done]{}, err
	}
	s.noteAudit(ctx, c, card.Team, "card.removed", card.ID, map[string]string{"title": card.Title})
	return answer[done]{}, nil
}
