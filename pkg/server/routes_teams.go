package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

func (s *Server) teamRoutes() {
	register(s, route{method: "POST", path: "/api/teams", id: "create-team", group: "teams", who: operators, status: http.StatusCreated, summary: "Create a team"}, s.createTeam)
	register(s, route{method: "GET", path: "/api/teams", id: "list-teams", group: "teams", who: viewers, summary: "List teams; a token sees its own"}, s.listTeams)
	register(s, route{method: "GET", path: "/api/teams/{team}", id: "get-team", group: "teams", who: viewers, summary: "Show a team"}, s.getTeam)
	register(s, route{method: "PATCH", path: "/api/teams/{team}", id: "patch-team", group: "teams", who: operators, summary: "Change a team's limits, or suspend it"}, s.patchTeam)
	register(s, route{method: "POST", path: "/api/teams/{team}/tokens", id: "create-token", group: "tokens", who: admins, status: http.StatusCreated, secret: true, summary: "Issue a token; it is shown this once"}, s.createToken)
	register(s, route{method: "GET", path: "/api/teams/{team}/tokens", id: "list-tokens", group: "tokens", who: admins, summary: "List a team's tokens, the newest first"}, s.listTokens)
	register(s, route{method: "DELETE", path: "/api/teams/{team}/tokens/{token}", id: "revoke-token", group: "tokens", who: admins, summary: "Revoke a token"}, s.revokeToken)
}

type teamCreateInput struct{ Body api.TeamCreate }

func (s *Server) createTeam(ctx context.Context, c call, in teamCreateInput) (answer[api.Team], error) {
	id, err := teamID(in.Body.ID)
	if err != nil {
		return answer[api.Team]{}, invalid("id", fmt.Sprintf("%q is not a team's id", holdfast.Clip(in.Body.ID, 80)), "1 to 63 lower case letters, digits and single dashes")
	}
	org, err := s.membership(ctx, in.Body.Organisation)
	if err != nil {
		return answer[api.Team]{}, err
	}
	now := s.clock.Now()
	team, err := s.deps.Teams.Create(ctx, teams.Team{
		ID: id, Name: in.Body.Name, Organisation: org,
		Limits: teams.Limits(in.Body.Limits), CreatedAt: now, UpdatedAt: now,
	})
	if errors.Is(err, records.ErrExists) {
		return answer[api.Team]{}, because(fail(http.StatusConflict, "exists", fmt.Sprintf("the team %s exists already", id)), err)
	}
	if err != nil {
		return answer[api.Team]{}, err
	}
	s.noteAudit(ctx, c, id, "team.created", string(id), nil)
	return answer[api.Team]{Body: teamOnWire(team)}, nil
}

func (s *Server) listTeams(ctx context.Context, c call, in pageInput) (answer[api.Page[api.Team]], error) {
	var out answer[api.Page[api.Team]]
	if !c.Operator {
		var own []teams.Team
		for _, id := range c.Teams() {
			team, err := s.deps.Teams.Get(ctx, id)
			switch {
			case errors.Is(err, records.ErrNotFound):
			case err != nil:
				return out, err
			default:
				own = append(own, team)
			}
		}
		out.Body = page(own, "", teamOnWire)
		return out, nil
	}
	list, next, err := s.deps.Teams.List(ctx, in.Limit, in.Cursor)
	if err != nil {
		return out, err
	}
	out.Body = page(list, next, teamOnWire)
	return out, nil
}

type teamInput struct {
	Team string `path:"team" doc:"the team's id"`
}

func (s *Server) getTeam(ctx context.Context, c call, _ teamInput) (answer[api.Team], error) {
	team, err := s.team(ctx, c.team)
	if err != nil {
		return answer[api.Team]{}, err
	}
	return answer[api.Team]{Body: teamOnWire(team)}, nil
}

// team reads a team; the failure names it.
func (s *Server) team(ctx context.Context, id holdfast.TeamID) (teams.Team, error) {
	team, err := s.deps.Teams.Get(ctx, id)
	if errors.Is(err, records.ErrNotFound) {
		return team, because(notFound("team"), err)
	}
	return team, err
}

type teamPatchInput struct {
	teamInput
	Body api.TeamPatch
}

func (s *Server) patchTeam(ctx context.Context, c call, in teamPatchInput) (answer[api.Team], error) {
	if in.Body.Organisation != nil {
		org, err := s.membership(ctx, *in.Body.Organisation)
		if err != nil {
			return answer[api.Team]{}, err
		}
		*in.Body.Organisation = string(org)
	}
	team, err := s.deps.Teams.Update(ctx, c.team, func(t *teams.Team) error {
		t.UpdatedAt = s.clock.Now()
		return patched(t, in.Body)
	})
	if errors.Is(err, records.ErrNotFound) {
		return answer[api.Team]{}, because(notFound("team"), err)
	}
	if err != nil {
		return answer[api.Team]{}, err
	}
	s.noteAudit(ctx, c, c.team, "team.changed", string(c.team), map[string]string{"changed": patchWords(in.Body)})
	return answer[api.Team]{Body: teamOnWire(team)}, nil
}

