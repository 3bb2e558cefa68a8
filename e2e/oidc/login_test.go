package oidc_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/audit"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/board"
	"github.com/holdfast-io/holdfast/pkg/botsource"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/login"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/schedule"
	"github.com/holdfast-io/holdfast/pkg/secrets"
	"github.com/holdfast-io/holdfast/pkg/server"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
	"github.com/holdfast-io/holdfast/pkg/teams"
	"github.com/holdfast-io/holdfast/pkg/webhook"
)

// shifted is the machine's clock, moved.
type shifted struct{ by time.Duration }

func (s *shifted) Now() time.Time { return clock.System{}.Now().Add(s.by) }

// world is a server whose people log in at a provider.
type world struct {
	t        *testing.T
	clock    *shifted
	http     *httptest.Server
	provider *provider
	tokens   *auth.Tokens
	settings *platformcfg.Settings
	trail    *audit.Log
	rules    platformcfg.LoginRules
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func build(t *testing.T) *world {
	t.Helper()
	ctx := t.Context()
	w := &world{t: t, clock: &shifted{}}
	var handler http.Handler
	w.http = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { handler.ServeHTTP(rw, r) }))
	t.Cleanup(w.http.Close)
	w.provider = newProvider(t, w.http.URL+"/auth/callback")
	db := memory.NewRecords()
	w.tokens = must(auth.New(ctx, db, w.clock))
	w.trail = must(audit.New(ctx, db, w.clock))
	w.settings = must(platformcfg.New(ctx, db, w.clock, platformcfg.Options{}))
	bots := must(botsource.New(ctx, db))
	members := must(teams.New(ctx, db))
	history := must(runs.New(ctx, db))
	recorder := must(decisions.New(ctx, db, w.clock, decisions.Options{}))
	resolver := botsource.NewResolver(bots, botsource.Options{})
	service := must(launch.New(launch.Deps{
		Ledger: capacityledger.New(memory.NewLedger(), capacityledger.Options{Clock: w.clock}), Runs: history, Teams: members, Bots: resolver,
		Settings: w.settings, Decisions: recorder, Audit: w.trail, Queue: nowhere{},
	}, launch.Options{Clock: w.clock}))
	browsers := must(login.New(ctx, login.Deps{
		Records: db, Accounts: w.tokens.Accounts(),
		Rules: func(ctx context.Context) (platformcfg.LoginRules, error) {
			reading, err := w.settings.Login.Read(ctx)
			return reading.Value, err
		},
	}, login.Options{Issuer: w.provider.url, ClientID: clientID, ClientSecret: secret, Clock: w.clock}))
	keys := must(secrets.ParseKeyring(secrets.NewKey()))
	hooks := must(webhook.New(ctx, db, w.clock, keys))
	surfaces := server.Surfaces{
		Schedules: must(schedule.New(ctx, db, w.clock)), Cards: must(board.New(ctx, db, w.clock)), Webhooks: hooks,
		Receiver: must(webhook.NewReceiver(hooks, service, history, webhook.Options{Clock: w.clock})), Dead: none{},
	}
	broker := server.NewBroker(w.clock)
	t.Cleanup(broker.Close)
	handler = must(server.New(ctx, server.Deps{
		Records: db, Launch: service, Runs: history, Teams: members, Tokens: w.tokens, Bots: bots, Resolver: resolver, Settings: w.settings,
		Decisions: recorder, Audit: w.trail, Secrets: must(secrets.NewVault(ctx, db, w.clock, keys)), Surfaces: surfaces, Broker: broker,
	}, server.Options{Clock: w.clock, Login: browsers})).Handler()
	for _, team := range []holdfast.TeamID{"web", "payments"} {
		must(members.Create(ctx, teams.Team{ID: team, CreatedAt: w.clock.Now(), UpdatedAt: w.clock.Now()}))
	}
	w.group(platformcfg.GroupRule{Group: "web-admins", Team: "web", Role: "admin"}, platformcfg.GroupRule{Group: "web-readers", Team: "web", Role: "viewer"},
		platformcfg.GroupRule{Group: "money", Team: "payments", Role: "member"}, platformcfg.GroupRule{Group: "ops", Operator: true})
	w.provider.person = person{subject: "sub-ann", login: "ann", name: "Ann", email: "ann@example.com", verified: true, groups: []string{"web-admins", "others"}}
	return w
}

