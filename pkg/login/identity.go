package login

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// identity is who the provider says that somebody is.
type identity struct {
	subject string // issuer and subject: the only name that is never given again
	name    string
	login   string // the name that they log in with there
	email   string // verified, or empty
	groups  []string
}

// identify exchanges the code and checks what comes for it: signature, issuer,
// audience, expiry and nonce.
func (s *Service) identify(ctx context.Context, provider *oidc.Provider, config oauth2.Config, code string, a attempt) (identity, error) {
	ctx = oidc.ClientContext(ctx, s.options.Client)
	token, err := config.Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	var answered *oauth2.RetrieveError
	switch {
	case errors.As(err, &answered) && answered.Response.StatusCode < 500:
		return identity{}, refuse("token", "the provider does not take the code: %s; begin again at /auth/login", holdfast.Clip(answered.ErrorCode, 100))
	case err != nil:
		return identity{}, fmt.Errorf("%w: exchange the code: %w", ErrProvider, err)
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return identity{}, refuse("token", "the provider sent no id token")
	}
	now := s.options.Clock.Now()
	proof, err := provider.Verifier(&oidc.Config{ClientID: s.options.ClientID, Now: func() time.Time { return now.Add(-s.options.Skew) }}).Verify(ctx, raw)
	if err != nil {
		if asked := new(url.Error); errors.As(err, &asked) {
			return identity{}, fmt.Errorf("%w: fetch its keys: %w", ErrProvider, err)
		}
		return identity{}, refuse("token", "the provider's id token is not good: %s", holdfast.Clip(err.Error(), 200))
	}
	switch {
	case subtle.ConstantTimeCompare([]byte(proof.Nonce), []byte(a.Nonce)) != 1:
		return identity{}, refuse("nonce", "the id token was made for another login; begin again at /auth/login")
	case proof.IssuedAt.After(now.Add(s.options.Skew)):
		return identity{}, refuse("token", "the id token is of the future: the clocks are more than %s apart", s.options.Skew)
	case proof.Subject == "":
		return identity{}, refuse("token", "the id token says of nobody who it is")
	}
	claims := map[string]any{}
	if err := proof.Claims(&claims); err != nil {
		return identity{}, refuse("token", "the id token's claims cannot be read")
	}
	if party, stated := claims["azp"]; stated && party != s.options.ClientID {
		return identity{}, refuse("token", "the id token was made for another client")
	}
	if err := s.complete(ctx, provider, token, proof.Subject, claims); err != nil {
		return identity{}, err
	}
	return s.read(proof, claims), nil
}

// complete adds what the id token does not say from the provider's page about the
// user. It never replaces what the token says, which is signed.
func (s *Service) complete(ctx context.Context, provider *oidc.Provider, token *oauth2.Token, subject string, claims map[string]any) error {
	if claims[s.options.GroupsClaim] != nil && claims["email"] != nil || provider.UserInfoEndpoint() == "" {
		return nil
	}
	info, err := provider.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return fmt.Errorf("%w: ask who it is: %w", ErrProvider, err)
	}
	if info.Subject != subject {
		return refuse("token", "the provider tells of somebody else than its id token")
	}
	more := map[string]any{}
	if err := info.Claims(&more); err != nil {
		return refuse("token", "what the provider tells of the user cannot be read")
	}
	for name, value := range more {
		if claims[name] == nil {
			claims[name] = value
		}
	}
	return nil
}

// maxGroups bounds the groups that are looked at.
const maxGroups = 5_000

func (s *Service) read(proof *oidc.IDToken, claims map[string]any) identity {
	text := func(name string) string {
		value, _ := claims[name].(string)
		return holdfast.Clip(value, 200)
	}
	who := identity{subject: proof.Issuer + " " + proof.Subject, name: text("name"), login: text("preferred_username")}
	// An address that nobody verified is anybody's.
	if verified := claims["email_verified"]; verified == true || verified == "true" {
		who.email, _ = claims["email"].(string)
	}
	switch groups := claims[s.options.GroupsClaim].(type) {
	case string:
		who.groups = []string{groups}
	case []any:
		for _, group := range groups[:min(len(groups), maxGroups)] {
			if name, ok := group.(string); ok {
				who.groups = append(who.groups, name)
			}
		}
	}
	return who
}

