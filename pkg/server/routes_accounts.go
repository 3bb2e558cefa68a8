package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/records"
)

func (s *Server) accountRoutes() {
	register(s, route{method: "GET", path: "/api/accounts", id: "list-accounts", group: "accounts", who: operators, summary: "List accounts by id"}, s.listAccounts)
	register(s, route{method: "POST", path: "/api/accounts", id: "create-account", group: "accounts", who: operators, status: http.StatusCreated, summary: "Create an account of a person or a program"}, s.createAccount)
	register(s, route{method: "GET", path: "/api/accounts/{account}", id: "get-account", group: "accounts", who: operators, summary: "Show an account"}, s.getAccount)
	register(s, route{method: "PATCH", path: "/api/accounts/{account}", id: "patch-account", group: "accounts", who: operators, summary: "Change an account, or disable it"}, s.patchAccount)
	register(s, route{method: "DELETE", path: "/api/accounts/{account}", id: "delete-account", group: "accounts", who: operators, summary: "Remove an account with its tokens"}, s.deleteAccount)
	register(s, route{method: "GET", path: "/api/accounts/{account}/tokens", id: "list-account-tokens", group: "accounts", who: operators, summary: "List an account's tokens, the newest first"}, s.listAccountTokens)
	register(s, route{method: "POST", path: "/api/accounts/{account}/tokens", id: "create-account-token", group: "accounts", who: operators, status: http.StatusCreated, secret: true, summary: "Issue a token of an account; it is shown this once"}, s.createAccountToken)
	register(s, route{method: "DELETE", path: "/api/accounts/{account}/tokens/{token}", id: "revoke-account-token", group: "accounts", who: operators, summary: "Revoke a token of an account"}, s.revokeAccountToken)
	register(s, route{method: "GET", path: "/api/teams/{team}/members", id: "list-members", group: "members", who: viewers, summary: "List who has a role in a team"}, s.listMembers)
	register(s, route{method: "PUT", path: "/api/teams/{team}/members/{account}", id: "put-member", group: "members", who: admins, summary: "Give an account a role in a team"}, s.putMember)
	register(s, route{method: "DELETE", path: "/api/teams/{team}/members/{account}", id: "delete-member", group: "members", who: admins, summary: "Take an account's role in a team"}, s.deleteMember)
}

func (s *Server) accounts() *auth.Accounts { return s.deps.Tokens.Accounts() }

// accountError is an error of the accounts as callers see it.
func accountError(err error) error {
	switch {
	case errors.Is(err, records.ErrNotFound):
		return because(notFound("account"), err)
	case errors.Is(err, records.ErrExists):
		return because(fail(http.StatusConflict, "exists", "an account has that id or that address already"), err)
	case errors.Is(err, auth.ErrLastOperator):
		return because(fail(http.StatusConflict, "last_operator", "it is the last operator's account that is enabled: make another one an operator first, or do this with the operator's own token"), err)
	case errors.Is(err, auth.ErrGranted):
		return because(fail(http.StatusConflict, "granted_by_login", "a group of the logins' provider gives this role; change the group there, or what it means with `holdfast settings`"), err)
	}
	return err
}

// spare says whether the caller stays an operator whatever becomes of the accounts.
func spare(c call) bool { return c.Operator && c.Account == "" }

type accountInput struct {
	Account string `path:"account" doc:"the account's id"`
}

func (s *Server) listAccounts(ctx context.Context, _ call, in pageInput) (answer[api.Page[api.Account]], error) {
	list, next, err := s.accounts().List(ctx, in.Limit, in.Cursor)
	return answer[api.Page[api.Account]]{Body: page(list, next, accountOnWire)}, err
}

type accountCreateInput struct{ Body api.AccountCreate }

func (s *Server) createAccount(ctx context.Context, c call, in accountCreateInput) (answer[api.Account], error) {
	memberships, err := s.memberships(ctx, in.Body.Memberships)
	if err != nil {
		return answer[api.Account]{}, err
	}
	a, err := s.accounts().Create(ctx, auth.Account{
		ID: in.Body.ID, Kind: auth.Kind(in.Body.Kind), Name: in.Body.Name, Email: in.Body.Email,
		Operator: in.Body.Operator, Memberships: memberships, CreatedBy: c.Name,
	})
	if err != nil {
		return answer[api.Account]{}, accountError(err)
	}
	s.noteAudit(ctx, c, "", "account.created", a.ID, accountWords(a))
	return answer[api.Account]{Body: accountOnWire(a)}, nil
}

// memberships folds the teams and refuses those that do not exist.
func (s *Server) memberships(ctx context.Context, list []api.Membership) ([]auth.Membership, error) {
	out := make([]auth.Membership, 0, len(list))
	for i, m := range list {
		field := fmt.Sprintf("memberships[%d].team", i)
		team, err := teamID(m.Team)
		if err != nil {
			return nil, holdfast.InField(field, err)
		}
		switch _, err := s.deps.Teams.Get(ctx, team); {
		case errors.Is(err, records.ErrNotFound):
			return nil, invalid(field, fmt.Sprintf("there is no team %s", team), "a team of GET /api/teams")
		case err != nil:
			return nil, err
		}
		out = append(out, auth.Membership{Team: team, Role: auth.Role(m.Role)})
	}
	return out, nil
}

