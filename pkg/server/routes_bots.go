package server

import (
	"context"
	"errors"
	"net/http"
	"sort"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/botsource"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// The routes of bots exist twice: for the platform's, and for a team's own.
func (s *Server) botRoutes() {
	register(s, route{method: "GET", path: "/api/bots", id: "list-bots", group: "bots", who: viewers, summary: "List the platform's bots, baked ones included"}, s.listBots)
	register(s, route{method: "GET", path: "/api/bots/{bot}", id: "get-bot", group: "bots", who: viewers, summary: "Show a bot of the platform"}, s.getBot)
	register(s, route{method: "PUT", path: "/api/bots/{bot}", id: "put-bot", group: "bots", who: operators, also: []int{http.StatusCreated}, summary: "Write a bot of the platform"}, s.putBot)
	register(s, route{method: "DELETE", path: "/api/bots/{bot}", id: "delete-bot", group: "bots", who: operators, summary: "Remove a bot of the platform; a baked one of that name comes back"}, s.deleteBot)
	register(s, route{method: "GET", path: "/api/teams/{team}/bots", id: "list-team-bots", group: "bots", who: viewers, summary: "List the bots as they resolve for a team"}, s.listTeamBots)
	register(s, route{method: "GET", path: "/api/teams/{team}/bots/{bot}", id: "get-team-bot", group: "bots", who: viewers, summary: "Show a bot as it resolves for a team"}, s.getTeamBot)
	register(s, route{method: "PUT", path: "/api/teams/{team}/bots/{bot}", id: "put-team-bot", group: "bots", who: admins, also: []int{http.StatusCreated}, summary: "Write a team's own bot"}, s.putTeamBot)
	register(s, route{method: "DELETE", path: "/api/teams/{team}/bots/{bot}", id: "delete-team-bot", group: "bots", who: admins, summary: "Remove a team's own bot"}, s.deleteTeamBot)
}

type botInput struct {
	Bot string `path:"bot" doc:"the bot's name; it is folded"`
}

type teamBotInput struct {
	teamInput
	botInput
}

type botsInput struct {
	teamInput
	pageInput
}

type botBodyInput struct {
	botInput
	Body api.BotBody
}

type teamBotBodyInput struct {
	teamBotInput
	Body api.BotBody
}

func (s *Server) listBots(ctx context.Context, _ call, in pageInput) (answer[api.Page[api.Bot]], error) {
	return s.botList(ctx, "", in)
}

func (s *Server) listTeamBots(ctx context.Context, c call, in botsInput) (answer[api.Page[api.Bot]], error) {
	if _, err := s.team(ctx, c.team); err != nil {
		return answer[api.Page[api.Bot]]{}, err
	}
	return s.botList(ctx, c.team, in.pageInput)
}

// botList pages over what resolves for a team; the cursor is the last name shown.
func (s *Server) botList(ctx context.Context, team holdfast.TeamID, in pageInput) (answer[api.Page[api.Bot]], error) {
	var out answer[api.Page[api.Bot]]
	limit, err := records.PageSize(in.Limit)
	if err != nil {
		return out, err
	}
	if in.Cursor != "" && !holdfast.ValidName(in.Cursor) {
		return out, invalid("cursor", "it is not a cursor of this list", "next_cursor as the list answered it")
	}
	all, err := s.deps.Resolver.List(ctx, team)
	if err != nil {
		return out, err
	}
	from := sort.Search(len(all), func(i int) bool { return string(all[i].Bot.Name) > in.Cursor })
	shown, next := all[from:], ""
	if len(shown) > limit {
		shown = shown[:limit]
		next = string(shown[limit-1].Bot.Name)
	}
	out.Body = page(shown, next, botOnWire)
	return out, nil
}

func (s *Server) getBot(ctx context.Context, _ call, in botInput) (answer[api.Bot], error) {
	return s.bot(ctx, "", in.Bot)
}

func (s *Server) getTeamBot(ctx context.Context, c call, in teamBotInput) (answer[api.Bot], error) {
	if _, err := s.team(ctx, c.team); err != nil {
		return answer[api.Bot]{}, err
	}
	return s.bot(ctx, c.team, in.Bot)
}

func (s *Server) bot(ctx context.Context, team holdfast.TeamID, name string) (answer[api.Bot], error) {
	resolved, found, err := s.deps.Resolver.Resolve(ctx, team, name)
	switch {
	case err != nil:
		return answer[api.Bot]{}, err
	case !found:
		return answer[api.Bot]{}, notFound("bot")
	}
	return answer[api.Bot]{Body: botOnWire(resolved)}, nil
}

func (s *Server) putBot(ctx context.Context, c call, in botBodyInput) (answer[api.Bot], error) {
	return s.writeBot(ctx, c, "", in.Bot, in.Body)
}

func (s *Server) putTeamBot(ctx context.Context, c call, in teamBotBodyInput) (answer[api.Bot], error) {
	if _, err := s.team(ctx, c.team); err != nil {
		return answer[api.Bot]{}, err
	}
	if err := s.mayWriteCommand(ctx, c, holdfast.Lane(in.Body.Lane)); err != nil {
		return answer[api.Bot]{}, err
	}
	return s.writeBot(ctx, c, c.team, in.Bot, in.Body)
}

// mayWriteCommand keeps bots that run any program on the runner to operators,
// unless the limits setting lets team admins write them. A setting that nobody
// could read lets nobody.
func (s *Server) mayWriteCommand(ctx context.Context, c call, lane holdfast.Lane) error {
	if c.Operator || lane != holdfast.LaneCommand {
		return nil
	}
	limits, state := s.deps.Settings.Limits.Lookup(ctx)
	if state != platformcfg.Never && limits.TeamCommandBots {
		return nil
	}
	return fail(http.StatusForbidden, "command_bots", "a bot of the command lane runs any program on the runner: an operator writes it, or sets team_command_bots in the limits setting")
}

func (s *Server) writeBot(ctx context.Context, c call, team holdfast.TeamID, name string, body api.BotBody) (answer[api.Bot], error) {
	folded, err := holdfast.FoldName(name)
	if err != nil {
		return answer[api.Bot]{}, holdfast.InField("bot", err)
	}
	if body.Bot != "" {
		if other, err := holdfast.FoldName(body.Bot); err != nil || other != folded {
			return answer[api.Bot]{}, invalid("bot", "the body names another bot than the path", folded+", or leave it out")
		}
	}
	row, created, err := s.deps.Bots.Put(ctx, s.clock.Now(), team, botFromWire(holdfast.BotID(folded), body), c.Name)
	if err != nil {
		return answer[api.Bot]{}, err
	}
	out := answer[api.Bot]{Status: http.StatusOK, Body: botOnWire(botsource.Resolved{Identity: row.Identity, Origin: originOf(team), Bot: row.Bot})}
	if created {
		out.Status = http.StatusCreated
	}
	s.noteAudit(ctx, c, team, "bot.written", row.Identity.String(), map[string]string{"lane": string(row.Bot.Lane)})
	return out, nil
}

func identityOf(team holdfast.TeamID, bot holdfast.BotID) holdfast.Identity {
	if team == "" {
		return holdfast.PlatformBot(bot)
	}
	return holdfast.TeamBot(team, bot)
}

func originOf(team holdfast.TeamID) botsource.Origin {
	if team == "" {
		return botsource.OriginPlatform
	}
	return botsource.OriginTeam
}

func (s *Server) deleteBot(ctx context.Context, c call, in botInput) (answer[done], error) {
	return s.removeBot(ctx, c, "", in.Bot)
}

func (s *Server) deleteTeamBot(ctx context.Context, c call, in teamBotInput) (answer[done], error) {
	return s.removeBot(ctx, c, c.team, in.Bot)
}

func (s *Server) removeBot(ctx context.Context, c call, team holdfast.TeamID, name string) (answer[done], error) {
	folded, err := holdfast.FoldName(name)
	if err != nil {
		return answer[done]{}, holdfast.InField("bot", err)
	}
	err = s.deps.Bots.Delete(ctx, team, holdfast.BotID(folded))
	if errors.Is(err, records.ErrNotFound) {
		return answer[done]{}, because(notFound("stored bot"), err)
	}
	if err != nil {
		return answer[done]{}, err
	}
	s.noteAudit(ctx, c, team, "bot.removed", identityOf(team, holdfast.BotID(folded)).String(), nil)
	return answer[done]{}, nil
}
