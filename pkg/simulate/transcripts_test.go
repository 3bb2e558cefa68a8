package simulate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
)

func TestAFolderOfTranscriptsIsProjectsAndSessions(t *testing.T) {
	trace, err := Read([]string{"testdata/projects"}, ReadOptions{Model: "claude-haiku-4-5"})
	if err != nil {
		t.Fatal(err)
	}
	const shop = "home-ana-src-shop"
	want := []Row{
		// The reply of q1 once, with its last output: 4 x 5 + 400,000 x 6.25 + 600,000 x 10
		// + 1,000 x 25 millionths; then 0.25 as written. From 9:00:10 to 9:00:20, and
		// five minutes of the pause until noon.
		{At: at("2026-02-02T09:00:10Z"), Team: shop, Identity: holdfast.TeamBot(shop, "default"), Run: "s1", Duration: 310 * time.Second, Cost: 8_525_020 + 250_000, Ask: 8_775_020},
		{At: at("2026-02-02T10:00:00Z"), Team: "web", Identity: holdfast.TeamBot("web", "default"), Run: "s3", Cost: 1_000_000, Ask: 1_000_000},
		// Its copy of q1 is the first session's; its sub-agent is its own.
		{At: at("2026-02-03T09:00:00Z"), Team: shop, Identity: holdfast.TeamBot(shop, "default"), Run: "s2", Duration: time.Minute, Cost: 3_000_000, Ask: 3_000_000},
	}
	if diff := cmp.Diff(want, trace.Rows, compareIdentities); diff != "" {
		t.Error(diff)
	}
	assumed(t, trace, "2 repeated lines")
	assumed(t, trace, "without a price in the table: claude-opus-9; 1 are priced as claude-haiku-4-5")
	if trace.Skipped != 2 { // the torn line, and the reply of "yesterday"
		t.Errorf("%d lines were skipped, want 2: %q", trace.Skipped, trace.SkipReasons)
	}
}

func TestOneTranscriptIsReadByItsContent(t *testing.T) {
	trace, err := Read([]string{"testdata/projects/web/s3.jsonl"}, ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(trace.Rows) != 1 || trace.Rows[0].Team != "web" || trace.Rows[0].Run != "s3" {
		t.Errorf("the rows are %+v", trace.Rows)
	}
}

func TestTheSameSessionOfAProjectFolderItself(t *testing.T) {
	trace, err := Read([]string{"testdata/projects/web"}, ReadOptions{})
	if err != nil || len(trace.Rows) != 1 || trace.Rows[0].Team != "web" {
		t.Errorf("rows %+v, error %v", trace.Rows, err)
	}
}

func TestWorkIsTheUnionOfSpansAndShortPauses(t *testing.T) {
	second := func(n int) time.Time { return Origin.Add(time.Duration(n) * time.Second) }
	for _, row := range []struct {
		name  string
		spans []span
		want  time.Duration
	}{
		{"one moment", []span{{second(5), second(5)}}, 0},
		{"overlapping", []span{{second(0), second(10)}, {second(5), second(8)}}, 10 * time.Second},
		{"out of order", []span{{second(20), second(30)}, {second(0), second(10)}}, 30 * time.Second},
		{"a long pause", []span{{second(0), second(10)}, {second(1000), second(1001)}}, 71 * time.Second},
	} {
		if got := worked(row.spans, time.Minute); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
}
