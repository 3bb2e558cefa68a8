package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
)

func TestYAMLKeepsTheOrderOfFieldsAndTheTextOfNumbers(t *testing.T) {
	got, err := yamlOfJSON([]byte(`{"z":1000000000.000001,"a":"2.50","when":"2026-11-30T10:00:00Z","none":null,"list":[],"map":{},
		"word":"true","text":"a: b\nc","items":[{"b":1,"a":[1,"x"]},[],{},[[2]],"s"],"yes":true,"key with blank":"-"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `z: 1000000000.000001
a: "2.50"
when: "2026-11-30T10:00:00Z"
none: null
list: []
map: {}
word: "true"
text: "a: b\nc"
items:
  - b: 1
    a:
      - 1
      - x
  - []
  - {}
  -
    -
      - 2
  - s
"yes": true
"key with blank": "-"
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestYAMLReadsBackAsTheSameText(t *testing.T) {
	for _, text := range []string{
		"", " ", " x ", "~", "#", "a #b", "\u0085", "a\u009b31m", "\u007f", "\u202eevil\u2066", "\t", "'", "\"", "null", "Null", "0x1", "1_0", "1e3", ".5", ".inf", "a:", "a: b", ":", "-", "?", "- a", "!x",
		"&a", "*a", "%", "@", "`", "[", "{", "]", "|", ">", "---", "...", "true", "OFF", "y", "=", "<<", "2026-11-30", "12:30:45", "a\nb\n", "\u2028", "\x00", "<a&b>",
		"/api/runs/x", "platform/review-pr", "team:web/feature-dev", "größer", "x/y@2026-11",
	} {
		document, err := json.Marshal(map[string]any{text: []string{text}})
		if err != nil {
			t.Fatal(err)
		}
		printed, err := yamlOfJSON(document)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string][]string
		if err := yaml.Unmarshal(printed, &got); err != nil {
			t.Errorf("%q was printed as %q, which is no YAML: %v", text, printed, err)
			continue
		}
		if diff := cmp.Diff(map[string][]string{text: {text}}, got); diff != "" {
			t.Errorf("%q was printed as %q: %s", text, printed, diff)
		}
	}
}

func TestAnAmountOfTheWireIsReadExactly(t *testing.T) {
	for _, amount := range []holdfast.Amount{
		holdfast.USDAmount(2_500_000), holdfast.USDAmount(-1), holdfast.USDAmount(holdfast.MaxUSD), holdfast.SlotAmount(3), holdfast.RunAmount(0),
		holdfast.ShareAmount(2_050), holdfast.SlotAmount(-2),
	} {
		if got := amountOf(api.AmountOf(amount)); got != amount {
			t.Errorf("%v was read as %v", amount, got)
		}
	}
	for _, bad := range []api.Amount{{Value: "1.5", Unit: "slots"}, {Value: "x", Unit: "usd"}, {Value: "1.0000001", Unit: "usd"}, {Value: "99999999999999999999", Unit: "runs"}} {
		if got := amountOf(bad); got != (holdfast.Amount{}) {
			t.Errorf("%v was read as %v", bad, got)
		}
	}
}

func TestATableHasColumnsAndNoTrailingBlanks(t *testing.T) {
	table := &table{header: []string{"A", "LONG"}, empty: "nothing"}
	var b strings.Builder
	if err := table.write(&b); err != nil || b.String() != "nothing\n" {
		t.Errorf("an empty table is %q, %v", b.String(), err)
	}
	b.Reset()
	table.add("größer", "x")
	table.add("-", "")
	if err := table.write(&b); err != nil || b.String() != "A       LONG\ngrößer  x\n-\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}

func TestWhatOthersWroteSteersNoTerminal(t *testing.T) {
	const hostile = "a\x1b[2Jb\u009b31mc\u202ed\u2066e\nf\x00"
	var list, one, story, rows strings.Builder
	table := &table{header: []string{"TITLE"}}
	table.add(hostile)
	err := errors.Join(table.write(&list), writeRun(&one, api.Run{ID: "r", Detail: hostile}), (&cli{}).writeStory(&story, api.Explanation{Summary: []string{hostile}, Change: hostile}), writeRows(&rows, [][2]string{{"title", hostile}}))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"list": list.String(), "run": one.String(), "explain": story.String(), "rows": rows.String(), "error": plain(errors.New(hostile))} {
		if strings.ContainsAny(text, "\x1b\u009b\u202e\u2066\x00") || !strings.Contains(text, "a [2Jb 31mc d e f") {
			t.Errorf("%s: %q", name, text)
		}
	}
}

func TestJSONForATerminalSteersNoneAndMeansTheSame(t *testing.T) {
	var all strings.Builder
	for r := range rune(0x3000) {
		all.WriteRune(r)
	}
	all.WriteString("größer 漢字 🚀")
	want := map[string]string{"title": all.String(), all.String(): "a key"}
	var problem strings.Builder
	(&cli{stderr: &problem}).reportJSON(want)
	outputs := map[string]string{"an error": problem.String()}
	for _, f := range []format{formatJSON, formatYAML} {
		var b strings.Builder
		if err := encode(&b, f, want); err != nil {
			t.Fatal(err)
		}
		outputs[string(f)] = b.String()
	}
	for name, text := range outputs {
		if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && holdfast.IsControl(r) }); i >= 0 {
			t.Errorf("%s has %q", name, text[i:i+3])
		}
		if !strings.Contains(text, "größer 漢字 🚀") {
			t.Errorf("%s escapes what steers nothing", name)
		}
		if name == string(formatYAML) {
			continue // read back by TestYAMLReadsBackAsTheSameText
		}
		got := map[string]string{}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s means something else", name)
		}
	}
}

