package oidc_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const (
	clientID = "holdfast"
	secret   = "client-secret"
)

// person is who is at the provider's keyboard.
type person struct {
	subject, login, name, email string
	verified                    bool
	groups                      []string
}

// provider is an OpenID provider with one person at its keyboard. What it answers can
// be spoiled.
type provider struct {
	op.Storage // what is not used here is not there

	url  string
	key  *rsa.PrivateKey
	http *httptest.Server

	mu       sync.Mutex
	person   person
	requests map[string]*request
	codes    map[string]string
	count    int
	nonce    string         // answered instead of the one that was asked with
	spoil    map[string]any // claims that are written over those of id tokens
	signWith *rsa.PrivateKey
	lifetime time.Duration // of id tokens
	inToken  bool          // the id token has the person's claims, else the user info page alone
	redirect string        // that is registered
}

func newProvider(t *testing.T, redirect string) *provider {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{key: key, signWith: key, requests: map[string]*request{}, codes: map[string]string{}, lifetime: time.Hour, redirect: redirect}
	mux := http.NewServeMux()
	p.http = httptest.NewServer(mux)
	t.Cleanup(p.http.Close)
	p.url = p.http.URL
	served, err := op.NewProvider(&op.Config{CryptoKey: [32]byte{1}, CodeMethodS256: true, AuthMethodPost: true, SupportedScopes: []string{"openid", "profile", "email", "groups"}}, p, op.StaticIssuer(p.url), op.WithAllowInsecure())
	if err != nil {
		t.Fatal(err)
	}
	mux.Handle("/", served)
	mux.HandleFunc("/oauth/token", func(w http.ResponseWriter, r *http.Request) { p.spoiled(w, r, served) })
	back := op.AuthCallbackURL(served)
	mux.Handle("/keyboard", op.NewIssuerInterceptor(served.IssuerFromRequest).HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.URL.Query().Get("id")
		p.set(func() { p.requests[id].subject = p.person.subject })
		http.Redirect(w, r, back(r.Context(), id), http.StatusFound)
	}))
	return p
}

func (p *provider) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// spoiled answers a code with what the library makes of it, the claims of spoil written
// over its id token's and signed anew.
func (p *provider) spoiled(w http.ResponseWriter, r *http.Request, served http.Handler) {
	answer := httptest.NewRecorder()
	served.ServeHTTP(answer, r)
	var body map[string]any
	if p.spoil == nil || answer.Code != http.StatusOK || json.Unmarshal(answer.Body.Bytes(), &body) != nil {
		w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
		return
	}
	token, err := jose.ParseSigned(body["id_token"].(string), []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		panic(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(token.UnsafePayloadWithoutVerification(), &claims); err != nil {
		panic(err)
	}
	for name, value := range p.spoil {
		claims[name] = value
	}
	text, _ := json.Marshal(claims)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: p.signWith, KeyID: "key"}}, nil)
	if err != nil {
		panic(err)
	}
	signed, err := signer.Sign(text)
	if err != nil {
		panic(err)
	}
	body["id_token"], _ = signed.CompactSerialize()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

// request is a login under way at the provider.
type request struct {
	*oidc.AuthRequest
	id, subject, nonce string
}

func (r *request) GetID() string          { return r.id }
func (r *request) GetACR() string         { return "" }
func (r *request) GetAMR() []string       { return []string{"pwd"} }
func (r *request) GetAudience() []string  { return []string{r.ClientID} }
func (r *request) GetAuthTime() time.Time { return time.Now() }
func (r *request) GetClientID() string    { return r.ClientID }
func (r *request) GetCodeChallenge() *oidc.CodeChallenge {
	return &oidc.CodeChallenge{Challenge: r.CodeChallenge, Method: r.CodeChallengeMethod}
}
func (r *request) GetNonce() string                   { return r.nonce }
func (r *request) GetRedirectURI() string             { return r.RedirectURI }
func (r *request) GetResponseType() oidc.ResponseType { return r.ResponseType }
func (r *request) GetResponseMode() oidc.ResponseMode { return r.ResponseMode }
func (r *request) GetScopes() []string                { return r.Scopes }
func (r *request) GetState() string                   { return r.State }
func (r *request) GetSubject() string                 { return r.subject }
func (r *request) Done() bool                         { return r.subject != "" }

var errMissing = errors.New("there is no such thing")

