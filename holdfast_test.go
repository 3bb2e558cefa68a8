package holdfast_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
)

func TestDollarsAreReadAndWrittenExactly(t *testing.T) {
	for _, c := range []struct {
		text string
		want holdfast.MicroUSD
		json string
	}{
		{"0", 0, "0"}, {"2.5", 2_500_000, "2.5"}, {"300", 300_000_000, "300"}, {"0.000001", 1, "0.000001"},
		{"0.07", 70_000, "0.07"}, {"1000000000", holdfast.MaxUSD, "1000000000"}, {"100", 100_000_000, "100"},
	} {
		got, err := holdfast.ParseUSD(c.text)
		if err != nil || got != c.want {
			t.Errorf("ParseUSD(%q) = %d, %v; want %d", c.text, got, err, c.want)
		}
		for _, wire := range []string{c.text, `"` + c.text + `"`} {
			var m holdfast.MicroUSD
			if err := json.Unmarshal([]byte(wire), &m); err != nil || m != c.want {
				t.Errorf("decoding %s gives %d, %v; want %d", wire, m, err, c.want)
			}
		}
		if out, _ := json.Marshal(got); string(out) != c.json {
			t.Errorf("encoding %d gives %s, want %s", got, out, c.json)
		}
	}
}

func TestWhatIsNotAnAmountOfDollarsIsRefusedWithTheWayOut(t *testing.T) {
	for _, text := range []string{"", "-1", "+1", "1e3", "1.", ".5", "1.0000001", "1000000000.000001", "1000000001", "NaN", "Infinity", "0x10", "1 000", "99999999999999999999", "١"} {
		_, err := holdfast.ParseUSD(text)
		var bad *holdfast.InvalidError
		if !errors.As(err, &bad) || bad.Allowed == "" {
			t.Errorf("ParseUSD(%q) = %v, want an *InvalidError that says what is allowed", text, err)
		}
	}
}

// Python prints 0.00005 as 5e-05: an external run that had spent so little could not
// say so, and lost its lease.
func TestDollarsOfANumberWithAnExponentAreExact(t *testing.T) {
	for text, want := range map[string]holdfast.MicroUSD{
		"5e-05": 50, "1e-06": 1, "1.5E-5": 15, "1.250000e-04": 125, "0e-9": 0, "0.0e5": 0, "1e3": 1_000_000_000, "1.5e+2": 150_000_000, "12.5e-1": 1_250_000,
		"1e9": holdfast.MaxUSD, "10000000e-7": 1_000_000, "0.00000001e8": 1_000_000,
	} {
		var m holdfast.MicroUSD
		if err := json.Unmarshal([]byte(text), &m); err != nil || m != want {
			t.Errorf("%s gives %d, %v; want %d", text, m, err, want)
		}
	}
	for _, text := range []string{"1e-7", "1.5e-6", "1e10", "1e309", "1e-309", "1e21", "-1e-6", `"5e-05"`, "1e99999999999999999999", "1.0000001e0"} {
		var m holdfast.MicroUSD
		var bad *holdfast.InvalidError
		if err := json.Unmarshal([]byte(text), &m); !errors.As(err, &bad) || bad.Allowed == "" {
			t.Errorf("%s gives %d, %v; want an *InvalidError that says what is allowed", text, m, err)
		}
	}
}

func TestAmountsOfTwoUnitsNeverMix(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("adding slots to dollars did not panic")
		}
	}()
	holdfast.SlotAmount(1).Plus(holdfast.USDAmount(1))
}

func TestAmountsPanicBeforeTheyWrap(t *testing.T) {
	for name, overflow := range map[string]func(){
		"plus":  func() { holdfast.USDAmount(math.MaxInt64).Plus(holdfast.USDAmount(1)) },
		"minus": func() { holdfast.USDAmount(math.MinInt64).Minus(holdfast.USDAmount(1)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s wrapped around", name)
				}
			}()
			overflow()
		}()
	}
}

func TestSharesRoundDownAndDoNotOverflow(t *testing.T) {
	if got := holdfast.BasisPoints(2_000).OfUSD(holdfast.MaxUSD); got != holdfast.MaxUSD/5 {
		t.Errorf("20%% of the largest amount is %d", got)
	}
	if got := holdfast.BasisPoints(3_333).OfUSD(1); got != 0 {
		t.Errorf("a third of a micro-dollar rounds to %d, want 0", got)
	}
}

