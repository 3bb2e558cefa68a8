package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

// serve is a server that answers everything with answer, and a client of it.
func serve(t *testing.T, answer http.HandlerFunc) *client.Client {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return connect(t, server.URL, client.Options{})
}

func connect(t *testing.T, url string, options client.Options) *client.Client {
	t.Helper()
	c, err := client.New(url, "hf_token", options)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// problem answers with a problem.
func problem(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", api.ProblemType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestEachSortOfProblemIsAnErrorOfItsOwn(t *testing.T) {
	tests := []struct {
		name   string
		status int
		body   string
		is     func(error) bool
	}{
		{"refused", 429, `{"reason":"concurrency_cap_exceeded","detail":"full"}`, as[*client.Refused]},
		{"refused by maintenance", 503, `{"reason":"maintenance","detail":"closed"}`, as[*client.Refused]},
		{"refused with 403", 403, `{"reason":"no_team"}`, as[*client.Refused]},
		{"invalid", 400, `{"detail":"bad"}`, as[*client.InvalidRequest]},
		{"too large", 413, `{}`, as[*client.InvalidRequest]},
		{"another body under a key", 422, `{}`, as[*client.InvalidRequest]},
		{"unauthenticated", 401, `{}`, as[*client.Unauthenticated]},
		{"forbidden", 403, `{"code":"forbidden"}`, as[*client.Forbidden]},
		{"not found", 404, `{}`, as[*client.NotFound]},
		{"conflict", 409, `{"code":"allocation_closed"}`, as[*client.Conflict]},
		{"failed", 500, `{}`, as[*client.Failed]},
		{"store away", 503, `{"code":"store_unavailable"}`, as[*client.Failed]},
	}
	for _, test := range tests {
		_, err := serve(t, problem(test.status, test.body)).Run(t.Context(), "r")
		if !test.is(err) || errors.Is(err, client.ErrUnreachable) {
			t.Errorf("%s: %T %v", test.name, err, err)
		}
		if p, ok := client.ProblemOf(err); !ok || p.Status != test.status {
			t.Errorf("%s: the problem is %+v, %v", test.name, p, ok)
		}
		if err == nil || err.Error() == "" {
			t.Errorf("%s: it says nothing", test.name)
		}
	}
}

func as[E error](err error) bool {
	var target E
	return errors.As(err, &target)
}

func TestARefusalSaysWhetherAndWhenToAskAgain(t *testing.T) {
	_, err := serve(t, problem(429, `{"reason":"concurrency_cap_exceeded","retryable":true,"retry_after_s":30}`)).Launch(t.Context(), api.LaunchRequest{}, "")
	var refused *client.Refused
	if !errors.As(err, &refused) || !refused.Retryable() || refused.RetryAfter() != 30*time.Second {
		t.Errorf("%v", err)
	}
	_, err = serve(t, problem(429, `{"reason":"concurrency_cap_exceeded","retryable":false}`)).Launch(t.Context(), api.LaunchRequest{}, "")
	if !errors.As(err, &refused) || refused.Retryable() || refused.RetryAfter() != 0 {
		t.Errorf("%v", err)
	}
}

func TestAnInvalidRequestNamesItsFields(t *testing.T) {
	_, err := serve(t, problem(400, `{"errors":[{"field":"a","problem":"is bad","allowed":"good"},{"problem":"more"}]}`)).Launch(t.Context(), api.LaunchRequest{}, "")
	if err == nil || err.Error() != "a: is bad (allowed: good); more" {
		t.Errorf("%v", err)
	}
}

func TestWhatIsNoHoldfastServerIsAFailureAndNotARefusal(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"a proxy's page": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "<html>reason: none</html>", http.StatusBadGateway)
		},
		"a page as 200": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"json as 404": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(404)
			_, _ = io.WriteString(w, `{"reason":"x"}`)
		},
	} {
		_, err := serve(t, answer).Run(t.Context(), "r")
		if err == nil || as[*client.Refused](err) || as[*client.NotFound](err) {
			t.Errorf("%s: %T %v", name, err, err)
		}
	}
}

func TestAServerThatCannotBeAskedIsUnreachable(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	if _, err := connect(t, server.URL, client.Options{}).Run(t.Context(), "r"); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("a closed port is %v", err)
	}
	cut := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, "{")
	})
	if _, err := cut.Run(t.Context(), "r"); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("half an answer is %v", err)
	}
}

func TestATimeoutIsUnreachableAndACancellationIsTheCallersOwn(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(release)
	if _, err := connect(t, server.URL, client.Options{Timeout: 10 * time.Millisecond}).Run(t.Context(), "r"); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("a timeout is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := connect(t, server.URL, client.Options{}).Run(ctx, "r"); !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnreachable) {
		t.Errorf("a cancellation is %v", err)
	}
}

