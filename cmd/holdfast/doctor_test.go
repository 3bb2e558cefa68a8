package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/pkg/client"
)

func TestDoctorShowsWhatAServerSaysOfItself(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		body   string
		want   []finding
	}{
		"ready with a warning": {200, `{"status":"ok","warnings":["look at the log"]}`, []finding{
			{"ready", verdictOK, "the server is ready: its stores and its queue answer", ""}, {"warning", verdictWarn, "look at the log", ""},
		}},
		"not ready": {503, `{"status":"not_ready","checks":{"ledger":"the disk is full"}}`, []finding{
			{"ready", verdictFail, "the server says not_ready", "the lines below say what is missing"}, {"ledger", verdictFail, "the disk is full", "the server's log says more"},
		}},
	} {
		c, url := answering(t, test.status, test.body)
		findings := checkServer(t.Context(), c, config.Client{URL: url})
		if diff := cmp.Diff(test.want, findings[1:]); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestDoctorSaysThatNothingLaunchesDuringMaintenance(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		body   string
		want   []finding
	}{
		"it is on": {200, `{"on":true,"message":"back at noon","until":"2026-12-01T12:00:00Z","origin":"stored"}`, []finding{{
			"maintenance", verdictWarn, "the platform is under maintenance and starts nothing: back at noon; it ends by itself at 2026-12-01 12:00:00Z",
			"echo '{on: false}' | holdfast settings set maintenance -f - ends it",
		}}},
		"it ended by itself":    {200, `{"on":true,"until":"2026-12-01T11:00:00Z","origin":"stored"}`, nil},
		"it is off":             {200, `{"on":false,"origin":"stored"}`, nil},
		"the token may not ask": {403, `{"status":403,"code":"forbidden","title":"Forbidden"}`, nil},
	} {
		c, _ := answering(t, test.status, test.body)
		if diff := cmp.Diff(test.want, checkMaintenance(t.Context(), c, time.Date(2026, 12, 1, 11, 0, 0, 0, time.UTC))); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// answering is a client of a server that answers everything so.
func answering(t *testing.T, status int, body string) (c *client.Client, url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, "", client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c, server.URL
}