func (p *provider) CreateAuthRequest(_ context.Context, asked *oidc.AuthRequest, _ string) (op.AuthRequest, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	r := &request{AuthRequest: asked, id: strconv.Itoa(p.count), nonce: asked.Nonce}
	if p.nonce != "" {
		r.nonce = p.nonce
	}
	p.requests[r.id] = r
	return r, nil
}

func (p *provider) AuthRequestByID(_ context.Context, id string) (op.AuthRequest, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r, ok := p.requests[id]; ok {
		return r, nil
	}
	return nil, errMissing
}

func (p *provider) AuthRequestByCode(ctx context.Context, code string) (op.AuthRequest, error) {
	p.mu.Lock()
	id, ok := p.codes[code]
	p.mu.Unlock()
	if !ok {
		return nil, errMissing
	}
	return p.AuthRequestByID(ctx, id)
}

func (p *provider) SaveAuthCode(_ context.Context, id, code string) error {
	p.set(func() { p.codes[code] = id })
	return nil
}

func (p *provider) DeleteAuthRequest(_ context.Context, id string) error {
	p.set(func() { delete(p.requests, id) })
	return nil
}

func (p *provider) CreateAccessToken(context.Context, op.TokenRequest) (string, time.Time, error) {
	return "access", time.Now().Add(time.Hour), nil
}

type signing struct{ *provider }

func (s signing) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (s signing) Key() any                                    { return s.key }
func (s signing) ID() string                                  { return "key" }

type public struct{ *provider }

func (s public) ID() string                         { return "key" }
func (s public) Algorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (s public) Use() string                        { return "sig" }
func (s public) Key() any                           { return &s.key.PublicKey }

func (p *provider) SigningKey(context.Context) (op.SigningKey, error) { return signing{p}, nil }
func (p *provider) KeySet(context.Context) ([]op.Key, error)          { return []op.Key{public{p}}, nil }
func (p *provider) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.RS256}, nil
}
func (p *provider) Health(context.Context) error { return nil }

func (p *provider) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	if id != clientID {
		return nil, errMissing
	}
	return client{p}, nil
}

func (p *provider) AuthorizeClientIDSecret(_ context.Context, id, given string) error {
	if id != clientID || given != secret {
		return errMissing
	}
	return nil
}

func (p *provider) info(info *oidc.UserInfo) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	who := p.person
	info.Subject, info.Name, info.PreferredUsername, info.Email, info.EmailVerified = who.subject, who.name, who.login, who.email, oidc.Bool(who.verified)
	info.AppendClaims("groups", who.groups)
	return nil
}

func (p *provider) SetUserinfoFromScopes(_ context.Context, info *oidc.UserInfo, _, _ string, _ []string) error {
	return p.info(info)
}

func (p *provider) SetUserinfoFromToken(_ context.Context, info *oidc.UserInfo, _, _, _ string) error {
	return p.info(info)
}

func (p *provider) GetPrivateClaimsFromScopes(context.Context, string, string, []string) (map[string]any, error) {
	return nil, nil
}

type client struct{ *provider }

func (c client) GetID() string                       { return clientID }
func (c client) RedirectURIs() []string              { return []string{c.redirect} }
func (c client) PostLogoutRedirectURIs() []string    { return nil }
func (c client) ApplicationType() op.ApplicationType { return op.ApplicationTypeWeb }
func (c client) AuthMethod() oidc.AuthMethod         { return oidc.AuthMethodBasic }
func (c client) ResponseTypes() []oidc.ResponseType {
	return []oidc.ResponseType{oidc.ResponseTypeCode}
}
func (c client) GrantTypes() []oidc.GrantType        { return []oidc.GrantType{oidc.GrantTypeCode} }
func (c client) LoginURL(id string) string           { return "/keyboard?id=" + id }
func (c client) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeBearer }
func (c client) DevMode() bool                       { return true }
func (c client) IsScopeAllowed(scope string) bool    { return scope == "groups" }
func (c client) ClockSkew() time.Duration            { return 0 }
func (c client) RestrictAdditionalIdTokenScopes() func([]string) []string {
	return func(scopes []string) []string { return scopes }
}
func (c client) RestrictAdditionalAccessTokenScopes() func([]string) []string {
	return func(scopes []string) []string { return scopes }
}

func (c client) IDTokenLifetime() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lifetime
}

func (c client) IDTokenUserinfoClaimsAssertion() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inToken
}