func TestATokenNeverFollowsARedirectElsewhere(t *testing.T) {
	reached := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer elsewhere.Close()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+"/api/runs/r", http.StatusTemporaryRedirect)
	})
	if _, err := c.Run(t.Context(), "r"); err == nil || reached {
		t.Errorf("err %v, reached %v", err, reached)
	}
}

func TestARequestCarriesWhatItIsGivenAndNothingLeadsItElsewhere(t *testing.T) {
	var got *http.Request
	var body string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		text, _ := io.ReadAll(r.Body)
		body = string(text)
		_, _ = io.WriteString(w, `{"id":"x"}`)
	})
	budget := holdfast.MicroUSD(2_500_000)
	if _, err := c.Launch(t.Context(), api.LaunchRequest{Team: "acme", Bot: "probe", BudgetUSD: &budget}, "key-1"); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"Authorization": "Bearer hf_token", "Idempotency-Key": "key-1", "Content-Type": "application/json", "User-Agent": "holdfast"}
	for name, value := range want {
		if got.Header.Get(name) != value {
			t.Errorf("%s is %q", name, got.Header.Get(name))
		}
	}
	if body != `{"team":"acme","bot":"probe","budget_usd":2.5}` || got.URL.Path != "/api/runs" {
		t.Errorf("%s %s", got.URL.Path, body)
	}
	if _, err := c.Run(t.Context(), "a/b?c#d"); err != nil || got.URL.EscapedPath() != "/api/runs/a%2Fb%3Fc%23d" {
		t.Errorf("%v %s", err, got.URL.EscapedPath())
	}
	for _, name := range []string{"", ".", ".."} {
		if _, err := c.Run(t.Context(), name); !as[*holdfast.InvalidError](err) {
			t.Errorf("%q: %v", name, err)
		}
	}
	since := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	if _, err := c.Runs(t.Context(), client.RunFilter{Team: "acme", Since: since, Window: client.Window{Limit: 5, Cursor: "c/d"}}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("cursor=c%2Fd&limit=5&since=2026-03-01T00%3A00%3A00Z&team=acme", got.URL.RawQuery); diff != "" {
		t.Error(diff)
	}
}

func TestABadAddressOrTokenIsToldBeforeAnythingIsAsked(t *testing.T) {
	for _, url := range []string{"", "127.0.0.1:7420", "ftp://host", "http://", "http://user:secret@host", "http://host?x=1", "http://host#f", "http://ho st"} {
		if _, err := client.New(url, "t", client.Options{}); !as[*holdfast.InvalidError](err) {
			t.Errorf("%q: %v", url, err)
		}
	}
	for _, token := range []string{"a b", "line\n", "caf\u00e9"} {
		if _, err := client.New("http://host", token, client.Options{}); !as[*holdfast.InvalidError](err) {
			t.Errorf("%q: %v", token, err)
		}
	}
}

func TestAPrefixOfTheAddressIsKept(t *testing.T) {
	path := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.Path
		_, _ = io.WriteString(w, "{}")
	}))
	defer server.Close()
	if _, err := connect(t, server.URL+"/behind/a/proxy/", client.Options{}).Limits(t.Context()); err != nil || path != "/behind/a/proxy/api/admin/settings/limits" {
		t.Errorf("%v %s", err, path)
	}
}

func TestABrokenEventStreamIsUnreachableAndABadEventIsNot(t *testing.T) {
	ended := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, ": hello\n\nid: b-1\nevent: run\ndata: {\"id\":\"b-1\",\"type\":\"run\"}\n\n")
	})
	var seen []string
	err := ended.Events(t.Context(), "", "", func(e api.Event) error { seen = append(seen, e.ID); return nil })
	if !errors.Is(err, client.ErrUnreachable) || strings.Join(seen, ",") != "b-1" {
		t.Errorf("saw %v, %v", seen, err)
	}
	bad := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "data: {\n\n") })
	if err := bad.Events(t.Context(), "", "", func(api.Event) error { return nil }); err == nil || errors.Is(err, client.ErrUnreachable) {
		t.Errorf("a bad event is %v", err)
	}
}

func TestAServerThatIsNotReadySaysWhyAndIsNoError(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"status":"not_ready","checks":{"ledger":"full"},"warnings":["look"]}`)
	})
	health, err := c.Ready(t.Context())
	if err != nil || health.Status != "not_ready" || health.Checks["ledger"] != "full" || len(health.Warnings) != 1 {
		t.Errorf("%+v, %v", health, err)
	}
	if _, err := serve(t, problem(503, `{"code":"store_unavailable"}`)).Ready(t.Context()); !as[*client.Failed](err) {
		t.Errorf("an answer that is none of a server's is %v", err)
	}
}
