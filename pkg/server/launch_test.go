package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast/pkg/api"
)

func TestALaunchIsAnsweredWithWhatItHolds(t *testing.T) {
	w := build(t, nil)
	w.limits("acme", `{"max_concurrent_runs":2,"monthly_usd":"50.5","monthly_runs":10}`)
	w.bot("review-pr")
	var run api.Run
	w.call("acme/member", "POST", "/api/runs", `{"team":"acme","bot":"Review PR","budget_usd":"2.5"}`).want(202).into(&run)

	if run.Status != "queued" || run.BudgetUSD != 2_500_000 || run.Team != "acme" {
		t.Errorf("the run is %+v", run)
	}
	if diff := cmp.Diff(api.Identity{Bot: "review-pr", Tier: "platform"}, run.Identity); diff != "" {
		t.Error(diff)
	}
	held := map[string]string{}
	for _, a := range run.Allocations {
		held[a.Subject] = a.Amount.Value + " " + a.Amount.Unit
	}
	want := map[string]string{"team/acme/slots": "1 slots", "team/acme/usd@2026-03": "2.500000 usd", "team/acme/runs@2026-03": "1 runs"}
	for subject, amount := range want {
		if held[subject] != amount {
			t.Errorf("%s holds %q, want %q (all: %v)", subject, held[subject], amount, held)
		}
	}
	if w.queue.published() != 1 {
		t.Errorf("%d messages, want 1", w.queue.published())
	}
	var again api.Run
	w.call("acme/viewer", "GET", run.Links["self"], "").want(200).into(&again)
	if diff := cmp.Diff(run, again); diff != "" {
		t.Error(diff)
	}
}

func TestARefusalNamesEverythingItWasJudgedBy(t *testing.T) {
	w := build(t, nil)
	w.limits("acme", `{"max_concurrent_runs":1}`)
	w.launched("acme/member", `{"team":"acme","bot":"probe"}`)
	r := w.call("acme/member", "POST", "/api/runs", `{"team":"acme","bot":"feature-dev"}`)
	p := r.problem(429)

	want := api.Problem{
		Type: "/problems/refused", Title: "Refused: concurrency_cap_exceeded", Status: 429, Reason: "concurrency_cap_exceeded",
		Subject: "team/acme/slots", Cap: slots(1), Requested: slots(1), Settled: slots(0), Outstanding: slots(1), Withheld: slots(0), Remaining: slots(0),
		Holders:     []api.Holding{{Holder: "platform/probe", Reserved: *slots(0), Settled: *slots(0), Outstanding: *slots(1)}},
		RetryAfterS: 30,
	}
	if p.Retryable == nil || !*p.Retryable || p.Detail == "" || p.DecisionID == "" {
		t.Errorf("retryable, detail or decision is missing: %s", r.body)
	}
	decision := p.DecisionID
	p.Retryable, p.Detail, p.DecisionID = nil, "", ""
	if diff := cmp.Diff(want, p); diff != "" {
		t.Error(diff)
	}
	if r.header.Get("Retry-After") != "30" {
		t.Errorf("Retry-After is %q", r.header.Get("Retry-After"))
	}
	var d api.Decision
	w.call("acme/viewer", "GET", "/api/decisions/"+decision, "").want(200).into(&d)
	if d.Admitted || d.Reason != "concurrency_cap_exceeded" || d.Count != 1 || len(d.Checks) == 0 {
		t.Errorf("the decision is %+v", d)
	}
	w.call("rival/admin", "GET", "/api/decisions/"+decision, "").problem(404)
	if ok := w.call("acme/member", "POST", "/api/runs", `{"team":"acme","bot":"probe"}`); ok.header.Get("Retry-After") == "0" {
		t.Error("Retry-After: 0 was sent")
	}
}

func slots(n int) *api.Amount { return &api.Amount{Value: fmt.Sprint(n), Unit: "slots"} }

func TestAHeldOutRefusalSaysThatOnlyAReservationStoodInTheWay(t *testing.T) {
	w := build(t, nil)
	w.limits("acme", `{"max_concurrent_runs":2}`)
	w.call("operator", "PUT", "/api/admin/settings/budget-floor", `{"reservations":[{"bot":"review-pr","concurrent_runs":2}]}`).want(200)
	p := w.call("acme/member", "POST", "/api/runs", `{"team":"acme","bot":"feature-dev"}`).problem(429)
	if p.Cause != "capacity_reserved" || p.Withheld == nil || p.Withheld.Value != "2" {
		t.Errorf("cause %q, withheld %+v", p.Cause, p.Withheld)
	}
	if p.Retryable == nil || *p.Retryable {
		t.Error("an ask that can never fit is said to be retryable")
	}
	w.launched("acme/member", `{"team":"acme","bot":"review-pr"}`)
}

