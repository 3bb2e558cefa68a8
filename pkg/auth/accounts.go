package auth

import (
	"context"
	"errors"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// Kind says what stands behind an account.
type Kind string

// The kinds.
const (
	User    Kind = "user"    // a person
	Service Kind = "service" // a program
)

// Account is a person or a program with roles in teams. Its tokens and its sessions
// may do what it may, at most.
type Account struct {
	ID   string `json:"id"` // a folded name; it is the actor in the audit trail
	Kind Kind   `json:"kind"`
	Name string `json:"name,omitempty"`
	// Email is that of a person. A first login with it, verified by the provider, takes
	// the account over.
	Email string `json:"email,omitempty"`
	// Disabled accounts open nothing, from the next request on.
	Disabled bool `json:"disabled,omitempty"`
	// Operator may act in every team and on the platform.
	Operator    bool         `json:"operator,omitempty"`
	Memberships []Membership `json:"memberships,omitempty"` // by team
	// Granted and GrantedOperator come from the groups of the last login, and are
	// replaced by the next one.
	Granted         []Membership `json:"granted,omitempty"`
	GrantedOperator bool         `json:"granted_operator,omitempty"`
	// Subject is who it is at the provider of logins: issuer and subject. Empty: nobody
	// logged in as it yet.
	Subject string `json:"subject,omitempty"`
	// Serial tells two accounts that had one id, one after the other, apart.
	Serial     string    `json:"serial"`
	CreatedAt  time.Time `json:"created_at"`
	CreatedBy  string    `json:"created_by,omitempty"`
	UpdatedAt  time.Time `json:"updated_at"`
	LastSeenAt time.Time `json:"last_seen_at,omitzero"` // at most a minute old
}

// Effective are the account's roles, whoever gave them, by team.
func (a Account) Effective() []Membership { return merged(a.Memberships, a.Granted) }

// IsOperator says whether the account is an operator, whoever made it one.
func (a Account) IsOperator() bool { return a.Operator || a.GrantedOperator }

// RoleIn is the account's role in a team; empty without one.
func (a Account) RoleIn(team holdfast.TeamID) Role {
	for _, m := range a.Effective() {
		if m.Team == team {
			return m.Role
		}
	}
	return ""
}

// Bounds of an account.
const (
	maxAccountName = 200
	maxEmail       = 254
	maxMemberships = 200
	maxSubject     = 900
)

var (
	// ErrLastOperator: the change would leave no account that is an operator and enabled.
	ErrLastOperator = errors.New("it is the last operator's account that is enabled")
	// ErrGranted: the membership comes from a group of the login's provider.
	ErrGranted = errors.New("the membership comes from a group of the login's provider")
)

// Accounts keeps accounts.
type Accounts struct {
	table     *records.Table[Account]
	operators *records.Table[operatorList]
	clock     clock.Clock
	ids       records.IDs

	mu   sync.Mutex
	seen map[string]time.Time // by account: when this process last wrote its use
}

const (
	indexEmail   = "email"
	indexSubject = "subject"
)

func newAccounts(ctx context.Context, db records.DB, clock clock.Clock) (*Accounts, error) {
	schema := records.Schema{Name: "accounts", Indexes: []records.Index{{Name: indexEmail, Unique: true}, {Name: indexSubject, Unique: true}}}
	table, err := records.NewTable(ctx, db, schema, func(a Account) string { return a.ID }, func(a Account) map[string]string {
		k := map[string]string{}
		if a.Email != "" {
			k[indexEmail] = a.Email
		}
		if a.Subject != "" {
			k[indexSubject] = a.Subject
		}
		return k
	})
	if err != nil {
		return nil, err
	}
	operators, err := records.NewTable(ctx, db, records.Schema{Name: "account_operators"}, func(l operatorList) string { return l.ID }, nil)
	if err != nil {
		return nil, err
	}
	return &Accounts{table: table, operators: operators, clock: clock, seen: map[string]time.Time{}}, nil
}

// check folds an account's names and refuses what cannot be meant.
func (a *Account) check() error {
	folded, err := holdfast.FoldName(a.ID)
	if err != nil {
		return holdfast.InField("id", err)
	}
	a.ID = folded
	if a.Kind != User && a.Kind != Service {
		return &holdfast.InvalidError{Field: "kind", Problem: fmt.Sprintf("%q is not a kind of account", holdfast.Clip(string(a.Kind), 40)), Allowed: "user, service"}
	}
	if len(a.Name) > maxAccountName || holdfast.Clip(a.Name, maxAccountName) != a.Name {
		return &holdfast.InvalidError{Field: "name", Problem: "it is too long or holds control characters", Allowed: fmt.Sprintf("at most %d bytes of text", maxAccountName)}
	}
	if a.Email != "" {
		if a.Email, err = foldEmail(a.Email); err != nil {
			return err
		}
	}
	if len(a.Subject) > maxSubject {
		return &holdfast.InvalidError{Field: "subject", Problem: "it is too long", Allowed: fmt.Sprintf("at most %d bytes", maxSubject)}
	}
	for _, list := range []*[]Membership{&a.Memberships, &a.Granted} {
		if err := checkMemberships(*list); err != nil {
			return err
		}
		*list = merged(*list)
	}
	return nil
}

// foldEmail is an address as it is compared: an address that differs in case only is
// the same person.
func foldEmail(text string) (string, error) {
	parsed, err := mail.ParseAddress(text)
	if err != nil || parsed.Address != text || len(text) > maxEmail || holdfast.Clip(text, maxEmail) != text {
		return "", &holdfast.InvalidError{Field: "email", Problem: fmt.Sprintf("%q is not an address", holdfast.Clip(text, 80)), Allowed: "name@host, or absent"}
	}
	return strings.ToLower(text), nil
}

func checkMemberships(list []Membership) error {
	if len(list) > maxMemberships {
		return &holdfast.InvalidError{Field: "memberships", Problem: fmt.Sprintf("there are %d", len(list)), Allowed: fmt.Sprintf("at most %d", maxMemberships)}
	}
	seen := map[holdfast.TeamID]bool{}
	for i, m := range list {
		at := fmt.Sprintf("memberships[%d].", i)
		switch {
		case !holdfast.ValidName(string(m.Team)):
			return &holdfast.InvalidError{Field: at + "team", Problem: fmt.Sprintf("%q is not a team's id", holdfast.Clip(string(m.Team), 80)), Allowed: "the id of a team"}
		case m.Role.rank() == 0:
			return &holdfast.InvalidError{Field: at + "role", Problem: fmt.Sprintf("%q is not a role", holdfast.Clip(string(m.Role), 40)), Allowed: "viewer, member, admin"}
		case seen[m.Team]:
			return &holdfast.InvalidError{Field: at + "team", Problem: fmt.Sprintf("the team %s stands there twice", m.Team), Allowed: "each team once"}
		}
		seen[m.Team] = true
	}
	return nil
}

// Create stores a new account; its times and serial are given here. The error matches
// [records.ErrExists] when its id, its address or its subject is taken.
func (s *Accounts) Create(ctx context.Context, a Account) (Account, error) {
	now := s.clock.Now()
	a.CreatedAt, a.UpdatedAt, a.LastSeenAt, a.Serial = now, now, time.Time{}, s.ids.Next(now)
	if err := a.check(); err != nil {
		return Account{}, err
	}
	v, err := s.table.Insert(ctx, a)
	if err != nil {
		return Account{}, err
	}
	return v.Value, s.enlist(ctx, v.Value)
}

// Get reads an account; the error matches [records.ErrNotFound].
func (s *Accounts) Get(ctx context.Context, id string) (Account, error) {
	if !holdfast.ValidName(id) {
		return Account{}, fmt.Errorf("account %q: %w", holdfast.Clip(id, 80), records.ErrNotFound)
	}
	v, err := s.table.Get(ctx, id)
	return v.Value, err
}

// BySubject finds the account that logs in as somebody; the error matches
// [records.ErrNotFound].
func (s *Accounts) BySubject(ctx context.Context, subject string) (Account, error) {
	return s.by(ctx, indexSubject, subject)
}

// ByEmail finds the account of an address; the error matches [records.ErrNotFound].
func (s *Accounts) ByEmail(ctx context.Context, email string) (Account, error) {
	folded, err := foldEmail(email)
	if err != nil {
		return Account{}, fmt.Errorf("account of an address that is none: %w", records.ErrNotFound)
	}
	return s.by(ctx, indexEmail, folded)
}

func (s *Accounts) by(ctx context.Context, index, value string) (Account, error) {
	if value == "" {
		return Account{}, fmt.Errorf("account without %s: %w", index, records.ErrNotFound)
	}
	found, _, err := s.table.List(ctx, records.Query{Index: index, Equal: value, Limit: 1})
	switch {
	case err != nil:
		return Account{}, err
	case len(found) == 0:
		return Account{}, fmt.Errorf("account by %s: %w", index, records.ErrNotFound)
	}
	return found[0].Value, nil
}

// List lists accounts by id.
func (s *Accounts) List(ctx context.Context, limit int, cursor string) ([]Account, string, error) {
	return s.filter(ctx, limit, cursor, func(Account) bool { return true })
}

// Members lists the accounts that have a role in a team, by id. It reads every
// account; there are as many as people and programs.
func (s *Accounts) Members(ctx context.Context, team holdfast.TeamID, limit int, cursor string) ([]Account, string, error) {
	return s.filter(ctx, limit, cursor, func(a Account) bool { return a.RoleIn(team) != "" })
}

func (s *Accounts) filter(ctx context.Context, limit int, cursor string, keep func(Account) bool) ([]Account, string, error) {
	limit, err := records.PageSize(limit)
	if err != nil {
		return nil, "", err
	}
	return s.table.Filter(ctx, records.Query{Limit: limit, After: cursor}, keep)
}

// Update changes an account; an error of change ends it and is returned as it is. A
// change that takes the last enabled operator's account away is [ErrLastOperator],
// unless spare says that there is another way in, such as the operator's own token.
func (s *Accounts) Update(ctx context.Context, id string, spare bool, change func(*Account) error) (Account, error) {
	was, err := s.Get(ctx, id)
	if err != nil {
		return Account{}, err
	}
	apply := func(a *Account) error {
		before := *a
		if err := change(a); err != nil {
			return err
		}
		a.ID, a.Serial, a.CreatedAt, a.UpdatedAt = before.ID, before.Serial, before.CreatedAt, s.clock.Now()
		return a.check()
	}
	after := was
	after.Memberships, after.Granted = slices.Clone(was.Memberships), slices.Clone(was.Granted)
	if err := apply(&after); err != nil {
		return was, err
	}
	// A name leaves the list before the account changes, and enters it after: between
	// the two the list has too few, which refuses too much and never too little.
	if operates(was) && !operates(after) {
		if err := s.strike(ctx, id, spare); err != nil {
			return was, err
		}
	}
	v, err := s.table.Update(ctx, id, apply)
	if err != nil {
		return v.Value, errors.Join(err, s.enlist(ctx, was))
	}
	return v.Value, s.enlist(ctx, v.Value)
}

// Delete removes an account; its tokens and sessions open nothing from then on, also
// when another account gets the id. [ErrLastOperator] as with [Accounts.Update].
func (s *Accounts) Delete(ctx context.Context, id string, spare bool) (Account, error) {
	a, err := s.Get(ctx, id)
	if err != nil {
		return Account{}, err
	}
	if operates(a) {
		if err := s.strike(ctx, id, spare); err != nil {
			return a, err
		}
	}
	return a, s.table.Delete(ctx, id)
}

// SetMember gives an account a role in a team, or takes it with an empty role. What a
// login's groups granted is [ErrGranted] when it would have to be taken.
func (s *Accounts) SetMember(ctx context.Context, id string, team holdfast.TeamID, role Role) (Account, error) {
	return s.Update(ctx, id, true, func(a *Account) error {
		had := a.RoleIn(team)
		a.Memberships = slices.DeleteFunc(a.Memberships, func(m Membership) bool { return m.Team == team })
		if role != "" {
			a.Memberships = append(a.Memberships, Membership{team, role})
		}
		switch granted := a.RoleIn(team); {
		case role == "" && had == "":
			return fmt.Errorf("account %s in team %s: %w", id, team, records.ErrNotFound)
		case granted != role:
			return fmt.Errorf("account %s in team %s: %w", id, team, ErrGranted)
		}
		return nil
	})
}

// Principal is what a token or a session of the account may do now, limited to a team
// and a role where they are not empty. An account that is disabled or gone, or another
// one under its id, is [ErrUnauthenticated].
func (s *Accounts) Principal(ctx context.Context, id, serial string, team holdfast.TeamID, role Role) (Principal, error) {
	a, err := s.Get(ctx, id)
	switch {
	case errors.Is(err, records.ErrNotFound):
		return Principal{}, ErrUnauthenticated
	case err != nil:
		return Principal{}, fmt.Errorf("authenticate: %w", err)
	case a.Disabled || a.Serial != serial:
		return Principal{}, ErrUnauthenticated
	}
	s.saw(ctx, a)
	return restrict(a, team, role), nil
}

// saw writes when an account was last seen, at most once a minute; where that fails
// the caller is let in all the same.
func (s *Accounts) saw(ctx context.Context, a Account) {
	now := s.clock.Now()
	s.mu.Lock()
	fresh := now.Sub(s.seen[a.ID]) < usedEvery || now.Sub(a.LastSeenAt) < usedEvery
	if !fresh {
		s.seen[a.ID] = now
	}
	s.mu.Unlock()
	if fresh {
		return
	}
	_, err := s.table.Update(ctx, a.ID, func(a *Account) error {
		if now.Sub(a.LastSeenAt) < usedEvery {
			return errFresh
		}
		a.LastSeenAt = now
		return nil
	})
	if err != nil && !errors.Is(err, errFresh) {
		s.mu.Lock()
		delete(s.seen, a.ID)
		s.mu.Unlock()
	}
}