func accountWords(a auth.Account) map[string]string {
	words := map[string]string{"kind": string(a.Kind)}
	if a.Operator {
		words["operator"] = "true"
	}
	if a.Disabled {
		words["disabled"] = "true"
	}
	var roles []string
	for _, m := range a.Memberships {
		roles = append(roles, string(m.Role)+" of "+string(m.Team))
	}
	if len(roles) > 0 {
		words["roles"] = strings.Join(roles, ", ")
	}
	return words
}

func (s *Server) getAccount(ctx context.Context, _ call, in accountInput) (answer[api.Account], error) {
	a, err := s.accounts().Get(ctx, in.Account)
	return answer[api.Account]{Body: accountOnWire(a)}, accountError(err)
}

type accountPatchInput struct {
	accountInput
	Body api.AccountPatch
}

func (s *Server) patchAccount(ctx context.Context, c call, in accountPatchInput) (answer[api.Account], error) {
	var memberships []auth.Membership
	if in.Body.Memberships != nil {
		var err error
		if memberships, err = s.memberships(ctx, *in.Body.Memberships); err != nil {
			return answer[api.Account]{}, err
		}
	}
	a, err := s.accounts().Update(ctx, in.Account, spare(c), func(a *auth.Account) error {
		if in.Body.Name != nil {
			a.Name = *in.Body.Name
		}
		if in.Body.Email != nil {
			a.Email = *in.Body.Email
		}
		if in.Body.Disabled != nil {
			a.Disabled = *in.Body.Disabled
		}
		if in.Body.Operator != nil {
			a.Operator = *in.Body.Operator
		}
		if in.Body.Memberships != nil {
			a.Memberships = memberships
		}
		return nil
	})
	if err != nil {
		return answer[api.Account]{}, accountError(err)
	}
	s.noteAudit(ctx, c, "", "account.changed", a.ID, accountWords(a))
	return answer[api.Account]{Body: accountOnWire(a)}, nil
}

func (s *Server) deleteAccount(ctx context.Context, c call, in accountInput) (answer[done], error) {
	a, err := s.accounts().Delete(ctx, in.Account, spare(c))
	if err != nil {
		return answer[done]{}, accountError(err)
	}
	s.noteAudit(ctx, c, "", "account.removed", a.ID, accountWords(a))
	return answer[done]{}, nil
}

type membersInput struct {
	teamInput
	pageInput
}

func (s *Server) listMembers(ctx context.Context, c call, in membersInput) (answer[api.Page[api.Member]], error) {
	var out answer[api.Page[api.Member]]
	if _, err := s.team(ctx, c.team); err != nil {
		return out, err
	}
	list, next, err := s.accounts().Members(ctx, c.team, in.Limit, in.Cursor)
	if err != nil {
		return out, err
	}
	out.Body = page(list, next, func(a auth.Account) api.Member { return memberOnWire(a, c.team) })
	return out, nil
}

type memberInput struct {
	teamInput
	accountInput
}

type memberPutInput struct {
	memberInput
	Body api.MemberPut
}

func (s *Server) putMember(ctx context.Context, c call, in memberPutInput) (answer[api.Member], error) {
	if _, err := s.team(ctx, c.team); err != nil {
		return answer[api.Member]{}, err
	}
	role := auth.Role(in.Body.Role)
	if !c.May(c.team, role) {
		return answer[api.Member]{}, fail(http.StatusForbidden, "forbidden", "nobody gives a role above their own")
	}
	a, err := s.accounts().SetMember(ctx, in.Account, c.team, role)
	if err != nil {
		return answer[api.Member]{}, accountError(err)
	}
	s.noteAudit(ctx, c, c.team, "member.set", a.ID, map[string]string{"role": in.Body.Role})
	return answer[api.Member]{Body: memberOnWire(a, c.team)}, nil
}

func (s *Server) deleteMember(ctx context.Context, c call, in memberInput) (answer[done], error) {
	a, err := s.accounts().SetMember(ctx, in.Account, c.team, "")
	if errors.Is(err, records.ErrNotFound) {
		err = because(notFound("member"), err)
	}
	if err != nil {
		return answer[done]{}, accountError(err)
	}
	s.noteAudit(ctx, c, c.team, "member.removed", a.ID, nil)
	return answer[done]{}, nil
}

func accountOnWire(a auth.Account) api.Account {
	return api.Account{
		ID: a.ID, Kind: string(a.Kind), Name: a.Name, Email: a.Email, Disabled: a.Disabled, Operator: a.Operator,
		Memberships: membershipsOnWire(a.Memberships), Granted: membershipsOnWire(a.Granted), GrantedOperator: a.GrantedOperator, LogsIn: a.Subject != "",
		CreatedAt: utc(a.CreatedAt), UpdatedAt: utc(a.UpdatedAt), LastSeenAt: utc(a.LastSeenAt),
	}
}

func membershipsOnWire(list []auth.Membership) []api.Membership {
	out := make([]api.Membership, 0, len(list))
	for _, m := range list {
		out = append(out, api.Membership{Team: string(m.Team), Role: string(m.Role)})
	}
	return out
}

func memberOnWire(a auth.Account, team holdfast.TeamID) api.Member {
	m := api.Member{Account: a.ID, Kind: string(a.Kind), Name: a.Name, Role: string(a.RoleIn(team)), Source: "here", Disabled: a.Disabled}
	for _, granted := range a.Granted {
		if granted.Team == team && string(granted.Role) == m.Role {
			m.Source = "login"
		}
	}
	return m
}
