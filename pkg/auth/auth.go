// Package auth knows who a caller is and what they may do: accounts of people and
// programs with their roles in teams, and the bearer tokens of accounts and teams. A
// token is 256 random bits; only its SHA-256 is stored, so the store gives none away,
// and it is shown once. Nothing is cached: a token that is revoked, and an account that
// is disabled or loses a role, counts from the next request on.
package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// ErrUnauthenticated: there is no token, or it is unknown, expired or revoked, or its
// account is disabled or gone. The caller is not told which.
var ErrUnauthenticated = errors.New("the token is missing, unknown, expired or revoked")

// Token is a stored token. Times that have not happened are zero.
type Token struct {
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Operator bool            `json:"operator,omitempty"`
	Team     holdfast.TeamID `json:"team,omitempty"`
	Role     Role            `json:"role,omitempty"`
	// Account makes it a personal token: it may do what the account may, limited to Team
	// and Role where they are set. Serial is the account's.
	Account    string    `json:"account,omitempty"`
	Serial     string    `json:"serial,omitempty"`
	Hash       string    `json:"hash"` // hexadecimal SHA-256 of the bearer text
	CreatedAt  time.Time `json:"created_at"`
	CreatedBy  string    `json:"created_by,omitempty"`
	ExpiresAt  time.Time `json:"expires_at,omitzero"` // zero: never
	RevokedAt  time.Time `json:"revoked_at,omitzero"`
	LastUsedAt time.Time `json:"last_used_at,omitzero"` // at most a minute old
}

// Valid says whether the token opens anything at an instant.
func (t Token) Valid(now time.Time) bool {
	return t.RevokedAt.IsZero() && (t.ExpiresAt.IsZero() || now.Before(t.ExpiresAt))
}

// Tokens issues, lists, revokes and reads tokens.
type Tokens struct {
	table    *records.Table[Token]
	accounts *Accounts
	clock    clock.Clock
	ids      records.IDs

	mu   sync.Mutex
	used map[string]time.Time // by token id: when this process last wrote its use
}

const (
	indexHash    = "hash"
	indexTeam    = "team"
	indexAccount = "account"
)

// prefix begins every token, so that one that leaked can be recognised.
const prefix = "hf_"

// operatorID is the id of the operator's token. There is one.
const operatorID = "operator"

// usedEvery is how often the last use of a token is written.
const usedEvery = time.Minute

// New opens the collections "tokens" and "accounts".
func New(ctx context.Context, db records.DB, clock clock.Clock) (*Tokens, error) {
	schema := records.Schema{Name: "tokens", Indexes: []records.Index{{Name: indexHash, Unique: true}, {Name: indexTeam}, {Name: indexAccount}}}
	table, err := records.NewTable(ctx, db, schema, func(t Token) string { return t.ID }, func(t Token) map[string]string {
		k := map[string]string{indexHash: t.Hash}
		switch {
		case t.Account != "":
			k[indexAccount] = t.Account
		case t.Team != "":
			k[indexTeam] = string(t.Team)
		}
		return k
	})
	if err != nil {
		return nil, err
	}
	accounts, err := newAccounts(ctx, db, clock)
	if err != nil {
		return nil, err
	}
	return &Tokens{table: table, accounts: accounts, clock: clock, used: map[string]time.Time{}}, nil
}

// Accounts are the accounts that personal tokens belong to.
func (s *Tokens) Accounts() *Accounts { return s.accounts }

// NewBearer makes the text of a new token: "hf_" and 256 random bits.
func NewBearer() string {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails, see its documentation
	return prefix + base64.RawURLEncoding.EncodeToString(secret[:])
}

func hashOf(bearer string) string {
	sum := sha256.Sum256([]byte(bearer))
	return hex.EncodeToString(sum[:])
}

// Issue describes a token to be issued.
type Issue struct {
	Team holdfast.TeamID // of a personal token: the one team that it is limited to; empty: none
	Name string
	Role Role // of a personal token: the most that it may; empty: all that the account may
	// Account makes it a personal token of that account.
	Account   string
	ExpiresAt time.Time // zero: never
	By        string    // who issues it
}