// limitFields are the limits of a team by their names on the wire.
func limitFields(l *teams.Limits) []struct {
	name  string
	limit *holdfast.LimitSetting
} {
	return []struct {
		name  string
		limit *holdfast.LimitSetting
	}{
		{"max_concurrent_runs", &l.MaxConcurrentRuns.LimitSetting},
		{"monthly_usd", &l.MonthlyUSD.LimitSetting},
		{"monthly_runs", &l.MonthlyRuns.LimitSetting},
		{"launches_per_minute", &l.LaunchesPerMinute.LimitSetting},
	}
}

// patched applies what a patch names.
func patched(t *teams.Team, p api.TeamPatch) error {
	if p.Name != nil {
		t.Name = *p.Name
	}
	if p.Organisation != nil {
		t.Organisation = holdfast.OrgID(*p.Organisation)
	}
	if p.Suspended != nil {
		if t.Suspended = *p.Suspended; !t.Suspended {
			t.SuspendedReason = ""
		}
	}
	if p.SuspendedReason != nil {
		t.SuspendedReason = *p.SuspendedReason
	}
	fields := limitFields(&t.Limits)
	if p.Limits != nil {
		limits := teams.Limits(*p.Limits)
		replaceLimits(&t.Limits, &limits)
	}
	for i, name := range p.InheritLimits {
		at := slices.IndexFunc(fields, func(f struct {
			name  string
			limit *holdfast.LimitSetting
		},
		) bool {
			return f.name == name
		})
		if at < 0 {
			return &holdfast.InvalidError{Field: fmt.Sprintf("inherit_limits[%d]", i), Problem: fmt.Sprintf("%q is not a limit", holdfast.Clip(name, 40)), Allowed: "max_concurrent_runs, monthly_usd, monthly_runs, launches_per_minute"}
		}
		*fields[at].limit = holdfast.LimitSetting{}
	}
	return nil
}

func patchWords(p api.TeamPatch) string {
	var words []string
	for _, part := range []struct {
		given bool
		word  string
	}{
		{p.Name != nil, "name"},
		{p.Organisation != nil, "organisation"},
		{p.Suspended != nil && *p.Suspended, "suspended"},
		{p.Suspended != nil && !*p.Suspended, "active again"},
		{p.Limits != nil || len(p.InheritLimits) > 0, "limits"},
	} {
		if part.given {
			words = append(words, part.word)
		}
	}
	return strings.Join(words, ", ")
}

type tokenCreateInput struct {
	teamInput
	Body api.TokenCreate
}

func (s *Server) createToken(ctx context.Context, c call, in tokenCreateInput) (answer[api.TokenIssued], error) {
	if err := unlimited(c); err != nil {
		return answer[api.TokenIssued]{}, err
	}
	if _, err := s.team(ctx, c.team); err != nil {
		return answer[api.TokenIssued]{}, err
	}
	token, bearer, err := s.deps.Tokens.Issue(ctx, auth.Issue{Team: c.team, Name: in.Body.Name, Role: auth.Role(in.Body.Role), ExpiresAt: in.Body.ExpiresAt, By: c.Name})
	if err != nil {
		return answer[api.TokenIssued]{}, err
	}
	s.noteAudit(ctx, c, c.team, "token.issued", token.ID, tokenWords(token))
	return answer[api.TokenIssued]{Body: api.TokenIssued{Token: tokenOnWire(token), Secret: bearer}}, nil
}

type tokensInput struct {
	teamInput
	pageInput
}

func (s *Server) listTokens(ctx context.Context, c call, in tokensInput) (answer[api.Page[api.Token]], error) {
	var out answer[api.Page[api.Token]]
	if _, err := s.team(ctx, c.team); err != nil {
		return out, err
	}
	list, next, err := s.deps.Tokens.List(ctx, c.team, in.Limit, in.Cursor)
	if err != nil {
		return out, err
	}
	out.Body = page(list, next, tokenOnWire)
	return out, nil
}

type tokenInput struct {
	teamInput
	Token string `path:"token" doc:"the token's id"`
}

func (s *Server) revokeToken(ctx context.Context, c call, in tokenInput) (answer[done], error) {
	token, err := s.deps.Tokens.Revoke(ctx, c.team, in.Token)
	if errors.Is(err, records.ErrNotFound) {
		return answer[done]{}, because(notFound("token"), err)
	}
	if err != nil {
		return answer[done]{}, err
	}
	s.noteAudit(ctx, c, c.team, "token.revoked", token.ID, tokenWords(token))
	return answer[done]{}, nil
}