func TestEveryReasonOfTheGateHasTheStatusOfTheDesign(t *testing.T) {
	w := build(t, nil)
	w.limits("acme", `{"max_concurrent_runs":null,"monthly_usd":1,"monthly_runs":0}`)
	launch := `{"team":"acme","bot":"probe"}`
	tests := []struct {
		name, who, body, reason string
		status                  int
		before                  func()
	}{
		{"no unit of the month", "acme/member", launch, "monthly_run_quota_exceeded", 402, nil},
		{"another team", "rival/admin", launch, "no_team", 403, nil},
		{"a team that is not there, for a stranger", "rival/admin", `{"team":"nowhere","bot":"probe"}`, "no_team", 403, nil},
		{"a viewer", "acme/viewer", launch, "insufficient_role", 403, nil},
		{"a team that is not there, for an operator", "operator", `{"team":"nowhere","bot":"probe"}`, "unknown_team", 404, nil},
		{"a bot that is not there", "acme/member", `{"team":"acme","bot":"nobody"}`, "unknown_bot", 404, nil},
		{"no dollars", "acme/member", launch, "monthly_cost_cap_exceeded", 402, func() { w.limits("acme", `{"monthly_runs":null,"monthly_usd":0}`) }},
		{"a lane that is not there yet", "acme/member", `{"team":"acme","bot":"thinker"}`, "lane_unavailable", 409, func() {
			w.limits("acme", `{"monthly_usd":null}`)
			w.call("operator", "PUT", "/api/bots/thinker", `{"lane":"claw","prompt":"think"}`).want(201)
		}},
		{"the launch rate", "acme/member", launch, "launch_rate_limited", 429, func() { w.limits("acme", `{"launches_per_minute":0}`) }},
		{"a suspended team", "acme/member", launch, "team_suspended", 403, func() {
			w.call("operator", "PATCH", "/api/teams/acme", `{"suspended":true,"suspended_reason":"unpaid"}`).want(200)
		}},
		{"maintenance", "operator", launch, "maintenance", 503, func() {
			w.call("operator", "PUT", "/api/admin/settings/maintenance", `{"on":true,"message":"moving house"}`).want(200)
		}},
	}
	for _, test := range tests {
		if test.before != nil {
			test.before()
		}
		p := w.call(test.who, "POST", "/api/runs", test.body).problem(test.status)
		if p.Reason != test.reason || p.DecisionID == "" {
			t.Errorf("%s: reason %q, decision %q, want reason %q", test.name, p.Reason, p.DecisionID, test.reason)
		}
	}
	if n := w.queue.published(); n != 0 {
		t.Errorf("%d messages of refused launches", n)
	}
	for _, subject := range []string{"team/acme/slots", "team/acme/usd@2026-03", "team/acme/runs@2026-03"} {
		if n := w.outstanding(subject); n != 0 {
			t.Errorf("%s holds %d for refused launches", subject, n)
		}
	}
}

func TestACapAdmitsExactlyThatManyOfSixtyFourCallersOverHTTP(t *testing.T) {
	w := build(t, nil)
	const most = 7
	w.limits("acme", fmt.Sprintf(`{"max_concurrent_runs":%d,"launches_per_minute":null}`, most))
	for round := range 10 {
		var admitted, refused atomic.Int64
		var mu sync.Mutex
		var open []string
		var group sync.WaitGroup
		for range 64 {
			group.Go(func() {
				r := w.call("acme/member", "POST", "/api/runs", `{"team":"acme","bot":"probe","external":true,"budget_usd":0.1}`)
				switch r.status {
				case 201:
					var run api.Run
					r.into(&run)
					mu.Lock()
					open = append(open, run.ID)
					mu.Unlock()
					admitted.Add(1)
				case 429:
					refused.Add(1)
				default:
					t.Errorf("status %d: %s", r.status, r.body)
				}
			})
		}
		group.Wait()
		if admitted.Load() != most || refused.Load() != 64-most {
			t.Fatalf("round %d: %d admitted and %d refused under a cap of %d", round, admitted.Load(), refused.Load(), most)
		}
		for _, id := range open {
			w.call("acme/member", "POST", "/api/runs/"+id+"/settle", `{"spent_usd":0.01,"outcome":"finished"}`).want(200)
		}
		if n := w.outstanding("team/acme/slots"); n != 0 {
			t.Fatalf("round %d: %d slots held after all settled", round, n)
		}
	}
}

