package holdfast

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Kind says what sort of thing a subject belongs to.
type Kind string

// The kinds of subjects.
const (
	KindTeam       Kind = "team"
	KindOrg        Kind = "org"
	KindAccount    Kind = "account"
	KindDonor      Kind = "donor"
	KindRunnerPool Kind = "runner-pool"
	KindPlatform   Kind = "platform"
)

// Axis says which of its quantities can run out.
type Axis string

// The axes.
const (
	AxisSlots    Axis = "slots"
	AxisRuns     Axis = "runs"
	AxisUSD      Axis = "usd"
	AxisFiveHour Axis = "five_hour"
	AxisWeek     Axis = "week"
	AxisInFlight Axis = "in_flight"
)

// Unit is what the axis counts; UnitNone for an axis that this build does not know.
func (a Axis) Unit() Unit {
	switch a {
	case AxisSlots, AxisInFlight:
		return UnitSlots
	case AxisRuns:
		return UnitRuns
	case AxisUSD:
		return UnitUSD
	case AxisFiveHour, AxisWeek:
		return UnitPercent
	}
	return UnitNone
}

// Subject is what can run out: kind, id and axis, and for windows and months the
// instance. It is comparable and has one text form, kind/id/axis[@period]
// ("team/acme/usd@2026-11"), with one parser, [ParseSubject].
type Subject struct {
	Kind   Kind
	ID     string
	Axis   Axis
	Period string
}

// PlatformAll is the id of the subjects that span all teams.
const PlatformAll = "all"

// TeamSubject is a team's subject on an axis; period is empty for slots.
func TeamSubject(team TeamID, axis Axis, period string) Subject {
	return Subject{KindTeam, string(team), axis, period}
}

// OrgSubject is an organisation's subject on an axis; period is empty for slots.
func OrgSubject(org OrgID, axis Axis, period string) Subject {
	return Subject{KindOrg, string(org), axis, period}
}

// PlatformSubject is the subject of an axis over all teams.
func PlatformSubject(axis Axis, period string) Subject {
	return Subject{KindPlatform, PlatformAll, axis, period}
}

// MonthPeriod names the UTC calendar month of an instant: "2026-11".
func MonthPeriod(t time.Time) string { return t.UTC().Format("2006-01") }

// MonthEnd is the first instant after the UTC calendar month of t.
func MonthEnd(t time.Time) time.Time {
	u := t.UTC()
	return time.Date(u.Year(), u.Month()+1, 1, 0, 0, 0, 0, time.UTC)
}

// String is the subject's one text form.
func (s Subject) String() string {
	text := string(s.Kind) + "/" + s.ID + "/" + string(s.Axis)
	if s.Period != "" {
		text += "@" + s.Period
	}
	return text
}

// IsZero says whether it names nothing.
func (s Subject) IsZero() bool { return s == Subject{} }

// ParseSubject reads [Subject.String]. It accepts kinds and axes that this build
// does not know (a newer replica may have written them) but only in the grammar.
func ParseSubject(text string) (Subject, error) {
	bad := func() (Subject, error) {
		return Subject{}, &InvalidError{Problem: fmt.Sprintf("%q is not a subject", Clip(text, 120)), Allowed: "kind/id/axis or kind/id/axis@period, such as team/acme/slots or team/acme/usd@2026-11"}
	}
	if len(text) > 300 {
		return bad()
	}
	kind, rest, one := strings.Cut(text, "/")
	id, axis, two := strings.Cut(rest, "/")
	subject, ok := subjectOf(kind, id, axis)
	if !one || !two || !ok {
		return bad()
	}
	return subject, nil
}

// subjectOf makes a subject of its parts, the last with the period; false when they
// are not in the grammar.
func subjectOf(kind, id, last string) (Subject, bool) {
	axis, period, dated := strings.Cut(last, "@")
	ok := subjectPart(kind) && subjectPart(id) && subjectPart(axis) && (!dated || subjectPart(period))
	return Subject{Kind(kind), id, Axis(axis), period}, ok
}

func subjectPart(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c >= 'A' && c <= 'Z', c == '_', c == ':', c == '.', c == '|':
		default:
			return false
		}
	}
	return s != "" && len(s) <= 128
}

// MarshalText writes [Subject.String].
func (s Subject) MarshalText() ([]byte, error) {
	if s.IsZero() {
		return nil, nil
	}
	return []byte(s.String()), nil
}

// UnmarshalText reads what MarshalText wrote; an empty text is no subject.
func (s *Subject) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*s = Subject{}
		return nil
	}
	parsed, err := ParseSubject(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}

// AllocationID names one allocation. The caller makes it, before it asks, from the
// run, the subject and the generation (how often this run has asked this subject
// anew, the first time being 0): the same id again is the same ask, also after a
// lost reply. It begins with the run, so ids sort by time, and it holds the
// subject, so a store finds the record from the id alone:
// "01JD…~team~acme~usd@2026-11" or, from generation 1 on, "…~1" behind it.
type AllocationID string

// NewAllocationID makes the id of a run's ask on a subject.
func NewAllocationID(run RunID, s Subject, generation int) AllocationID {
	var b strings.Builder
	b.Grow(len(run) + len(s.Kind) + len(s.ID) + len(s.Axis) + len(s.Period) + 8)
	b.WriteString(string(run))
	b.WriteByte('~')
	b.WriteString(string(s.Kind))
	b.WriteByte('~')
	b.WriteString(s.ID)
	b.WriteByte('~')
	b.WriteString(string(s.Axis))
	if s.Period != "" {
		b.WriteByte('@')
		b.WriteString(s.Period)
	}
	if generation > 0 {
		b.WriteByte('~')
		b.WriteString(strconv.Itoa(generation))
	}
	return AllocationID(b.String())
}

// Subject is the subject that the id holds; an *InvalidError when it is not an id
// that [NewAllocationID] makes.
func (id AllocationID) Subject() (Subject, error) {
	_, s, _, err := id.Parts()
	return s, err
}

// Parts takes the id apart.
func (id AllocationID) Parts() (RunID, Subject, int, error) {
	bad := func() (RunID, Subject, int, error) {
		return "", Subject{}, 0, &InvalidError{Field: "allocation", Problem: fmt.Sprintf("%q is not an allocation's id", Clip(string(id), 120)), Allowed: "an id as the launch or capacity answered it"}
	}
	run, rest, _ := strings.Cut(string(id), "~")
	kind, rest, _ := strings.Cut(rest, "~")
	owner, rest, whole := strings.Cut(rest, "~")
	last, number, again := strings.Cut(rest, "~")
	generation := 0
	if again {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || number[0] < '1' { // one spelling only
			return bad()
		}
		generation = n
	}
	s, ok := subjectOf(kind, owner, last)
	if !whole || !ok || run == "" || len(id) > 400 {
		return bad()
	}
	return RunID(run), s, generation, nil
}
