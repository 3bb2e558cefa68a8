package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/server"
)

func TestABadBodyIsRefusedWithTheFieldAndWhatIsAllowed(t *testing.T) {
	w := build(t, nil)
	tests := []struct{ name, path, body, field, allowed string }{
		{"nothing", "/api/runs", ``, "body", "one JSON object"},
		{"broken", "/api/runs", "{\n \"team\": }", "body", "one JSON object"},
		{"a list", "/api/runs", `[]`, "body", "a JSON object"},
		{"two documents", "/api/runs", `{"team":"acme","bot":"probe"}{}`, "body", "one JSON object"},
		{"unknown field", "/api/runs", `{"team":"acme","bot":"probe","priority":1}`, "priority", "one of: team, bot, repo"},
		{"another case", "/api/runs", `{"Team":"acme","bot":"probe"}`, "Team", "one of: team"},
		{"missing", "/api/runs", `{"team":"acme"}`, "bot", ""},
		{"null", "/api/runs", `{"team":null,"bot":"probe"}`, "team", "a value"},
		{"a number for a text", "/api/runs", `{"team":7,"bot":"probe"}`, "team", "a text in double quotes"},
		{"a text for a truth", "/api/runs", `{"team":"acme","bot":"probe","external":"yes"}`, "external", "true or false"},
		{"negative", "/api/runs", `{"team":"acme","bot":"probe","budget_usd":-1}`, "budget_usd", "a decimal number from 0"},
		{"too fine", "/api/runs", `{"team":"acme","bot":"probe","budget_usd":0.0000001}`, "budget_usd", "at most 6 decimals"},
		{"overflow", "/api/runs", `{"team":"acme","bot":"probe","budget_usd":99999999999999999999}`, "budget_usd", "at most 1000000000"},
		{"exponent in a text", "/api/runs", `{"team":"acme","bot":"probe","budget_usd":"1e3"}`, "budget_usd", "a decimal number"},
		{"too fine an exponent", "/api/runs", `{"team":"acme","bot":"probe","budget_usd":1e-7}`, "budget_usd", "at most 6 decimals"},
		{"a name twice", "/api/runs", `{"team":"acme","team":"other","bot":"probe"}`, "team", "each name once"},
		{"a name twice, once escaped", "/api/runs", `{"team":"acme","t\u0065am":"acme","bot":"probe"}`, "team", "each name once"},
		{"an inner name twice", "/api/runs", `{"team":"acme","bot":"probe","inputs":{"a":"1","a":"1"}}`, "inputs.a", "each name once"},
		{"zero", "/api/runs", `{"team":"acme","bot":"probe","budget_usd":0}`, "budget_usd", "more than 0"},
		{"inner map", "/api/runs", `{"team":"acme","bot":"probe","inputs":{"a":1}}`, "inputs.a", "a text in double quotes"},
		{"a name that is none", "/api/runs", `{"team":"a/b","bot":"probe"}`, "team", "1 to 63 letters"},
		{"a pool that is not there", "/api/runs", `{"team":"acme","bot":"probe","pool":"gpu"}`, "pool", "default"},
		{"negative limit", "/api/teams", `{"id":"new","limits":{"max_concurrent_runs":-1}}`, "limits.max_concurrent_runs", "0 to 1000000000"},
		{"broken limit", "/api/teams", `{"id":"new","limits":{"monthly_usd":"lots"}}`, "limits.monthly_usd", "a decimal number"},
		{"unknown limit", "/api/teams", `{"id":"new","limits":{"tokens":1}}`, "limits.tokens", "one of: max_concurrent_runs"},
		{"half a slot", "/api/teams", `{"id":"new","limits":{"max_concurrent_runs":1.5}}`, "limits.max_concurrent_runs", "a whole number"},
	}
	for _, test := range tests {
		p := w.call("operator", "POST", test.path, test.body).problem(400)
		if len(p.Errors) == 0 || p.Errors[0].Field != test.field || !strings.Contains(p.Errors[0].Allowed, test.allowed) || p.Errors[0].Problem == "" {
			t.Errorf("%s: %+v, want field %q and allowed %q", test.name, p.Errors, test.field, test.allowed)
		}
	}
}

func TestBrokenJSONIsRefusedWithItsPosition(t *testing.T) {
	w := build(t, nil)
	p := w.call("operator", "POST", "/api/runs", "{\n  \"team\": \"acme\",\n  \"bot\": probe\n}").problem(400)
	if !strings.Contains(p.Errors[0].Problem, "line 3, column 10") {
		t.Errorf("the problem is %q", p.Errors[0].Problem)
	}
}

func TestEveryBadFieldOfABodyIsNamedAtOnce(t *testing.T) {
	w := build(t, nil)
	p := w.call("operator", "PUT", "/api/admin/settings/budget-floor", `{"reservations":[{"bot":"a"},{"bots":"b","monthly_usd":"x"}],"extra":true}`).problem(400)
	var fields []string
	for _, e := range p.Errors {
		fields = append(fields, e.Field)
	}
	want := []string{"extra", "reservations[1].bots", "reservations[1].bot", "reservations[1].monthly_usd"}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Error(diff)
	}
}

