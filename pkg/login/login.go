// Package login lets people into the studio with a browser: OpenID Connect with the
// authorization code flow, PKCE, state and nonce, and a session kept in a cookie. Who
// they are is the provider's word; what they may do is their account (pkg/auth) and
// the rules for the provider's groups. Where the provider or a store cannot be asked,
// nobody is logged in.
//
// Reading order: login.go (the way out and back), identity.go (whose account a login
// is), session.go (the cookie afterwards).
package login

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// ErrProvider: the provider of logins could not be reached, or answered what it may
// not. Nobody was logged in.
var ErrProvider = errors.New("the provider of logins cannot be reached")

// Refusal says why a login was refused, in words for the person at the browser.
type Refusal struct {
	Code   string // tells refusals apart: state, expired, denied, token, nonce, no_account, disabled
	Detail string
}

// Error is for logs.
func (r *Refusal) Error() string { return r.Detail }

func refuse(code, format string, values ...any) error {
	return &Refusal{Code: code, Detail: fmt.Sprintf(format, values...)}
}

// Deps are what a [Service] is built from; all of them are required.
type Deps struct {
	Records  records.DB // of the sessions
	Accounts *auth.Accounts
	// Rules are what the provider's groups mean now; where they cannot be read nobody
	// logs in.
	Rules func(context.Context) (platformcfg.LoginRules, error)
}

// Options configure a [Service]. Issuer and ClientID are required; a zero field has
// the stated default.
type Options struct {
	Issuer, ClientID string
	ClientSecret     string   // empty: a public client, which PKCE alone protects
	Scopes           []string // beside openid; nil: profile, email, groups
	GroupsClaim      string   // "groups"
	// PublicURL is the address under which browsers reach the server; empty: the scheme
	// and the host of the request, for a server without a proxy in front.
	PublicURL string

	Clock clock.Clock   // nil: the machine's
	Skew  time.Duration // how far the provider's clock may be off: 1 min
	Keep  time.Duration // how long a session is good: 12 h
	Idle  time.Duration // and unused: 2 h
	// Client asks the provider; nil: one with a timeout of ten seconds.
	Client *http.Client
}

func (o Options) checked() (Options, error) {
	issuer, err := url.Parse(o.Issuer)
	if err != nil || (issuer.Scheme != "https" && issuer.Scheme != "http") || issuer.Host == "" || issuer.User != nil {
		return o, &holdfast.InvalidError{Field: "oidc-issuer", Problem: fmt.Sprintf("%q is not an issuer", holdfast.Clip(o.Issuer, 200)), Allowed: "https://HOST, with the path that the provider names"}
	}
	if o.ClientID == "" {
		return o, &holdfast.InvalidError{Field: "oidc-client-id", Problem: "it is missing", Allowed: "the id that the provider gave this deployment"}
	}
	if o.PublicURL != "" {
		public, err := url.Parse(o.PublicURL)
		if err != nil || (public.Scheme != "https" && public.Scheme != "http") || public.Host == "" || (public.Path != "" && public.Path != "/") || public.RawQuery != "" {
			return o, &holdfast.InvalidError{Field: "public-url", Problem: fmt.Sprintf("%q is not an address of this server", holdfast.Clip(o.PublicURL, 200)), Allowed: "https://HOST without a path"}
		}
		o.PublicURL = strings.TrimSuffix(o.PublicURL, "/")
	}
	if o.Scopes == nil {
		o.Scopes = []string{"profile", "email", "groups"}
	}
	if o.GroupsClaim == "" {
		o.GroupsClaim = "groups"
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	for _, span := range []struct {
		of       *time.Duration
		unstated time.Duration
	}{{&o.Skew, time.Minute}, {&o.Keep, 12 * time.Hour}, {&o.Idle, 2 * time.Hour}} {
		if *span.of == 0 {
			*span.of = span.unstated
		}
	}
	if o.Client == nil {
		o.Client = &http.Client{Timeout: 10 * time.Second}
	}
	return o, nil
}

// Service logs people in and out.
type Service struct {
	deps     Deps
	options  Options
	sessions *sessions

	mu       sync.Mutex
	provider *oidc.Provider // found at the first login
	failed   time.Time      // when it was looked for in vain
	why      error
}

// New is a service; the provider is contacted at the first login. An
// *holdfast.InvalidError says which option cannot be meant.
func New(ctx context.Context, deps Deps, options Options) (*Service, error) {
	if deps.Records == nil || deps.Accounts == nil || deps.Rules == nil {
		return nil, errors.New("login: a part is missing")
	}
	options, err := options.checked()
	if err != nil {
		return nil, err
	}
	sessions, err := newSessions(ctx, deps.Records, options)
	if err != nil {
		return nil, err
	}
	return &Service{deps: deps, options: options, sessions: sessions}, nil
}

// retryAfter is how long a provider that could not be reached is left alone.
const retryAfter = 2 * time.Second

// found is the provider as it describes itself.
func (s *Service) found(ctx context.Context) (*oidc.Provider, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.options.Clock.Now()
	switch {
	case s.provider != nil:
		return s.provider, nil
	case s.why != nil && now.Sub(s.failed) < retryAfter && !now.Before(s.failed):
		return nil, s.why
	}
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, s.options.Client), s.options.Issuer)
	if err != nil {
		if ctx.Err() == nil {
			s.failed, s.why = now, fmt.Errorf("%w: %w", ErrProvider, err)
		}
		return nil, fmt.Errorf("%w: %w", ErrProvider, err)
	}
	s.provider, s.why = provider, nil
	return provider, nil
}