func (i Issue) check(now time.Time) error {
	switch {
	case i.Team == "" && i.Account == "":
		return &holdfast.InvalidError{Field: "team", Problem: "it is missing", Allowed: "the id of a team"}
	case strings.TrimSpace(i.Name) == "" || len(i.Name) > 100 || holdfast.Clip(i.Name, 100) != i.Name:
		return &holdfast.InvalidError{Field: "name", Problem: "it is missing, too long or holds control characters", Allowed: "1 to 100 bytes that say what the token is for"}
	case i.Role.rank() == 0 && (i.Role != "" || i.Account == ""):
		return &holdfast.InvalidError{Field: "role", Problem: fmt.Sprintf("%q is not a role", holdfast.Clip(string(i.Role), 40)), Allowed: "viewer, member, admin"}
	case !i.ExpiresAt.IsZero() && !i.ExpiresAt.After(now):
		return &holdfast.InvalidError{Field: "expires_at", Problem: "it has passed already", Allowed: "an instant in the future, or absent"}
	}
	return nil
}

// Issue makes a token. bearer is its text; it is nowhere else and cannot be had
// again. An account that does not exist matches [records.ErrNotFound].
func (s *Tokens) Issue(ctx context.Context, issue Issue) (token Token, bearer string, err error) {
	now := s.clock.Now()
	if err := issue.check(now); err != nil {
		return Token{}, "", err
	}
	serial := ""
	if issue.Account != "" {
		account, err := s.accounts.Get(ctx, issue.Account)
		if err != nil {
			return Token{}, "", err
		}
		if serial = account.Serial; issue.Team != "" && !account.IsOperator() && account.RoleIn(issue.Team) == "" {
			return Token{}, "", &holdfast.InvalidError{Field: "team", Problem: fmt.Sprintf("the account has no role in %s", issue.Team), Allowed: "a team of the account, or absent"}
		}
	}
	bearer = NewBearer()
	v, err := s.table.Insert(ctx, Token{
		ID: s.ids.Next(now), Name: issue.Name, Team: issue.Team, Role: issue.Role, Account: issue.Account, Serial: serial, Hash: hashOf(bearer),
		CreatedAt: now, CreatedBy: issue.By, ExpiresAt: issue.ExpiresAt.UTC(),
	})
	if err != nil {
		return Token{}, "", err
	}
	return v.Value, bearer, nil
}

// List lists a team's tokens, the newest first, expired and revoked ones too. An
// empty team lists nothing.
func (s *Tokens) List(ctx context.Context, team holdfast.TeamID, limit int, cursor string) (list []Token, next string, err error) {
	return s.list(ctx, indexTeam, string(team), limit, cursor)
}

// ListOf is List of an account's tokens.
func (s *Tokens) ListOf(ctx context.Context, account string, limit int, cursor string) (list []Token, next string, err error) {
	return s.list(ctx, indexAccount, account, limit, cursor)
}

func (s *Tokens) list(ctx context.Context, index, owner string, limit int, cursor string) (list []Token, next string, err error) {
	if limit, err = records.PageSize(limit); err != nil || owner == "" {
		return nil, "", err
	}
	values, next, err := s.table.List(ctx, records.Query{Index: index, Equal: owner, Descending: true, Limit: limit, After: cursor})
	if err != nil {
		return nil, "", err
	}
	for _, v := range values {
		list = append(list, v.Value)
	}
	return list, next, nil
}

// Revoke ends a team's token at once and for good; again is no error. Another
// team's token does not exist: the error matches [records.ErrNotFound].
func (s *Tokens) Revoke(ctx context.Context, team holdfast.TeamID, id string) (Token, error) {
	return s.revoke(ctx, id, func(t Token) bool { return team != "" && t.Account == "" && t.Team == team })
}

// RevokeOf is Revoke of an account's token.
func (s *Tokens) RevokeOf(ctx context.Context, account, id string) (Token, error) {
	return s.revoke(ctx, id, func(t Token) bool { return account != "" && t.Account == account })
}

func (s *Tokens) revoke(ctx context.Context, id string, owns func(Token) bool) (Token, error) {
	missing := fmt.Errorf("revoke token %q: %w", holdfast.Clip(id, 80), records.ErrNotFound)
	if id == "" || len(id) > 64 || holdfast.Clip(id, 64) != id {
		return Token{}, missing
	}
	v, err := s.table.Update(ctx, id, func(t *Token) error {
		if !owns(*t) {
			return missing
		}
		if t.RevokedAt.IsZero() {
			t.RevokedAt = s.clock.Now()
		}
		return nil
	})
	if err != nil {
		return Token{}, err
	}
	return v.Value, nil
}

