package server_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestThePageOfRoutesIsTheTableOfRoutes holds docs/api/routes.md against the table; with
// -update it is written anew.
func TestThePageOfRoutesIsTheTableOfRoutes(t *testing.T) {
	const path = "../../docs/api/routes.md"
	var page strings.Builder
	page.WriteString("# The routes\n\nWritten from the table of routes: `go test ./pkg/server -run PageOfRoutes -update`. A role is needed in the team that the call is about;\na higher one includes it, and an operator may all. \"any token\" leaves the judgement to the gate or to the call itself.\n")
	rows := build(t, nil).server.Routes()
	var groups []string
	for _, rt := range rows {
		if !slices.Contains(groups, rt.Group) {
			groups = append(groups, rt.Group)
		}
	}
	slices.Sort(groups)
	for _, group := range groups {
		fmt.Fprintf(&page, "\n## %s\n\n| call | who | what |\n|---|---|---|\n", strings.ToUpper(group[:1])+group[1:])
		for _, rt := range rows {
			if rt.Group == group {
				fmt.Fprintf(&page, "| `%s %s` | %s | %s |\n", rt.Method, rt.Path, rt.Who, rt.Summary)
			}
		}
	}
	page.WriteString("\n## Without a token\n\n| call | what |\n|---|---|\n" +
		"| `GET /healthz` | the process lives |\n| `GET /readyz` | it may be sent work |\n| `GET /docs`, `GET /openapi.json` | the reference |\n" +
		"| `GET /metrics` | Prometheus; on this machine, else with the metrics token |\n" +
		"| `GET /auth/login`, `GET /auth/callback`, `POST /auth/logout` | a browser's login, where a provider is set |\n" +
		"| `POST /api/webhooks/{forge}/{webhook}` | a forge's delivery, signed with the webhook's secret |\n")
	if *update {
		if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != page.String() {
		t.Errorf("docs/api/routes.md is not the table of routes: go test ./pkg/server -run PageOfRoutes -update")
	}
}
