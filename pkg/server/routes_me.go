package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/records"
)

func (s *Server) meRoutes() {
	register(s, route{method: "GET", path: "/api/me", id: "me", group: "accounts", who: anyToken, summary: "Say who the caller is, and what it may do"}, s.me)
	register(s, route{method: "GET", path: "/api/me/tokens", id: "list-my-tokens", group: "accounts", who: anyToken, summary: "List the tokens of the caller's account, the newest first"}, s.listMyTokens)
	register(s, route{method: "POST", path: "/api/me/tokens", id: "create-my-token", group: "accounts", who: anyToken, status: http.StatusCreated, secret: true, summary: "Issue a token of the caller's account; it is shown this once"}, s.createMyToken)
	register(s, route{method: "DELETE", path: "/api/me/tokens/{token}", id: "revoke-my-token", group: "accounts", who: anyToken, summary: "Revoke a token of the caller's account"}, s.revokeMyToken)
}

func (s *Server) me(_ context.Context, c call, _ struct{}) (answer[api.Me], error) {
	me := api.Me{Name: c.Name, Account: c.Account, TokenID: c.TokenID, Operator: c.Operator, Restricted: c.Restricted, Memberships: membershipsOnWire(c.Memberships)}
	if c.Team != "" {
		me.Memberships = []api.Membership{{Team: string(c.Team), Role: string(c.Role)}}
	}
	return answer[api.Me]{Body: me}, nil
}

// own is the account of the caller. A team's token and the operator's have none.
func own(c call) (string, error) {
	if c.Account == "" {
		return "", fail(http.StatusForbidden, "no_account", "this token belongs to no account: personal tokens are an account's; POST /api/teams/{team}/tokens issues a team's")
	}
	return c.Account, nil
}

func (s *Server) listMyTokens(ctx context.Context, c call, in pageInput) (answer[api.Page[api.PersonalToken]], error) {
	account, err := own(c)
	if err != nil {
		return answer[api.Page[api.PersonalToken]]{}, err
	}
	return s.personalTokens(ctx, account, in)
}

func (s *Server) personalTokens(ctx context.Context, account string, in pageInput) (answer[api.Page[api.PersonalToken]], error) {
	list, next, err := s.deps.Tokens.ListOf(ctx, account, in.Limit, in.Cursor)
	return answer[api.Page[api.PersonalToken]]{Body: page(list, next, personalOnWire)}, err
}

type personalCreateInput struct{ Body api.PersonalTokenCreate }

func (s *Server) createMyToken(ctx context.Context, c call, in personalCreateInput) (answer[api.PersonalTokenIssued], error) {
	account, err := own(c)
	if err != nil {
		return answer[api.PersonalTokenIssued]{}, err
	}
	if err := unlimited(c); err != nil {
		return answer[api.PersonalTokenIssued]{}, err
	}
	return s.issuePersonal(ctx, c, account, in.Body)
}

// unlimited refuses a token that is limited to a team or a role: what it issued, its
// account's or its team's, would outlive it.
func unlimited(c call) error {
	if c.Restricted {
		return fail(http.StatusForbidden, "restricted", "a token that is limited to a team or a role issues no further ones: log in, or use a token that is not limited")
	}
	return nil
}

// issuePersonal makes a token of an account.
func (s *Server) issuePersonal(ctx context.Context, c call, account string, body api.PersonalTokenCreate) (answer[api.PersonalTokenIssued], error) {
	issue := auth.Issue{Account: account, Name: body.Name, Role: auth.Role(body.Role), ExpiresAt: body.ExpiresAt, By: c.Name}
	if body.Team != "" {
		var err error
		if issue.Team, err = teamID(body.Team); err != nil {
			return answer[api.PersonalTokenIssued]{}, err
		}
	}
	token, bearer, err := s.deps.Tokens.Issue(ctx, issue)
	if err != nil {
		return answer[api.PersonalTokenIssued]{}, accountError(err)
	}
	s.noteAudit(ctx, c, token.Team, "token.issued", token.ID, tokenWords(token))
	return answer[api.PersonalTokenIssued]{Body: api.PersonalTokenIssued{PersonalToken: personalOnWire(token), Secret: bearer}}, nil
}

// tokenWords are what the audit trail keeps of a token: whose it is, and never its text.
func tokenWords(t auth.Token) map[string]string {
	words := map[string]string{"name": t.Name}
	for name, value := range map[string]string{"account": t.Account, "team": string(t.Team), "role": string(t.Role)} {
		if value != "" {
			words[name] = value
		}
	}
	if !t.ExpiresAt.IsZero() {
		words["expires_at"] = t.ExpiresAt.Format(time.RFC3339)
	}
	return words
}

type myTokenInput struct {
	Token string `path:"token" doc:"the token's id"`
}

func (s *Server) revokeMyToken(ctx context.Context, c call, in myTokenInput) (answer[done], error) {
	account, err := own(c)
	if err != nil {
		return answer[done]{}, err
	}
	return s.revokePersonal(ctx, c, account, in.Token)
}

func (s *Server) revokePersonal(ctx context.Context, c call, account, id string) (answer[done], error) {
	token, err := s.deps.Tokens.RevokeOf(ctx, account, id)
	if errors.Is(err, records.ErrNotFound) {
		return answer[done]{}, because(notFound("token"), err)
	}
	if err != nil {
		return answer[done]{}, err
	}
	s.noteAudit(ctx, c, token.Team, "token.revoked", token.ID, tokenWords(token))
	return answer[done]{}, nil
}

type accountTokensInput struct {
	accountInput
	pageInput
}

func (s *Server) listAccountTokens(ctx context.Context, _ call, in accountTokensInput) (answer[api.Page[api.PersonalToken]], error) {
	if _, err := s.accounts().Get(ctx, in.Account); err != nil {
		return answer[api.Page[api.PersonalToken]]{}, accountError(err)
	}
	return s.personalTokens(ctx, in.Account, in.pageInput)
}

type accountTokenCreateInput struct {
	accountInput
	Body api.PersonalTokenCreate
}

func (s *Server) createAccountToken(ctx context.Context, c call, in accountTokenCreateInput) (answer[api.PersonalTokenIssued], error) {
	return s.issuePersonal(ctx, c, in.Account, in.Body)
}

type accountTokenInput struct {
	accountInput
	myTokenInput
}

func (s *Server) revokeAccountToken(ctx context.Context, c call, in accountTokenInput) (answer[done], error) {
	return s.revokePersonal(ctx, c, in.Account, in.Token)
}

func personalOnWire(t auth.Token) api.PersonalToken {
	return api.PersonalToken{
		ID: t.ID, Name: t.Name, Account: t.Account, Team: string(t.Team), Role: string(t.Role), CreatedAt: utc(t.CreatedAt), CreatedBy: t.CreatedBy,
		ExpiresAt: utc(t.ExpiresAt), LastUsedAt: utc(t.LastUsedAt), RevokedAt: utc(t.RevokedAt),
	}
}
