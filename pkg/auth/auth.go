// Package auth keeps the bearer tokens and tells who a bearer is. A token is 256
// random bits; only its SHA-256 is stored, so the store gives none away, and it is
// shown once.
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

// Role is what a token may do in its team. Roles are a ladder; a word that is not
// on it is below every role.
type Role string

// The roles, from the lowest.
const (
	Viewer Role = "viewer"
	Member Role = "member"
	Admin  Role = "admin"
)

func (r Role) rank() int {
	switch r {
	case Viewer:
		return 1
	case Member:
		return 2
	case Admin:
		return 3
	}
	return 0
}

// AtLeast says whether the role includes another. A word off the ladder includes
// nothing and is included in nothing.
func (r Role) AtLeast(other Role) bool { return other.rank() > 0 && r.rank() >= other.rank() }

// Principal is who a bearer is. The zero Principal is nobody.
type Principal struct {
	Name    string // the token's name, for people and for the audit trail
	TokenID string
	// Operator may act in every team and on the platform; Team and Role are empty.
	Operator bool
	Team     holdfast.TeamID
	Role     Role
}

// May says whether the principal has at least that role in the team.
func (p Principal) May(team holdfast.TeamID, role Role) bool {
	return p.Operator || (p.Team != "" && p.Team == team && p.Role.AtLeast(role))
}

// ErrUnauthenticated: there is no token, or it is unknown, expired or revoked. The
// caller is not told which.
var ErrUnauthenticated = errors.New("the token is missing, unknown, expired or revoked")

// Token is a stored token. Times that have not happened are zero.
type Token struct {
	ID         string          `json:"id"`
	Name       string          `json:"name"`
	Operator   bool            `json:"operator,omitempty"`
	Team       holdfast.TeamID `json:"team,omitempty"`
	Role       Role            `json:"role,omitempty"`
	Hash       string          `json:"hash"` // hexadecimal SHA-256 of the bearer text
	CreatedAt  time.Time       `json:"created_at"`
	CreatedBy  string          `json:"created_by,omitempty"`
	ExpiresAt  time.Time       `json:"expires_at,omitzero"` // zero: never
	RevokedAt  time.Time       `json:"revoked_at,omitzero"`
	LastUsedAt time.Time       `json:"last_used_at,omitzero"` // at most a minute old
}

// Valid says whether the token opens anything at an instant.
func (t Token) Valid(now time.Time) bool {
	return t.RevokedAt.IsZero() && (t.ExpiresAt.IsZero() || now.Before(t.ExpiresAt))
}

// Tokens issues, lists, revokes and reads tokens.
type Tokens struct {
	table *records.Table[Token]
	clock clock.Clock
	ids   records.IDs

	mu   sync.Mutex
	used map[string]time.Time // by token id: when this process last wrote its use
}

const (
	indexHash = "hash"
	indexTeam = "team"
)

// prefix begins every token, so that one that leaked can be recognised.
const prefix = "hf_"

// operatorID is the id of the operator's token. There is one.
const operatorID = "operator"

// usedEvery is how often the last use of a token is written.
const usedEvery = time.Minute

// New opens the collection "tokens".
func New(ctx context.Context, db records.DB, clock clock.Clock) (*Tokens, error) {
	schema := records.Schema{Name: "tokens", Indexes: []records.Index{{Name: indexHash, Unique: true}, {Name: indexTeam}}}
	table, err := records.NewTable(ctx, db, schema, func(t Token) string { return t.ID }, func(t Token) map[string]string {
		k := map[string]string{indexHash: t.Hash}
		if t.Team != "" {
			k[indexTeam] = string(t.Team)
		}
		return k
	})
	if err != nil {
		return nil, err
	}
	return &Tokens{table: table, clock: clock, used: map[string]time.Time{}}, nil
}

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
	Team      holdfast.TeamID
	Name      string
	Role      Role
	ExpiresAt time.Time // zero: never
	By        string    // who issues it
}

func (i Issue) check(now time.Time) error {
	switch {
	case i.Team == "":
		return &holdfast.InvalidError{Field: "team", Problem: "it is missing", Allowed: "the id of a team"}
	case strings.TrimSpace(i.Name) == "" || len(i.Name) > 100 || holdfast.Clip(i.Name, 100) != i.Name:
		return &holdfast.InvalidError{Field: "name", Problem: "it is missing, too long or holds control characters", Allowed: "1 to 100 bytes that say what the token is for"}
	case i.Role.rank() == 0:
		return &holdfast.InvalidError{Field: "role", Problem: fmt.Sprintf("%q is not a role", holdfast.Clip(string(i.Role), 40)), Allowed: "viewer, member, admin"}
	case !i.ExpiresAt.IsZero() && !i.ExpiresAt.After(now):
		return &holdfast.InvalidError{Field: "expires_at", Problem: "it has passed already", Allowed: "an instant in the future, or absent"}
	}
	return nil
}

// Issue makes a token. bearer is its text; it is nowhere else and cannot be had
// again.
func (s *Tokens) Issue(ctx context.Context, issue Issue) (token Token, bearer string, err error) {
	now := s.clock.Now()
	if err := issue.check(now); err != nil {
		return Token{}, "", err
	}
	bearer = NewBearer()
	v, err := s.table.Insert(ctx, Token{
		ID: s.ids.Next(now), Name: issue.Name, Team: issue.Team, Role: issue.Role, Hash: hashOf(bearer),
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
	if limit, err = records.PageSize(limit); err != nil || team == "" {
		return nil, "", err
	}
	values, next, err := s.table.List(ctx, records.Query{Index: indexTeam, Equal: string(team), Descending: true, Limit: limit, After: cursor})
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
	missing := fmt.Errorf("revoke token %q: %w", holdfast.Clip(id, 80), records.ErrNotFound)
	if team == "" || id == "" || len(id) > 64 || holdfast.Clip(id, 64) != id {
		return Token{}, missing
	}
	v, err := s.table.Update(ctx, id, func(t *Token) error {
		if t.Team != team {
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
	s.touch(ctx, token, now)
	return Principal{Name: token.Name, TokenID: token.ID, Operator: token.Operator, Team: token.Team, Role: token.Role}, nil
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

// EnsureOperator makes the bearer text the operator's token: the one that was there
// before opens nothing any more. The same text again changes nothing. It must be
// as [NewBearer] makes it.
func (s *Tokens) EnsureOperator(ctx context.Context, bearer string) error {
	// What no header can carry would open nothing: nobody could use the deployment.
	carried := !strings.ContainsFunc(bearer, func(r rune) bool { return r <= ' ' || r > '~' })
	if !carried || !strings.HasPrefix(bearer, prefix) || len(bearer) < len(prefix)+32 || len(bearer) > 200 {
		return &holdfast.InvalidError{Field: "operator token", Problem: "it is not a token", Allowed: "hf_ and at least 32 letters and digits"}
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
