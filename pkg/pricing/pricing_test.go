package pricing

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
)

func day(text string) time.Time {
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		panic(err)
	}
	return t
}

const million = 1_000_000

func TestPricesAreThoseOfTheirDay(t *testing.T) {
	for _, row := range []struct {
		name, model, day string
		usage            Usage
		want             string
	}{
		{"o3 before its cut", "o3", "2025-06-09", Usage{Input: million, Output: million}, "50.000000"},
		{"o3 on the day of its cut", "o3", "2025-06-10", Usage{Input: million, Output: million}, "10.000000"},
		{"o3 by its dated name", "o3-2025-04-16", "2026-01-01", Usage{Input: million, Output: million}, "10.000000"},
		{"sonnet 4.5 at its threshold", "claude-sonnet-4-5-20250929", "2026-01-01", Usage{Input: 200_000}, "0.600000"},
		{"sonnet 4.5 one token above: the whole answer", "claude-sonnet-4-5-20250929", "2026-01-01", Usage{Input: 200_001}, "1.200006"},
		{"sonnet 4.5 counts cached tokens to the threshold", "claude-sonnet-4-5", "2026-01-01", Usage{Input: 1, CacheRead: 200_000, Output: 1000}, "0.142506"},
		{"a sum of answers is judged by its mean", "claude-sonnet-4-5", "2026-01-01", Usage{Input: 400_000, Requests: 2}, "1.200000"},
		{"sonnet 4.6 became flat", "claude-sonnet-4-6", "2026-03-12", Usage{Input: 300_000}, "1.800000"},
		{"sonnet 4.6 is flat", "claude-sonnet-4-6", "2026-03-13", Usage{Input: 300_000}, "0.900000"},
		{"opus 4.6 became flat", "claude-opus-4-6", "2026-03-12", Usage{Output: million, Input: 200_001}, "39.500010"},
		{"sonnet 5 kept its price", "claude-sonnet-5", "2026-09-01", Usage{Input: million, Output: million}, "12.000000"},
		{"sonnet 5.5 reads caches for half", "claude-sonnet-5-5", "2026-10-06", Usage{CacheRead: million}, "0.200000"},
		{"sonnet 5.5 after the day", "claude-sonnet-5-5", "2026-10-07", Usage{CacheRead: million}, "0.100000"},
		{"haiku 5.5 above 100,000", "claude-haiku-5-5", "2026-11-01", Usage{Input: 1, CacheRead: 100_000}, "0.005001"},
		{"cache writes", "claude-opus-4-5", "2026-01-01", Usage{CacheWrite5m: million, CacheWrite1h: million}, "16.250000"},
		{"gpt-5.6 luna was cut by four fifths", "gpt-5.6-luna", "2026-07-30", Usage{Input: million / 10, CacheWrite5m: million / 10}, "0.045000"},
		{"gpt-5.4 above 272,000", "gpt-5.4", "2026-07-30", Usage{Input: 272_001}, "1.360005"},
		{"a model without a cached rate charges plain input", "gpt-5-pro", "2026-07-30", Usage{CacheRead: million}, "15.000000"},
		{"nothing costs nothing", "o3", "2026-01-01", Usage{}, "0.000000"},
		{"the last step rounds up", "gpt-5-nano", "2026-01-01", Usage{CacheRead: 1}, "0.000001"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := Price(row.model, day(row.day), row.usage)
			if err != nil || got.String() != row.want {
				t.Errorf("Price(%s, %s, %+v) = %s, %v; want %s", row.model, row.day, row.usage, got, err, row.want)
			}
		})
	}
}

// Two recorded sessions, computed by hand: Opus 4.5, 41 requests; every prompt
// token that was not read from the cache was written to it.
func TestASessionCostsWhatHandArithmeticSays(t *testing.T) {
	for _, row := range []struct {
		input, cached, output int64
		want                  string // cached x 0.50 + the rest x 6.25 + output x 25, per million
	}{
		{4873373, 4544512, 27119, "5.005613"}, // 2.272256 + 2.05538125 + 0.677975, rounded up
		{1508817, 1409280, 18463, "1.788322"}, // 0.70464 + 0.62210625 + 0.461575, rounded up
	} {
		got, err := Price("claude-opus-4-5-20251101", day("2026-01-05"), Inclusive(row.input, row.cached, row.input-row.cached, 0, row.output))
		if err != nil || got.String() != row.want {
			t.Errorf("%+v: got %s, %v", row, got, err)
		}
	}
}

func TestAnUnknownModelIsUnpricedAndNeverFree(t *testing.T) {
	for _, model := range []string{"", "claude-opus-5-6", "claude-opus-5-latestish", "gpt-5.9", "gpt-5-foo", "o3x", "<synthetic>", "claude-opus-4-5-2025"} {
		_, err := Price(model, day("2026-01-01"), Usage{Input: 1})
		var unpriced *UnpricedError
		if !errors.As(err, &unpriced) || unpriced.Model != model {
			t.Errorf("Price(%q) error = %v, want an *UnpricedError", model, err)
		}
	}
}

