package server_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/server"
)

func TestWhatNeedsNoTokenAnswersWithoutOne(t *testing.T) {
	missing := map[string]string{}
	w := build(t, func(_ *world, o *server.Options) {
		o.Ready = func(context.Context) map[string]string { return missing }
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "series") })
	})
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json", "/docs", "/metrics"} {
		w.call("", "GET", path, "").want(200)
	}
	missing["queue"] = "away"
	var health api.Health
	w.call("", "GET", "/readyz", "").want(503).into(&health)
	if health.Status != "not_ready" || health.Checks["queue"] != "away" {
		t.Errorf("not ready is %+v", health)
	}
	w.call("", "GET", "/healthz", "").want(200)
}

func TestAWarningIsShownAndMakesNobodyUnready(t *testing.T) {
	missing := map[string]string{}
	w := build(t, func(_ *world, o *server.Options) {
		o.Ready = func(context.Context) map[string]string { return missing }
		o.Warnings = func() []string { return []string{"look at the log"} }
	})
	for _, status := range []int{200, 503} {
		var health api.Health
		w.call("", "GET", "/readyz", "").want(status).into(&health)
		if !slices.Equal(health.Warnings, []string{"look at the log"}) {
			t.Errorf("%d shows %+v", status, health)
		}
		missing["queue"] = "away"
	}
}

func TestMetricsNeedTheirTokenFromElsewhere(t *testing.T) {
	w := build(t, func(_ *world, o *server.Options) {
		o.MetricsToken = "scrape-me"
		o.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	})
	ask := func(remote string, header ...string) int {
		r := httptest.NewRequest("GET", "http://127.0.0.1/metrics", nil)
		r.RemoteAddr = remote
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		answer := httptest.NewRecorder()
		w.server.Handler().ServeHTTP(answer, r)
		return answer.Code
	}
	for _, test := range []struct {
		status int
		remote string
		header []string
	}{
		{200, "127.0.0.1:4711", nil},
		{200, "[::1]:4711", nil},
		{200, "[::ffff:127.0.0.1]:4711", nil},
		{401, "192.0.2.7:4711", nil},
		{401, "127.0.0.1:4711", []string{"X-Forwarded-For", "192.0.2.7"}},
		{401, "192.0.2.7:4711", []string{"Authorization", "Bearer " + operatorBearer}},
		{401, "192.0.2.7:4711", []string{"Authorization", "Bearer "}},
		{200, "192.0.2.7:4711", []string{"Authorization", "Bearer scrape-me"}},
	} {
		if got := ask(test.remote, test.header...); got != test.status {
			t.Errorf("%s %v: %d, want %d", test.remote, test.header, got, test.status)
		}
	}
}

func TestAForeignNameIsNotAnswered(t *testing.T) {
	w := build(t, func(_ *world, o *server.Options) { o.AllowedHosts = []string{"holdfast.internal"} })
	for _, test := range []struct {
		header, value string
		status        int
	}{
		{"Host", "evil.example", 403}, {"Host", "evil.example:7420", 403}, {"Host", "127.0.0.1.evil.example", 403}, {"Host", "192.0.2.7", 403},
		{"Host", "localhost:7420", 200}, {"Host", "LOCALHOST.", 200}, {"Host", "[::1]:7420", 200}, {"Host", "127.9.9.9", 200}, {"Host", "holdfast.internal", 200},
		{"Origin", "https://evil.example", 403}, {"Origin", "null", 403}, {"Origin", "http://127.0.0.1:7420", 200}, {"Origin", "http://localhost:3000", 200},
	} {
		for _, path := range []string{"/healthz", "/api/teams/acme"} {
			if r := w.call("operator", "GET", path, "", test.header, test.value); r.status != test.status {
				t.Errorf("%s: %s: %s is %d, want %d", path, test.header, test.value, r.status, test.status)
			}
		}
	}
	open := build(t, func(_ *world, o *server.Options) { o.AnyHost = true })
	open.call("operator", "GET", "/healthz", "", "Host", "capacity.example").want(200)
}

func TestEveryAnswerForbidsWhatABrowserCouldMakeOfIt(t *testing.T) {
	w := build(t, nil)
	for _, path := range []string{"/docs", "/api/teams", "/nothing"} {
		header := w.call("operator", "GET", path, "").header
		if header.Get("X-Content-Type-Options") != "nosniff" || header.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: %v", path, header)
		}
	}
	docs := w.call("", "GET", "/docs", "")
	if policy := docs.header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") {
		t.Errorf("the policy of /docs is %q", policy)
	}
	for _, outside := range []string{"<script", "http://", "https://", "@import", "url("} {
		if strings.Contains(docs.body, outside) {
			t.Errorf("/docs holds %q", outside)
		}
	}
	for _, rt := range w.server.Routes() {
		if !strings.Contains(docs.body, rt.Path) {
			t.Errorf("/docs does not have %s", rt.Path)
		}
	}
}

