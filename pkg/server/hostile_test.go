package server_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/server"
)

// hostile are values that requests are made of.
func hostile(r *rand.Rand) string {
	values := []string{
		`null`, `true`, `{}`, `[]`, `""`, `"x"`, `0`, `-1`, `1e999`, `-0`, `0.1`, `99999999999999999999999`, `1e-9`, `"1e3"`, `"acme"`, `"probe"`,
		`"\u0000"`, `"\ud800"`, `"../../etc"`, `{"a":{"a":{"a":{}}}}`, `[[[[[]]]]]`, `"` + strings.Repeat("a", 300) + `"`, `[1,2,3]`, `{"":""}`,
		`"2026-13-45T00:00:00Z"`, `"9999-12-31T23:59:59Z"`, `["true"]`, `{"x":{"required":1}}`, `[{"bot":"a","team":null}]`, `"command"`, `"finished"`, `[null]`,
		strings.Repeat("[", 200) + strings.Repeat("]", 200), `"* * * * *"`, `"Europe/Nowhere"`, `[{"group":"g","team":"acme","role":"admin"}]`, `{"role":"owner"}`,
	}
	return values[r.IntN(len(values))]
}

var (
	hostileNames = []string{
		"team", "bot", "repo", "budget_usd", "min_budget_usd", "inputs", "pool", "external", "id", "name", "limits", "spent_usd", "outcome", "lane", "command", "env", "needs", "reservations", "repo_quotas",
		"updated_at", "on", "until", "pools", "role", "expires_at", "reason", "suspended", "five_hour_percent", "monthly_usd", "platform", "__proto__", "tëam", "kind", "email", "memberships", "groups", "value",
		"cron", "time_zone", "title", "column", "priority", "rules", "forge", "secret", "catch_up", "enabled", "organisation", "retries",
	}
	hostilePlaces  = []string{"acme", "..", "%2e%2e", "%00", "a%2Fb", strings.Repeat("z", 300), "%F0%9F%92%A5", "01KKBSWHG0RP8GM4H5PCYT3YDT", "x~team~acme~slots", "%ff", "'", "platform", "ann", "acme.x", "github", "9223372036854775808"}
	hostileQueries = []string{
		"", "?limit=" + strings.Repeat("9", 40), "?cursor=%F0%28", "?cursor=%2F%2F", "?team=%00", "?since=0001-01-01T00:00:00Z", "?since=9999-12-31T23:59:59Z", "?status=%20", "?subject=team/acme/slots@@",
		"?a=b&&&=", "?%zz", "?bot=team:acme/x", "?after=1-1", "?tail=-1", "?outcome=maybe", "?cursor=" + strings.Repeat("A", 5000), "?column=todo", "?team=acme&team=acme",
	}
	hostileHeaders = [][2]string{
		{"Authorization", "Basic YTpi"}, {"Authorization", "Bearer"}, {"Authorization", "Bearer  "}, {"Authorization", "Bearer hf_" + strings.Repeat("\xff", 50)}, {"Authorization", "bearer\x00x"},
		{"Idempotency-Key", ""}, {"Idempotency-Key", strings.Repeat("k", 201)}, {"Idempotency-Key", "ü"}, {"Idempotency-Key", "same"},
		{"Content-Type", "text/html"}, {"Content-Type", ";;;"}, {"Content-Encoding", "gzip"}, {"X-Request-Id", "<script>"}, {"Last-Event-ID", strings.Repeat("9", 5000)},
		{"Cookie", "holdfast_session=" + strings.Repeat("a", 43)}, {"Cookie", "holdfast_session=;holdfast_session=x"}, {"Cookie", "=;=;=;\x01"}, {"Origin", "null"}, {"Origin", "http://[::1"}, {"Host", "evil.example"},
		{"Sec-Fetch-Site", "cross-site"}, {"X-Forwarded-For", "1.2.3.4, ' OR 1=1"}, {"X-Hub-Signature-256", "sha256=zz"}, {"X-GitHub-Event", "pull_request"}, {"X-GitHub-Delivery", strings.Repeat("d", 5000)},
	}
)

