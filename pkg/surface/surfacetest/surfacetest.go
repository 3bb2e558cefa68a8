// Package surfacetest has a world for the tests of the surfaces: the real gate over
// memory twins, a clock that is moved by hand, and stores that can be made to fail.
package surfacetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/audit"
	"github.com/holdfast-io/holdfast/pkg/botsource"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// World is the gate and everything under it. It begins with the team acme, which has
// no limits but the platform's.
type World struct {
	T         testing.TB
	Clock     *clocktest.Manual
	DB        *recordstest.Faults
	Ledger    *capacityledger.Ledger
	Runs      *runs.Repository
	Teams     *teams.Repository
	Bots      *botsource.Repository
	Settings  *platformcfg.Settings
	Decisions *decisions.Recorder
	Audit     *audit.Log
	Queue     *Queue
	Rates     *launch.Buckets
	Gate      *launch.Service
}

// New makes a world whose clock stands at [clocktest.T0].
func New(t testing.TB) *World {
	t.Helper()
	ctx := t.Context()
	w := &World{T: t, Clock: clocktest.New(), DB: recordstest.NewFaults(memory.NewRecords()), Queue: &Queue{}, Rates: &launch.Buckets{}}
	w.Ledger = capacityledger.New(memory.NewLedger(), capacityledger.Options{Clock: w.Clock})
	w.Runs = Must(runs.New(ctx, w.DB))(t)
	w.Teams = Must(teams.New(ctx, w.DB))(t)
	w.Bots = Must(botsource.New(ctx, w.DB))(t)
	w.Settings = Must(platformcfg.New(ctx, w.DB, w.Clock, platformcfg.Options{}))(t)
	w.Decisions = Must(decisions.New(ctx, w.DB, w.Clock, decisions.Options{}))(t)
	w.Audit = Must(audit.New(ctx, w.DB, w.Clock))(t)
	w.Gate = Must(launch.New(launch.Deps{
		Ledger: w.Ledger, Runs: w.Runs, Teams: w.Teams, Bots: botsource.NewResolver(w.Bots, botsource.Options{}), Settings: w.Settings,
		Decisions: w.Decisions, Audit: w.Audit, Queue: w.Queue,
	}, launch.Options{Clock: w.Clock, Rates: w.Rates, Sweep: capacityledger.SweeperOptions{Quiet: -1}}))(t)
	w.Team("acme", teams.Limits{})
	return w
}

// Must fails the test on an error.
func Must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Team writes a team with these limits.
func (w *World) Team(id holdfast.TeamID, limits teams.Limits) {
	w.T.Helper()
	ctx := w.T.Context()
	_, err := w.Teams.Create(ctx, teams.Team{ID: id, Limits: limits, CreatedAt: w.Clock.Now()})
	if errors.Is(err, records.ErrExists) {
		_, err = w.Teams.Update(ctx, id, func(team *teams.Team) error { team.Limits = limits; return nil })
	}
	w.ok(err)
}

// Suspend suspends a team, or lifts that.
func (w *World) Suspend(id holdfast.TeamID, suspended bool) {
	w.T.Helper()
	_, err := w.Teams.Update(w.T.Context(), id, func(team *teams.Team) error { team.Suspended = suspended; return nil })
	w.ok(err)
}

// Slots are limits of that many runs at a time.
func Slots(n int64) teams.Limits {
	return teams.Limits{MaxConcurrentRuns: holdfast.CountLimit{LimitSetting: holdfast.LimitTo(n)}}
}

// Maintenance puts the fence up or down.
func (w *World) Maintenance(on bool) {
	w.T.Helper()
	write(w, w.Settings.Maintenance, platformcfg.Maintenance{On: on}, func(m *platformcfg.Maintenance, at time.Time) { m.UpdatedAt = at })
}