func TestABodyAboveTheLimitIsRefusedAndTheLimitNamed(t *testing.T) {
	w := build(t, nil)
	body := `{"team":"acme","bot":"probe","repo":"` + strings.Repeat("x", 1<<20) + `"}`
	p := w.call("acme/member", "POST", "/api/runs", body).problem(413)
	if !strings.Contains(p.Errors[0].Allowed, "1048576 bytes") {
		t.Errorf("allowed is %q", p.Errors[0].Allowed)
	}
	w.call("acme/member", "POST", "/api/runs", `team=acme`, "Content-Type", "application/x-www-form-urlencoded").problem(415)
	w.call("acme/member", "POST", "/api/runs", `{"team":"acme","bot":"probe"}`, "Content-Type", "application/json; charset=utf-8").want(202)
	if p := w.call("acme/member", "POST", "/api/runs", `{"team":"acme","bot":"probe"}`, "Content-Encoding", "gzip").problem(415); p.Errors[0].Field != "Content-Encoding" {
		t.Errorf("errors %+v", p.Errors)
	}
	w.call("acme/member", "POST", "/api/runs", `{"team":"acme","bot":"probe"}`, "Content-Encoding", "identity").want(202)
}

func TestLimitsTellAbsentNullAndANumberApart(t *testing.T) {
	w := build(t, nil)
	r := w.call("operator", "POST", "/api/teams", `{"id":"Fresh Team","limits":{"max_concurrent_runs":null,"monthly_usd":"2.5","monthly_runs":0}}`).want(201)
	if !strings.Contains(r.body, `"limits":{"max_concurrent_runs":null,"monthly_usd":2.5,"monthly_runs":0}`) || !strings.Contains(r.body, `"id":"fresh-team"`) {
		t.Errorf("the team is %s", r.body)
	}
	r = w.call("operator", "PATCH", "/api/teams/fresh-team", `{"limits":{"launches_per_minute":5},"inherit_limits":["monthly_runs"]}`).want(200)
	if !strings.Contains(r.body, `"limits":{"max_concurrent_runs":null,"monthly_usd":2.5,"launches_per_minute":5}`) {
		t.Errorf("after the patch: %s", r.body)
	}
	if p := w.call("operator", "PATCH", "/api/teams/fresh-team", `{"inherit_limits":["colour"]}`).problem(400); p.Errors[0].Field != "inherit_limits[0]" {
		t.Errorf("errors %+v", p.Errors)
	}
	w.call("operator", "POST", "/api/teams", `{"id":"fresh-team"}`).problem(409)
}

func TestBadParametersAreRefusedByName(t *testing.T) {
	w := build(t, nil)
	for path, field := range map[string]string{
		"/api/runs?limit=0":                             "limit",
		"/api/runs?limit=1001":                          "limit",
		"/api/runs?limit=ten":                           "limit",
		"/api/runs?limit=1&limit=2":                     "limit",
		"/api/runs?cursor=%00":                          "cursor",
		"/api/runs?cursor=made-up":                      "cursor",
		"/api/runs?cursor=" + strings.Repeat("A", 5000): "cursor",
		"/api/teams?cursor=made-up":                     "cursor",
		"/api/teams/acme/tokens?cursor=%7B%7D":          "cursor",
		"/api/bots?cursor=..%2F":                        "cursor",
		"/api/audit?cursor=x%2Fy":                       "cursor",
		"/api/decisions?cursor=x":                       "cursor",
		"/api/runs?status=lost":                         "status",
		"/api/runs?since=yesterday":                     "since",
		"/api/runs?colour=red":                          "colour",
		"/api/capacity/subject":                         "subject",
		"/api/capacity/subject?subject=":                "subject",
		"/api/capacity/subject?subject=a/b":             "subject",
		"/api/events?team=%2F":                          "team",
	} {
		p := w.call("operator", "GET", path, "").problem(400)
		if len(p.Errors) == 0 || p.Errors[0].Field != field {
			t.Errorf("%s: %+v, want field %q", path, p.Errors, field)
		}
	}
}

func TestWhatIsNotThereIsAProblemToo(t *testing.T) {
	w := build(t, nil)
	w.call("operator", "GET", "/api/nothing", "").problem(404)
	w.call("operator", "GET", "/index.html", "").problem(404)
	r := w.call("operator", "DELETE", "/api/runs", "")
	r.problem(405)
	if r.header.Get("Allow") != "GET, POST" {
		t.Errorf("Allow is %q", r.header.Get("Allow"))
	}
	w.call("operator", "GET", "/api/runs/01JUNK", "").problem(404)
	w.call("operator", "GET", "/api/teams/nowhere", "").problem(404)
	w.call("operator", "DELETE", "/api/teams/acme/tokens/junk", "").problem(404)
	w.call("operator", "DELETE", "/api/bots/probe", "").problem(404)
}

func FuzzDecodeNeverPanicsAndWhatItAcceptsIsJSON(f *testing.F) {
	for _, seed := range []string{`{"team":"a","bot":"b"}`, `{"team":`, `{"limits":{"monthly_usd":null}}`, `{"reservations":[{"bot":"x","teams":["a"]}]}`, `{"inputs":{"a":{"required":true}},"lane":"command"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, target := range []any{new(api.LaunchRequest), new(api.TeamCreate), new(api.BudgetFloor), new(api.BotBody), new(api.Limits), new(api.TokenCreate)} {
			if err := server.DecodeBody(text, target); err == nil && !json.Valid(text) {
				t.Fatalf("%q was accepted", text)
			}
		}
	})
}
