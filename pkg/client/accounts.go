package client

import (
	"context"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
)

// Me says who the client's token is, and what it may do.
func (c *Client) Me(ctx context.Context) (api.Me, error) {
	return get[api.Me](ctx, c, nil, "api", "me")
}

// MyTokens lists the tokens of the caller's account, without their secrets.
func (c *Client) MyTokens(ctx context.Context, window Window) (api.Page[api.PersonalToken], error) {
	return get[api.Page[api.PersonalToken]](ctx, c, values(window, time.Time{}), "api", "me", "tokens")
}

// CreateMyToken issues a token of the caller's account; its secret is in the answer
// and nowhere else.
func (c *Client) CreateMyToken(ctx context.Context, token api.PersonalTokenCreate) (api.PersonalTokenIssued, error) {
	return post[api.PersonalTokenIssued](ctx, c, token, "api", "me", "tokens")
}

// RevokeMyToken ends a token of the caller's account at once.
func (c *Client) RevokeMyToken(ctx context.Context, id string) error {
	return c.remove(ctx, "api", "me", "tokens", id)
}

// Accounts lists accounts by id. Operators only, as what follows.
func (c *Client) Accounts(ctx context.Context, window Window) (api.Page[api.Account], error) {
	return get[api.Page[api.Account]](ctx, c, values(window, time.Time{}), "api", "accounts")
}

// Account reads one account.
func (c *Client) Account(ctx context.Context, id string) (api.Account, error) {
	return get[api.Account](ctx, c, nil, "api", "accounts", id)
}

// CreateAccount makes an account; *[Conflict] when its id or address is taken.
func (c *Client) CreateAccount(ctx context.Context, account api.AccountCreate) (api.Account, error) {
	return post[api.Account](ctx, c, account, "api", "accounts")
}

// PatchAccount changes what the patch names; *[Conflict] when it would leave no
// operator.
func (c *Client) PatchAccount(ctx context.Context, id string, patch api.AccountPatch) (api.Account, error) {
	var account api.Account
	_, err := c.do(ctx, request{method: http.MethodPatch, path: []string{"api", "accounts", id}, body: patch}, &account)
	return account, err
}

// DeleteAccount removes an account with its tokens and sessions.
func (c *Client) DeleteAccount(ctx context.Context, id string) error {
	return c.remove(ctx, "api", "accounts", id)
}

// AccountTokens lists an account's tokens, without their secrets.
func (c *Client) AccountTokens(ctx context.Context, account string, window Window) (api.Page[api.PersonalToken], error) {
	return get[api.Page[api.PersonalToken]](ctx, c, values(window, time.Time{}), "api", "accounts", account, "tokens")
}

// CreateAccountToken issues a token of an account, as for a program.
func (c *Client) CreateAccountToken(ctx context.Context, account string, token api.PersonalTokenCreate) (api.PersonalTokenIssued, error) {
	return post[api.PersonalTokenIssued](ctx, c, token, "api", "accounts", account, "tokens")
}

// RevokeAccountToken ends a token of an account at once.
func (c *Client) RevokeAccountToken(ctx context.Context, account, id string) error {
	return c.remove(ctx, "api", "accounts", account, "tokens", id)
}

// Members lists who has a role in a team.
func (c *Client) Members(ctx context.Context, team string, window Window) (api.Page[api.Member], error) {
	return get[api.Page[api.Member]](ctx, c, values(window, time.Time{}), "api", "teams", team, "members")
}

// PutMember gives an account a role in a team.
func (c *Client) PutMember(ctx context.Context, team, account, role string) (api.Member, error) {
	var member api.Member
	_, err := c.do(ctx, request{method: http.MethodPut, path: []string{"api", "teams", team, "members", account}, body: api.MemberPut{Role: role}}, &member)
	return member, err
}

// RemoveMember takes an account's role in a team.
func (c *Client) RemoveMember(ctx context.Context, team, account string) error {
	return c.remove(ctx, "api", "teams", team, "members", account)
}

// LoginRules reads what the groups of the logins' provider mean.
func (c *Client) LoginRules(ctx context.Context) (api.LoginRules, error) {
	return get[api.LoginRules](ctx, c, nil, "api", "admin", "settings", "login")
}

// PutLoginRules replaces them; *[Conflict] when updated_at is not the stored one.
func (c *Client) PutLoginRules(ctx context.Context, rules api.LoginRules) (api.LoginRules, error) {
	return put(ctx, c, "login", rules)
}

func (c *Client) remove(ctx context.Context, path ...string) error {
	_, err := c.do(ctx, request{method: http.MethodDelete, path: path}, nil)
	return err
}

// AuditFilter selects entries of the audit trail; what is empty selects all.
type AuditFilter struct {
	Window
	Team, Actor, Action, Target, Outcome string
	Since                                time.Time
}

// Audit lists what was changed and what was refused, newest first.
func (c *Client) Audit(ctx context.Context, f AuditFilter) (api.Page[api.AuditEntry], error) {
	query := values(f.Window, f.Since, "team", f.Team, "actor", f.Actor, "action", f.Action, "target", f.Target, "outcome", f.Outcome)
	return get[api.Page[api.AuditEntry]](ctx, c, query, "api", "audit")
}
