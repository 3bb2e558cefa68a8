package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/server"
)

// access is who may call each route of the design, by the route's id. "team" says
// that the route has an owner, so that another team's token finds nothing.
var access = map[string]struct {
	who  string
	team bool
}{
	"launch": {"any token", false}, "preview": {"any token", false},
	"list-runs": {"viewer", false}, "get-run": {"viewer", true}, "explain-run": {"viewer", true}, "run-logs": {"viewer", true},
	"cancel-run": {"member", true}, "resume-run": {"member", true}, "heartbeat": {"member", true}, "settle": {"member", true},
	"capacity": {"viewer", false}, "capacity-subject": {"viewer", false}, "release-allocation": {"operator", false},
	"list-decisions": {"viewer", false}, "get-decision": {"viewer", true}, "explain-decision": {"viewer", true},
	"create-team": {"operator", false}, "list-teams": {"viewer", false}, "get-team": {"viewer", true}, "patch-team": {"operator", true},
	"team-policy": {"viewer", true}, "create-organisation": {"operator", false}, "list-organisations": {"operator", false}, "get-organisation": {"operator", false}, "patch-organisation": {"operator", false},
	"create-token": {"admin", true}, "list-tokens": {"admin", true}, "revoke-token": {"admin", true},
	"list-bots": {"viewer", false}, "get-bot": {"viewer", false}, "put-bot": {"operator", false}, "delete-bot": {"operator", false},
	"list-team-bots": {"viewer", true}, "get-team-bot": {"viewer", true}, "put-team-bot": {"admin", true}, "delete-team-bot": {"admin", true},
	"get-budget-floor": {"operator", false}, "put-budget-floor": {"operator", false}, "check-budget-floor": {"operator", false},
	"get-limits": {"operator", false}, "put-limits": {"operator", false}, "get-maintenance": {"operator", false}, "put-maintenance": {"operator", false},
	"get-usage-caps": {"operator", false}, "put-usage-caps": {"operator", false}, "get-runner-pools": {"operator", false}, "put-runner-pools": {"operator", false},
	"list-secrets": {"admin", true}, "put-secret": {"admin", true}, "delete-secret": {"admin", true},
	"me": {"any token", false}, "list-my-tokens": {"any token", false}, "create-my-token": {"any token", false}, "revoke-my-token": {"any token", false},
	"list-accounts": {"operator", false}, "create-account": {"operator", false}, "get-account": {"operator", false}, "patch-account": {"operator", false}, "delete-account": {"operator", false},
	"list-account-tokens": {"operator", false}, "create-account-token": {"operator", false}, "revoke-account-token": {"operator", false},
	"list-members": {"viewer", true}, "put-member": {"admin", true}, "delete-member": {"admin", true},
	"get-login": {"operator", false}, "put-login": {"operator", false},
	"list-schedules": {"viewer", false}, "create-schedule": {"member", false}, "get-schedule": {"viewer", true}, "patch-schedule": {"member", true}, "delete-schedule": {"member", true},
	"list-cards": {"viewer", false}, "create-card": {"member", false}, "get-card": {"viewer", true}, "patch-card": {"member", true}, "delete-card": {"member", true},
	"list-webhooks": {"admin", true}, "create-webhook": {"admin", true}, "get-webhook": {"admin", true}, "patch-webhook": {"admin", true}, "delete-webhook": {"admin", true}, "list-deliveries": {"admin", true},
	"list-dead-letters": {"operator", false}, "get-dead-letter": {"operator", false}, "replay-dead-letter": {"operator", false}, "delete-dead-letter": {"operator", false},
	"list-audit": {"admin", false}, "events": {"viewer", false},
}

// ladder is the callers from the lowest.
var ladder = []string{"any token", "viewer", "member", "admin", "operator"}

// bodyFor is a body that the route can mean.
func bodyFor(id string) string {
	bodies := map[string]string{
		"launch": `{"team":"acme","bot":"probe"}`, "preview": `{"team":"acme","bot":"probe"}`,
		"heartbeat": `{"spent_usd":0}`, "settle": `{"spent_usd":0,"outcome":"finished"}`, "release-allocation": `{"reason":"test"}`,
		"create-team": `{"id":"another"}`, "create-organisation": `{"id":"another"}`, "patch-organisation": `{"name":"x"}`, "patch-team": `{"name":"x"}`, "create-token": `{"name":"n","role":"viewer"}`,
		"put-bot": `{"lane":"claw","prompt":"p"}`, "put-team-bot": `{"lane":"claw","prompt":"p"}`,
		"put-maintenance": `{"on":false}`, "put-secret": `{"value":"sesame"}`, "create-account": `{"id":"another","kind":"user"}`, "patch-account": `{"name":"x"}`,
		"create-account-token": `{"name":"n"}`, "create-my-token": `{"name":"n"}`, "put-member": `{"role":"viewer"}`, "cancel-run": "", "resume-run": "",
		"create-schedule": `{"team":"acme","name":"another","cron":"@daily","bot":"probe"}`, "patch-schedule": `{"enabled":false}`,
		"create-card": `{"team":"acme","title":"t","bot":"probe"}`, "patch-card": `{"priority":3}`,
		"create-webhook": `{"name":"n","forge":"github","rules":[{"bot":"probe"}]}`, "patch-webhook": `{"quiet":true}`,
	}
	if body, ok := bodies[id]; ok {
		return body
	}
	if strings.HasPrefix(id, "put-") || strings.HasPrefix(id, "check-") {
		return `{}`
	}
	return ""
}

