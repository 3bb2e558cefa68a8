package server_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/audit"
	"github.com/holdfast-io/holdfast/pkg/server"
)

// silent are the routes that change nothing, or that only renew a lease. Whoever adds
// one here has to say why a success needs no row.
var silent = map[string]string{
	"preview":            "it takes nothing",
	"check-budget-floor": "it writes nothing",
	"heartbeat":          "it moves a lease; the run tells the rest",
}

// rows are the audit trail's, the newest first.
func (w *world) rows(filter audit.Filter) []audit.Entry {
	w.t.Helper()
	if err := w.trail.Flush(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	filter.Limit = 1000
	list, _, err := w.trail.List(w.t.Context(), filter)
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

func TestEveryRouteThatChangesSomethingLeavesARow(t *testing.T) {
	writes := 0
	for _, rt := range build(t, nil).server.Routes() {
		if rt.Method == http.MethodGet {
			continue
		}
		writes++
		t.Run(rt.ID, func(t *testing.T) {
			t.Parallel()
			w := build(t, nil)
			path := w.concrete(rt)
			if rt.ID == "resume-run" {
				return // only a run that failed can be resumed: see TestTheTrailOfARun
			}
			before := len(w.rows(audit.Filter{}))
			r := w.call(callerOf(rt), rt.Method, path, bodyFor(rt.ID), "X-Request-Id", "request-1")
			if r.status >= 300 {
				t.Fatalf("%d: %s", r.status, r.body)
			}
			rows := w.rows(audit.Filter{})
			fresh := rows[:len(rows)-before]
			if why, is := silent[rt.ID]; is {
				if len(fresh) != 0 {
					t.Errorf("%s leaves %+v although %s", rt.ID, fresh, why)
				}
				return
			}
			if len(fresh) != 1 {
				t.Fatalf("%d rows, want 1: %+v", len(fresh), fresh)
			}
			row := fresh[0]
			if row.Outcome != audit.Done || row.Actor == "" || row.Target == "" || row.Action == "" {
				t.Errorf("the row is %+v", row)
			}
			if rt.ID != "release-allocation" && (row.Request != "request-1" || row.IP != "127.0.0.1" || row.Token == "") {
				t.Errorf("the row does not say whose request it was: %+v", row)
			}
			if strings.Contains(rt.Path, "{team}") && row.Team != "acme" {
				t.Errorf("the row is of the team %q", row.Team)
			}
		})
	}
	if writes < 20 {
		t.Errorf("only %d routes write", writes)
	}
}

func TestEveryRefusedWriteLeavesARowOfWhoWasToldNo(t *testing.T) {
	w := build(t, nil)
	w.people()
	paths := map[server.RouteRow]string{}
	for _, rt := range w.server.Routes() {
		if _, is := silent[rt.ID]; rt.Method != http.MethodGet && (!is || rt.ID == "heartbeat") {
			paths[rt] = filled(t, rt.Path, w.once())
		}
	}
	for rt, path := range paths {
		for _, try := range []struct {
			who, actor string
			account    string
		}{{"", audit.Nobody, ""}, {"disabled", audit.Nobody, ""}, {"rival/viewer", "rival viewer", ""}, {"nowhere", "nowhere", "nowhere"}} {
			r := w.call(try.who, rt.Method, path, bodyFor(rt.ID), "X-Request-Id", "refused")
			if r.status < 400 {
				if strings.HasPrefix(rt.Path, "/api/me/") { // the own tokens are anybody's
					continue
				}
				t.Fatalf("%s: %q was let in: %d %s", rt.ID, try.who, r.status, r.body)
			}
			rows := w.rows(audit.Filter{Outcome: audit.Refused, Action: rt.ID, Actor: try.actor})
			if len(rows) == 0 || rows[0].Account != try.account || rows[0].IP != "127.0.0.1" || rows[0].Detail["status"] != http.StatusText(r.status) && try.who != "disabled" {
				t.Errorf("%s of %q (%d) left %+v", rt.ID, try.who, r.status, rows)
			}
		}
	}
	if list := w.rows(audit.Filter{Team: "acme", Outcome: audit.Refused}); len(list) != 0 {
		t.Errorf("what others were refused stands among acme's rows: %+v", list)
	}
}

// once makes things of acme one time.
func (w *world) once() map[string]string {
	if w.made == nil {
		w.made = w.things()
	}
	return w.made
}

func TestTheTrailOfARunLeadsToItsDecisions(t *testing.T) {
	w := build(t, nil)
	run := w.launched("acme/member", `{"team":"acme","bot":"probe","external":true}`)
	w.call("acme/member", "POST", "/api/runs/"+run.ID+"/settle", `{"spent_usd":0,"outcome":"finished"}`).want(200)
	w.limits("acme", `{"max_concurrent_runs":0}`)
	for range 3 {
		w.call("acme/member", "POST", "/api/runs", `{"team":"acme","bot":"probe"}`).problem(429)
	}
	if err := w.trail.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	var page api.Page[api.AuditEntry]
	w.call("acme/admin", "GET", "/api/audit", "").want(200).into(&page)
	var seen []string
	for _, e := range page.Items {
		seen = append(seen, e.Outcome+" "+e.Action)
		if e.Action == "launch" && (e.DecisionID == "" || e.Count != 3 || !strings.Contains(e.Detail, "concurrency_cap_exceeded") || e.Team != "acme") {
			t.Errorf("the refusals are %+v", e)
		}
		if e.Action == "run.launched" && (e.Target != run.ID || e.DecisionID != run.DecisionID) {
			t.Errorf("the launch is %+v", e)
		}
	}
	if want := []string{"refused launch", "done team.changed", "done settle", "done run.launched"}; !slices.Equal(seen, want) {
		t.Errorf("the trail is %v, want %v", seen, want)
	}
	w.call("rival/admin", "GET", "/api/audit", "").want(200).into(&page)
	if len(page.Items) != 0 {
		t.Errorf("rival reads %+v", page.Items)
	}
	w.call("operator", "GET", "/api/audit?outcome=refused&action=launch&actor=acme%20member", "").want(200).into(&page)
	if len(page.Items) != 1 {
		t.Errorf("filtered: %+v", page.Items)
	}
	w.call("acme/member", "GET", "/api/audit", "").problem(403)
}

func TestNoRowHoldsASecret(t *testing.T) {
	w := build(t, nil)
	w.people()
	var issued struct {
		Secret string `json:"token"`
	}
	var secrets []string
	for _, path := range []string{"/api/teams/acme/tokens", "/api/accounts/single/tokens"} {
		w.call("operator", "POST", path, `{"name":"ci","role":"viewer"}`).want(201).into(&issued)
		secrets = append(secrets, issued.Secret)
	}
	w.call("single", "POST", "/api/me/tokens", `{"name":"own"}`).want(201).into(&issued)
	secrets = append(secrets, issued.Secret, operatorBearer, "sesame")
	w.things()
	w.call("", "POST", "/api/teams", `{"id":"x"}`, "Authorization", "Bearer "+secrets[0]+"x").problem(401)
	w.call("operator", "PUT", "/api/teams/nosuch/secrets/x", `{"value":"sesame"}`).problem(404)
	rows := w.rows(audit.Filter{})
	text, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range secrets {
		if strings.Contains(string(text), secret) {
			t.Errorf("the trail holds %q", secret)
		}
	}
	for _, row := range rows {
		if row.Action == "token.issued" && row.Detail["team"] == "" && row.Detail["account"] == "" {
			t.Errorf("a token's row does not say whose it is: %+v", row)
		}
	}
}

func TestARequestKeepsItsIDWhereItIsOne(t *testing.T) {
	w := build(t, nil)
	for _, row := range []struct {
		given string
		kept  bool
	}{{"trace-1.a_B", true}, {"", false}, {strings.Repeat("x", 65), false}, {"a b", false}, {"a\"b", false}} {
		r := w.call("", "GET", "/healthz", "", "X-Request-Id", row.given)
		if got := r.header.Get("X-Request-Id"); got == "" || (got == row.given) != row.kept {
			t.Errorf("%q became %q", row.given, got)
		}
	}
}