// request makes a request that no client would send. Its path is taken as it is.
func request(method, path, body string, headers ...[2]string) *http.Request {
	target, query, _ := strings.Cut(path, "?")
	decoded, err := url.PathUnescape(target)
	if err != nil {
		decoded = target
	}
	r := httptest.NewRequest(method, "/", strings.NewReader(body))
	r.URL = &url.URL{Path: decoded, RawPath: target, RawQuery: query}
	r.RequestURI, r.Host = path, "127.0.0.1:7420"
	for _, header := range headers {
		if header[0] == "Host" {
			r.Host = header[1]
			continue
		}
		r.Header[header[0]] = append(r.Header[header[0]], header[1])
	}
	return r
}

// sound says what is wrong with an answer, whatever was asked.
func sound(answer *httptest.ResponseRecorder) string {
	switch {
	case answer.Code >= 500:
		return "the server failed"
	case answer.Header().Get("X-Request-Id") == "":
		return "the answer has no id"
	case answer.Code < 400:
		return ""
	}
	var p api.Problem
	if err := json.Unmarshal(answer.Body.Bytes(), &p); err != nil || answer.Header().Get("Content-Type") != api.ProblemType || p.Status != answer.Code || p.Title == "" {
		return "it is no whole problem"
	}
	if (answer.Code == http.StatusBadRequest || answer.Code == http.StatusUnsupportedMediaType || answer.Code == http.StatusRequestEntityTooLarge) && (len(p.Errors) == 0 || p.Errors[0].Field == "" || p.Errors[0].Problem == "") {
		return "it names no field"
	}
	return ""
}

// heap is what is alive.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// hostileCount is how many requests are sent; the campaign sends more.
func hostileCount(t *testing.T) int {
	if text := os.Getenv("HOLDFAST_TEST_HOSTILE"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("HOLDFAST_TEST_HOSTILE=%q is no number of requests", text)
		}
		return n
	}
	return 10_000
}

func TestTenThousandHostileRequestsNeverFailTheServer(t *testing.T) {
	count := hostileCount(t)
	seed := uint64(20261130)
	if count != 10_000 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d, %d requests", seed, count)
	random := rand.New(rand.NewPCG(seed, seed))
	w := build(t, nil)
	w.people()
	routes := w.server.Routes()
	open := []server.RouteRow{
		{Method: "GET", Path: "/healthz"}, {Method: "GET", Path: "/readyz"}, {Method: "GET", Path: "/docs"}, {Method: "TRACE", Path: "/api/runs"}, {Method: "OPTIONS", Path: "/api/teams"}, {Method: "PUT", Path: "/{x}"},
		{Method: "POST", Path: "/api/webhooks/{forge}/{id}"}, {Method: "GET", Path: "/auth/callback"}, {Method: "POST", Path: "/auth/logout"},
	}
	who := []string{"operator", "acme/admin", "acme/member", "acme/viewer", "several", "single", ""}
	counts, before, peak := map[int]int{}, heap(), uint64(0)
	handler := w.server.Handler()
	for n := range count {
		rt := routes[random.IntN(len(routes))]
		if random.IntN(12) == 0 {
			rt = open[random.IntN(len(open))]
		}
		if rt.ID == "events" || rt.ID == "put-maintenance" {
			continue // one does not end, the other would hide the rest of the gate
		}
		path := rt.Path
		for strings.Contains(path, "{") {
			from, to := strings.Index(path, "{"), strings.Index(path, "}")
			path = path[:from] + hostilePlaces[random.IntN(len(hostilePlaces))] + path[to+1:]
		}
		path += hostileQueries[random.IntN(len(hostileQueries))]
		body := hostileBody(random, rt.Method)
		var headers [][2]string
		bearer := w.bearers[who[random.IntN(len(who))]]
		if random.IntN(5) == 0 {
			bearer = w.operator
		}
		headers = append(headers, [2]string{"Authorization", "Bearer " + bearer})
		for random.IntN(3) == 0 {
			headers = append(headers, hostileHeaders[random.IntN(len(hostileHeaders))])
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request(rt.Method, path, body, headers...))
		counts[answer.Code]++
		if why := sound(answer); why != "" {
			t.Fatalf("%s %s %q %v: %s: %d %s", rt.Method, path, body, headers, why, answer.Code, answer.Body)
		}
		if n%1000 == 0 {
			peak = max(peak, heap())
		}
	}
	if strings.Contains(w.log.String(), "panicked") {
		t.Fatalf("a handler panicked:\n%s", w.log)
	}
	grown := int64(max(peak, heap())) - int64(before)
	t.Logf("answers by status: %v; the heap grew by %d KiB, of which the test's own log is %d", counts, grown>>10, len(w.log.String())>>10)
	if counts[200] < 50 || counts[400] < count/20 {
		t.Errorf("the requests did not reach the handlers: %v", counts)
	}
	if limit := int64(96<<20) + int64(count)*8<<10; grown > limit {
		t.Errorf("the heap grew by %d bytes, more than %d", grown, limit)
	}
}