func TestNamesFoldToOneForm(t *testing.T) {
	for _, name := range []string{"feature_dev", "Feature Dev", "feature-dev", " FEATURE.dev ", "feature__dev", "-feature-dev-"} {
		if got, err := holdfast.FoldName(name); err != nil || got != "feature-dev" {
			t.Errorf("FoldName(%q) = %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "  ", "a/b", "a@b", "ä", "a\x00b", strings.Repeat("a", 64), strings.Repeat("a", 201), "日本"} {
		if got, err := holdfast.FoldName(name); err == nil {
			t.Errorf("FoldName(%q) = %q, want an error", name, got)
		}
	}
}

func TestAnIdentityHasOneEncodingThatReadsBack(t *testing.T) {
	for text, want := range map[string]holdfast.Identity{
		"platform/review-pr":    holdfast.PlatformBot("review-pr"),
		"review_pr":             holdfast.PlatformBot("review-pr"),
		"team:acme/feature-dev": holdfast.TeamBot("acme", "feature-dev"),
	} {
		got, err := holdfast.ParseIdentity(text)
		if err != nil || got != want {
			t.Errorf("ParseIdentity(%q) = %v, %v", text, got, err)
		}
		again, err := holdfast.ParseIdentity(got.String())
		if err != nil || again != got {
			t.Errorf("%v does not read back: %v, %v", got, again, err)
		}
	}
	if holdfast.PlatformBot("x") == holdfast.TeamBot("acme", "x") {
		t.Error("a team's bot equals the platform's of the same name")
	}
	for _, text := range []string{"", "org/x", "team:/x", "team:a/", "platform/"} {
		if _, err := holdfast.ParseIdentity(text); err == nil {
			t.Errorf("ParseIdentity(%q) was accepted", text)
		}
	}
}

func TestASubjectHasOneTextFormThatReadsBack(t *testing.T) {
	month := holdfast.MonthPeriod(time.Date(2026, 11, 30, 23, 59, 59, 0, time.FixedZone("", -3600)))
	for _, s := range []holdfast.Subject{
		holdfast.TeamSubject("acme", holdfast.AxisSlots, ""),
		holdfast.TeamSubject("acme", holdfast.AxisUSD, month),
		holdfast.PlatformSubject(holdfast.AxisUSD, "2026-11"),
		{Kind: holdfast.KindDonor, ID: "p|api_key|1", Axis: holdfast.AxisUSD, Period: "2026-W49"},
	} {
		got, err := holdfast.ParseSubject(s.String())
		if err != nil || got != s {
			t.Errorf("%v does not read back: %v, %v", s, got, err)
		}
		for generation := range 3 {
			id := holdfast.NewAllocationID("01JD0000000000000000000000", s, generation)
			run, subject, g, err := id.Parts()
			if err != nil || run != "01JD0000000000000000000000" || subject != s || g != generation {
				t.Errorf("%s does not come apart: %s %v %d %v", id, run, subject, g, err)
			}
		}
	}
	if month != "2026-12" {
		t.Errorf("the month is not that of UTC: %s", month)
	}
	for _, text := range []string{"", "team", "team/acme", "team/acme/slots/x", "team//slots", "team/acme/usd@", "team/a b/slots", "team/acme/slots@a@b"} {
		if s, err := holdfast.ParseSubject(text); err == nil {
			t.Errorf("ParseSubject(%q) = %v", text, s)
		}
	}
}

func TestMonthsEndAtTheFirstInstantOfTheNext(t *testing.T) {
	for from, want := range map[string]string{
		"2026-12-31T23:59:59Z": "2027-01-01T00:00:00Z",
		"2028-02-29T12:00:00Z": "2028-03-01T00:00:00Z",
		"2026-02-28T23:59:59Z": "2026-03-01T00:00:00Z",
	} {
		at, _ := time.Parse(time.RFC3339, from)
		if got := holdfast.MonthEnd(at).Format(time.RFC3339); got != want {
			t.Errorf("the month of %s ends %s, want %s", from, got, want)
		}
	}
}

func TestADenialIsNotAnError(t *testing.T) {
	var denial any = holdfast.Denial{Reason: holdfast.DenyConcurrency}
	if _, isError := denial.(error); isError {
		t.Error("Denial has an Error method: a no and a could-not-tell would mix")
	}
}

func TestEveryReasonIsListedOnce(t *testing.T) {
	seen := map[holdfast.DenyReason]bool{}
	for _, reason := range holdfast.DenyReasons() {
		if seen[reason] || reason == "" {
			t.Errorf("%q is listed twice or empty", reason)
		}
		seen[reason] = true
	}
	for _, axis := range []holdfast.Axis{holdfast.AxisSlots, holdfast.AxisRuns, holdfast.AxisUSD, holdfast.AxisFiveHour, holdfast.AxisWeek, holdfast.AxisInFlight, "new"} {
		if !seen[axis.DenyReason()] {
			t.Errorf("the axis %s refuses with a reason that is not listed", axis)
		}
	}
}

func TestALimitSettingTellsAbsentNullAndZeroApart(t *testing.T) {
	type doc struct {
		Slots holdfast.CountLimit `json:"slots,omitzero"`
		USD   holdfast.USDLimit   `json:"usd,omitzero"`
	}
	for text, want := range map[string]struct {
		inherits bool
		limit    holdfast.Limit
	}{
		`{}`:             {true, holdfast.NoLimit},
		`{"slots":null}`: {false, holdfast.NoLimit},
		`{"slots":0}`:    {false, holdfast.AtMost(holdfast.SlotAmount(0))},
		`{"slots":3}`:    {false, holdfast.AtMost(holdfast.SlotAmount(3))},
	} {
		var d doc
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		if d.Slots.Inherits() != want.inherits || d.Slots.Limit(holdfast.UnitSlots) != want.limit {
			t.Errorf("%s reads as inherits=%v %v", text, d.Slots.Inherits(), d.Slots.Limit(holdfast.UnitSlots))
		}
		if out, _ := json.Marshal(d); string(out) != text {
			t.Errorf("%s is written back as %s", text, out)
		}
	}
	for _, text := range []string{`{"slots":-1}`, `{"slots":1.5}`, `{"slots":"3"}`, `{"slots":1e3}`, `{"slots":99999999999999999999}`, `{"usd":-1}`, `{"usd":true}`, `{"usd":1e400}`} {
		var d doc
		if err := json.Unmarshal([]byte(text), &d); err == nil {
			t.Errorf("%s was accepted", text)
		}
	}
}

func TestClipNeverCutsARuneAndCarriesNoControlCharacters(t *testing.T) {
	if got := holdfast.Clip("a\nb\x1b[31m", 40); strings.ContainsAny(got, "\n\x1b") {
		t.Errorf("control characters pass: %q", got)
	}
	if got := holdfast.Clip("a\u009b31mb\u2028c\u202ed\u2066e", 40); got != "a 31mb c d e" {
		t.Errorf("what steers a line passes: %q", got)
	}
	if got := holdfast.Clip(strings.Repeat("é", 30), 5); got != "éé…" {
		t.Errorf("cut to %q", got)
	}
}
