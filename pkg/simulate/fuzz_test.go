package simulate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
)

// FuzzAnyFileIsATraceOrBadInput: whatever a file holds, it is read into rows that a
// replay can work with, or refused as bad input that says what is allowed.
func FuzzAnyFileIsATraceOrBadInput(f *testing.F) {
	for _, pattern := range []string{"testdata/*.csv", "testdata/*.jsonl", "testdata/projects/*/*.jsonl"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			f.Fatal(pattern, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(text))
		}
	}
	for _, text := range []string{
		"team\n\"", "{", "{}", "{\"team\":{\"team\":[{}]}}", "time,team\n1e60,a\n", "cost\n1e-60\n", "team;bot\na;b", "t_s,run\n1,a\n9e9,a\n",
		"time,end_time,team\n2026-01-01,2200-01-01,a\n", "bot,tier,team\nteam:b/x,team,a\n/,,\n", "input_tokens,cached_input_tokens,requests\n9999999999,1e10,1\n",
		`{"sessionId":"s","message":{"id":"m","model":"x","usage":{"input_tokens":-5,"output_tokens":1}},"timestamp":"2026-01-01T00:00:00Z"}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		trace, err := ReadFrom("f.csv", strings.NewReader(text), ReadOptions{})
		if err != nil {
			if invalid, ok := errors.AsType[*holdfast.InvalidError](err); !ok || invalid.Allowed == "" || strings.ContainsAny(err.Error(), "\n\x00") {
				t.Fatalf("an error that is no answer: %v", err)
			}
			return
		}
		if len(trace.Rows) == 0 {
			t.Fatal("a trace without rows and without an error")
		}
		for i, r := range trace.Rows {
			switch {
			case r.At.IsZero() || r.Identity.IsZero() || !holdfast.ValidName(string(r.Team)) || !holdfast.ValidName(string(r.Identity.Bot())):
				t.Fatalf("row %d has no time or name: %+v", i, r)
			case r.Duration < 0 || r.Duration > maxDuration || r.Cost < 0 || r.Cost > holdfast.MaxUSD || r.Ask < 1 || r.Ask > holdfast.MaxUSD:
				t.Fatalf("row %d cannot be: %+v", i, r)
			case r.Identity.Tier() == holdfast.TierTeam && r.Identity.Team() != r.Team:
				t.Fatalf("row %d is another team's bot: %+v", i, r)
			case i > 0 && r.At.Before(trace.Rows[i-1].At):
				t.Fatalf("row %d is out of order", i)
			}
		}
	})
}

// FuzzDecimal: a number is read exactly or not at all.
func FuzzDecimal(f *testing.F) {
	for _, text := range []string{"0", "1.5", "1e-3", "-1", "99999999999999999999", "1e60", ".", "+1", "0.0000005"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		coarse, err := decimal(text, 0)
		fine, failed := decimal(text, 3)
		if err == nil && coarse < 0 || failed == nil && fine < 0 {
			t.Fatalf("decimal(%q) is negative", text)
		}
		if err == nil && failed == nil && (fine+500)/1000 != coarse && fine/1000 != coarse && (fine+499)/1000 != coarse {
			t.Fatalf("decimal(%q) is %d, and %d thousandths", text, coarse, fine)
		}
	})
}
