package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/login"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/server"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

// away is a provider that cannot be reached.
type away struct{}

func (away) RoundTrip(*http.Request) (*http.Response, error) { return nil, http.ErrHandlerTimeout }

// browsers adds the login of browsers to a world, at a provider that is away. A whole
// login is tested in e2e/oidc, against a real provider.
func browsers(w *world, o *server.Options) {
	o.Login = must(login.New(w.t.Context(), login.Deps{
		Records: memory.NewRecords(), Accounts: w.tokens.Accounts(),
		Rules: func(context.Context) (platformcfg.LoginRules, error) { return platformcfg.LoginRules{}, nil },
	}, login.Options{Issuer: "http://127.0.0.1:1", ClientID: "holdfast", Clock: w.clock, Client: &http.Client{Transport: away{}}}))
}

func TestAWriteWithACookieFromAnotherSiteIsRefusedBeforeAnythingElse(t *testing.T) {
	w := build(t, browsers)
	cookie := "holdfast_session=" + strings.Repeat("a", 43)
	for _, row := range []struct {
		name   string
		pairs  []string
		status int
		code   string
	}{
		{"another site", []string{"Sec-Fetch-Site", "cross-site"}, 403, "cross_origin"},
		{"a page of the same site", []string{"Sec-Fetch-Site", "same-site"}, 403, "cross_origin"},
		{"unsaid", nil, 403, "cross_origin"},
		{"another origin", []string{"Origin", "http://localhost:9"}, 403, "cross_origin"},
		{"the own pages", []string{"Sec-Fetch-Site", "same-origin"}, 401, "unauthenticated"},
	} {
		p := w.call("", "POST", "/api/teams", `{"id":"x"}`, append(row.pairs, "Cookie", cookie)...).problem(row.status)
		if p.Code != row.code {
			t.Errorf("%s: %q, want %q", row.name, p.Code, row.code)
		}
	}
	w.call("", "GET", "/api/teams", "", "Cookie", cookie, "Sec-Fetch-Site", "cross-site").problem(401) // a read changes nothing
	w.call("operator", "POST", "/api/teams", `{"id":"x"}`, "Cookie", cookie).want(201)                 // a token is not sent by a browser by itself
}

func TestALoginAtAProviderThatIsAwaySaysSo(t *testing.T) {
	w := build(t, browsers)
	r := w.call("", "GET", "/auth/login", "")
	if p := r.problem(503); p.Code != "login_provider" || r.header.Get("Retry-After") == "" || r.header.Get("Set-Cookie") != "" {
		t.Errorf("%+v, %v", p, r.header)
	}
	if p := w.call("", "GET", "/auth/callback?code=x&state=y", "").problem(403); p.Code != "login_state" {
		t.Errorf("a callback without a login: %q", p.Code)
	}
	w.call("", "POST", "/auth/logout", "", "Sec-Fetch-Site", "same-origin").want(204)
	build(t, nil).call("", "GET", "/auth/login", "").problem(404) // no provider, no login
}