// Reserve holds slots back for the platform's bot of that name.
func (w *World) Reserve(bot holdfast.BotID, slots holdfast.Slots) {
	w.T.Helper()
	policy := budgetfloor.Policy{}
	if slots > 0 {
		policy.Reservations = []budgetfloor.Reservation{{Bot: bot, ConcurrentRuns: slots}}
	}
	write(w, w.Settings.BudgetFloor, policy, func(p *budgetfloor.Policy, at time.Time) { p.UpdatedAt = at })
}

func write[T any](w *World, setting *platformcfg.Setting[T], value T, stamp func(*T, time.Time)) {
	w.T.Helper()
	ctx := w.T.Context()
	_, err := setting.Write(ctx, value, "test")
	conflict := &platformcfg.ConflictError{}
	if errors.As(err, &conflict) {
		stamp(&value, conflict.Stored)
		_, err = setting.Write(ctx, value, "test")
	}
	w.ok(err)
}

func (w *World) ok(err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

// All lists every run, the oldest first.
func (w *World) All() []runs.Run {
	w.T.Helper()
	list, _, err := w.Runs.List(w.T.Context(), runs.Filter{Limit: records.MaxPage})
	w.ok(err)
	slices.Reverse(list)
	return list
}

// Finish takes a queued run to its end, as a runner would.
func (w *World) Finish(id holdfast.RunID, how queue.Ending) runs.Run {
	w.T.Helper()
	ctx := w.T.Context()
	run := Must(w.Runs.Get(ctx, id))(w.T)
	grant := Must(w.Gate.Claim(ctx, queue.Claim{Run: id, Publication: run.Published, Generation: run.Generation, Runner: "r1", Nonce: fmt.Sprint("n", id, run.Published)}))(w.T)
	if grant.Verdict != queue.GrantGo {
		w.T.Fatalf("the claim of %s was answered %s (%s)", id, grant.Verdict, grant.Reason)
	}
	w.ok(w.Gate.Apply(ctx, queue.Report{Run: id, Attempt: grant.Attempt, Sequence: 9, Kind: queue.ReportEnded, At: w.Clock.Now(), Ending: how}))
	return Must(w.Runs.Get(ctx, id))(w.T)
}

// Footprint is everything that launches can take, as text: what subjects hold, every
// run, every message, and the launches that are left in this minute.
func (w *World) Footprint() string {
	w.T.Helper()
	ctx := w.T.Context()
	out := ""
	for _, subject := range Must(w.Ledger.Subjects(ctx, "", 1000))(w.T) {
		b := Must(w.Ledger.Outstanding(ctx, subject))(w.T)
		if b.Total() != 0 || len(b.Open) != 0 {
			out += fmt.Sprintf("%s: %d+%d in %d entries\n", subject, b.Settled, b.Outstanding, len(b.Open))
		}
	}
	for _, run := range w.All() {
		out += fmt.Sprintf("run %s is %s\n", run.ID, run.Status)
	}
	left, err := w.Rates.Left(ctx, "acme", 600, w.Clock.Now())
	w.ok(err)
	return out + fmt.Sprintf("%d messages, %d launches left", len(w.Queue.All()), left)
}

// Queue keeps messages until they are taken.
type Queue struct {
	mu       sync.Mutex
	messages map[holdfast.RunID]queue.RunMessage
	fail     error
}

// Fail makes every publication fail with err; nil ends that.
func (q *Queue) Fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fail = err
}

// Publish implements [launch.Publisher].
func (q *Queue) Publish(_ context.Context, m queue.RunMessage) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fail != nil {
		return q.fail
	}
	if q.messages == nil {
		q.messages = map[holdfast.RunID]queue.RunMessage{}
	}
	q.messages[m.Run] = m
	return nil
}

// Cancel implements [launch.Publisher].
func (q *Queue) Cancel(_ context.Context, id holdfast.RunID) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.messages, id)
	return nil
}

// Queued implements [launch.Publisher].
func (q *Queue) Queued(_ context.Context, _ string, id holdfast.RunID) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok := q.messages[id]
	return ok, nil
}

// All are the runs whose messages wait, in order.
func (q *Queue) All() []holdfast.RunID {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Sorted(maps.Keys(q.messages))
}