func TestAHeartbeatBelowASecondIsNeverAnsweredAsZero(t *testing.T) {
	for heartbeat, want := range map[time.Duration]int64{time.Millisecond: 1, 400 * time.Millisecond: 1, time.Second: 1, 1500 * time.Millisecond: 2, 20 * time.Second: 20} {
		w := buildBeating(t, heartbeat, nil)
		w.bot("probe")
		var run api.Run
		w.call("acme/member", "POST", "/api/runs", `{"team":"acme","bot":"probe","external":true}`).want(201).into(&run)
		if run.Lease == nil || run.Lease.HeartbeatEveryS != want {
			t.Errorf("a heartbeat every %v is answered as %+v, want %d s", heartbeat, run.Lease, want)
		}
	}
}

func TestAnExternalRunLivesByItsHeartbeatsAndSettlesOnce(t *testing.T) {
	w := build(t, nil)
	w.limits("acme", `{"max_concurrent_runs":1,"monthly_usd":10}`)
	w.bot("probe")
	w.call("operator", "PUT", "/api/admin/settings/usage-caps", `{"five_hour_percent":80,"week_percent":90,"week_mode":"off"}`).want(200)
	r := w.call("acme/member", "POST", "/api/runs", `{"team":"acme","bot":"probe","external":true,"budget_usd":3}`).want(201)
	var run api.Run
	r.into(&run)
	if run.Lease == nil || !run.Lease.ExpiresAt.Equal(w.clock.Now().Add(120e9)) || run.Lease.HeartbeatEveryS != 20 || run.CapPolicy == nil || *run.CapPolicy != (api.CapPolicy{FiveHourPercent: 80}) || run.Attempt != 1 {
		t.Fatalf("no lease: %s", r.body)
	}
	path := "/api/runs/" + run.ID
	var beat api.HeartbeatAnswer
	w.clock.Advance(20e9)
	w.call("acme/member", "POST", path+"/heartbeat", `{"spent_usd":0.25}`).want(200).into(&beat)
	if !beat.ExpiresAt.Equal(w.clock.Now().Add(120e9)) || beat.Stop {
		t.Errorf("the heartbeat was answered %+v", beat)
	}
	w.call("rival/admin", "POST", path+"/heartbeat", `{"spent_usd":1}`).problem(404)
	w.call("acme/viewer", "POST", path+"/heartbeat", `{"spent_usd":1}`).problem(403)
	var settled api.SettleAnswer
	w.call("acme/member", "POST", path+"/settle", `{"spent_usd":"0.75","outcome":"finished"}`).want(200).into(&settled)
	if !settled.Closed {
		t.Error("the first settle did not close")
	}
	w.call("acme/member", "POST", path+"/settle", `{"spent_usd":"0.75","outcome":"finished"}`).want(200).into(&settled)
	if settled.Closed {
		t.Error("the second settle closed again")
	}
	if p := w.call("acme/member", "POST", path+"/heartbeat", `{"spent_usd":0.75}`).problem(409); p.Code != "allocation_closed" {
		t.Errorf("a heartbeat after the close is %q", p.Code)
	}
	var capacity api.SubjectCapacity
	w.call("acme/viewer", "GET", "/api/capacity/subject?subject=team/acme/usd@2026-03", "").want(200).into(&capacity)
	if capacity.Settled.Value != "0.750000" || capacity.Outstanding.Value != "0.000000" || capacity.Free == nil || capacity.Free.Value != "9.250000" {
		t.Errorf("the dollars are %+v", capacity)
	}
}

func TestAPreviewTakesNothingAndAnswersLikeTheLaunch(t *testing.T) {
	w := build(t, nil)
	w.limits("acme", `{"max_concurrent_runs":1,"monthly_usd":2}`)
	w.bot("probe")
	var p api.Preview
	r := w.call("acme/member", "POST", "/api/launch/preview", `{"team":"acme","bot":"probe","budget_usd":5}`).want(200)
	r.into(&p)
	if !p.Admitted || p.BudgetUSD == nil || *p.BudgetUSD != 2_000_000 || p.Identity == nil || len(p.Checks) < 5 || !strings.Contains(r.body, `"walk":[]`) {
		t.Errorf("the preview is %s", r.body)
	}
	if w.outstanding("team/acme/slots") != 0 || w.queue.published() != 0 {
		t.Error("the preview took something")
	}
	w.launched("acme/member", `{"team":"acme","bot":"probe"}`)
	w.call("acme/member", "POST", "/api/launch/preview", `{"team":"acme","bot":"probe"}`).want(200).into(&p)
	if p.Admitted || p.Refusal == nil || p.Refusal.Reason != "concurrency_cap_exceeded" {
		t.Errorf("the preview of a full team is %+v", p)
	}
}