// attempt is one login under way. It is kept by the browser, in a cookie that no
// script reads: state and nonce prove that the answer belongs to this browser's
// question, so whoever writes the cookie can only spoil a login of their own.
type attempt struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
	Return   string `json:"r"`
	Began    int64  `json:"b"` // Unix seconds
}

const (
	attemptCookie = "holdfast_login"
	// attemptTime is how long a person may take at the provider.
	attemptTime = 10 * time.Minute
	// maxReturn bounds the path that a login comes back to.
	maxReturn = 500
)

func random() string {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // never fails, see its documentation
	return base64.RawURLEncoding.EncodeToString(bits[:])
}

// Begin sends the browser to the provider. return_to is the path that the login
// comes back to; anything but a path of this server is "/".
func (s *Service) Begin(w http.ResponseWriter, r *http.Request) error {
	provider, err := s.found(r.Context())
	if err != nil {
		return err
	}
	a := attempt{State: random(), Nonce: random(), Verifier: oauth2.GenerateVerifier(), Return: localPath(r.URL.Query().Get("return_to")), Began: s.options.Clock.Now().Unix()}
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode a login: %w", err)
	}
	s.setCookie(w, r, attemptCookie, base64.RawURLEncoding.EncodeToString(text), attemptTime)
	config := s.oauth(r, provider)
	http.Redirect(w, r, config.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), http.StatusFound) //nolint:gosec // to the provider that the operator set
	return nil
}

func (s *Service) oauth(r *http.Request, provider *oidc.Provider) oauth2.Config {
	return oauth2.Config{
		ClientID: s.options.ClientID, ClientSecret: s.options.ClientSecret, Endpoint: provider.Endpoint(),
		RedirectURL: s.base(r) + "/auth/callback", Scopes: append([]string{oidc.ScopeOpenID}, s.options.Scopes...),
	}
}

// base is the address of this server as browsers know it.
func (s *Service) base(r *http.Request) string {
	switch {
	case s.options.PublicURL != "":
		return s.options.PublicURL
	case r.TLS != nil:
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// localPath is a path of this server, or "/".
func localPath(text string) string {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxReturn || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") || strings.ContainsAny(text, "\\\r\n\t") {
		return "/"
	}
	return text
}

// Callback takes the provider's answer and makes a session of it, under a new id; the
// browser is sent where the login began. A *[Refusal] says why nobody was logged in,
// [ErrProvider] and the stores' errors that nobody could tell.
func (s *Service) Callback(w http.ResponseWriter, r *http.Request) (auth.Account, error) {
	a, err := s.attempted(r)
	s.dropCookie(w, r, attemptCookie) // an answer is taken once
	if err != nil {
		return auth.Account{}, err
	}
	query := r.URL.Query()
	if reason := query.Get("error"); reason != "" {
		return auth.Account{}, refuse("denied", "the provider refused the login: %s", holdfast.Clip(strings.TrimSpace(reason+" "+query.Get("error_description")), 300))
	}
	code := query.Get("code")
	if code == "" || len(code) > 4096 {
		return auth.Account{}, refuse("state", "the provider's answer has no code; begin again at /auth/login")
	}
	provider, err := s.found(r.Context())
	if err != nil {
		return auth.Account{}, err
	}
	who, err := s.identify(r.Context(), provider, s.oauth(r, provider), code, a)
	if err != nil {
		return auth.Account{}, err
	}
	account, err := s.account(r.Context(), who)
	if err != nil {
		return account, err
	}
	if err := s.open(w, r, account); err != nil {
		return account, err
	}
	http.Redirect(w, r, a.Return, http.StatusFound)
	return account, nil
}

// attempted reads the cookie of the login under way and holds the state against it.
func (s *Service) attempted(r *http.Request) (attempt, error) {
	var a attempt
	cookie := s.cookie(r, attemptCookie)
	text, err := base64.RawURLEncoding.DecodeString(cookie)
	if cookie == "" || err != nil || json.Unmarshal(text, &a) != nil || a.State == "" || a.Nonce == "" || a.Verifier == "" {
		return a, refuse("state", "this browser has no login under way, or took its answer already; begin again at /auth/login")
	}
	if age := s.options.Clock.Now().Sub(time.Unix(a.Began, 0)); age > attemptTime || age < -time.Minute {
		return a, refuse("expired", "the login took longer than %s; begin again at /auth/login", attemptTime)
	}
	if subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("state")), []byte(a.State)) != 1 {
		return a, refuse("state", "the answer does not belong to this browser's login; begin again at /auth/login")
	}
	a.Return = localPath(a.Return)
	return a, nil
}
