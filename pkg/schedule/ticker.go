package schedule

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/surface"
)

// Options are a ticker's settings; a zero field has the stated default.
type Options struct {
	Clock clock.Clock   // nil: the machine's
	Every time.Duration // how often it looks for due schedules: 5 s
	// Late is how long after its instant a tick still counts as on time: 1 minute. An
	// older one is missed.
	Late time.Duration
	// Window is how long a refused tick is tried again, unless the next tick comes
	// earlier: 1 h.
	Window  time.Duration
	Backoff surface.Backoff // between those tries: 15 s, doubled up to 10 min
	Log     *slog.Logger    // nil: nothing is logged
	Events  Events
}

// Events are told what happened; nil fields are no-ops.
type Events struct {
	// Ticked is told what became of a try of a tick.
	Ticked func(s Schedule, v surface.Verdict)
	// Missed is told how many ticks of a schedule were missed.
	Missed func(s Schedule, ticks int64)
}

// Ticker launches what is due. Any number of them may run over the same stores.
type Ticker struct {
	schedules *Repository
	gate      surface.Gate
	runs      surface.Documents
	options   Options
}

// NewTicker is a ticker over its parts; all of them are required.
func NewTicker(schedules *Repository, gate surface.Gate, documents surface.Documents, o Options) (*Ticker, error) {
	if schedules == nil || gate == nil || documents == nil {
		return nil, errors.New("schedule: a part is missing")
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Every, o.Late, o.Window = cmp.Or(o.Every, 5*time.Second), cmp.Or(o.Late, time.Minute), cmp.Or(o.Window, time.Hour)
	o.Backoff.First, o.Backoff.Most = cmp.Or(o.Backoff.First, 15*time.Second), cmp.Or(o.Backoff.Most, 10*time.Minute)
	return &Ticker{schedules, gate, documents, o}, nil
}

// Run makes a pass every period until ctx ends, and then returns nil.
func (t *Ticker) Run(ctx context.Context) error {
	tick := time.NewTicker(t.options.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := t.Pass(ctx); err != nil && ctx.Err() == nil {
				t.options.Log.WarnContext(ctx, "schedules could not be looked at; the next pass tries again", "error", err)
			}
		}
	}
}

// passMost bounds how many due schedules one pass looks at; the rest is the next
// pass's, and what is due longest comes first.
const passMost = 1000

// Pass looks at every schedule that is due, the one that waits longest first. One
// that cannot be read or written does not keep the others from their turn.
func (t *Ticker) Pass(ctx context.Context) error {
	due, _, err := t.schedules.table.List(ctx, records.Query{Index: indexDue, AtMost: surface.Stamp(t.options.Clock.Now()), Limit: passMost})
	if err != nil {
		return err
	}
	var all error
	for _, v := range due {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := t.look(ctx, v); err != nil && !errors.Is(err, records.ErrRevision) && !errors.Is(err, records.ErrNotFound) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// look takes up what is due of one schedule. Another replica that was faster is
// records.ErrRevision, and the tick is its.
func (t *Ticker) look(ctx context.Context, v records.Versioned[Schedule]) error {
	now := t.options.Clock.Now()
	s, missed := v.Value, int64(0)
	switch {
	case s.Pending != nil && s.Pending.Claimed(now):
		return nil // a launch that is under way is left to end first
	case !s.NextAt.IsZero() && !s.NextAt.After(now):
		s, missed = t.take(s, now)
	case s.Pending == nil, !s.Pending.Open(now):
		return nil
	case now.After(s.Tick.Add(t.options.Window)) && s.Pending.Claim == "":
		s.Pending = nil // its last error says why
	}
	if s.Pending != nil && s.Pending.Open(now) {
		begun := s.Pending.Begin(t.runs.NewID(now), now)
		s.Pending = &begun
	}
	v.Value = s
	stored, err := t.schedules.table.Replace(ctx, v)
	if err != nil {
		return err
	}
	if missed > 0 && t.options.Events.Missed != nil {
		t.options.Events.Missed(s, missed)
	}
	if s.Pending == nil || !s.Pending.ClaimedAt.Equal(now) {
		return nil
	}
	return t.launch(ctx, stored.Value)
}

// countMost bounds how many ticks of a long downtime are counted.
const countMost = 100_000

// take is the schedule once the ticks up to now are taken up: the newest is pending
// if it is on time or to be caught up, the others are missed. It takes the place of an
// earlier tick that was refused until now.
func (t *Ticker) take(s Schedule, now time.Time) (taken Schedule, missed int64) {
	timetable, err := ParseTimetable(s.Cron, s.TimeZone)
	if err != nil { // its zone is gone from this build
		s.NextAt, s.LastError = time.Time{}, surface.Refusal{At: now, Reason: surface.ReasonInvalid, Detail: err.Error()}
		return s, 0
	}
	newest, ticks := s.NextAt, int64(1)
	for next := timetable.Next(newest); !next.IsZero() && !next.After(now) && ticks < countMost; next = timetable.Next(next) {
		newest = next
		ticks++
	}
	missed = ticks
	s.Pending = nil
	if s.CatchUp == CatchOne || !now.After(newest.Add(t.options.Late)) {
		missed--
		s.Pending = &surface.Attempt{}
	}
	if missed > 0 {
		if s.Missed == 0 {
			s.MissedSince = s.NextAt
		}
		s.Missed += missed
	}
	s.Tick = newest
	s.NextAt = timetable.Next(newest)
	if !s.NextAt.IsZero() && !s.NextAt.After(now) { // more than are counted
		s.NextAt = timetable.Next(now)
	}
	return s, missed
}

// launch asks the gate for the claimed tick and writes down what came of it.
func (t *Ticker) launch(ctx context.Context, s Schedule) error {
	v := surface.Try(ctx, t.gate, t.runs, launch.Machine(launch.SurfaceSchedule, s.Team), *s.Pending, s.Work.Request(s.Team, launch.SurfaceSchedule))
	saving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	claim := s.Pending.Claim
	stored, err := t.schedules.table.Update(saving, s.ID, func(s *Schedule) error {
		if s.Pending == nil || s.Pending.Claim != claim {
			return records.ErrRevision // somebody took the claim over
		}
		now := t.options.Clock.Now()
		switch {
		case v.Launched():
			s.Pending, s.LastRun, s.LastRunAt, s.LastError = nil, v.Run, now, surface.Refusal{}
		case v.Permanent():
			s.Pending, s.LastError = nil, v.Refusal(now)
		default:
			again := s.Pending.Again(v, now, t.options.Backoff.Wait(s.Pending.Tries+1, v.Denial.RetryAfter, s.ID))
			s.Pending, s.LastError = &again, v.Refusal(now)
			if !s.Enabled {
				s.Pending = nil
			}
		}
		return nil
	})
	if t.options.Events.Ticked != nil {
		t.options.Events.Ticked(stored.Value, v)
	}
	if v.Err != nil {
		t.options.Log.WarnContext(ctx, "a schedule could not launch", "schedule", s.ID, "error", v.Err)
	}
	return err
}
