package schedule

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // the zones must be there in an image that has none

	"github.com/robfig/cron/v3"

	"github.com/holdfast-io/holdfast"
)

// Timetable says when a schedule ticks: five cron fields that are read on the clock
// of a time zone.
//
// Where the clock of the zone is changed, two kinds are told apart, as cron daemons
// do. One whose hour field begins with a star ("*", "*/2") goes by elapsed time: it
// ticks in both passes of an hour that comes twice, and not in one that is left out.
// One that names hours ("30 2 * * *") is meant once a day: a time that is left out
// ticks at the first instant behind the gap, and one that comes twice ticks in the
// first pass only.
type Timetable struct {
	fields  cron.Schedule
	zone    *time.Location
	elapsed bool
}

const (
	maxCron = 120
	maxZone = 64
)

var (
	fieldGrammar = regexp.MustCompile(`^[0-9A-Za-z*,/?-]+$`)
	named        = map[string]string{
		"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
		"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
	}
)

const allowedCron = `five fields "minute hour day-of-month month day-of-week" such as "30 2 * * MON-FRI", or @hourly, @daily, @weekly, @monthly, @yearly`

// ParseTimetable reads the fields and the zone ("Europe/Berlin"; empty is UTC). An
// *holdfast.InvalidError says what is wrong; a timetable that never ticks is one.
func ParseTimetable(expression, zone string) (Timetable, error) {
	t := Timetable{zone: time.UTC}
	bad := func(problem string) (Timetable, error) {
		return Timetable{}, &holdfast.InvalidError{Field: "cron", Problem: problem, Allowed: allowedCron}
	}
	if len(expression) > maxCron {
		return bad("it is too long")
	}
	text := strings.TrimSpace(expression)
	if long, ok := named[strings.ToLower(text)]; ok {
		text = long
	}
	fields := strings.Fields(text)
	if len(fields) != 5 {
		return bad(fmt.Sprintf("%q has %d fields", holdfast.Clip(expression, 60), len(fields)))
	}
	for _, field := range fields { // the parser takes more than five fields' grammar
		if !fieldGrammar.MatchString(field) {
			return bad(fmt.Sprintf("%q is not a field", holdfast.Clip(field, 40)))
		}
	}
	var err error
	if t.fields, err = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse("CRON_TZ=UTC " + strings.Join(fields, " ")); err != nil {
		return bad(holdfast.Clip(err.Error(), 120))
	}
	t.elapsed = strings.HasPrefix(fields[1], "*")
	if zone != "" {
		if t.zone, err = loadZone(zone); err != nil {
			return Timetable{}, err
		}
	}
	if t.Next(time.Unix(0, 0)).IsZero() {
		return bad(fmt.Sprintf("%q never comes", holdfast.Clip(expression, 60)))
	}
	return t, nil
}

func loadZone(name string) (*time.Location, error) {
	bad := &holdfast.InvalidError{Field: "time_zone", Problem: fmt.Sprintf("there is no time zone %q", holdfast.Clip(name, 60)), Allowed: "a name of the IANA database such as Europe/Berlin, or UTC"}
	if len(name) > maxZone || name == "Local" {
		return nil, bad
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, bad
	}
	return zone, nil
}

// Next is the first tick after an instant; zero when none comes within ten years.
func (t Timetable) Next(after time.Time) time.Time {
	if t.elapsed {
		return t.nextElapsed(after)
	}
	for wall := t.wall(after); ; {
		wall = t.nextWall(wall)
		if wall.IsZero() {
			return time.Time{}
		}
		if tick := t.instant(wall); tick.After(after) {
			return tick
		}
	}
}

// wall is what a clock in the zone shows at an instant, as a time in UTC, where no
// hour is left out or comes twice.
func (t Timetable) wall(at time.Time) time.Time {
	l := at.In(t.zone)
	return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), l.Second(), l.Nanosecond(), time.UTC)
}

// nextWall is the next time of the fields. The parser's search ends after five years,
// which is too early for a 29 February beside a century.
func (t Timetable) nextWall(wall time.Time) time.Time {
	if next := t.fields.Next(wall); !next.IsZero() {
		return next
	}
	return t.fields.Next(wall.AddDate(5, 0, 0))
}

// instant is when a clock in the zone shows a wall time for the first time; in a gap,
// the end of the gap.
func (t Timetable) instant(wall time.Time) time.Time {
	at := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, t.zone)
	start, end := at.ZoneBounds()
	switch shown := t.wall(at); {
	case shown.After(wall):
		return start.UTC()
	case shown.Before(wall):
		return end.UTC()
	case start.IsZero():
		return at.UTC()
	}
	earlier := wall.Add(-offset(start.Add(-time.Second)))
	if earlier.Before(start) && t.wall(earlier).Equal(wall) {
		return earlier
	}
	return at.UTC()
}

// nextElapsed goes through the stretches of time in which the zone's offset stays the
// same; within one, the wall clock runs with the time.
func (t Timetable) nextElapsed(after time.Time) time.Time {
	from := after.In(t.zone)
	for range 40 { // changes of the offset within ten years, and some
		shift := offset(from)
		wall := t.nextWall(from.UTC().Add(shift))
		if wall.IsZero() {
			return time.Time{}
		}
		tick := wall.Add(-shift)
		_, end := from.ZoneBounds()
		if end.IsZero() || tick.Before(end) {
			return tick.UTC()
		}
		if at := end.Add(offset(end)); t.ticksAt(at.UTC().Truncate(time.Second)) {
			return end.UTC()
		}
		from = end
	}
	return time.Time{}
}

// ticksAt says whether the fields name exactly this wall time.
func (t Timetable) ticksAt(wall time.Time) bool {
	return t.fields.Next(wall.Add(-time.Second)).Equal(wall)
}

func offset(at time.Time) time.Duration {
	_, seconds := at.Zone()
	return time.Duration(seconds) * time.Second
}