// granted is what somebody's groups mean.
func granted(rules platformcfg.LoginRules, groups []string) (memberships []auth.Membership, operator bool) {
	best := map[holdfast.TeamID]auth.Role{}
	for _, rule := range rules.Groups {
		switch role := auth.Role(rule.Role); {
		case !slices.Contains(groups, rule.Group):
		case rule.Operator:
			operator = true
		case role.AtLeast(best[rule.Team]) || best[rule.Team] == "":
			best[rule.Team] = role
		}
	}
	for team, role := range best {
		memberships = append(memberships, auth.Membership{Team: team, Role: role})
	}
	return memberships, operator
}

// account finds the account of somebody, takes over the one that an operator made for
// their address, or makes one for whoever a group lets in; and replaces what the
// groups of the login before gave.
func (s *Service) account(ctx context.Context, who identity) (auth.Account, error) {
	rules, err := s.deps.Rules(ctx)
	if err != nil {
		return auth.Account{}, fmt.Errorf("read what the groups of a login mean: %w", err)
	}
	memberships, operator := granted(rules, who.groups)
	account, err := s.known(ctx, who)
	if errors.Is(err, records.ErrNotFound) {
		if len(memberships) == 0 && !operator {
			return auth.Account{}, refuse("no_account", "you are logged in at the provider, and there is no account for you here and no group of yours lets you in; ask an operator")
		}
		account, err = s.create(ctx, who, memberships, operator)
	}
	if err != nil {
		return auth.Account{}, err
	}
	if account.Disabled {
		return account, refuse("disabled", "the account %s is disabled; ask an operator", account.ID)
	}
	// The provider's word is taken as it is: who it makes no operator any more is none,
	// also where no other account is one. The operator's own token stays.
	return s.deps.Accounts.Update(ctx, account.ID, true, func(a *auth.Account) error {
		if a.Subject != "" && a.Subject != who.subject {
			return refuse("no_account", "the account %s belongs to another login; ask an operator", a.ID)
		}
		a.Subject, a.Granted, a.GrantedOperator, a.LastSeenAt = who.subject, memberships, operator, s.options.Clock.Now()
		if a.Name == "" {
			a.Name = who.name
		}
		return nil
	})
}

// known finds the account by who the provider says that it is, else by an address
// that an operator wrote and the provider verified, as long as nobody logged in as it.
func (s *Service) known(ctx context.Context, who identity) (auth.Account, error) {
	account, err := s.deps.Accounts.BySubject(ctx, who.subject)
	if !errors.Is(err, records.ErrNotFound) || who.email == "" {
		return account, err
	}
	account, err = s.deps.Accounts.ByEmail(ctx, who.email)
	switch {
	case err != nil:
		return account, err
	case account.Kind != auth.User || account.Subject != "":
		return auth.Account{}, refuse("no_account", "the address %s belongs to an account of somebody else; ask an operator", who.email)
	}
	return account, nil
}

// create makes the account of a first login. Its id is the name that they log in
// with, with a number where that is taken.
func (s *Service) create(ctx context.Context, who identity, memberships []auth.Membership, operator bool) (auth.Account, error) {
	local, _, _ := strings.Cut(who.email, "@")
	sum := sha256.Sum256([]byte(who.subject))
	base := "user-" + hex.EncodeToString(sum[:6])
	for _, candidate := range []string{who.login, local} {
		if name, _, _ := strings.Cut(candidate, "@"); name != "" {
			if folded, err := holdfast.FoldName(name); err == nil && len(folded) <= 50 {
				base = folded
				break
			}
		}
	}
	for n := 1; n < 50; n++ {
		id := base
		if n > 1 {
			id = fmt.Sprintf("%s-%d", base, n)
		}
		account, err := s.deps.Accounts.Create(ctx, auth.Account{
			ID: id, Kind: auth.User, Name: who.name, Email: who.email, Subject: who.subject, CreatedBy: "login", Granted: memberships, GrantedOperator: operator,
		})
		if !errors.Is(err, records.ErrExists) {
			return account, err
		}
		if account, err := s.deps.Accounts.BySubject(ctx, who.subject); err == nil { // two first logins at once
			return account, nil
		}
	}
	return auth.Account{}, refuse("no_account", "every name like %s is taken; ask an operator for an account", base)
}
