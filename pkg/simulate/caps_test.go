package simulate

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
)

func TestCapsAreMadeOfTheTracesOwnPeaks(t *testing.T) {
	var b strings.Builder
	b.WriteString("time,team,duration_s,cost_usd\n")
	// Four hours with 1, 2, 3 and 8 runs at once, each in a window of its own; another
	// month has less.
	for i, n := range []int{1, 2, 3, 8} {
		for range n {
			fmt.Fprintf(&b, "%s,a,600,1.004\n", Origin.Add(time.Duration(i)*6*time.Hour).Format(time.RFC3339))
		}
	}
	b.WriteString("2026-02-02T00:00:00Z,a,600,0.5\n")
	caps, said := DeriveCaps(read(t, b.String(), ReadOptions{}))
	want := Caps{
		Platform: PlatformCaps{MaxConcurrentRuns: slots(3), MonthlyUSD: usd(14_060_000)}, // hours: 1 1 2 3 8; months: 14.056 and 0.50
		Windows:  Windows{FiveHour: &WindowCap{USD: 3_020_000}, Week: &WindowCap{USD: 14_060_000}},
	}
	if diff := cmp.Diff(want, caps, cmp.AllowUnexported(holdfast.LimitSetting{})); diff != "" {
		t.Error(diff)
	}
	if len(said) != 4 || !strings.Contains(said[0], "75th percentile of the most runs at once in each hour") {
		t.Errorf("it says %q", said)
	}
}

func TestHoursThatARunOnlyPassesThroughArePeaksToo(t *testing.T) {
	// One run of ten hours, and three more for a minute in the last: nine hours of 1
	// and one of 4.
	text := "time,team,duration_s,cost_usd\n2026-03-01T00:00:00Z,a,36000,1\n"
	for range 3 {
		text += "2026-03-01T09:30:00Z,a,60,1\n"
	}
	text += "2026-03-03T09:30:00Z,a,60,0\n" // more than a day: buckets are hours
	if got := peakRuns(read(t, text, ReadOptions{})); got != 1 {
		t.Errorf("the 75th percentile is %d, want 1", got)
	}
}

func TestATraceWithoutPeaksHasNoCaps(t *testing.T) {
	caps, said := DeriveCaps(read(t, "team\na\nb\n", ReadOptions{}))
	if diff := cmp.Diff(Caps{}, caps, cmp.AllowUnexported(holdfast.LimitSetting{})); diff != "" || len(said) != 0 {
		t.Error(diff, said)
	}
}

func TestTheNearestRankOfAPercentile(t *testing.T) {
	for _, row := range []struct {
		values []int
		want   int
	}{{nil, 0}, {[]int{7}, 7}, {[]int{2, 1}, 2}, {[]int{4, 3, 2, 1}, 3}, {[]int{5, 4, 3, 2, 1}, 4}} {
		if got := ranked(row.values); got != row.want {
			t.Errorf("ranked(%v) = %d, want %d", row.values, got, row.want)
		}
	}
}

func TestATeamsOwnCapsComeBeforeEverybodys(t *testing.T) {
	caps, err := Caps{Teams: map[string]TeamCaps{
		"*":        {MaxConcurrentRuns: slots(3), MonthlyUSD: usd(10)},
		"Web Shop": {MaxConcurrentRuns: holdfast.CountLimit{LimitSetting: holdfast.Unlimited}},
	}}.Checked()
	if err != nil {
		t.Fatal(err)
	}
	own, other := caps.of("web-shop"), caps.of("else")
	if own.MaxConcurrentRuns.LimitSetting != holdfast.Unlimited || own.MonthlyUSD != usd(10) || other.MaxConcurrentRuns != slots(3) || !own.MonthlyRuns.Inherits() {
		t.Errorf("own %+v, other %+v", own, other)
	}
}

func TestCapsThatCannotBeMeantAreRefused(t *testing.T) {
	percent := func(n int) *int { return &n }
	for field, caps := range map[string]Caps{
		"teams":                         {Teams: map[string]TeamCaps{"a/b": {}}},
		"teams.web":                     {Teams: map[string]TeamCaps{"web": {}, "Web": {}}},
		"windows.five_hour.usd":         {Windows: Windows{FiveHour: &WindowCap{}}},
		"windows.week.usd":              {Windows: Windows{Week: &WindowCap{USD: -1}}},
		"windows.week.cap_percent":      {Windows: Windows{Week: &WindowCap{USD: 1, CapPercent: percent(0)}}},
		"windows.five_hour.cap_percent": {Windows: Windows{FiveHour: &WindowCap{USD: 1, CapPercent: percent(101)}}},
	} {
		_, err := caps.Checked()
		if invalid, ok := errors.AsType[*holdfast.InvalidError](err); !ok || invalid.Field != field || invalid.Allowed == "" {
			t.Errorf("%s: error %v", field, err)
		}
	}
}