func TestSpansAreAsShortAsTheyAreUseful(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "now", 340 * time.Millisecond: "300ms", 12*time.Second + 345*time.Millisecond: "12s", 90 * time.Second: "1m30s", 25*time.Hour + 3*time.Second: "25h0m",
	} {
		if got := showSpan(d); got != want {
			t.Errorf("%v is shown as %q, want %q", d, got, want)
		}
	}
}

func TestTypedSpansAndInstants(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2h": now.Add(-2 * time.Hour), "7d": now.Add(-7 * 24 * time.Hour), "2026-11-01": time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
		"2026-11-30T13:00:00+02:00": now.Add(-time.Hour),
	} {
		f := sinceFlag{now: func() time.Time { return now }}
		if err := f.Set(text); err != nil || !f.at.Equal(want) {
			t.Errorf("%s is %v, %v", text, f.at, err)
		}
	}
	for _, bad := range []string{"", "d", "1.5d", "-1h", "0s", "99999d", "9999999h", "tomorrow", "+3d"} {
		f := sinceFlag{now: func() time.Time { return now }}
		if f.Set(bad) == nil {
			t.Errorf("%q was read as %v", bad, f.at)
		}
	}
}

// What is shown of a run that comes back by itself.
func TestARunShowsWhenItIsTriedAgain(t *testing.T) {
	at := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		retry *api.RunRetry
		want  string
	}{
		"nothing was tried":   {nil, ""},
		"it waits":            {&api.RunRetry{NotBefore: at}, "tried by itself at 2026-12-01 08:00:00Z"},
		"it was refused once": {&api.RunRetry{NotBefore: at, Refusals: 1, Last: "maintenance"}, "tried by itself at 2026-12-01 08:00:00Z; refused once so far, last by maintenance"},
		"it came back":        {&api.RunRetry{Tries: 2}, "came back by itself 2 times"},
		"it was given up":     {&api.RunRetry{Tries: 1, GivenUp: "unknown_bot"}, "given up: unknown_bot"},
	} {
		var b strings.Builder
		if err := writeRun(&b, api.Run{Retry: c.retry}); err != nil {
			t.Fatal(err)
		}
		line := ""
		for text := range strings.Lines(b.String()) {
			if rest, ok := strings.CutPrefix(text, "retry "); ok {
				line = strings.TrimSpace(rest)
			}
		}
		if line != c.want {
			t.Errorf("%s: it shows %q, want %q", name, line, c.want)
		}
	}
}

// What no reset can help names none, and every refusal names the way to what would help.
func TestARefusalNamesTheResetOnlyWhereItHelps(t *testing.T) {
	no, yes := false, true
	p := api.Problem{Reason: "monthly_cost_cap_exceeded", ResetAt: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), DecisionID: "D1", RetryAfterS: 30}
	for _, c := range []struct {
		retryable *bool
		resets    bool
	}{{&no, false}, {&yes, true}, {nil, true}} {
		p.Retryable = c.retryable
		text := refusalText(p)
		if strings.Contains(text, "resets at 2026-12-01") != c.resets || strings.Contains(text, "asking again cannot help") == c.resets || !strings.Contains(text, "`holdfast decisions explain D1`") {
			t.Errorf("it says %s", text)
		}
	}
}

// A launch that its own request made impossible says what is wrong with it.
func TestAnInvalidLaunchNamesTheFieldInTables(t *testing.T) {
	if got := whyRefused(&api.LaunchRefusal{Reason: "invalid_request", Detail: "inputs.pr: the bot declares no such input"}); !strings.Contains(got, "inputs.pr") {
		t.Errorf("it says %q", got)
	}
	if got := whyRefused(&api.LaunchRefusal{Reason: "unknown_bot", Detail: "long"}); got != "unknown_bot" {
		t.Errorf("it says %q", got)
	}
}
