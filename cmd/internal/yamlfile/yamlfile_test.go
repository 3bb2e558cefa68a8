package yamlfile_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/cmd/internal/yamlfile"
	"github.com/holdfast-io/holdfast/pkg/api"
)

func TestAPolicyIsReadExactly(t *testing.T) {
	text := `
# who must never wait
reservations:
  - bot: review-pr
    five_hour_percent: 20
    concurrent_runs: 2
    monthly_usd: 300.000001
    teams: [payments, web]
    suspended_until: 2026-12-01T08:00:00Z
    pool_eligible: false
    note: >-
      reviews must never wait
      for feature work
repo_quotas:
  - {repo: acme/widgets, monthly_usd: "50", share_of: {bot: review-pr}}
`
	var got api.BudgetFloor
	if err := yamlfile.Decode("p.yaml", []byte(text), &got); err != nil {
		t.Fatal(err)
	}
	fifty := 50 * holdfast.OneUSD
	want := api.BudgetFloor{
		Reservations: []api.Reservation{{
			Bot: "review-pr", FiveHourPercent: 20, ConcurrentRuns: 2, MonthlyUSD: 300_000_001, Teams: []string{"payments", "web"},
			SuspendedUntil: time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC), Note: "reviews must never wait for feature work",
		}},
		RepoQuotas: []api.RepoQuota{{Repo: "acme/widgets", MonthlyUSD: &fifty, ShareOf: &api.ShareOf{Bot: "review-pr"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAbsentNullAndZeroLimitsAreThreeThings(t *testing.T) {
	var got api.Team
	err := yamlfile.Decode("t.yaml", []byte("id: web\nlimits:\n  max_concurrent_runs: 0\n  monthly_usd: null\n  launches_per_minute: ~\n"), &got)
	want := api.Team{ID: "web", Limits: api.TeamLimits{
		MaxConcurrentRuns: holdfast.CountLimit{LimitSetting: holdfast.LimitTo(0)},
		MonthlyUSD:        holdfast.USDLimit{LimitSetting: holdfast.Unlimited},
		LaunchesPerMinute: holdfast.CountLimit{LimitSetting: holdfast.Unlimited},
	}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(holdfast.LimitSetting{})); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestABotWithItsMapsAndDurationIsRead(t *testing.T) {
	var got api.BotBody
	err := yamlfile.Decode("b.json", []byte(`{"lane": "command", "command": ["echo", "{{what}}", 7, "true"], "max_duration": "1m30s",
  "env": {"A": "1", "B": ""}, "inputs": {"what": {"required": true, "default": "x"}}, "budget_usd": 0.1}`), &got)
	tenth := holdfast.MicroUSD(100_000)
	want := api.BotBody{
		Lane: "command", Command: []string{"echo", "{{what}}", "7", "true"}, MaxDuration: holdfast.Duration(90 * time.Second),
		Env: map[string]string{"A": "1", "B": ""}, Inputs: map[string]holdfast.BotInput{"what": {Required: true, Default: "x"}}, BudgetUSD: &tenth,
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestBadInputNamesFileLineFieldAndWhatIsAllowed(t *testing.T) {
	rows := []struct {
		name, text string
		parts      []string
	}{
		{"an unknown field", "reservations:\n  - bot: a\n    monthly_us: 3\n", []string{"f.yaml line 3: reservations[0].monthly_us", "unknown field", "monthly_usd"}},
		{"an unknown field at the top", "reservation: []\n", []string{"f.yaml line 1: reservation", "(allowed: reservations, repo_quotas, updated_at)"}},
		{"a word for a number", "reservations:\n  - bot: a\n    concurrent_runs: two\n", []string{"line 3: reservations[0].concurrent_runs", `"two"`, "whole number"}},
		{"a quoted number for a number", "reservations:\n  - bot: a\n    concurrent_runs: \"2\"\n", []string{"line 3", "whole number"}},
		{"a fraction for a whole number", "reservations:\n  - bot: a\n    concurrent_runs: 2.5\n", []string{"line 3", "whole number"}},
		{"an overflowing number", "reservations:\n  - bot: a\n    concurrent_runs: 99999999999999999999\n", []string{"line 3", "whole number"}},
		{"negative dollars", "reservations:\n  - bot: a\n    monthly_usd: -1\n", []string{"line 3: reservations[0].monthly_usd", "decimal number from 0"}},
		{"dollars with an exponent", "reservations:\n  - bot: a\n    monthly_usd: 1e3\n", []string{"line 3", "decimal number"}},
		{"dollars with too many decimals", "reservations:\n  - bot: a\n    monthly_usd: 0.0000001\n", []string{"line 3", "6 decimals"}},
		{"a list for dollars", "reservations:\n  - bot: a\n    monthly_usd: [1]\n", []string{"line 3", "single value"}},
		{"a yes for a bool", "reservations:\n  - bot: a\n    pool_eligible: yes\n", []string{"line 3", "true, false"}},
		{"a mapping for a list", "reservations: {bot: a}\n", []string{"line 1: reservations", "a list"}},
		{"a text for a mapping", "reservations: [a]\n", []string{"line 1: reservations[0]", "bot, tier"}},
		{"a field twice", "reservations: []\nreservations: []\n", []string{"line 2"}},
		{"a time that is none", "reservations:\n  - bot: a\n    suspended_until: soon\n", []string{"line 3", "2026-12-01T08:00:00Z"}},
		{"an alias", "reservations: &r []\nrepo_quotas: *r\n", []string{"line 1", "anchors"}},
		{"broken YAML", "reservations: [\n", []string{"f.yaml", "not YAML"}},
		{"two documents", "reservations: []\n---\nreservations: []\n", []string{"f.yaml", "2 documents"}},
		{"an empty file", "# nothing\n", []string{"f.yaml", "0 documents"}},
		{"a file of one word", "hello\n", []string{"f.yaml line 1", "reservations"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			var policy api.BudgetFloor
			err := yamlfile.Decode("f.yaml", []byte(row.text), &policy)
			var invalid *holdfast.InvalidError
			if !errors.As(err, &invalid) || invalid.Allowed == "" {
				t.Fatalf("want an *InvalidError that says what is allowed, got %v", err)
			}
			for _, part := range row.parts {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is missing in: %v", part, err)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the error has several lines: %q", err)
			}
		})
	}
}

func TestStandardInputIsNamedInWords(t *testing.T) {
	var policy api.BudgetFloor
	if err := yamlfile.Decode("-", []byte("nope: 1\n"), &policy); err == nil || !strings.HasPrefix(err.Error(), "standard input line 1: nope: ") {
		t.Errorf("it says %v", err)
	}
}

func TestDocumentsAndTheirKeysKeepTheirOrder(t *testing.T) {
	docs, err := yamlfile.Parse("f.yaml", []byte("\xef\xbb\xbfteams: []\nbots: []\n---\n# only a comment\n---\npolicy: {}\n--- \nlimits: {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var got [][]string
	for _, doc := range docs {
		got = append(got, doc.Keys())
	}
	if err := docs[2].Error("limits", "no", "yes"); !strings.HasPrefix(err.Error(), "f.yaml line 8: limits") {
		t.Errorf("the line of a later document is %v", err)
	}
	if diff := cmp.Diff([][]string{{"teams", "bots"}, {"policy"}, {"limits"}}, got); diff != "" {
		t.Error(diff)
	}
}

// What an input costs must grow with its size, not with the square of it: a file of
// some hundred kilobytes once kept the parser busy for minutes.
func TestNoFileIsWorthTheSquareOfItsSize(t *testing.T) {
	rows := []struct {
		name  string
		text  string
		parts []string
	}{
		{"empty lines behind a block", "note: |\n  a" + strings.Repeat("\n", 102), []string{"f.yaml line 104", "empty lines", "100"}},
		{"lines of spaces behind a block", "note: |\n  a" + strings.Repeat("\n  ", 102), []string{"empty lines"}},
		{"lines that end in carriage returns", "note: |\n  a" + strings.Repeat("\r", 102), []string{"empty lines"}},
		{"lists within lists", "x:\n" + strings.Repeat("[", 33), []string{"f.yaml line 2", "too deep", "32"}},
		{"objects within objects", strings.Repeat("{a: ", 33), []string{"too deep"}},
		{"list marks in one line", strings.Repeat("- ", 33) + "a", []string{"too deep"}},
		{"key marks in one line", strings.Repeat("? ", 33) + "a", []string{"too deep"}},
		{"items without a value", "---\n" + strings.Repeat("-\n", 23_000), []string{"left out", "null"}},
		{"keys without a value", keys(16_000, ""), []string{"left out", "null"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			_, err := yamlfile.Parse("f.yaml", []byte(row.text))
			var invalid *holdfast.InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("want an *InvalidError, got %v", err)
			}
			for _, part := range row.parts {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is missing in: %v", part, err)
				}
			}
		})
	}
}

func keys(n int, value string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d:\n%s", i, value)
	}
	return b.String()
}

func TestWhatOperatorsWriteStaysWithinTheBounds(t *testing.T) {
	list := strings.Repeat("- bot: a\n  command:\n  - true\n  - b: [[1, 2], {c: d}]\n  env:\n  note: |\n    text\n\n\n", 300)
	for name, text := range map[string]string{
		"a hundred empty lines": "note: a" + strings.Repeat("\n", 101) + "other: b\n",
		"a long list":           list,
		"depth":                 strings.Repeat("[", 32) + strings.Repeat("]", 32),
		"values left out":       keys(2_000, ""),
		"lists under keys":      keys(12_000, "- a\n"),
		"nulls":                 strings.Repeat("- null\n", 25_000),
	} {
		if _, err := yamlfile.Parse("f.yaml", []byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheCostOfManyDocumentsAndOfAnErrorGrowsWithTheFile(t *testing.T) {
	for name, text := range map[string]func(n int) string{
		"documents":               func(n int) string { return strings.Repeat("---\na: b\n", n) },
		"an error in a long file": func(n int) string { return strings.Repeat("a ", n) + "\nb: c: d\n" },
	} {
		small, large := allocated(text(250)), allocated(text(2_000))
		if large > 12*small {
			t.Errorf("%s: eight times the text costs %d times the memory", name, large/small)
		}
	}
}

func allocated(text string) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _ = yamlfile.Parse("f.yaml", []byte(text))
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func FuzzDecodeNeverPanics(f *testing.F) {
	for _, seed := range []string{"reservations:\n - bot: a", "{", "? a\n: b", "a: !!x y", "- - -", "a: |\n  b", "<<: *x", "\xff", "a: .nan", "a: |\n  b\n\n\n\n", "[[[[", "- - -\n-\n-\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var policy api.BudgetFloor
		err := yamlfile.Decode("f", text, &policy)
		var invalid *holdfast.InvalidError
		if err != nil && !errors.As(err, &invalid) {
			t.Errorf("an error of another kind: %v", err)
		}
	})
}
