package server_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast/pkg/api"
)

const floorPath = "/api/admin/settings/budget-floor"

func TestAPolicyIsWrittenUnderItsCompareToken(t *testing.T) {
	w := build(t, nil)
	w.limits("acme", `{"max_concurrent_runs":3,"monthly_usd":100}`)
	var none api.BudgetFloor
	w.call("operator", "GET", floorPath, "").want(200).into(&none)
	if none.Origin != "default" || !none.UpdatedAt.IsZero() {
		t.Errorf("nothing written is %+v", none)
	}
	var first api.BudgetFloor
	w.call("operator", "PUT", floorPath, `{"reservations":[{"bot":"Review PR","concurrent_runs":2,"monthly_usd":"30.5","teams":["acme"],"note":"reviews first"}]}`).want(200).into(&first)
	if first.Origin != "stored" || first.UpdatedAt.IsZero() || len(first.Reservations) != 1 || first.Reservations[0].Bot != "review-pr" || first.Reservations[0].Tier != "platform" {
		t.Errorf("the first write is %+v", first)
	}
	if diff := cmp.Diff([]string{"platform/review-pr"}, first.Reserved); diff != "" {
		t.Error(diff)
	}
	effects := map[string]string{}
	for _, e := range first.Effects {
		if e.Cap != nil {
			effects[e.Subject] = e.Cap.Value + " cap, " + e.Withheld.Value + " withheld, " + e.Ordinary.Value + " ordinary"
		}
	}
	want := map[string]string{"team/acme/slots": "3 cap, 2 withheld, 1 ordinary", "team/acme/usd": "100.000000 cap, 30.500000 withheld, 69.500000 ordinary"}
	if diff := cmp.Diff(want, effects); diff != "" {
		t.Error(diff)
	}
	w.call("operator", "PUT", floorPath, `{}`).problem(409)
	w.call("operator", "PUT", floorPath, `{"updated_at":"2020-01-01T00:00:00Z"}`).problem(409)

	// What was read may be sent back whole, with one edit.
	w.clock.Advance(time.Second)
	first.Reservations[0].ConcurrentRuns = 3
	text, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	var second api.BudgetFloor
	w.call("operator", "PUT", floorPath, string(text)).want(200).into(&second)
	if !second.UpdatedAt.After(first.UpdatedAt) || second.Reservations[0].ConcurrentRuns != 3 {
		t.Errorf("the second write is %+v", second)
	}
	if p := w.call("operator", "PUT", floorPath, string(text)).problem(409); p.Code != "changed" {
		t.Errorf("a lost race is %q", p.Code)
	}
	if !strings.Contains(strings.Join(second.Warnings, "\n"), "team/acme/slots") {
		t.Errorf("a swallowed cap is not warned of: %v", second.Warnings)
	}
}

func TestAReservationForABotThatDoesNotExistIsWarnedOf(t *testing.T) {
	w := build(t, nil)
	body := `{"reservations":[{"bot":"reviw-pr","concurrent_runs":1},{"bot":"review-pr","concurrent_runs":1},{"bot":"review-pr","tier":"team","team":"acme","concurrent_runs":1}]}`
	var checked api.BudgetFloor
	w.call("operator", "POST", floorPath+"/check", body).want(200).into(&checked)
	warned := strings.Join(checked.Warnings, "\n")
	for holder, want := range map[string]bool{"platform/reviw-pr": true, "team:acme/review-pr": true, "platform/review-pr": false} {
		if got := strings.Contains(warned, "there is no bot "+holder+":"); got != want {
			t.Errorf("warned of %s is %v, want %v:\n%s", holder, got, want, warned)
		}
	}
}

func TestAPolicyThatCannotBeMeantNamesItsField(t *testing.T) {
	w := build(t, nil)
	for body, field := range map[string]string{
		`{"reservations":[{"bot":"a","concurrent_runs":-1}]}`:                               "reservations[0].concurrent_runs",
		`{"reservations":[{"bot":"a","five_hour_percent":101}]}`:                            "reservations[0].five_hour_percent",
		`{"reservations":[{"bot":"a","tier":"team"}]}`:                                      "reservations[0].team",
		`{"reservations":[{"bot":"a"},{"bot":"A"}]}`:                                        "reservations[1].bot",
		`{"reservations":[{"bot":"a","tier":"galaxy"}]}`:                                    "reservations[0].tier",
		`{"repo_quotas":[{"repo":"acme/widgets"}]}`:                                         "repo_quotas[0].monthly_usd",
		`{"repo_quotas":[{"repo":"a/b","reserve_share_percent":5,"share_of":{"bot":"x"}}]}`: "repo_quotas[0].share_of",
	} {
		for _, path := range []string{floorPath, floorPath + "/check"} {
			method := "PUT"
			if strings.HasSuffix(path, "check") {
				method = "POST"
			}
			p := w.call("operator", method, path, body).problem(400)
			if len(p.Errors) == 0 || p.Errors[0].Field != field || p.Errors[0].Allowed == "" {
				t.Errorf("%s %s: %+v, want %s", method, body, p.Errors, field)
			}
		}
	}
}

func TestACheckedPolicyIsNotWritten(t *testing.T) {
	w := build(t, nil)
	var checked api.BudgetFloor
	w.call("operator", "POST", floorPath+"/check", `{"reservations":[{"bot":"a","concurrent_runs":1}]}`).want(200).into(&checked)
	if len(checked.Warnings) == 0 || len(checked.Effects) == 0 {
		t.Errorf("a reservation without a cap is %+v", checked)
	}
	var stored api.BudgetFloor
	w.call("operator", "GET", floorPath, "").want(200).into(&stored)
	if stored.Origin != "default" || len(stored.Reservations) != 0 {
		t.Errorf("the check wrote %+v", stored)
	}
}

