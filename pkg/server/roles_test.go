package server_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/server"
)

// marker stands in the names of acme's things: whoever is told it was told of them.
const marker = "zebra"

const metricsBearer = "metrics-token-metrics-token-metrics"

// people adds every sort of caller to a world: accounts of one and of several teams,
// an operator's account, and those that open nothing.
func (w *world) people() {
	w.t.Helper()
	w.person("several", auth.Membership{Team: "acme", Role: auth.Member}, auth.Membership{Team: "third", Role: auth.Admin})
	w.person("single", auth.Membership{Team: "acme", Role: auth.Admin})
	w.person("nowhere")
	w.account(auth.Account{ID: "root", Kind: auth.User, Operator: true})
	w.account(auth.Account{ID: "disabled", Kind: auth.User, Operator: true})
	if _, err := w.tokens.Accounts().Update(w.t.Context(), "disabled", true, func(a *auth.Account) error { a.Disabled = true; return nil }); err != nil {
		w.t.Fatal(err)
	}
	revoked, bearer, err := w.tokens.Issue(w.t.Context(), auth.Issue{Team: "acme", Name: "revoked", Role: auth.Admin})
	if err != nil {
		w.t.Fatal(err)
	}
	w.bearers["revoked"] = bearer
	if _, err := w.tokens.Revoke(w.t.Context(), "acme", revoked.ID); err != nil {
		w.t.Fatal(err)
	}
	_, w.bearers["expired"], err = w.tokens.Issue(w.t.Context(), auth.Issue{Team: "acme", Name: "expired", Role: auth.Admin, ExpiresAt: w.clock.Now().Add(time.Second)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.clock.Advance(time.Second)
	w.bearers["bad"], w.bearers["metrics"] = "hf_"+strings.Repeat("x", 43), metricsBearer
}

// things are ids of things of acme that exist, by the name that paths have for them.
func (w *world) things() map[string]string {
	w.t.Helper()
	run := w.launched("acme/member", `{"team":"acme","bot":"probe","external":true}`)
	token, _, err := w.tokens.Issue(w.t.Context(), auth.Issue{Team: "acme", Name: marker, Role: auth.Viewer})
	if err != nil {
		w.t.Fatal(err)
	}
	w.person("ann", auth.Membership{Team: "acme", Role: auth.Viewer})
	w.call("operator", "PUT", "/api/teams/acme/bots/"+marker, `{"lane":"claw","prompt":"p"}`).want(201)
	w.call("operator", "PUT", "/api/bots/own", `{"lane":"claw","prompt":"p"}`)
	w.call("operator", "PUT", "/api/teams/acme/secrets/"+marker, `{"value":"sesame"}`).want(201)
	w.call("operator", "POST", "/api/organisations", `{"id":"`+marker+`"}`)
	var hook api.WebhookIssued
	w.call("operator", "POST", "/api/teams/acme/webhooks", `{"name":"`+marker+`","forge":"github","rules":[{"bot":"probe"}]}`).want(201).into(&hook)
	var card api.Card
	w.call("operator", "POST", "/api/board/cards", `{"team":"acme","title":"`+marker+`","bot":"probe"}`).want(201).into(&card)
	w.call("operator", "POST", "/api/schedules", `{"team":"acme","name":"`+marker+`","cron":"@daily","bot":"probe"}`).want(201)
	w.deadLetter()
	things := map[string]string{
		"seq": "1", "webhook": hook.ID, "card": card.ID, "schedule": "acme." + marker,
		"run": run.ID, "team": "acme", "token": token.ID, "bot": marker, "decision": run.DecisionID, "allocation": run.Allocations[0].ID,
		"account": "ann", "name": marker, "organisation": marker,
	}
	return things
}

var placeholder = regexp.MustCompile(`\{([a-z]+)\}`)

// filled puts ids into a route's path.
func filled(t testing.TB, path string, things map[string]string) string {
	t.Helper()
	path = placeholder.ReplaceAllStringFunc(path, func(word string) string {
		thing := things[strings.Trim(word, "{}")]
		if thing == "" {
			t.Fatalf("%s names a thing that the tests do not make: add it to things", path)
		}
		return thing
	})
	if path == "/api/capacity/subject" {
		path += "?subject=team/" + things["team"] + "/slots"
	}
	return path
}

// concrete fills a route's path with things of acme that exist.
func (w *world) concrete(rt server.RouteRow) string {
	w.t.Helper()
	things := w.things()
	switch {
	case strings.HasPrefix(rt.Path, "/api/bots/"):
		things["bot"] = "own"
	case strings.HasPrefix(rt.Path, "/api/accounts/") || strings.HasPrefix(rt.Path, "/api/me/"):
		token, _, err := w.tokens.Issue(w.t.Context(), auth.Issue{Account: "ann", Name: "spare"})
		if err != nil {
			w.t.Fatal(err)
		}
		things["token"] = token.ID
	}
	return filled(w.t, rt.Path, things)
}

// caller is who calls a route in a test of what the route does: the tokens of an
// account are the account's.
func callerOf(rt server.RouteRow) string {
	if strings.HasPrefix(rt.Path, "/api/me/") {
		return "ann"
	}
	return "operator"
}

// refusedFor says whether an answer says that the caller may not. The gate and the
// rules of one route have reasons of their own.
func refusedFor(r reply) bool {
	return r.status == http.StatusForbidden && strings.Contains(r.body, `"code":"forbidden"`)
}

func TestEveryRouteAnswersEveryCallerAsTheTableSays(t *testing.T) {
	for _, rt := range build(t, nil).server.Routes() {
		t.Run(rt.ID, func(t *testing.T) {
			t.Parallel()
			w := build(t, func(_ *world, o *server.Options) { o.MetricsToken = metricsBearer })
			w.people()
			path, row := w.concrete(rt), access[rt.ID]
			send := func(who string) reply {
				if rt.ID == "events" && !slices.Contains([]string{"", "bad", "expired", "revoked", "disabled", "metrics"}, who) {
					return w.callHead(who, path+"?team=acme") // it would not end
				}
				return w.call(who, rt.Method, path, bodyFor(rt.ID))
			}
			for _, who := range []string{"", "bad", "expired", "revoked", "disabled", "metrics"} {
				send(who).problem(http.StatusUnauthorized)
			}
			need := slices.Index(ladder, row.who)
			if r := send("nowhere"); row.team && r.status != http.StatusNotFound && r.status != http.StatusForbidden {
				t.Errorf("an account without a team is answered %d: %s", r.status, r.body)
			} else if need > 0 && r.status < 400 {
				t.Errorf("an account without a team reads %s", r.body)
			}
			first := true
			for _, caller := range []struct {
				who  string
				rank int
			}{{"acme/viewer", 1}, {"acme/member", 2}, {"several", 2}, {"acme/admin", 3}, {"single", 3}, {"operator", 4}, {"root", 4}} {
				r := send(caller.who)
				several := caller.who == "several" && !strings.Contains(path, "acme") && r.status == http.StatusBadRequest && strings.Contains(r.body, `"field":"team"`)
				switch {
				case r.status >= 500 || r.status == http.StatusUnauthorized:
					t.Errorf("%s is answered %d: %s", caller.who, r.status, r.body)
				case caller.rank < need && !refusedFor(r) && !several:
					t.Errorf("%s is answered %d where %s is needed: %s", caller.who, r.status, row.who, r.body)
				case caller.rank >= need && refusedFor(r):
					t.Errorf("%s is refused where %s is enough: %s", caller.who, row.who, r.body)
				case caller.rank >= need && (first || rt.Method == "GET") && r.status >= 400 && !several && !allowedToFail(rt.ID, r):
					t.Errorf("%s may, and is answered %d: %s", caller.who, r.status, r.body)
				}
				first = first && caller.rank < need
			}
		})
	}
}

// allowedToFail names the answers to callers who may that are no success all the same.
func allowedToFail(id string, r reply) bool {
	switch id {
	case "run-logs": // an external run's output is kept elsewhere
		return r.status == http.StatusNotFound
	case "resume-run": // it runs
		return r.status == http.StatusConflict
	case "launch", "preview": // a viewer is refused by the gate, with a decision
		return strings.Contains(r.body, `"reason":"insufficient_role"`)
	case "list-my-tokens", "create-my-token", "revoke-my-token": // a team's token has no account, and another's token is not there
		return strings.Contains(r.body, `"code":"no_account"`) || r.status == http.StatusNotFound
	}
	return false
}

func TestNothingOfAnotherTeamIsToldOrChangedAndItsIdsAreAsIfTheyWereNot(t *testing.T) {
	for _, rt := range build(t, nil).server.Routes() {
		t.Run(rt.ID, func(t *testing.T) {
			t.Parallel()
			w := build(t, nil)
			w.people()
			path, row := w.concrete(rt), access[rt.ID]
			unknown := filled(t, rt.Path, map[string]string{
				"run": "01KKBSWHG0RP8GM4H5PCYT3YDT", "team": "nosuch", "token": "01KKBSWHG0RP8GM4H5PCYT3YDT", "bot": "nosuch", "decision": "01KKBSWHG0RP8GM4H5PCYT3YDT",
				"allocation": "nosuch", "account": "nosuch", "name": "nosuch", "organisation": "nosuch", "webhook": "nosuch", "schedule": "nosuch", "card": "nosuch", "id": "nosuch", "seq": "1", "forge": "github", "delivery": "nosuch", "setting": "nosuch",
			})
			for _, who := range []string{"rival/admin", "rival/viewer"} {
				if rt.ID == "events" {
					w.call(who, "GET", path+"?team=acme", "").problem(http.StatusNotFound)
					continue
				}
				theirs := w.call(who, rt.Method, path, bodyFor(rt.ID))
				if strings.Contains(theirs.body, marker) {
					t.Errorf("%s is told of acme's things: %s", who, theirs.body)
				}
				if !row.team {
					continue
				}
				want := http.StatusNotFound
				if row.who == "operator" && !strings.Contains(rt.Path, "{team}") || who == "rival/viewer" && !strings.Contains(rt.Path, "{team}") && row.who != "viewer" {
					want = http.StatusForbidden // refused by what they are, before anything is looked for
				}
				if theirs.problem(want); theirs.status != want {
					continue
				}
				nobodys := w.call(who, rt.Method, unknown, bodyFor(rt.ID))
				if theirs.body != nobodys.body || theirs.status != nobodys.status {
					t.Errorf("%s can tell acme's %s from what does not exist:\n%s\n%s", who, path, theirs.body, nobodys.body)
				}
				for name := range theirs.header {
					if name != "X-Request-Id" && name != "Date" && !slices.Equal(theirs.header[name], nobodys.header[name]) {
						t.Errorf("the header %s tells them apart: %v, %v", name, theirs.header[name], nobodys.header[name])
					}
				}
			}
		})
	}
}

func TestWhoHasSeveralTeamsNamesOneAndSeesAllOfThemInTheList(t *testing.T) {
	w := build(t, nil)
	w.people()
	w.things()
	if p := w.call("several", "GET", "/api/runs", "").problem(400); p.Errors[0].Field != "team" || !strings.Contains(p.Errors[0].Allowed, "acme, third") {
		t.Errorf("%+v", p.Errors)
	}
	w.call("several", "GET", "/api/runs?team=acme", "").want(200)
	w.call("several", "GET", "/api/runs?team=rival", "").problem(404)
	w.call("several", "GET", "/api/audit?team=acme", "").problem(403) // its role there is member, though it is admin elsewhere
	w.call("several", "GET", "/api/teams/acme/tokens", "").problem(403)
	if r := w.call("several", "GET", "/api/teams", "").want(200); !strings.Contains(r.body, `"acme"`) || strings.Contains(r.body, `"rival"`) {
		t.Errorf("its teams are %s", r.body)
	}
	w.launched("several", `{"team":"acme","bot":"probe"}`)
	if p := w.call("several", "POST", "/api/runs", `{"team":"rival","bot":"probe"}`).problem(403); p.Reason != string(holdfast.DenyNoTeam) {
		t.Errorf("the reason is %q", p.Reason)
	}
}

func TestADisabledAccountIsOutWithItsNextRequestAndBackWhenItIsEnabled(t *testing.T) {
	w := build(t, nil)
	w.people()
	w.call("single", "GET", "/api/teams/acme", "").want(200)
	w.call("operator", "PATCH", "/api/accounts/single", `{"disabled":true}`).want(200)
	w.call("single", "GET", "/api/teams/acme", "").problem(401)
	w.call("operator", "PATCH", "/api/accounts/single", `{"disabled":false}`).want(200)
	w.call("single", "GET", "/api/teams/acme", "").want(200)
	w.call("acme/admin", "DELETE", "/api/teams/acme/members/single", "").want(204)
	w.call("single", "GET", "/api/teams/acme", "").problem(404)
}

func TestTheLastOperatorsAccountCannotTakeItselfAway(t *testing.T) {
	w := build(t, nil)
	w.account(auth.Account{ID: "root", Kind: auth.User, Operator: true})
	for _, try := range []struct{ method, body string }{{"PATCH", `{"operator":false}`}, {"PATCH", `{"disabled":true}`}, {"DELETE", ""}} {
		if p := w.call("root", try.method, "/api/accounts/root", try.body).problem(409); p.Code != "last_operator" {
			t.Errorf("%s %s: %q", try.method, try.body, p.Code)
		}
	}
	w.call("root", "POST", "/api/accounts", `{"id":"second","kind":"user","operator":true}`).want(201)
	w.call("root", "DELETE", "/api/accounts/root", "").want(204)
	w.call("root", "GET", "/api/me", "").problem(401)
	w.call("operator", "DELETE", "/api/accounts/second", "").want(204) // the operator's own token stays
}

func TestAPersonalTokenIsNoWayToMoreThanItMay(t *testing.T) {
	w := build(t, nil)
	w.people()
	var issued struct {
		ID     string `json:"id"`
		Secret string `json:"token"`
	}
	w.call("single", "POST", "/api/me/tokens", `{"name":"ci","team":"acme","role":"viewer","expires_at":"2026-03-10T13:00:00Z"}`).want(201).into(&issued)
	w.bearers["ci"] = issued.Secret
	w.call("ci", "GET", "/api/teams/acme", "").want(200)
	w.call("ci", "PUT", "/api/teams/acme/members/several", `{"role":"viewer"}`).problem(403)
	if p := w.call("ci", "POST", "/api/me/tokens", `{"name":"more"}`).problem(403); p.Code != "restricted" {
		t.Errorf("a limited token issues another: %q", p.Code)
	}
	chief := issued
	w.call("single", "POST", "/api/me/tokens", `{"name":"chief","team":"acme","role":"admin"}`).want(201).into(&chief)
	w.bearers["chief"] = chief.Secret
	if p := w.call("chief", "POST", "/api/teams/acme/tokens", `{"name":"for-ever","role":"admin"}`).problem(403); p.Code != "restricted" {
		t.Errorf("a limited token issues one of its team: %q", p.Code)
	}
	w.call("single", "POST", "/api/teams/acme/tokens", `{"name":"ci","role":"admin"}`).want(201)
	if r := w.call("ci", "GET", "/api/me", "").want(200); !strings.Contains(r.body, `"restricted":true`) || !strings.Contains(r.body, `"role":"viewer"`) {
		t.Errorf("it is %s", r.body)
	}
	if p := w.call("single", "POST", "/api/me/tokens", `{"name":"x","team":"rival"}`).problem(400); p.Errors[0].Field != "team" {
		t.Errorf("%+v", p.Errors)
	}
	w.call("several", "DELETE", "/api/me/tokens/"+issued.ID, "").problem(404)
	w.call("acme/admin", "DELETE", "/api/teams/acme/tokens/"+issued.ID, "").problem(404)
	w.call("single", "DELETE", "/api/me/tokens/"+issued.ID, "").want(204)
	w.call("ci", "GET", "/api/teams/acme", "").problem(401)
}
