package login

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

// Whole logins are tested in e2e/oidc, against a real provider's library.

func service(t *testing.T, c *clocktest.Manual, change func(*Options)) (*Service, *auth.Accounts) {
	t.Helper()
	db := memory.NewRecords()
	tokens, err := auth.New(t.Context(), db, c)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Issuer: "https://id.example", ClientID: "x", Clock: c, Client: &http.Client{Transport: nobody{}}}
	if change != nil {
		change(&o)
	}
	s, err := New(t.Context(), Deps{Records: db, Accounts: tokens.Accounts(), Rules: func(context.Context) (platformcfg.LoginRules, error) { return platformcfg.LoginRules{}, nil }}, o)
	if err != nil {
		t.Fatal(err)
	}
	return s, tokens.Accounts()
}

func TestAnAnswerBelongsToTheBrowsersOwnLoginOfTheLastTenMinutes(t *testing.T) {
	c := clocktest.New()
	s, _ := service(t, c, nil)
	text, _ := json.Marshal(attempt{State: "state", Nonce: "n", Verifier: "v", Return: "//evil.example", Began: c.Now().Unix()})
	cookie := base64.RawURLEncoding.EncodeToString(text)
	try := func(state, cookie string) (attempt, string) {
		r := httptest.NewRequest(http.MethodGet, "/auth/callback?state="+url.QueryEscape(state), nil)
		r.AddCookie(&http.Cookie{Name: attemptCookie, Value: cookie})
		a, err := s.attempted(r)
		var refused *Refusal
		if errors.As(err, &refused) {
			return a, refused.Code
		}
		return a, ""
	}
	if a, code := try("state", cookie); code != "" || a.Return != "/" {
		t.Errorf("the own answer: %q, back to %q", code, a.Return)
	}
	for name, row := range map[string][2]string{"another state": {"other", cookie}, "none": {"", cookie}, "no cookie": {"state", ""}, "no login": {"state", "e30"}} {
		if _, code := try(row[0], row[1]); code != "state" {
			t.Errorf("%s: %q", name, code)
		}
	}
	c.Advance(attemptTime + time.Second)
	if _, code := try("state", cookie); code != "expired" {
		t.Errorf("after ten minutes: %q", code)
	}
}

func TestGroupsGiveTheHighestRoleOfEachTeam(t *testing.T) {
	rules := platformcfg.LoginRules{Groups: []platformcfg.GroupRule{
		{Group: "a", Team: "web", Role: "viewer"}, {Group: "b", Team: "web", Role: "admin"}, {Group: "c", Team: "web", Role: "member"}, {Group: "ops", Operator: true},
	}}
	got, operator := granted(rules, []string{"a", "b", "c", "B"})
	if diff := cmp.Diff([]auth.Membership{{Team: "web", Role: auth.Admin}}, got); diff != "" || operator {
		t.Errorf("%s, operator %v", diff, operator)
	}
	if got, operator := granted(rules, []string{"OPS", "x"}); len(got) != 0 || operator {
		t.Errorf("%v, %v: a group is compared to the letter", got, operator)
	}
	if _, operator := granted(rules, []string{"ops"}); !operator {
		t.Error("ops is no operator")
	}
}

func TestASessionIsItsCookieOnlyAndEndsWithItsAccount(t *testing.T) {
	c := clocktest.New()
	s, accounts := service(t, c, func(o *Options) { o.PublicURL = "https://holdfast.example" })
	a, err := accounts.Create(t.Context(), auth.Account{ID: "ann", Kind: auth.User, Memberships: []auth.Membership{{Team: "web", Role: auth.Member}}})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	if err := s.open(w, httptest.NewRequest(http.MethodGet, "/", nil), a); err != nil {
		t.Fatal(err)
	}
	cookie := w.Result().Cookies()[0]
	if cookie.Name != "__Host-holdfast_session" || !cookie.Secure || !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode || cookie.Path != "/" || cookie.Domain != "" {
		t.Errorf("the cookie is %+v", cookie)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: cookie.Name, Value: cookie.Value})
	who, err := s.Principal(t.Context(), r)
	if err != nil || who.Account != "ann" || !who.May("web", auth.Member) || who.May("web", auth.Admin) || who.TokenID == cookie.Value {
		t.Errorf("%+v, %v", who, err)
	}
	twice := r.Clone(t.Context())
	twice.AddCookie(&http.Cookie{Name: cookie.Name, Value: "another"})
	if s.HasSession(twice) {
		t.Error("of two cookies one is believed")
	}
	for range maxSessions {
		c.Advance(time.Second)
		if err := s.open(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), a); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Principal(t.Context(), r); !errors.Is(err, auth.ErrUnauthenticated) {
		t.Errorf("the oldest of too many sessions: %v", err)
	}
	c.Advance(13 * time.Hour)
	if err := s.Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := s.sessions.table.Count(t.Context(), "", ""); n != 0 || err != nil {
		t.Errorf("%d sessions are kept, %v", n, err)
	}
}

func TestOptionsThatCannotBeMeantAreRefusedAtTheirField(t *testing.T) {
	for field, change := range map[string]func(*Options){
		"oidc-issuer":    func(o *Options) { o.Issuer = "id.example" },
		"oidc-client-id": func(o *Options) { o.ClientID = "" },
		"public-url":     func(o *Options) { o.PublicURL = "https://a.example/path" },
	} {
		o := Options{Issuer: "https://id.example", ClientID: "x"}
		change(&o)
		_, err := o.checked()
		var bad *holdfast.InvalidError
		if !errors.As(err, &bad) || bad.Field != field || bad.Allowed == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
}
