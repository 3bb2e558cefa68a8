package login

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

// FuzzCookiesLogNobodyIn: whatever cookies and query a browser brings, no session and
// no login comes of it, and it is sent nowhere else.
func FuzzCookiesLogNobodyIn(f *testing.F) {
	good := base64.RawURLEncoding.EncodeToString([]byte(`{"s":"state","n":"n","v":"v","r":"//evil","b":1767787200}`))
	for _, cookie := range []string{"", good, "e30", "!", strings.Repeat("A", 43)} {
		f.Add(cookie, "state=state&code=x", "/ok")
	}
	f.Fuzz(func(t *testing.T, cookie, query, to string) {
		c := clocktest.New()
		db := memory.NewRecords()
		tokens, err := auth.New(t.Context(), db, c)
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(t.Context(), Deps{Records: db, Accounts: tokens.Accounts(), Rules: func(context.Context) (platformcfg.LoginRules, error) { return platformcfg.LoginRules{}, nil }},
			Options{Issuer: "http://127.0.0.1:1", ClientID: "x", Clock: c, Client: &http.Client{Transport: nobody{}}})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/auth/callback", nil)
		r.URL.RawQuery = query
		r.Header.Set("Cookie", "holdfast_login="+cookie+"; holdfast_session="+cookie)
		if who, err := s.Principal(t.Context(), r); err == nil {
			t.Fatalf("the cookie %q is %+v", cookie, who)
		}
		if account, err := s.Callback(httptest.NewRecorder(), r); err == nil {
			t.Fatalf("the cookie %q logs %+v in", cookie, account)
		}
		path := localPath(to)
		u, err := url.Parse(path)
		if err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.HasPrefix(path, "/\\") {
			t.Fatalf("%q leads to %q", to, path)
		}
	})
}

// nobody is a network without anybody.
type nobody struct{}

func (nobody) RoundTrip(*http.Request) (*http.Response, error) { return nil, http.ErrHandlerTimeout }
