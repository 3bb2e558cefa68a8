package server_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/api"
)

func TestAnOrganisationIsMadeJoinedLimitedAndSuspended(t *testing.T) {
	w := build(t, nil)
	org := func(r reply, status int) (o api.Organisation) {
		t.Helper()
		r.want(status).into(&o)
		return o
	}
	made := org(w.call("operator", "POST", "/api/organisations", `{"id":"Europe West","limits":{"max_concurrent_runs":1,"monthly_usd":"9.50"}}`), 201)
	if made.ID != "europe-west" || len(made.Teams) != 0 || made.Suspended {
		t.Errorf("made %+v", made)
	}
	w.call("operator", "POST", "/api/organisations", `{"id":"europe_west"}`).problem(409)
	for _, body := range []string{`{"organisation":"nowhere"}`, `{"organisation":"not/a/name"}`} {
		p := w.call("operator", "PATCH", "/api/teams/acme", body).problem(400)
		if len(p.Errors) != 1 || p.Errors[0].Field != "organisation" {
			t.Errorf("%s is answered %+v", body, p)
		}
	}
	for _, team := range []string{"acme", "rival"} {
		var got api.Team
		w.call("operator", "PATCH", "/api/teams/"+team, `{"organisation":"Europe_West"}`).want(200).into(&got)
		if got.Organisation != "europe-west" {
			t.Errorf("%s belongs to %q", team, got.Organisation)
		}
	}
	if shown := org(w.call("operator", "GET", "/api/organisations/europe-west", ""), 200); !slices.Equal(shown.Teams, []string{"acme", "rival"}) {
		t.Errorf("its teams are %v", shown.Teams)
	}

	w.launched("acme/member", `{"team":"acme","bot":"probe"}`)
	if p := w.call("rival/member", "POST", "/api/runs", `{"team":"rival","bot":"probe"}`).problem(429); p.Subject != "org/europe-west/slots" {
		t.Errorf("refused on %q", p.Subject)
	}
	patched := org(w.call("operator", "PATCH", "/api/organisations/europe-west", `{"suspended":true,"suspended_reason":"unpaid","limits":{"max_concurrent_runs":null}}`), 200)
	if n, set := patched.Limits.MonthlyUSD.Value(); !patched.Suspended || !set || n != 9_500_000 || patched.Limits.MaxConcurrentRuns.Inherits() {
		t.Errorf("patched to %+v", patched)
	}
	if p := w.call("rival/member", "POST", "/api/runs", `{"team":"rival","bot":"probe"}`).problem(403); !strings.Contains(p.Detail, "unpaid") {
		t.Errorf("a suspended organisation's launch says %q", p.Detail)
	}
	if back := org(w.call("operator", "PATCH", "/api/organisations/europe-west", `{"suspended":false}`), 200); back.Suspended || back.SuspendedReason != "" {
		t.Errorf("reinstated as %+v", back)
	}
	w.call("operator", "PATCH", "/api/organisations/nowhere", `{"name":"x"}`).problem(404)
	var page api.Page[api.Organisation]
	w.call("operator", "GET", "/api/organisations", "").want(200).into(&page)
	if len(page.Items) != 1 || page.Items[0].ID != "europe-west" {
		t.Errorf("listed %+v", page)
	}
}
