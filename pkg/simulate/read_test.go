package simulate

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
)

var compareIdentities = cmp.Comparer(func(a, b holdfast.Identity) bool { return a == b })

func read(t *testing.T, text string, o ReadOptions) Trace {
	t.Helper()
	trace, err := ReadFrom("ops.csv", strings.NewReader(text), o)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

// assumed demands a sentence that contains the words.
func assumed(t *testing.T, trace Trace, words string) {
	t.Helper()
	if !slices.ContainsFunc(trace.Assumptions, func(s string) bool { return strings.Contains(s, words) }) {
		t.Errorf("no assumption says %q:\n%s", words, strings.Join(trace.Assumptions, "\n"))
	}
}

func TestACompleteRowIsReadAsItIsWritten(t *testing.T) {
	trace := read(t, "submitted_at,tenant,bot,tier,repo,run,duration_s,cost_usd,ask_usd\n"+
		"2026-03-01T10:00:00.5Z,Web Shop,Review_PR,platform,acme/site,r1,90.5,0.123456,1.5\n"+
		"2026-03-01T09:00:00+01:00,web-shop,audit,team,,r2,2m,$2,\n", ReadOptions{})
	want := []Row{
		{At: at("2026-03-01T08:00:00Z"), Team: "web-shop", Identity: holdfast.TeamBot("web-shop", "audit"), Run: "r2", Duration: 2 * time.Minute, Cost: 2_000_000, Ask: 2_000_000},
		{At: at("2026-03-01T10:00:00.5Z"), Team: "web-shop", Identity: holdfast.PlatformBot("review-pr"), Repo: "acme/site", Run: "r1", Duration: 90500 * time.Millisecond, Cost: 123_456, Ask: 1_500_000},
	}
	if diff := cmp.Diff(want, trace.Rows, compareIdentities); diff != "" {
		t.Error(diff)
	}
	assumed(t, trace, `"Web Shop" as web-shop`)
	assumed(t, trace, "1 rows without an ask ask for what they then cost")
}

func TestInferenceRequestsWithoutTenantDurationOrCost(t *testing.T) {
	trace, err := Read([]string{"testdata/inference.csv"}, ReadOptions{Model: "gpt-4.1"})
	if err != nil {
		t.Fatal(err)
	}
	want := []Row{ // 2 dollars a million in, 8 out; 50 tokens a second
		{At: at("2023-11-16T18:17:03.979Z"), Team: "inference", Identity: holdfast.TeamBot("inference", "default"), Duration: 200 * time.Millisecond, Cost: 9_696, Ask: 9_696},
		{At: at("2023-11-16T18:17:04.031Z"), Team: "inference", Identity: holdfast.TeamBot("inference", "default"), Duration: 160 * time.Millisecond, Cost: 6_424, Ask: 6_424},
		{At: at("2023-11-16T18:18:00Z"), Team: "inference", Identity: holdfast.TeamBot("inference", "default"), Duration: 540 * time.Millisecond, Cost: 436, Ask: 436},
	}
	if diff := cmp.Diff(want, trace.Rows, compareIdentities); diff != "" {
		t.Error(diff)
	}
	for _, words := range []string{
		"submitted_at from TIMESTAMP, input_tokens from ContextTokens", "no tenant: it is the file's name", "3 runs take their output tokens at 50 a second",
		"no cost: priced from tokens", "no model: 3 are priced as gpt-4.1", `no bot: 3 rows are the bot "default"`, "no ask",
	} {
		assumed(t, trace, words)
	}
}

func TestSessionsWithoutTimesStartEvenlyOverTheSpan(t *testing.T) {
	trace, err := Read([]string{"testdata/sessions.csv"}, ReadOptions{Span: 10 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if got := []time.Time{trace.Rows[0].At, trace.Rows[1].At}; !got[0].Equal(Origin) || !got[1].Equal(Origin.Add(5*time.Hour)) {
		t.Errorf("rows start at %v", got)
	}
	if r := trace.Rows[0]; r.Duration != 1528800*time.Millisecond || r.Cost != 5_005_600 {
		t.Errorf("the first session is %+v: the time without idleness counts, and the cost as written", r)
	}
	assumed(t, trace, "2 rows start evenly over 10h0m0s")
	assumed(t, trace, "duration_s from unattended_s")
	assumed(t, trace, "columns left aside: models, wall_s, api_s")
}

func TestTheRequestsOfOneRunBecomeOneRun(t *testing.T) {
	trace, err := Read([]string{"testdata/requests.csv"}, ReadOptions{Span: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if len(trace.Rows) != 2 {
		t.Fatalf("%d runs, want 2: %+v", len(trace.Rows), trace.Rows)
	}
	a, b := trace.Rows[0], trace.Rows[1]
	// Opus: 5 + 0.025, then 0.50 + 0.025, then 0.05; Haiku: 1.
	if a.Cost != 6_600_000 || b.Cost != 1_000_000 {
		t.Errorf("costs %s and %s, want 6.60 and 1", a.Cost, b.Cost)
	}
	// 0–10, a pause of 20, 30–50, a pause cut to 60, 1000–1005.
	if a.Duration != 115*time.Second || b.Duration != time.Minute || !a.At.Equal(Origin) || !b.At.Equal(Origin.Add(30*time.Minute)) {
		t.Errorf("a is %+v, b is %+v", a, b)
	}
	assumed(t, trace, "5 rows are the requests of 2 runs")
}

func TestNestedJSONHasItsFirstAndLastTimes(t *testing.T) {
	trace, err := Read([]string{"testdata/rounds.jsonl"}, ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(trace.Rows) != 2 {
		t.Fatalf("%d runs, want 2", len(trace.Rows))
	}
	r := trace.Rows[0]
	// 2892 x 5 + 27217 x 0.5 + 2163 x 6.25 + 931 x 25 = 64862.25, then 32272 x 0.5 +
	// 931 x 6.25 + 100 x 25 = 24454.75 millionths, each rounded up.
	if r.Team != "project-4c" || r.Cost != 64_863+24_455 || r.Duration != 20849*time.Millisecond || !r.At.Equal(at("2026-06-01T05:40:20.151Z")) {
		t.Errorf("the Claude session is %+v", r)
	}
	if other := trace.Rows[1]; other.Team != "rounds" || other.Cost != 2_650 {
		t.Errorf("the other session is %+v: its tenant is the file", other)
	}
}

func TestRelativeTimesCountFromTheOrigin(t *testing.T) {
	trace, err := Read([]string{"testdata/prefix.csv"}, ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !trace.Rows[0].At.Equal(Origin) || !trace.Rows[1].At.Equal(Origin.Add(1500*time.Millisecond)) {
		t.Errorf("rows start at %v and %v", trace.Rows[0].At, trace.Rows[1].At)
	}
	assumed(t, trace, "times are relative")
}

func TestSeveralFilesAreOneTrace(t *testing.T) {
	trace, err := Read([]string{"testdata/prefix.csv", "testdata/sessions.csv"}, ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]holdfast.TeamID{"prefix", "sessions"}, trace.Teams()); diff != "" || len(trace.Rows) != 4 {
		t.Error(diff, len(trace.Rows))
	}
	if !slices.IsSortedFunc(trace.Rows, func(a, b Row) int { return a.At.Compare(b.At) }) {
		t.Error("the rows of several files are not in the order of their times")
	}
}

func TestRowsThatCannotBeReadAreSkippedCountedAndNamed(t *testing.T) {
	text := "submitted_at,team,cost_usd,duration_s,tier,bot\n2026-01-01,a,1,5,,x\n2026-01-01,a,-1,5,,x\n2026-13-01,a,1,5,,x\n\n2026-01-01,a,NaN,5,,x\n" +
		"2026-01-01,a,1\n2026-01-01,a,1,99999999999,,x\n2026-01-01,a,1,5,mine,x\n2026-01-01,a,1e300,5,,x\n0001-01-01,a,1,5,,x\n"
	trace := read(t, text, ReadOptions{})
	if len(trace.Rows) != 1 || trace.Skipped != 8 || len(trace.SkipReasons) != maxReasons {
		t.Fatalf("%d rows, %d skipped, reasons %q", len(trace.Rows), trace.Skipped, trace.SkipReasons)
	}
	want := []string{
		`ops.csv line 3: cost_usd: "-1" is negative`, `ops.csv line 4: submitted_at: "2026-13-01" is not a time`, `ops.csv line 6: cost_usd: "NaN" is not a number`,
		"ops.csv line 7: it has 3 fields, the header 6", `ops.csv line 8: duration_s: "99999999999" is`,
	}
	for i, part := range want {
		if !strings.HasPrefix(trace.SkipReasons[i], part) {
			t.Errorf("reason %d is %q, want %q…", i, trace.SkipReasons[i], part)
		}
	}
}

func TestMapAndAssignSayWhoIsWho(t *testing.T) {
	mapped := map[string]string{}
	if err := ParseMap(mapped, "bot=Kind Of Work"); err != nil {
		t.Fatal(err)
	}
	first, err := ParseAssignment("tenant=C 91, bot=review-pr")
	if err != nil {
		t.Fatal(err)
	}
	second, err := ParseAssignment("model=m2,bot=team:x/audit")
	if err != nil {
		t.Fatal(err)
	}
	trace := read(t, "time,client,kind of work,model,cost\n2026-01-01,c-91,docs,m1,1\n2026-01-02,c2,docs,m2,1\n2026-01-03,c2,docs,m1,1\n2026-01-04,c3,,m1,1\n",
		ReadOptions{Map: mapped, Assign: []Assignment{first, second}})
	var got []string
	for _, r := range trace.Rows {
		got = append(got, r.Identity.String())
	}
	if diff := cmp.Diff([]string{"platform/review-pr", "team:c2/audit", "platform/docs", "team:c3/default"}, got); diff != "" {
		t.Error(diff)
	}
	assumed(t, trace, "2 rows got their bot by --assign")
	assumed(t, trace, "1 rows named a bot of another team")
}

func TestATeamsOwnBotComesBeforeThePlatformsOfThatName(t *testing.T) {
	trace := read(t, "time,team,bot,tier,cost\n2026-01-01,a,audit,,1\n2026-01-02,a,audit,team,1\n2026-01-03,b,audit,,1\n", ReadOptions{})
	if a, b := trace.Rows[0].Identity, trace.Rows[2].Identity; a != holdfast.TeamBot("a", "audit") || b != holdfast.PlatformBot("audit") {
		t.Errorf("the identities are %s and %s", a, b)
	}
}

func TestBadInputNamesFilePlaceAndWhatIsAllowed(t *testing.T) {
	for _, row := range []struct{ name, text, want string }{
		{"an empty file", "", "the file is empty"},
		{"no text", "a\x00b", "not text"},
		{"no column", "alpha,beta\n1,2\n", "it has alpha, beta"},
		{"a broken quote", "team,cost\na,\"1\nb,2\n", "ops.csv line 2"},
		{"a bare quote", "team,cost\na,1\nb\"c,2\n", "ops.csv line 3 column"},
		{"a JSON list", "[{\"team\":\"a\"}]", "one JSON list"},
		{"broken JSON", "{\"team\":\"a\",\"cost\":1}\n{\"team\":\n{\"team\":\"b\"}\n", "ops.csv line 2: broken JSON"},
		{"two values in a line of JSON", "{\"team\":\"a\"} {\"team\":\"b\"}\n", "ops.csv line 1: broken JSON"},
		{"JSON of other fields", "{\"alpha\":1}\n", "no field of it"},
		{"only a header", "team,cost\n", "no row that can be used"},
		{"only bad rows", "team,cost\na,x\n", "none of its 1 rows"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := ReadFrom("ops.csv", strings.NewReader(row.text), ReadOptions{})
			var invalid *holdfast.InvalidError
			if !errors.As(err, &invalid) || invalid.Allowed == "" || !strings.Contains(invalid.Field, "ops.csv") || !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v, want an *InvalidError that names the file and says %q", err, row.want)
			}
		})
	}
	for _, path := range []string{"testdata/none.csv", "testdata/fuzz-none"} {
		if _, err := Read([]string{path}, ReadOptions{}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("Read(%s) error %v", path, err)
		}
	}
	if _, err := Read([]string{t.TempDir()}, ReadOptions{}); err == nil || !strings.Contains(err.Error(), "no transcript") {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := ReadFrom("x.csv", strings.NewReader("team,input_tokens\na,1\n"), ReadOptions{Model: "nobody"}); err == nil || !strings.Contains(err.Error(), "model") {
		t.Errorf("a stated model without a price: %v", err)
	}
	if _, err := ReadFrom("x.csv", strings.NewReader("team\na\n"), ReadOptions{Map: map[string]string{"bot": "kind"}}); err == nil || !strings.Contains(err.Error(), `"kind"`) {
		t.Errorf("a mapped column that is not there: %v", err)
	}
}

func TestALastLineOfJSONThatIsTornIsSkipped(t *testing.T) {
	trace := read(t, "{\"team\":\"a\",\"cost\":0.5}\n{\"team\":\"b\",\"co", ReadOptions{})
	if len(trace.Rows) != 1 || trace.Skipped != 1 || !strings.Contains(trace.SkipReasons[0], "torn") {
		t.Errorf("%d rows, %d skipped %q", len(trace.Rows), trace.Skipped, trace.SkipReasons)
	}
}

func TestWordsOfFlagsThatCannotBeMeantAreRefused(t *testing.T) {
	for _, text := range []string{"", "tenant=a", "bot=", "bot=a/b/c", "colour=red,bot=x", "tenant"} {
		if _, err := ParseAssignment(text); err == nil {
			t.Errorf("ParseAssignment(%q) is taken", text)
		}
	}
	for _, text := range []string{"", "bot", "bot=", "robot=x"} {
		if err := ParseMap(map[string]string{}, text); err == nil {
			t.Errorf("ParseMap(%q) is taken", text)
		}
	}
}

func TestEveryColumnHasOneMeaning(t *testing.T) {
	if len(Columns()) != int(columnCount) {
		t.Fatalf("the table has %d columns, the reader %d", len(Columns()), columnCount)
	}
	seen := map[string]string{}
	for _, c := range Columns() {
		if c.Meaning == "" {
			t.Errorf("%s has no meaning", c.Name)
		}
		for _, name := range append([]string{c.Name}, c.Aliases...) {
			if other, twice := seen[plain(name)]; twice {
				t.Errorf("%s is a name of %s and of %s", name, other, c.Name)
			}
			seen[plain(name)] = c.Name
		}
	}
}