func TestRunsAreListedNewestFirstInPages(t *testing.T) {
	w := build(t, nil)
	var ids []string
	for range 5 {
		w.clock.Advance(1e9)
		ids = append([]string{w.launched("acme/member", `{"team":"acme","bot":"probe"}`).ID}, ids...)
	}
	w.launched("rival/member", `{"team":"rival","bot":"probe"}`)
	var got []string
	cursor := ""
	for pages := 0; pages < 10; pages++ {
		var page api.Page[api.Run]
		w.call("acme/viewer", "GET", "/api/runs?limit=2&cursor="+cursor, "").want(200).into(&page)
		for _, run := range page.Items {
			got = append(got, run.ID)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	if diff := cmp.Diff(ids, got); diff != "" {
		t.Error(diff)
	}
	w.call("acme/admin", "GET", "/api/runs?team=rival", "").problem(404)
	var all api.Page[api.Run]
	w.call("operator", "GET", "/api/runs?status=queued", "").want(200).into(&all)
	if len(all.Items) != 6 {
		t.Errorf("the operator sees %d runs, want 6", len(all.Items))
	}
}

func TestACancelledRunGivesBackWhatItHeld(t *testing.T) {
	w := build(t, nil)
	w.limits("acme", `{"max_concurrent_runs":1}`)
	run := w.launched("acme/member", `{"team":"acme","bot":"probe"}`)
	w.call("rival/member", "POST", "/api/runs/"+run.ID+"/cancel", "").problem(404)
	w.call("acme/viewer", "POST", "/api/runs/"+run.ID+"/cancel", "").problem(403)
	var cancelled api.Run
	w.call("acme/member", "POST", "/api/runs/"+run.ID+"/cancel", "").want(200).into(&cancelled)
	if cancelled.Status != "cancelled" || w.outstanding("team/acme/slots") != 0 {
		t.Errorf("status %s, %d slots held", cancelled.Status, w.outstanding("team/acme/slots"))
	}
	if r := w.call("acme/member", "POST", "/api/runs/"+run.ID+"/resume", ""); r.status != http.StatusConflict {
		t.Errorf("resuming a cancelled run is %d: %s", r.status, r.body)
	}
}

func TestAnOperatorTakesAnAllocationAwayAndTheTrailSaysSo(t *testing.T) {
	w := build(t, nil)
	w.limits("acme", `{"max_concurrent_runs":1}`)
	run := w.launched("acme/member", `{"team":"acme","bot":"probe","external":true}`)
	path := ""
	for _, a := range run.Allocations {
		if a.Subject == "team/acme/slots" {
			path = "/api/admin/allocations/" + a.ID + "/release"
		}
	}
	w.call("acme/admin", "POST", path, `{"reason":"stuck"}`).problem(403)
	if p := w.call("operator", "POST", path, `{"reason":"  "}`).problem(400); p.Errors[0].Field != "reason" {
		t.Errorf("an empty reason is %+v", p.Errors)
	}
	var released api.ReleaseAnswer
	w.call("operator", "POST", path, `{"reason":"stuck"}`).want(200).into(&released)
	if !released.Closed || w.outstanding("team/acme/slots") != 0 {
		t.Errorf("closed %v, %d slots held", released.Closed, w.outstanding("team/acme/slots"))
	}
	var trail api.Page[api.AuditEntry]
	w.call("operator", "GET", "/api/audit", "").want(200).into(&trail)
	found := false
	for _, entry := range trail.Items {
		found = found || (strings.Contains(entry.Action, "release") && strings.Contains(entry.Detail, "stuck"))
	}
	if !found {
		t.Errorf("the audit trail does not have it: %+v", trail.Items)
	}
}

func TestAnExplanationHasTheDecisionAndTheStory(t *testing.T) {
	w := build(t, nil)
	w.limits("acme", `{"max_concurrent_runs":1}`)
	run := w.launched("acme/member", `{"team":"acme","bot":"probe"}`)
	var story api.Explanation
	w.call("acme/viewer", "GET", "/api/runs/"+run.ID+"/explain", "").want(200).into(&story)
	if story.Run == nil || story.Run.ID != run.ID || story.Decision == nil || len(story.Summary) == 0 || len(story.Capacity) == 0 {
		t.Errorf("the story is %+v", story)
	}
	refused := w.call("acme/member", "POST", "/api/runs", `{"team":"acme","bot":"probe"}`).problem(429)
	w.call("acme/viewer", "GET", "/api/decisions/"+refused.DecisionID+"/explain", "").want(200).into(&story)
	w.call("rival/admin", "GET", "/api/decisions/"+refused.DecisionID+"/explain", "").problem(404)
	w.call("rival/admin", "GET", "/api/runs/"+run.ID+"/explain", "").problem(404)
}
