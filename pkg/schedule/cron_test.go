package schedule_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/schedule"
)

// ticks are the first n ticks after an instant, as UTC.
func ticks(t *testing.T, cron, zone, after string, n int) []string {
	t.Helper()
	timetable, err := schedule.ParseTimetable(cron, zone)
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse("2006-01-02 15:04", after)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for range n {
		at = timetable.Next(at)
		out = append(out, at.UTC().Format("2006-01-02 15:04"))
	}
	return out
}

func TestTicksFollowTheZonesClockThroughGapsOverlapsAndCalendars(t *testing.T) {
	for _, row := range []struct {
		name, cron, zone, after string
		want                    []string
	}{
		{"every quarter", "*/15 * * * *", "", "2026-03-10 12:01", []string{"2026-03-10 12:15", "2026-03-10 12:30", "2026-03-10 12:45", "2026-03-10 13:00"}},
		{"working days", "30 2 * * MON-FRI", "", "2026-03-13 03:00", []string{"2026-03-16 02:30", "2026-03-17 02:30"}},
		{"east of UTC", "0 9 * * *", "Asia/Kolkata", "2026-03-10 00:00", []string{"2026-03-10 03:30", "2026-03-11 03:30"}},
		{"a named time that the spring leaves out ticks at the end of the gap, once", "30 2 * * *", "Europe/Berlin", "2026-03-28 00:00",
			[]string{"2026-03-28 01:30", "2026-03-29 01:00", "2026-03-30 00:30"}},
		{"two named times in one gap are one tick", "10,40 2,3 * * *", "Europe/Berlin", "2026-03-29 00:00",
			[]string{"2026-03-29 01:00", "2026-03-29 01:10", "2026-03-29 01:40", "2026-03-30 00:10"}},
		{"a named time that the autumn has twice ticks in the first pass", "30 2 * * *", "Europe/Berlin", "2026-10-24 12:00",
			[]string{"2026-10-25 00:30", "2026-10-26 01:30"}},
		{"asked in the second pass, it does not tick again", "30 2 * * *", "Europe/Berlin", "2026-10-25 01:15", []string{"2026-10-26 01:30"}},
		{"by elapsed time: both passes", "*/30 * * * *", "Europe/Berlin", "2026-10-24 23:45",
			[]string{"2026-10-25 00:00", "2026-10-25 00:30", "2026-10-25 01:00", "2026-10-25 01:30", "2026-10-25 02:00"}},
		{"by elapsed time: none in the gap, none lost", "*/30 * * * *", "Europe/Berlin", "2026-03-29 00:15",
			[]string{"2026-03-29 00:30", "2026-03-29 01:00", "2026-03-29 01:30"}},
		{"a gap of half an hour", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03 00:00", []string{"2026-10-03 15:30", "2026-10-04 15:15"}},
		{"a midnight that does not exist", "0 0 * * *", "Africa/Cairo", "2026-04-23 00:00", []string{"2026-04-23 22:00", "2026-04-24 21:00"}},
		{"the last day of long months only", "0 0 31 * *", "", "2026-01-31 00:00", []string{"2026-03-31 00:00", "2026-05-31 00:00", "2026-07-31 00:00"}},
		{"leap days", "0 12 29 2 *", "", "2026-03-01 00:00", []string{"2028-02-29 12:00", "2032-02-29 12:00"}},
		{"leap days over a century that has none", "0 12 29 2 *", "", "2096-03-01 00:00", []string{"2104-02-29 12:00"}},
		{"a day of the month or of the week, as cron reads it", "0 0 13 * FRI", "", "2026-03-06 12:00", []string{"2026-03-13 00:00", "2026-03-20 00:00"}},
		{"the turn of a year", "@yearly", "Pacific/Kiritimati", "2026-06-01 00:00", []string{"2026-12-31 10:00"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, ticks(t, row.cron, row.zone, row.after, len(row.want))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTicksRiseStrictlyInEveryZoneThroughTwoYears(t *testing.T) {
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Africa/Casablanca", "Australia/Lord_Howe", "Asia/Gaza", "Pacific/Apia", "America/Scoresbysund"} {
		for _, cron := range []string{"17 */3 * * *", "59 23 * * *", "0 0-3 * * *"} {
			timetable, err := schedule.ParseTimetable(cron, zone)
			if err != nil {
				t.Fatal(err)
			}
			at, n := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC), 0
			for end := at.AddDate(2, 0, 0); at.Before(end); n++ {
				next := timetable.Next(at)
				if !next.After(at) || next.Sub(at) > 27*time.Hour {
					t.Fatalf("%s in %s: after %s comes %s", cron, zone, at, next)
				}
				// Whoever asks at any instant between two ticks is told the same one.
				if middle := timetable.Next(at.Add(next.Sub(at) / 2)); !middle.Equal(next) {
					t.Fatalf("%s in %s: from the middle of %s and %s comes %s", cron, zone, at, next, middle)
				}
				at = next
			}
			if n < 729 {
				t.Errorf("%s in %s ticked %d times in two years", cron, zone, n)
			}
		}
	}
}

func TestWhatIsNoTimetableIsRefusedWithItsField(t *testing.T) {
	for _, row := range []struct{ cron, zone, field string }{
		{"", "", "cron"}, {"* * * *", "", "cron"}, {"* * * * * *", "", "cron"}, {"TZ=UTC", "", "cron"}, {"TZ=Europe/Berlin 0 0 * * *", "", "cron"},
		{"61 * * * *", "", "cron"}, {"* * * * 9", "", "cron"}, {"@every 1s", "", "cron"}, {"@reboot", "", "cron"}, {"0 0 30 2 *", "", "cron"},
		{strings.Repeat("1,", 200) + "1 * * * *", "", "cron"}, {"*/0 * * * *", "", "cron"},
		{"0 0 * * *", "Mars/Olympus", "time_zone"}, {"0 0 * * *", "Local", "time_zone"}, {"0 0 * * *", "../../etc/passwd", "time_zone"},
	} {
		_, err := schedule.ParseTimetable(row.cron, row.zone)
		var bad *holdfast.InvalidError
		if !errors.As(err, &bad) || bad.Field != row.field || bad.Allowed == "" {
			t.Errorf("%q in %q: %v, want the field %s", row.cron, row.zone, err, row.field)
		}
	}
}

func FuzzParseTimetable(f *testing.F) {
	for _, seed := range []string{"* * * * *", "0 0 29 2 *", "*/7 1-5,9 L * ?", "TZ=", "@daily", "59-1 * * * *", "5/5 * * * *"} {
		f.Add(seed, "Europe/Berlin")
	}
	f.Fuzz(func(t *testing.T, cron, zone string) {
		timetable, err := schedule.ParseTimetable(cron, zone)
		if err != nil {
			return
		}
		at := time.Date(2026, 3, 28, 23, 0, 0, 0, time.UTC)
		if next := timetable.Next(at); !next.IsZero() && !next.After(at) {
			t.Errorf("%q in %q: %s comes after %s", cron, zone, next, at)
		}
	})
}
