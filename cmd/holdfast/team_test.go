package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
)

// HOLDFAST_TEAM stands in for a --team that was not typed, and for no other; typed
// empty it is none.
func TestTheTeamOfTheEnvironmentStandsInForOneThatWasNotTyped(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body api.LaunchRequest
		_ = json.NewDecoder(r.Body).Decode(&body)
		asked = append(asked, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+body.Team+r.URL.Query().Get("team")))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	env := []string{"HOLDFAST_URL=" + server.URL, "HOLDFAST_TOKEN=x", "HOLDFAST_TEAM=web"}
	for _, args := range [][]string{
		{"preview", "probe"}, {"preview", "probe", "--team", "api"}, {"capacity"}, {"capacity", "--team", ""}, {"capacity", "platform/all/slots"},
		{"decisions"}, {"runs"}, {"tokens", "list"}, {"policy", "show"},
	} {
		if code, _, stderr := command(env, "", args...); code == exitUsage {
			t.Errorf("%v: %s", args, stderr)
		}
	}
	want := []string{
		"POST /api/launch/preview web", "POST /api/launch/preview api", "GET /api/capacity web", "GET /api/capacity", "GET /api/capacity/subject",
		"GET /api/decisions web", "GET /api/runs web", "GET /api/teams/web/tokens", "GET /api/admin/settings/budget-floor",
	}
	if !slices.Equal(asked, want) {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(asked, "\n"), strings.Join(want, "\n"))
	}
}

// Money may be typed with its sign, wherever money is typed.
func TestDollarsMayBeTypedWithTheirSign(t *testing.T) {
	for text, want := range map[string]holdfast.MicroUSD{"$0.50": 500_000, "0.50": 500_000, "$12": 12_000_000} {
		if got, err := typedUSD(text); err != nil || got != want {
			t.Errorf("%s is %d, %v", text, got, err)
		}
		limit := usdLimit(true)
		if err := limit.Set(text); err != nil || limit.setting != holdfast.LimitTo(int64(want)) {
			t.Errorf("the limit %s is %+v, %v", text, limit.setting, err)
		}
	}
	for _, text := range []string{"$", "$-1", "-$1", "$$1", "€1", "$1.2345678"} {
		if got, err := typedUSD(text); err == nil {
			t.Errorf("%s is %d", text, got)
		}
	}
}

// An organisation has no default to inherit, so that its limits are a number or none.
func TestAnOrganisationsLimitsInheritNothing(t *testing.T) {
	for inherits, want := range map[bool]string{true: "N|unlimited|inherit", false: "N|unlimited"} {
		limit := countLimit(inherits)
		if err := limit.Set("inherit"); (err == nil) != inherits || limit.Type() != want {
			t.Errorf("inherits %v: %v, it is shown as %s", inherits, err, limit.Type())
		}
		if err := limit.Set("-1"); err == nil || strings.Contains(err.Error(), "inherit") != inherits {
			t.Errorf("inherits %v: -1 is answered %v", inherits, err)
		}
	}
}

// In a pipe the capacity table fits a line of 120 columns with sensible figures.
func TestTheCapacityTableFitsAPipe(t *testing.T) {
	usd := func(value string) api.Amount { return api.Amount{Value: value, Unit: "usd"} }
	limit := usd("12345.670000")
	subject := api.SubjectCapacity{
		Subject: "team/integration-testing/usd@2026-11", Cap: &limit, Settled: usd("1234.567891"), Outstanding: usd("2345.678912"), Withheld: usd("3456.789123"), Free: &limit, Over: usd("0.000000"),
		Holders: []api.Holding{{Holder: "team:integration-testing/feature-dev", Reserved: usd("1234.500000"), Settled: usd("1234.567891"), Outstanding: usd("2345.678912"), FreeFor: &limit}},
	}
	var b strings.Builder
	c := &cli{now: func() time.Time { return time.Unix(0, 0) }}
	if err := c.writeCapacity(&b, []api.SubjectCapacity{subject}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if len(strings.TrimRight(line, "\n")) > 120 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
	if !strings.Contains(b.String(), "  team:integration-testing/feature-dev") || !strings.Contains(b.String(), "$1234.50") {
		t.Errorf("the table is\n%s", b.String())
	}
}