func TestTheOpenAPIDocumentHasEveryRouteAndNothingDangles(t *testing.T) {
	w := build(t, nil)
	text := must(w.server.OpenAPI())
	if again := must(build(t, nil).server.OpenAPI()); string(again) != string(text) {
		t.Error("two servers of one build have different documents")
	}
	var doc struct {
		OpenAPI    string                               `json:"openapi"`
		Paths      map[string]map[string]map[string]any `json:"paths"`
		Components struct {
			Schemas         map[string]any `json:"schemas"`
			SecuritySchemes map[string]any `json:"securitySchemes"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") || doc.Components.SecuritySchemes["bearer"] == nil {
		t.Errorf("openapi %q, %v", doc.OpenAPI, doc.Components.SecuritySchemes)
	}
	ids := map[any]bool{}
	for _, rt := range w.server.Routes() {
		operation := doc.Paths[rt.Path][strings.ToLower(rt.Method)]
		if operation == nil || operation["operationId"] != rt.ID || ids[rt.ID] {
			t.Errorf("%s %s is not there, or not once: %v", rt.Method, rt.Path, operation["operationId"])
		}
		ids[rt.ID] = true
	}
	if n := strings.Count(string(text), `"operationId"`); n != len(ids) {
		t.Errorf("the document has %d operations, the server %d routes", n, len(ids))
	}
	for _, forbidden := range []string{"$schema", "ErrorModel"} {
		if strings.Contains(string(text), forbidden) {
			t.Errorf("the document holds %q", forbidden)
		}
	}
	const ref = `"$ref":"#/components/schemas/`
	for rest := string(text); ; {
		_, after, found := strings.Cut(rest, ref)
		if !found {
			break
		}
		name, following, _ := strings.Cut(after, `"`)
		if doc.Components.Schemas[name] == nil {
			t.Errorf("the schema %s is used and not there", name)
		}
		rest = following
	}
	problem, _ := doc.Components.Schemas["Problem"].(map[string]any)
	properties, _ := problem["properties"].(map[string]any)
	for _, field := range []string{"reason", "cause", "decision_id", "subject", "cap", "settled", "outstanding", "withheld", "holders", "retryable", "retry_after_s", "reset_at", "errors"} {
		if properties[field] == nil {
			t.Errorf("the schema of a problem does not have %s", field)
		}
	}
}

func TestEveryDocumentedRouteAnswers(t *testing.T) {
	// An external run has no output here, and one that is running cannot be resumed.
	expected := map[string]int{"run-logs": 404, "resume-run": 409}
	for _, rt := range build(t, nil).server.Routes() {
		w := build(t, nil)
		path := w.concrete(rt)
		if rt.ID == "events" {
			w.callHead("operator", path).want(200)
			continue
		}
		r := w.call(callerOf(rt), rt.Method, path, bodyFor(rt.ID))
		if want := expected[rt.ID]; (want == 0 && r.status >= 300) || (want != 0 && r.status != want) {
			t.Errorf("%s %s: %d %s", rt.Method, path, r.status, r.body)
		}
		if r.status != http.StatusNoContent {
			for _, err := range w.server.Conforms(rt.ID, r.status, r.header.Get("Content-Type"), []byte(r.body)) {
				t.Errorf("%s is not answered as the document says: %v in %s", rt.ID, err, r.body)
			}
		}
	}
}

func TestAPanicIs500AndTellsNothing(t *testing.T) {
	w := build(t, func(_ *world, o *server.Options) {
		o.Ready = func(context.Context) map[string]string { panic("secret inside") }
	})
	r := w.call("", "GET", "/readyz", "")
	if p := r.problem(500); p.Code != "internal" || strings.Contains(r.body, "secret") {
		t.Errorf("the answer is %s", r.body)
	}
	if !strings.Contains(w.log.String(), "secret inside") {
		t.Error("the log does not say why")
	}
	w.call("", "GET", "/healthz", "").want(200)
}

func TestLogsAreReadInPartAndFollowedToTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1.log")
	w := build(t, func(_ *world, o *server.Options) {
		o.Logs = func(context.Context, holdfast.RunID) (server.LogFile, error) { return os.Open(path) }
	})
	run := w.launched("acme/member", probe)
	logs := "/api/runs/" + run.ID + "/logs"
	w.call("acme/viewer", "GET", logs, "").problem(404)
	w.call("rival/admin", "GET", logs, "").problem(404)
	write := func(text string) {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	write("one\ntwo\n<script>\n")
	r := w.call("acme/viewer", "GET", logs, "").want(200)
	if r.body != "one\ntwo\n<script>\n" || r.header.Get("Content-Type") != "text/plain; charset=utf-8" || !strings.Contains(r.header.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("%q %v", r.body, r.header)
	}
	for query, want := range map[string]string{"?tail=1": "<script>\n", "?tail=2": "two\n<script>\n", "?tail=3": "one\ntwo\n<script>\n", "?tail=99": "one\ntwo\n<script>\n"} {
		if got := w.call("acme/viewer", "GET", logs+query, "").want(200).body; got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	response := w.open(t.Context(), "acme/viewer", logs+"?follow=true&tail=1")
	defer func() { _ = response.Body.Close() }()
	start := make([]byte, len("<script>\n"))
	if _, err := io.ReadFull(response.Body, start); err != nil || string(start) != "<script>\n" {
		t.Fatalf("%q, %v", start, err)
	}
	write("last words\n")
	w.call("acme/member", "POST", "/api/runs/"+run.ID+"/cancel", "").want(200)
	rest, err := io.ReadAll(response.Body)
	if err != nil || string(rest) != "last words\n" {
		t.Errorf("the rest is %q, %v", rest, err)
	}
}

func TestALongTailIsFoundAcrossBlocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1.log")
	var lines []string
	for range 5000 {
		lines = append(lines, strings.Repeat("x", 50))
	}
	lines = append(lines, "no line end")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	w := build(t, func(_ *world, o *server.Options) {
		o.Logs = func(context.Context, holdfast.RunID) (server.LogFile, error) { return os.Open(path) }
	})
	run := w.launched("acme/member", probe)
	got := strings.Split(w.call("acme/viewer", "GET", "/api/runs/"+run.ID+"/logs?tail=3000", "").want(200).body, "\n")
	if !slices.Equal(got, lines[len(lines)-3000:]) {
		t.Errorf("%d lines, the first %q, the last %q", len(got), got[0], got[len(got)-1])
	}
}

func TestAServerThatEndsClosesItsStreamsAndFinishesItsRequests(t *testing.T) {
	w := build(t, nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- w.server.Serve(ctx, listener) }()
	w.http.URL = "http://" + listener.Addr().String()
	s := w.stream("operator", "/api/events")
	gate, entered := make(chan struct{}), make(chan struct{})
	w.queue.set(func(q *fakeQueue) { q.gate, q.entered = gate, entered })
	answers := make(chan reply, 1)
	go func() { answers <- w.call("acme/member", "POST", "/api/runs", probe) }()
	<-entered
	cancel()
	if kind, _, _ := s.next(); kind != "closing" {
		t.Errorf("the stream's last event is %q", kind)
	}
	close(gate)
	if r := <-answers; r.status != http.StatusAccepted {
		t.Errorf("the request under way was answered %d", r.status)
	}
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the server does not end")
	}
}

func TestAnIncompleteServerIsNotMade(t *testing.T) {
	if _, err := server.New(t.Context(), server.Deps{}, server.Options{}); err == nil {
		t.Error("a server without parts was made")
	}
}

func TestACallerThatHungUpIsNoErrorInTheLog(t *testing.T) {
	w := build(t, nil)
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	request := httptest.NewRequestWithContext(gone, "GET", "/api/teams/acme", nil)
	request.Host = "127.0.0.1"
	request.Header.Set("Authorization", "Bearer "+w.operator)
	answer := httptest.NewRecorder()
	w.server.Handler().ServeHTTP(answer, request)
	if answer.Code < 500 {
		t.Fatalf("the store was not in the way: %d %s", answer.Code, answer.Body)
	}
	if log := w.log.String(); strings.Contains(log, "level=ERROR") || !strings.Contains(log, "request failed") {
		t.Errorf("the log is\n%s", log)
	}
}

func TestTheBareAddressLeadsToTheDocs(t *testing.T) {
	w := build(t, nil)
	if r := w.call("", "GET", "/", "").want(200); !strings.Contains(r.body, "<h1>Holdfast API") {
		t.Errorf("/ answers\n%.200s", r.body)
	}
	w.call("operator", "GET", "/nothing", "").problem(404)
}
