package records_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/pkg/records"
)

func TestIDsRiseStrictlyAlsoWhenTheClockStepsBack(t *testing.T) {
	var ids records.IDs
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	last := ""
	for i := range 20_000 {
		at := now
		switch i % 3 {
		case 1:
			at = now.Add(time.Duration(i) * time.Millisecond)
		case 2:
			at = now.Add(-time.Hour)
		}
		id := ids.Next(at)
		if len(id) != 26 || id <= last {
			t.Fatalf("id %d: %q does not come after %q", i, id, last)
		}
		last = id
	}
}

func TestFirstIDDividesWhatCameBeforeFromWhatCameAfter(t *testing.T) {
	since := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	var older, newer records.IDs
	if before := older.Next(since.Add(-time.Millisecond)); before >= records.FirstID(since) {
		t.Errorf("%q was made before the instant and is not below %q", before, records.FirstID(since))
	}
	if after := newer.Next(since); after < records.FirstID(since) {
		t.Errorf("%q was made at the instant and is below %q", after, records.FirstID(since))
	}
	if got, want := records.FirstID(time.Time{}), strings.Repeat("0", 26); got != want {
		t.Errorf("the first id of no time is %q, want %q", got, want)
	}
	// The time part is a ULID's: this one is of the ULID specification's kind.
	if got, want := records.FirstID(time.UnixMilli(1469918176385))[:10], "01ARYZ6S41"; got != want {
		t.Errorf("the time part is %q, want %q", got, want)
	}
}