func TestTheOtherSettingsGoRoundToo(t *testing.T) {
	w := build(t, nil)
	for name, body := range map[string]string{
		"limits":       `{"default_max_concurrent_runs":5,"default_monthly_usd":null,"default_run_usd":2.5,"platform":{"max_concurrent_runs":0},"team_command_bots":true}`,
		"maintenance":  `{"on":true,"message":"moving","until":"2026-03-11T00:00:00Z"}`,
		"usage-caps":   `{"five_hour_percent":80,"week_percent":90,"week_mode":"soft"}`,
		"runner-pools": `{"pools":[{"name":"gpu","state":"active","max_ack_pending":4}]}`,
	} {
		path := "/api/admin/settings/" + name
		var put, got map[string]any
		w.call("operator", "PUT", path, body).want(200).into(&put)
		w.call("operator", "GET", path, "").want(200).into(&got)
		if diff := cmp.Diff(put, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		var sent map[string]any
		if err := json.Unmarshal([]byte(body), &sent); err != nil {
			t.Fatal(err)
		}
		for field, value := range sent {
			if diff := cmp.Diff(value, got[field]); diff != "" {
				t.Errorf("%s.%s: %s", name, field, diff)
			}
		}
		if got["origin"] != "stored" || got["updated_at"] == nil {
			t.Errorf("%s: %v", name, got)
		}
		w.call("operator", "PUT", path, body).problem(409)
	}
	var limits api.Limits
	w.call("operator", "GET", "/api/admin/settings/limits", "").want(200).into(&limits)
	if len(limits.Warnings) != 1 || !strings.Contains(limits.Warnings[0], "platform.max_concurrent_runs is 0") {
		t.Errorf("warnings %v", limits.Warnings)
	}
	w.call("acme/member", "POST", "/api/runs", probe).problem(503)
}

func TestAWriteLeavesATrace(t *testing.T) {
	w := build(t, nil)
	w.call("operator", "PUT", floorPath, `{}`).want(200)
	w.call("acme/admin", "POST", "/api/teams/acme/tokens", `{"name":"ci","role":"member"}`).want(201)
	var trail api.Page[api.AuditEntry]
	w.call("operator", "GET", "/api/audit", "").want(200).into(&trail)
	actions := map[string]string{}
	for _, e := range trail.Items {
		actions[e.Action] = e.Actor
	}
	if actions["settings.budget-floor.updated"] != "operator" || actions["token.issued"] != "acme admin" {
		t.Errorf("the trail is %v", actions)
	}
	w.call("acme/admin", "GET", "/api/audit", "").want(200).into(&trail)
	if len(trail.Items) != 1 || trail.Items[0].Action != "token.issued" {
		t.Errorf("acme's admin sees %+v", trail.Items)
	}
}

func TestBotsResolveInTheirOrderAndListInPages(t *testing.T) {
	w := build(t, nil)
	var bot api.Bot
	w.call("acme/viewer", "GET", "/api/teams/acme/bots/Review_PR", "").want(200).into(&bot)
	if bot.Origin != "baked" || bot.Tier != "platform" || bot.Bot != "review-pr" {
		t.Errorf("the baked one is %+v", bot)
	}
	w.call("operator", "PUT", "/api/bots/review-pr", `{"lane":"command","command":["true"],"max_duration":"5m","budget_usd":"1.25"}`).want(201).into(&bot)
	w.call("operator", "PUT", "/api/bots/review-pr", `{"lane":"command","command":["false"]}`).want(200)
	w.call("acme/viewer", "GET", "/api/teams/acme/bots/review-pr", "").want(200).into(&bot)
	if bot.Origin != "platform" || bot.Command[0] != "false" {
		t.Errorf("the platform's is %+v", bot)
	}
	w.call("operator", "PUT", "/api/teams/acme/bots/review-pr", `{"bot":"review_pr","lane":"claw","prompt":"look"}`).want(201)
	w.call("acme/viewer", "GET", "/api/teams/acme/bots/review-pr", "").want(200).into(&bot)
	if bot.Origin != "team" || bot.Team != "acme" || bot.Tier != "team" {
		t.Errorf("the team's is %+v", bot)
	}
	w.call("operator", "PUT", "/api/bots/a", `{"bot":"b","lane":"claw","prompt":"x"}`).problem(400)
	w.call("operator", "PUT", "/api/bots/a", `{"lane":"command"}`).problem(400)
	var names []string
	cursor := ""
	for pages := 0; pages < 20; pages++ {
		var page api.Page[api.Bot]
		w.call("rival/viewer", "GET", "/api/teams/rival/bots?limit=1&cursor="+cursor, "").want(200).into(&page)
		for _, b := range page.Items {
			names = append(names, b.Bot)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	if diff := cmp.Diff([]string{"docs-writer", "feature-dev", "probe", "review-pr"}, names); diff != "" {
		t.Error(diff)
	}
	w.call("acme/admin", "DELETE", "/api/teams/acme/bots/review-pr", "").want(204)
	w.call("operator", "DELETE", "/api/bots/review-pr", "").want(204)
	w.call("acme/viewer", "GET", "/api/teams/acme/bots/review-pr", "").want(200).into(&bot)
	if bot.Origin != "baked" {
		t.Errorf("after the removals it is %+v", bot)
	}
}
