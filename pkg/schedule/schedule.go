// Package schedule launches bots by the clock: cron fields in a time zone, kept as
// records. Every replica runs the loop; a tick is claimed by compare-and-set, so it
// launches once. A tick that came while no replica ran is missed: it is counted on
// the schedule and said, and at most one is caught up, if the schedule asks for it.
// What the gate refuses is kept as the schedule's last error; what may pass by itself
// is tried again until the next tick.
//
// Reading order: cron.go (when it ticks), schedule.go (the record), ticker.go (the
// loop).
package schedule

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/surface"
)

// CatchUp says what becomes of ticks that came while nobody could launch.
type CatchUp string

// The ways to catch up. The empty one reads as none.
const (
	CatchNone CatchUp = "none" // they are missed
	CatchOne  CatchUp = "one"  // the newest of them is launched late, the others are missed
)

// Schedule is one schedule. What its owner writes comes first, what the loop writes
// after it.
type Schedule struct {
	ID       string          `json:"id"` // the team and the name: "web.nightly"
	Team     holdfast.TeamID `json:"team"`
	Name     string          `json:"name"`
	Cron     string          `json:"cron"`
	TimeZone string          `json:"time_zone,omitempty"` // empty: UTC
	surface.Work
	Enabled   bool      `json:"enabled"`
	CatchUp   CatchUp   `json:"catch_up,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	CreatedBy string    `json:"created_by,omitempty"`

	// NextAt is the next tick; zero while the schedule is paused.
	NextAt time.Time `json:"next_at,omitzero"`
	// Tick is the newest tick that was taken up: no tick up to it launches again,
	// whatever clocks do.
	Tick time.Time `json:"tick,omitzero"`
	// Pending is the launch of Tick while it is on its way.
	Pending *surface.Attempt `json:"pending,omitempty"`

	LastRun   holdfast.RunID  `json:"last_run,omitempty"`
	LastRunAt time.Time       `json:"last_run_at,omitzero"`
	LastError surface.Refusal `json:"last_error,omitzero"` // until the next launch that succeeds
	// Missed counts the ticks since MissedSince that nobody launched because no replica
	// ran; a change of the schedule begins anew.
	Missed      int64     `json:"missed,omitempty"`
	MissedSince time.Time `json:"missed_since,omitzero"`
}

// MaxPerTeam is how many schedules a team may have.
const MaxPerTeam = 500

// Check refuses a schedule that cannot be stored, with an *holdfast.InvalidError.
func (s Schedule) Check() error {
	switch {
	case !holdfast.ValidName(string(s.Team)):
		return &holdfast.InvalidError{Field: "team", Problem: fmt.Sprintf("%q is not a team's id", holdfast.Clip(string(s.Team), 80)), Allowed: "the id of a team"}
	case !holdfast.ValidName(s.Name):
		return &holdfast.InvalidError{Field: "name", Problem: fmt.Sprintf("%q is not a name", holdfast.Clip(s.Name, 80)), Allowed: "1 to 63 lower case letters, digits and single dashes"}
	case s.CatchUp != "" && s.CatchUp != CatchNone && s.CatchUp != CatchOne:
		return &holdfast.InvalidError{Field: "catch_up", Problem: fmt.Sprintf("%q is not a way to catch up", holdfast.Clip(string(s.CatchUp), 40)), Allowed: "none, one"}
	}
	if _, err := ParseTimetable(s.Cron, s.TimeZone); err != nil {
		return err
	}
	return s.Work.Check()
}

// ID is the id of a team's schedule of that name.
func ID(team holdfast.TeamID, name string) string { return string(team) + "." + name }

// Repository keeps schedules.
type Repository struct {
	table *records.Table[Schedule]
	clock clock.Clock
}

const (
	indexTeam = "team"
	indexDue  = "due" // when the loop must look at it; absent: never
)

// New opens the collection "schedules".
func New(ctx context.Context, db records.DB, clock clock.Clock) (*Repository, error) {
	schema := records.Schema{Name: "schedules", Indexes: []records.Index{{Name: indexTeam}, {Name: indexDue}}}
	table, err := records.NewTable(ctx, db, schema, func(s Schedule) string { return s.ID }, func(s Schedule) map[string]string {
		k := map[string]string{indexTeam: string(s.Team)}
		if due := surface.Stamp(s.due()); due != "" {
			k[indexDue] = due
		}
		return k
	})
	if err != nil {
		return nil, err
	}
	return &Repository{table, clock}, nil
}

// due is when the loop must look at the schedule; zero is never.
func (s Schedule) due() time.Time {
	due := s.NextAt
	if s.Pending != nil {
		if wake := s.Pending.Wake(); due.IsZero() || wake.Before(due) {
			due = wake
		}
	}
	return due
}

// Create stores a new schedule; the error matches [records.ErrExists] when the team
// has one of that name.
func (r *Repository) Create(ctx context.Context, s Schedule) (Schedule, error) {
	if err := s.Check(); err != nil {
		return Schedule{}, err
	}
	n, err := r.table.Count(ctx, indexTeam, string(s.Team))
	if err != nil {
		return Schedule{}, err
	}
	if n >= MaxPerTeam {
		return Schedule{}, &holdfast.InvalidError{Field: "team", Problem: fmt.Sprintf("it has %d schedules already", n), Allowed: fmt.Sprintf("at most %d", MaxPerTeam)}
	}
	now := r.clock.Now()
	s.ID, s.CreatedAt = ID(s.Team, s.Name), now
	s = s.written(now)
	v, err := r.table.Insert(ctx, s)
	return v.Value, err
}

// written is the schedule after its owner wrote it: the count of missed ticks begins
// anew, and so does the clock.
func (s Schedule) written(now time.Time) Schedule {
	s.UpdatedAt, s.Missed, s.MissedSince, s.NextAt = now, 0, time.Time{}, time.Time{}
	if s.Enabled {
		s.NextAt = s.next(now)
	}
	return s
}

// next is the first tick behind an instant and behind every tick that was taken up.
// The timetable was checked when it was stored; one that can no longer be read, such
// as a zone that is gone, never ticks.
func (s Schedule) next(after time.Time) time.Time {
	t, err := ParseTimetable(s.Cron, s.TimeZone)
	if err != nil {
		return time.Time{}
	}
	if s.Tick.After(after) {
		after = s.Tick
	}
	return t.Next(after)
}

// Get reads one schedule; the error matches [records.ErrNotFound].
func (r *Repository) Get(ctx context.Context, id string) (Schedule, error) {
	if !validID(id) {
		return Schedule{}, fmt.Errorf("get schedule %q: %w", holdfast.Clip(id, 80), records.ErrNotFound)
	}
	v, err := r.table.Get(ctx, id)
	return v.Value, err
}

func validID(id string) bool {
	team, name, ok := strings.Cut(id, ".")
	return ok && holdfast.ValidName(team) && holdfast.ValidName(name)
}

// Update edits what the owner writes; change may run more than once, and its error is
// returned as it is. Another cron or zone, or enabling it, begins the clock anew; a
// paused schedule gives up what is pending and not launched yet.
func (r *Repository) Update(ctx context.Context, id string, change func(*Schedule) error) (Schedule, error) {
	if !validID(id) {
		return Schedule{}, fmt.Errorf("update schedule %q: %w", holdfast.Clip(id, 80), records.ErrNotFound)
	}
	v, err := r.table.Update(ctx, id, func(s *Schedule) error {
		was := *s
		if err := change(s); err != nil {
			return err
		}
		s.ID, s.Team, s.Name, s.CreatedAt = was.ID, was.Team, was.Name, was.CreatedAt
		if err := s.Check(); err != nil {
			return err
		}
		now := r.clock.Now()
		if !s.Enabled && s.Pending != nil && !s.Pending.Claimed(now) {
			s.Pending = nil
		}
		if s.Cron != was.Cron || s.TimeZone != was.TimeZone || s.Enabled != was.Enabled {
			*s = s.written(now)
		}
		s.UpdatedAt = now
		return nil
	})
	return v.Value, err
}

// Delete removes a schedule. A launch of it that is on its way may still start.
func (r *Repository) Delete(ctx context.Context, id string) error {
	if !validID(id) {
		return fmt.Errorf("delete schedule %q: %w", holdfast.Clip(id, 80), records.ErrNotFound)
	}
	return r.table.Delete(ctx, id)
}

// List lists schedules by id, of a team or of all. next is the cursor of the
// following page, empty at the end.
func (r *Repository) List(ctx context.Context, team holdfast.TeamID, limit int, cursor string) (list []Schedule, next string, err error) {
	q := records.Query{After: cursor}
	if q.Limit, err = records.PageSize(limit); err != nil {
		return nil, "", err
	}
	if team != "" {
		q.Index, q.Equal = indexTeam, string(team)
	}
	values, next, err := r.table.List(ctx, q)
	for _, v := range values {
		list = append(list, v.Value)
	}
	return list, next, err
}