// hostileBody is a document that no client would send.
func hostileBody(random *rand.Rand, method string) string {
	if method == "GET" {
		return ""
	}
	var members []string
	for range random.IntN(6) {
		members = append(members, fmt.Sprintf("%q:%s", hostileNames[random.IntN(len(hostileNames))], hostile(random)))
	}
	body := "{" + strings.Join(members, ",") + "}"
	switch random.IntN(12) {
	case 0:
		body = body[:random.IntN(len(body)+1)]
	case 1:
		body = hostile(random)
	case 2:
		body += string([]byte{0xff, 0xfe})
	case 3:
		body = strings.Repeat("[", 20_000)
	}
	return body
}

// FuzzAnyRequestIsAnsweredSoundly: whatever is sent to any route by anybody, the answer
// is a success or a whole problem, and never a 5xx.
func FuzzAnyRequestIsAnsweredSoundly(f *testing.F) {
	w := build(f, nil)
	w.people()
	routes := w.server.Routes()
	for i, rt := range routes {
		f.Add(uint(i), uint(i), "acme", "", bodyFor(rt.ID), "Idempotency-Key", "k")
	}
	f.Add(uint(0), uint(0), "..", "limit=0&cursor=%2F", "{\"team\":\"acme\"", "Cookie", "holdfast_session=x")
	who := []string{w.operator, w.bearers["acme/admin"], w.bearers["acme/member"], w.bearers["several"], "hf_x"}
	handler := w.server.Handler()
	f.Fuzz(func(t *testing.T, route, caller uint, place, query, body, header, value string) {
		rt := routes[route%uint(len(routes))]
		if rt.ID == "events" || rt.ID == "put-maintenance" {
			return
		}
		path := placeholder.ReplaceAllLiteralString(rt.Path, url.PathEscape(place))
		if place == "" {
			path = strings.ReplaceAll(path, "{", "")
		}
		headers := [][2]string{{"Authorization", "Bearer " + who[caller%uint(len(who))]}}
		if name := http.CanonicalHeaderKey(header); name != "" && name != "Host" {
			headers = append(headers, [2]string{name, value})
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request(rt.Method, path+"?"+query, body, headers...))
		if why := sound(answer); why != "" {
			t.Fatalf("%s %s?%s %q: %s: %d %s\n%s", rt.Method, path, query, body, why, answer.Code, answer.Body, w.log)
		}
		w.log.reset()
	})
}

// FuzzEveryDocumentIsDecodedOrRefused: the decoder of each document refuses what is no
// JSON, and names what it refuses.
func FuzzEveryDocumentIsDecodedOrRefused(f *testing.F) {
	for _, seed := range []string{
		`{"id":"a","kind":"user","memberships":[{"team":"a","role":"admin"}]}`, `{"disabled":null}`, `{"role":"owner"}`, `{"name":"n","expires_at":"2026-13-01T00:00:00Z"}`,
		`{"groups":[{"group":"g","operator":true}]}`, `{"value":"x"}`, `{"on":true,"until":"x"}`, `{"pools":[{"name":"a","max_ack_pending":1e3}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, target := range []any{
			new(api.AccountCreate), new(api.AccountPatch), new(api.MemberPut), new(api.PersonalTokenCreate), new(api.LoginRules), new(api.SecretPut), new(api.Maintenance), new(api.RunnerPools),
			new(api.UsageCaps), new(api.TeamPatch), new(api.Heartbeat), new(api.Settle), new(api.ReleaseRequest),
		} {
			if err := server.DecodeBody(text, target); err == nil && !json.Valid(text) {
				t.Fatalf("%q was accepted", text)
			}
		}
	})
}