// group replaces what the groups mean.
func (w *world) group(rules ...platformcfg.GroupRule) {
	w.t.Helper()
	reading, err := w.settings.Login.Write(w.t.Context(), platformcfg.LoginRules{Groups: rules, UpdatedAt: w.rules.UpdatedAt}, "test")
	if err != nil {
		w.t.Fatal(err)
	}
	w.rules = reading.Value
}

// nowhere is a queue that nothing is launched into.
type nowhere struct{ launch.Publisher }

// none are the dead letters of a deployment without any.
type (
	letters = server.DeadLetters
	none    struct{ letters }
)

// browser keeps cookies and follows redirects one by one.
type browser struct {
	w    *world
	jar  http.CookieJar
	http *http.Client
}

func (w *world) browser() *browser {
	jar := must(cookiejar.New(nil))
	return &browser{w, jar, &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (b *browser) send(method, address string, pairs ...string) answer {
	b.w.t.Helper()
	r := must(http.NewRequestWithContext(b.w.t.Context(), method, address, nil))
	for i := 0; i+1 < len(pairs); i += 2 {
		r.Header.Set(pairs[i], pairs[i+1])
	}
	response, err := b.http.Do(r)
	if err != nil {
		b.w.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text := must(io.ReadAll(response.Body))
	return answer{response.StatusCode, response.Header, string(text)}
}

// toCallback goes to the provider and stops before its answer is taken: the address
// that the provider sends the browser to.
func (b *browser) toCallback(from string) string {
	b.w.t.Helper()
	address := b.w.http.URL + from
	for range 6 {
		a := b.send("GET", address)
		if a.status != http.StatusFound {
			b.w.t.Fatalf("GET %s: %d %s", address, a.status, a.body)
		}
		next := must(must(url.Parse(address)).Parse(a.header.Get("Location")))
		if address = next.String(); strings.HasPrefix(address, b.w.http.URL+"/auth/callback") {
			return address
		}
	}
	b.w.t.Fatal("the provider does not send the browser back")
	return ""
}

// login logs in, and demands where the browser is sent then.
func (b *browser) login(from, to string) {
	b.w.t.Helper()
	a := b.send("GET", b.toCallback(from))
	if a.status != http.StatusFound || a.header.Get("Location") != to {
		b.w.t.Fatalf("the login ends with %d to %q: %s", a.status, a.header.Get("Location"), a.body)
	}
}

// me is what the server says of the browser.
func (b *browser) me() (status int, me struct {
	Account     string                        `json:"account"`
	Operator    bool                          `json:"operator"`
	Memberships []struct{ Team, Role string } `json:"memberships"`
},
) {
	b.w.t.Helper()
	a := b.send("GET", b.w.http.URL+"/api/me")
	if a.status == http.StatusOK {
		if err := json.Unmarshal([]byte(a.body), &me); err != nil {
			b.w.t.Fatal(err)
		}
	}
	return a.status, me
}

func (b *browser) out(why string) {
	b.w.t.Helper()
	if status, me := b.me(); status != http.StatusUnauthorized {
		b.w.t.Errorf("%s: the browser is %d %+v, want nobody", why, status, me)
	}
}

func (b *browser) refused(a answer, status int, code string) {
	b.w.t.Helper()
	if a.status != status || !strings.Contains(a.body, `"code":"`+code+`"`) {
		b.w.t.Errorf("answered %d %s, want %d %s", a.status, a.body, status, code)
	}
	b.out(code)
}

func (b *browser) cookie(name string) string {
	for _, c := range b.jar.Cookies(must(url.Parse(b.w.http.URL))) {
		if c.Name == name {
			return c.Value
		}
	}
	return ""
}

func TestAPersonLogsInAndMayWhatTheirGroupsSay(t *testing.T) {
	for name, inToken := range map[string]bool{"claims in the token": true, "claims on the user info page": false} {
		t.Run(name, func(t *testing.T) {
			w := build(t)
			w.provider.inToken = inToken
			b := w.browser()
			b.out("before the login")
			b.login("/auth/login?return_to=/studio%3Fa%3D1", "/studio?a=1")
			status, me := b.me()
			if status != 200 || me.Account != "ann" || me.Operator || len(me.Memberships) != 1 || me.Memberships[0].Team != "web" || me.Memberships[0].Role != "admin" {
				t.Fatalf("%d %+v", status, me)
			}
			a, err := w.tokens.Accounts().Get(t.Context(), "ann")
			if err != nil || a.Email != "ann@example.com" || a.Name != "Ann" || a.Subject != w.provider.url+" sub-ann" {
				t.Errorf("%+v, %v", a, err)
			}
			if got := b.send("GET", w.http.URL+"/api/teams/web/tokens").status; got != 200 {
				t.Errorf("an admin's page is %d", got)
			}
			if got := b.send("GET", w.http.URL+"/api/teams/payments").status; got != 404 {
				t.Errorf("another team's page is %d", got)
			}
		})
	}
}

func TestAWriteWithASessionComesFromTheServersOwnPages(t *testing.T) {
	w := build(t)
	b := w.browser()
	b.login("/auth/login", "/")
	path := w.http.URL + "/api/teams/web/members/nobody"
	for _, row := range []struct {
		name   string
		pairs  []string
		status int
	}{
		{"own page", []string{"Sec-Fetch-Site", "same-origin"}, 404},
		{"own origin", []string{"Origin", w.http.URL}, 404},
		{"another site", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"another port", []string{"Origin", "http://127.0.0.1:1"}, 403},
		{"unsaid", nil, 403},
	} {
		if a := b.send("DELETE", path, row.pairs...); a.status != row.status {
			t.Errorf("%s: %d %s, want %d", row.name, a.status, a.body, row.status)
		}
	}
	if a := b.send("POST", w.http.URL+"/auth/logout", "Sec-Fetch-Site", "cross-site"); a.status != 403 {
		t.Errorf("another site logs people out: %d", a.status)
	}
}

func TestTheSessionsCookieIsClosedRotatedAndEndsWithTheLogout(t *testing.T) {
	w := build(t)
	b := w.browser()
	a := b.send("GET", b.toCallback("/auth/login"))
	var set string
	for _, line := range a.header.Values("Set-Cookie") {
		if strings.HasPrefix(line, "holdfast_session=") {
			set = line
		}
	}
	for _, part := range []string{"HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=43200"} {
		if !strings.Contains(set, part) {
			t.Errorf("the cookie is %q, without %s", set, part)
		}
	}
	first := b.cookie("holdfast_session")
	b.login("/auth/login", "/")
	second := b.cookie("holdfast_session")
	if first == second || first == "" {
		t.Errorf("a new login keeps the session %q", first)
	}
	old := w.browser()
	old.jar.SetCookies(must(url.Parse(w.http.URL)), []*http.Cookie{{Name: "holdfast_session", Value: first}})
	old.out("the session before the new login")
	if a := b.send("POST", w.http.URL+"/auth/logout", "Sec-Fetch-Site", "same-origin"); a.status != 204 {
		t.Fatalf("logout: %d %s", a.status, a.body)
	}
	b.out("after the logout")
	old.jar.SetCookies(must(url.Parse(w.http.URL)), []*http.Cookie{{Name: "holdfast_session", Value: second}})
	old.out("a copy of the cookie after the logout")
}

func TestASessionEndsAfterItsTimeAndWhenItIsNotUsed(t *testing.T) {
	w := build(t)
	b := w.browser()
	b.login("/auth/login", "/")
	for range 7 { // used every hour and a half, up to ten and a half
		w.clock.by += 90 * time.Minute
		if status, _ := b.me(); status != 200 {
			t.Fatalf("after %s: %d", w.clock.by, status)
		}
	}
	w.clock.by = 12 * time.Hour
	b.out("after twelve hours")
	w.clock.by = 0
	idle := w.browser()
	idle.login("/auth/login", "/")
	w.clock.by = 2 * time.Hour
	idle.out("unused for two hours")
}

func TestWhatIsNotTheAnswerToThisBrowsersLoginLogsNobodyIn(t *testing.T) {
	w := build(t)
	b := w.browser()
	back := b.toCallback("/auth/login")
	wrong := must(url.Parse(back))
	query := wrong.Query()
	query.Set("state", "made-up")
	wrong.RawQuery = query.Encode()
	b.refused(b.send("GET", wrong.String()), 403, "login_state")
	b.refused(b.send("GET", back), 403, "login_state") // the answer is taken once, also a wrong one

	other := w.browser()
	other.refused(other.send("GET", b.toCallback("/auth/login")), 403, "login_state") // another browser's answer

	denied := w.browser()
	denied.toCallback("/auth/login")
	query = must(url.Parse(denied.toCallback("/auth/login"))).Query()
	query.Set("error", "access_denied")
	query.Del("code")
	denied.refused(denied.send("GET", w.http.URL+"/auth/callback?"+query.Encode()), 403, "login_denied")

	late := w.browser()
	back = late.toCallback("/auth/login")
	w.clock.by = 11 * time.Minute
	late.refused(late.send("GET", back), 403, "login_expired")
}

func TestACodeIsGoodOnce(t *testing.T) {
	w := build(t)
	b := w.browser()
	back := b.toCallback("/auth/login")
	attempt := b.cookie("holdfast_login")
	if a := b.send("GET", back); a.status != 302 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	thief := w.browser()
	thief.jar.SetCookies(must(url.Parse(w.http.URL)), []*http.Cookie{{Name: "holdfast_login", Value: attempt}})
	thief.refused(thief.send("GET", back), 403, "login_token")
}

func TestATokenThatIsNotForThisLoginLogsNobodyIn(t *testing.T) {
	for name, row := range map[string]struct {
		spoil func(*world)
		code  string
	}{
		"another nonce":    {func(w *world) { w.provider.nonce = "made-up" }, "login_nonce"},
		"another audience": {func(w *world) { w.provider.spoil = map[string]any{"aud": "somebody-else"} }, "login_token"},
		"another issuer":   {func(w *world) { w.provider.spoil = map[string]any{"iss": "https://elsewhere.example"} }, "login_token"},
		"made for another client that may hand it on": {func(w *world) {
			w.provider.spoil = map[string]any{"aud": []string{clientID, "somebody-else"}, "azp": "somebody-else"}
		}, "login_token"},
		"another key": {func(w *world) {
			w.provider.spoil, w.provider.signWith = map[string]any{"name": "x"}, must(rsa.GenerateKey(rand.Reader, 2048))
		}, "login_token"},
		"nobody":        {func(w *world) { w.provider.spoil = map[string]any{"sub": ""} }, "login_token"},
		"expired":       {func(w *world) { w.provider.lifetime = -2 * time.Minute }, "login_token"},
		"of the future": {func(w *world) { w.clock.by = -2 * time.Minute }, "login_token"},
	} {
		t.Run(name, func(t *testing.T) {
			w := build(t)
			row.spoil(w)
			b := w.browser()
			b.refused(b.send("GET", b.toCallback("/auth/login")), 403, row.code)
			if list, _, err := w.tokens.Accounts().List(t.Context(), 0, ""); err != nil || len(list) != 0 {
				t.Errorf("%d accounts were made, %v", len(list), err)
			}
		})
	}
	w := build(t)
	w.provider.lifetime = -30 * time.Second // the clocks are a little apart
	w.browser().login("/auth/login", "/")
}

func TestADisabledAccountIsOutAtOnceAndDoesNotComeBackIn(t *testing.T) {
	w := build(t)
	b := w.browser()
	b.login("/auth/login", "/")
	if _, err := w.tokens.Accounts().Update(t.Context(), "ann", false, func(a *auth.Account) error { a.Disabled = true; return nil }); err != nil {
		t.Fatal(err)
	}
	b.out("disabled")
	again := w.browser()
	again.refused(again.send("GET", again.toCallback("/auth/login")), 403, "login_disabled")
}

func TestTheNextLoginBringsTheGroupsOfThatDay(t *testing.T) {
	w := build(t)
	b := w.browser()
	b.login("/auth/login", "/")
	w.provider.set(func() { w.provider.person.groups = []string{"money", "web-readers"} })
	b.login("/auth/login", "/")
	_, me := b.me()
	if len(me.Memberships) != 2 || me.Memberships[0].Team != "payments" || me.Memberships[0].Role != "member" || me.Memberships[1].Role != "viewer" {
		t.Errorf("%+v", me)
	}
	w.provider.set(func() { w.provider.person.groups = []string{"ops"} })
	b.login("/auth/login", "/")
	if _, me := b.me(); !me.Operator {
		t.Errorf("%+v", me)
	}
	w.group() // nothing means anything any more
	b.login("/auth/login", "/")
	if _, me := b.me(); me.Operator || len(me.Memberships) != 0 {
		t.Errorf("%+v", me)
	}
}

func TestWhoHasNoAccountAndNoGroupIsNotLetIn(t *testing.T) {
	w := build(t)
	w.provider.person.groups = nil
	b := w.browser()
	b.refused(b.send("GET", b.toCallback("/auth/login")), 403, "login_no_account")
	if err := w.trail.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rows, _, err := w.trail.List(t.Context(), audit.Filter{Action: "login"}); err != nil || len(rows) != 1 || rows[0].Outcome != audit.Refused || rows[0].Detail["code"] != "login_no_account" {
		t.Errorf("%+v, %v", rows, err)
	}
}

func TestAnAccountThatAnOperatorMadeIsTakenOverByItsVerifiedAddressAndByNobodyElse(t *testing.T) {
	w := build(t)
	w.provider.person.groups, w.provider.person.login = nil, "someone"
	make := func(id, email string) {
		if _, err := w.tokens.Accounts().Create(t.Context(), auth.Account{ID: id, Kind: auth.User, Email: email, Memberships: []auth.Membership{{Team: "web", Role: auth.Member}}}); err != nil {
			t.Fatal(err)
		}
	}
	make("the-ann", "Ann@Example.com")
	w.provider.person.verified = false
	b := w.browser()
	b.refused(b.send("GET", b.toCallback("/auth/login")), 403, "login_no_account")
	w.provider.set(func() { w.provider.person.verified = true })
	b.login("/auth/login", "/")
	if _, me := b.me(); me.Account != "the-ann" || len(me.Memberships) != 1 {
		t.Errorf("%+v", me)
	}
	// Somebody else, to whom the provider gave the address later.
	w.provider.set(func() { w.provider.person.subject = "sub-other" })
	thief := w.browser()
	thief.refused(thief.send("GET", thief.toCallback("/auth/login")), 403, "login_no_account")
}

func TestAProviderThatCannotBeReachedIsSaidAndLogsNobodyIn(t *testing.T) {
	w := build(t)
	b := w.browser()
	back := b.toCallback("/auth/login")
	w.provider.http.Close()
	b.refused(b.send("GET", back), 503, "login_provider")
	fresh := build(t)
	fresh.provider.http.Close()
	b = fresh.browser()
	a := b.send("GET", fresh.http.URL+"/auth/login")
	b.refused(a, 503, "login_provider")
	if a.header.Get("Retry-After") == "" {
		t.Error("it does not say when to try again")
	}
}

func TestALoginComesBackToAPathOfThisServerOnly(t *testing.T) {
	w := build(t)
	for given, want := range map[string]string{
		"/runs/1": "/runs/1", "": "/", "//evil.example": "/", "https://evil.example": "/", "/\\evil.example": "/", "runs": "/", "/" + strings.Repeat("x", 600): "/",
	} {
		w.browser().login("/auth/login?return_to="+url.QueryEscape(given), want)
	}
}