func TestEveryRouteHasItsRowInTheAccessTable(t *testing.T) {
	w := build(t, nil)
	seen := map[string]bool{}
	for _, rt := range w.server.Routes() {
		row, ok := access[rt.ID]
		if !ok || row.who != rt.Who {
			t.Errorf("%s %s (%s) is for %q, the table says %q", rt.Method, rt.Path, rt.ID, rt.Who, row.who)
		}
		if strings.Contains(rt.Path, "{team}") && !row.team {
			t.Errorf("%s names a team and the table does not say that it has an owner", rt.Path)
		}
		seen[rt.ID] = true
	}
	for id := range access {
		if !seen[id] {
			t.Errorf("the table has %s and the server does not", id)
		}
	}
}

func TestAnotherTeamsCapacityDoesNotExist(t *testing.T) {
	w := build(t, nil)
	w.launched("acme/member", `{"team":"acme","bot":"probe"}`)
	w.call("rival/admin", "GET", "/api/capacity?team=acme", "").problem(404)
	if p := w.call("operator", "GET", "/api/capacity?team=nobody", "").problem(404); p.Detail != "there is no such team" {
		t.Errorf("the capacity of a team that does not exist is %q", p.Detail)
	}
	w.call("rival/admin", "GET", "/api/capacity/subject?subject=team/acme/slots", "").problem(404)
	w.call("rival/admin", "GET", "/api/decisions?team=acme", "").problem(404)
	w.call("rival/admin", "GET", "/api/audit?team=acme", "").problem(404)
	w.call("rival/admin", "GET", "/api/events?team=acme", "").problem(404)
	var capacity api.Capacity
	w.call("rival/viewer", "GET", "/api/capacity", "").want(200).into(&capacity)
	for _, s := range capacity.Subjects {
		if strings.Contains(s.Subject, "acme") {
			t.Errorf("rival sees %s", s.Subject)
		}
	}
}

func TestARevokedOrExpiredTokenOpensNothing(t *testing.T) {
	w := build(t, nil)
	var issued api.TokenIssued
	w.call("acme/admin", "POST", "/api/teams/acme/tokens", `{"name":"ci","role":"member","expires_at":"2026-03-10T13:00:00Z"}`).want(201).into(&issued)
	w.bearers["ci"] = issued.Secret
	w.call("ci", "GET", "/api/teams/acme", "").want(200)
	w.clock.Advance(3600e9)
	w.call("ci", "GET", "/api/teams/acme", "").problem(401)
	w.call("acme/admin", "POST", "/api/teams/acme/tokens", `{"name":"ci","role":"member"}`).want(201).into(&issued)
	w.bearers["ci"] = issued.Secret
	r := w.call("acme/admin", "GET", "/api/teams/acme/tokens", "").want(200)
	if strings.Contains(r.body, issued.Secret) || strings.Contains(r.body, "hash") {
		t.Error("the list shows a secret")
	}
	w.call("acme/admin", "DELETE", "/api/teams/acme/tokens/"+issued.ID, "").want(204)
	w.call("ci", "GET", "/api/teams/acme", "").problem(401)
}

func TestTeamAdminsWriteCommandBotsOnlyWhereTheLimitsLetThem(t *testing.T) {
	w := build(t, nil)
	body := `{"lane":"command","command":["true"]}`
	if p := w.call("acme/admin", "PUT", "/api/teams/acme/bots/tool", body).problem(403); p.Code != "command_bots" {
		t.Errorf("the code is %q", p.Code)
	}
	w.call("acme/admin", "PUT", "/api/teams/acme/bots/thinker", `{"lane":"claw","prompt":"think"}`).want(201)
	w.call("operator", "PUT", "/api/teams/acme/bots/tool", body).want(201)
	w.call("operator", "PUT", "/api/admin/settings/limits", `{"team_command_bots":true}`).want(200)
	w.call("acme/admin", "PUT", "/api/teams/acme/bots/tool", body).want(200)
	w.call("rival/admin", "PUT", "/api/teams/acme/bots/tool", body).problem(404)
	w.call("acme/member", "PUT", "/api/teams/acme/bots/tool", body).problem(403)
}

func TestEveryReasonHasAStatusThatSaysNo(t *testing.T) {
	for _, reason := range holdfast.DenyReasons() {
		if status := server.RefusalStatus(reason); status < 400 || status > 503 || http.StatusText(status) == "" {
			t.Errorf("%s is answered %d", reason, status)
		}
	}
}