// Authenticate is whose token the bearer text is. [ErrUnauthenticated] says no; any
// other error says that nobody could tell.
func (s *Tokens) Authenticate(ctx context.Context, bearer string) (Principal, error) {
	if !strings.HasPrefix(bearer, prefix) || len(bearer) > 200 {
		return Principal{}, ErrUnauthenticated
	}
	hash := hashOf(bearer)
	found, _, err := s.table.List(ctx, records.Query{Index: indexHash, Equal: hash, Limit: 1})
	if err != nil {
		return Principal{}, fmt.Errorf("authenticate: %w", err)
	}
	if len(found) == 0 || subtle.ConstantTimeCompare([]byte(found[0].Value.Hash), []byte(hash)) != 1 {
		return Principal{}, ErrUnauthenticated
	}
	token, now := found[0].Value, s.clock.Now()
	if !token.Valid(now) {
		return Principal{}, ErrUnauthenticated
	}
	who := Principal{Name: token.Name, Operator: token.Operator, Team: token.Team, Role: token.Role}
	if token.Account != "" {
		if who, err = s.accounts.Principal(ctx, token.Account, token.Serial, token.Team, token.Role); err != nil {
			return Principal{}, err
		}
	}
	who.TokenID = token.ID
	s.touch(ctx, token, now)
	return who, nil
}

// errFresh ends an update that has nothing to do.
var errFresh = errors.New("the last use is fresh")

// touch writes the last use, at most once a minute and token. It is a convenience:
// when it fails the caller is authenticated all the same, and the next use tries
// again.
func (s *Tokens) touch(ctx context.Context, token Token, now time.Time) {
	s.mu.Lock()
	fresh := now.Sub(s.used[token.ID]) < usedEvery || now.Sub(token.LastUsedAt) < usedEvery
	if !fresh {
		s.used[token.ID] = now
	}
	s.mu.Unlock()
	if fresh {
		return
	}
	_, err := s.table.Update(ctx, token.ID, func(t *Token) error {
		if now.Sub(t.LastUsedAt) < usedEvery {
			return errFresh
		}
		t.LastUsedAt = now
		return nil
	})
	if err != nil && !errors.Is(err, errFresh) {
		s.mu.Lock()
		delete(s.used, token.ID)
		s.mu.Unlock()
	}
}

// CheckBearer refuses a text that cannot be a token, as a *holdfast.InvalidError without
// a field that does not hold the text.
func CheckBearer(bearer string) error {
	// What no header can carry would open nothing: nobody could use the deployment.
	carried := !strings.ContainsFunc(bearer, func(r rune) bool { return r <= ' ' || r > '~' })
	if !carried || !strings.HasPrefix(bearer, prefix) || len(bearer) < len(prefix)+32 || len(bearer) > 200 {
		return &holdfast.InvalidError{Problem: "it is not a token", Allowed: "hf_ and at least 32 letters and digits"}
	}
	return nil
}

// EnsureOperator makes the bearer text the operator's token: the one that was there
// before opens nothing any more. The same text again changes nothing. It must be
// as [NewBearer] makes it.
func (s *Tokens) EnsureOperator(ctx context.Context, bearer string) error {
	if err := CheckBearer(bearer); err != nil {
		return holdfast.InField("operator token", err)
	}
	token := Token{ID: operatorID, Name: "operator", Operator: true, Hash: hashOf(bearer), CreatedAt: s.clock.Now()}
	_, err := s.table.Insert(ctx, token)
	if !errors.Is(err, records.ErrExists) {
		return err
	}
	_, err = s.table.Update(ctx, operatorID, func(t *Token) error {
		if t.Hash != token.Hash || !t.Valid(token.CreatedAt) {
			*t = token
		}
		return nil
	})
	return err
}

// HasOperator says whether there is an operator's token that opens something now.
func (s *Tokens) HasOperator(ctx context.Context) (bool, error) {
	token, err := s.table.Get(ctx, operatorID)
	if errors.Is(err, records.ErrNotFound) {
		return false, nil
	}
	return err == nil && token.Value.Valid(s.clock.Now()), err
}
