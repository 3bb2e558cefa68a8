package server_test

import (
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/api"
)

// A viewer reads what of the policy touches the team, and of another team nothing.
func TestATeamsPolicyIsReadByItsMembersOnly(t *testing.T) {
	w := build(t, nil)
	w.limits("acme", `{"max_concurrent_runs":3,"monthly_usd":"50"}`)
	w.call("operator", "PUT", "/api/admin/settings/budget-floor",
		`{"reservations":[{"bot":"review-pr","concurrent_runs":2,"note":"reviews first"},{"bot":"plan","tier":"team","team":"rival","concurrent_runs":1,"note":"rival's plan"}]}`).want(200)
	var p api.TeamPolicy
	r := w.call("acme/viewer", "GET", "/api/teams/acme/policy", "").want(200)
	r.into(&p)
	first := p.Subjects[0]
	if p.Team != "acme" || first.Subject != "team/acme/slots" || first.Ordinary == nil || first.Ordinary.Value != "1" || len(first.Reserved) != 1 || first.Reserved[0].Holder != "platform/review-pr" {
		t.Errorf("it reads %s", r.body)
	}
	if len(p.Reservations) != 1 || p.Reservations[0].Note != "reviews first" || strings.Contains(r.body, "rival") || p.LaunchesPerMinute == nil || *p.LaunchesPerMinute != 600 || p.Policy.State != "fresh" {
		t.Errorf("it reads %s", r.body)
	}
	foreign, missing := w.call("acme/viewer", "GET", "/api/teams/rival/policy", "").problem(404), w.call("acme/viewer", "GET", "/api/teams/nowhere/policy", "").problem(404)
	if foreign.Detail != missing.Detail {
		t.Errorf("another team's is told from none: %q, %q", foreign.Detail, missing.Detail)
	}
	w.call("operator", "GET", "/api/teams/nowhere/policy", "").problem(404)
}
