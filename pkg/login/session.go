package login

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// session is a browser that somebody logged in with. Its id is the hash of what the
// cookie holds, so the store gives no session away.
type session struct {
	ID        string    `json:"id"`
	Account   string    `json:"account"`
	Serial    string    `json:"serial"` // the account's
	CreatedAt time.Time `json:"created_at"`
	UsedAt    time.Time `json:"used_at"` // at most a minute old
	ExpiresAt time.Time `json:"expires_at"`
}

type sessions struct {
	table      *records.Table[session]
	keep, idle time.Duration
}

const (
	sessionCookie = "holdfast_session"
	indexExpires  = "expires"
	indexAccount  = "account"
	// usedEvery is how often the use of a session is written.
	usedEvery = time.Minute
	// maxSessions is how many sessions an account has; a further login ends the oldest.
	maxSessions = 20
)

func newSessions(ctx context.Context, db records.DB, o Options) (*sessions, error) {
	schema := records.Schema{Name: "sessions", Indexes: []records.Index{{Name: indexExpires}, {Name: indexAccount}}}
	table, err := records.NewTable(ctx, db, schema, func(s session) string { return s.ID }, func(s session) map[string]string {
		return map[string]string{indexExpires: stamp(s.ExpiresAt), indexAccount: s.Account}
	})
	return &sessions{table, o.Keep, o.Idle}, err
}

// stamp is an instant as text that sorts.
func stamp(t time.Time) string { return t.UTC().Format("20060102150405.000") }

func sessionID(cookie string) string {
	sum := sha256.Sum256([]byte(cookie))
	return hex.EncodeToString(sum[:])
}

// open begins a session for an account and ends the one that the browser had.
func (s *Service) open(w http.ResponseWriter, r *http.Request, a auth.Account) error {
	if err := s.end(r.Context(), s.cookie(r, sessionCookie)); err != nil {
		return err
	}
	if err := s.makeRoom(r.Context(), a.ID); err != nil {
		return err
	}
	secret, now := random(), s.options.Clock.Now()
	_, err := s.sessions.table.Insert(r.Context(), session{
		ID: sessionID(secret), Account: a.ID, Serial: a.Serial, CreatedAt: now, UsedAt: now, ExpiresAt: now.Add(s.sessions.keep),
	})
	if err != nil {
		return fmt.Errorf("begin a session: %w", err)
	}
	s.setCookie(w, r, sessionCookie, secret, s.sessions.keep)
	return nil
}

// makeRoom ends the oldest sessions of an account that has too many.
func (s *Service) makeRoom(ctx context.Context, account string) error {
	list, _, err := s.sessions.table.List(ctx, records.Query{Index: indexAccount, Equal: account, Limit: records.MaxPage})
	if err != nil {
		return fmt.Errorf("count sessions: %w", err)
	}
	for len(list) >= maxSessions {
		oldest := 0
		for i := range list {
			if list[i].Value.CreatedAt.Before(list[oldest].Value.CreatedAt) {
				oldest = i
			}
		}
		if err := s.sessions.table.Delete(ctx, list[oldest].Value.ID); err != nil && !errors.Is(err, records.ErrNotFound) {
			return fmt.Errorf("end an old session: %w", err)
		}
		list = append(list[:oldest], list[oldest+1:]...)
	}
	return nil
}

func (s *Service) end(ctx context.Context, cookie string) error {
	if cookie == "" {
		return nil
	}
	err := s.sessions.table.Delete(ctx, sessionID(cookie))
	if err == nil || errors.Is(err, records.ErrNotFound) {
		return nil
	}
	return fmt.Errorf("end a session: %w", err)
}

// HasSession says whether the request brings a session's cookie, good or not.
func (s *Service) HasSession(r *http.Request) bool { return s.cookie(r, sessionCookie) != "" }

// Principal is who the session's cookie says. [auth.ErrUnauthenticated] says nobody:
// there is none, or it has expired, was ended, or its account is disabled; any other
// error says that nobody could tell.
func (s *Service) Principal(ctx context.Context, r *http.Request) (auth.Principal, error) {
	cookie := s.cookie(r, sessionCookie)
	if len(cookie) != len(random()) {
		return auth.Principal{}, auth.ErrUnauthenticated
	}
	v, err := s.sessions.table.Get(ctx, sessionID(cookie))
	switch {
	case errors.Is(err, records.ErrNotFound):
		return auth.Principal{}, auth.ErrUnauthenticated
	case err != nil:
		return auth.Principal{}, fmt.Errorf("authenticate: %w", err)
	}
	now, open := s.options.Clock.Now(), v.Value
	if !now.Before(open.ExpiresAt) || now.Sub(open.UsedAt) >= s.sessions.idle {
		return auth.Principal{}, auth.ErrUnauthenticated
	}
	who, err := s.deps.Accounts.Principal(ctx, open.Account, open.Serial, "", "")
	if err != nil {
		return auth.Principal{}, err
	}
	who.TokenID = "session-" + open.ID[:16]
	if now.Sub(open.UsedAt) >= min(usedEvery, s.sessions.idle/4) {
		v.Value.UsedAt = now
		// A use that cannot be written keeps nobody out; the next one tries again.
		_, _ = s.sessions.table.Replace(ctx, v)
	}
	return who, nil
}

// Logout ends the browser's session; without one it does nothing.
func (s *Service) Logout(w http.ResponseWriter, r *http.Request) error {
	if err := s.end(r.Context(), s.cookie(r, sessionCookie)); err != nil {
		return err
	}
	s.dropCookie(w, r, sessionCookie)
	return nil
}

// Forget removes sessions that have expired.
func (s *Service) Forget(ctx context.Context) error {
	old := records.Query{Index: indexExpires, AtMost: stamp(s.options.Clock.Now()), Limit: records.DefaultPage}
	return s.sessions.table.Walk(ctx, old, func(v records.Versioned[session]) error {
		err := s.sessions.table.Delete(ctx, v.Value.ID)
		if errors.Is(err, records.ErrNotFound) {
			return nil
		}
		return err
	})
}

// secure says whether browsers reach the server over TLS.
func (s *Service) secure(r *http.Request) bool {
	return len(s.base(r)) > 5 && s.base(r)[:5] == "https"
}

// cookieName pins a cookie to this host and to TLS where there is TLS.
func (s *Service) cookieName(r *http.Request, name string) string {
	if s.secure(r) {
		return "__Host-" + name
	}
	return name
}

func (s *Service) setCookie(w http.ResponseWriter, r *http.Request, name, value string, keep time.Duration) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure wherever browsers reach the server over TLS
		Name: s.cookieName(r, name), Value: value, Path: "/", MaxAge: int(keep.Seconds()),
		HttpOnly: true, Secure: s.secure(r), SameSite: http.SameSiteLaxMode,
	})
}

func (s *Service) dropCookie(w http.ResponseWriter, r *http.Request, name string) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // as above
		Name: s.cookieName(r, name), Path: "/", MaxAge: -1, HttpOnly: true, Secure: s.secure(r), SameSite: http.SameSiteLaxMode,
	})
}

// cookie is the value of a cookie; empty where there is none or several, of which
// nobody could tell which is ours.
func (s *Service) cookie(r *http.Request, name string) string {
	all := r.CookiesNamed(s.cookieName(r, name))
	if len(all) != 1 {
		return ""
	}
	return all[0].Value
}