func TestNamesOfOneModelAreOneModel(t *testing.T) {
	for model, want := range map[string]string{
		"claude-opus-4-5-20251101":                    "claude-opus-4-5",
		"anthropic/claude-opus-4.5":                   "claude-opus-4-5",
		"us.anthropic.claude-opus-4-5-20251101-v1:0":  "claude-opus-4-5",
		"claude-sonnet-4-5[1m]":                       "claude-sonnet-4-5",
		"claude-sonnet-4@20250514":                    "claude-sonnet-4-0",
		"claude-opus-4-20250514":                      "claude-opus-4-0",
		"Claude-Haiku-4-5-latest":                     "claude-haiku-4-5",
		"openai/gpt-5-mini-2025-08-07":                "gpt-5-mini",
		"gpt-5.5-2026-04-23":                          "gpt-5.5",
		"gpt-5-6":                                     "gpt-5.6-sol",
		"models/gemini-2.5-pro":                       "gemini-2.5-pro",
		"bedrock/eu.anthropic.claude-sonnet-5-5-v2:0": "claude-sonnet-5-5",
		"vertex_ai/claude-opus-5-5@20260901":          "claude-opus-5-5",
		"openrouter/anthropic/claude-haiku-4.5":       "claude-haiku-4-5",
		"gpt-5.1-codex-max":                           "gpt-5.1",
		"gpt-4o-2024-08-06":                           "gpt-4o",
		"o4-mini-high":                                "o4-mini",
		"claude-fable-5-1":                            "claude-fable-5-1",
		"claude-fable-5":                              "claude-fable-5",
		"claude-opus-5-20260101":                      "claude-opus-5",
		"gemini-3.1-flash-lite-preview":               "gemini-3.1-flash-lite",
	} {
		if got, ok := Known(model); !ok || got != want {
			t.Errorf("Known(%q) = %q, %v; want %q", model, got, ok, want)
		}
	}
}

func TestTheTableIsWellFormed(t *testing.T) {
	ids := map[string]bool{}
	for _, table := range [][]entry{anthropic, openai, google} {
		for _, e := range table {
			if ids[e.id] {
				t.Errorf("%s is in the table twice", e.id)
			}
			ids[e.id] = true
			if got, ok := Known(e.id); !ok || got != e.id {
				t.Errorf("%s is found as %q, %v", e.id, got, ok)
			}
			for _, name := range e.names {
				if got, _ := Known(name); got != e.id {
					t.Errorf("the name %q of %s finds %q", name, e.id, got)
				}
			}
			for i, r := range e.rows {
				if (i == 0) != (r.from == "") || (i > 0 && r.from <= e.rows[i-1].from) {
					t.Errorf("%s: row %d is out of order", e.id, i)
				}
				if r.input <= 0 || r.output < r.input || r.read > r.input || (r.over > 0) != (r.above != rates{}) {
					t.Errorf("%s: row %d is not a price: %+v", e.id, i, r)
				}
				if r.over > 0 && (r.above.input < r.input || (r.above.read == 0) != (r.read == 0)) {
					t.Errorf("%s: the tier of row %d is not above its base: %+v", e.id, i, r)
				}
			}
		}
	}
}

func TestInclusiveCountsTakenApartSumToTheInput(t *testing.T) {
	for _, row := range []struct {
		input, read, short, long int64
		want                     Usage
	}{
		{100, 60, 10, 5, Usage{Input: 25, CacheRead: 60, CacheWrite5m: 10, CacheWrite1h: 5, Output: 7}},
		{100, 120, 10, 5, Usage{CacheRead: 100, Output: 7}},
		{100, 60, 50, 5, Usage{CacheRead: 60, CacheWrite5m: 40, Output: 7}},
		{0, 0, 0, 0, Usage{Output: 7}},
	} {
		if diff := cmp.Diff(row.want, Inclusive(row.input, row.read, row.short, row.long, 7)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestAbsurdCountsAreInvalidAndTheLargestDoNotOverflow(t *testing.T) {
	for _, u := range []Usage{{Input: -1}, {Output: MaxTokens + 1}, {CacheRead: -5}, {Requests: -1}} {
		_, err := Price("o3", day("2026-01-01"), u)
		var invalid *holdfast.InvalidError
		if !errors.As(err, &invalid) || invalid.Allowed == "" {
			t.Errorf("Price(%+v) error = %v, want an *InvalidError that says what is allowed", u, err)
		}
	}
	got, err := Price("gpt-5.5-pro", day("2026-10-01"), Usage{MaxTokens, MaxTokens, MaxTokens, MaxTokens, MaxTokens, 0})
	want := fmt.Sprint(int64(10_000 * (60 + 6 + 60 + 60 + 270))) // dollars, of 10,000 million tokens each
	if err != nil || got.String() != want+".000000" {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}
