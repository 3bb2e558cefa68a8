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
	"github.com/holdfast-io/holdfast/pkg/clock"
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
	w := &World{T: t, Clock: clocktest.New(), DB: recordstest.NewFaults(memory.NewRecords()), Queue: &Queue{}, Rates: &launch.Buckets{}}
	var deps launch.Deps
	deps, w.Bots = Parts(t, w.Clock, memory.NewLedger(), w.DB, nil)
	deps.Queue = w.Queue
	w.Ledger, w.Runs, w.Teams, w.Settings, w.Decisions, w.Audit = deps.Ledger, deps.Runs, deps.Teams, deps.Settings, deps.Decisions, deps.Audit
	w.Gate = Must(launch.New(deps, launch.Options{Clock: w.Clock, Rates: w.Rates, Sweep: capacityledger.SweeperOptions{Quiet: -1}}))(t)
	w.Team("acme", teams.Limits{})
	return w
}

// Parts are what a gate is made of over two stores, but for its queue, and the bots that
// its resolver reads. onRead is told of each of these readings; nil tells nobody.
func Parts(t testing.TB, clock clock.Clock, ledger capacityledger.Store, db records.DB, onRead func(holdfast.Identity)) (launch.Deps, *botsource.Repository) {
	t.Helper()
	ctx := t.Context()
	bots := Must(botsource.New(ctx, db))(t)
	return launch.Deps{
		Ledger:    capacityledger.New(ledger, capacityledger.Options{Clock: clock}),
		Runs:      Must(runs.New(ctx, db))(t),
		Teams:     Must(teams.New(ctx, db))(t),
		Bots:      botsource.NewResolver(bots, botsource.Options{OnRead: onRead}),
		Settings:  Must(platformcfg.New(ctx, db, clock, platformcfg.Options{}))(t),
		Decisions: Must(decisions.New(ctx, db, clock, decisions.Options{}))(t),
		Audit:     Must(audit.New(ctx, db, clock))(t),
	}, bots
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
	PutTeam(w.T, w.Teams, teams.Team{ID: id, Limits: limits, CreatedAt: w.Clock.Now()})
}

// PutTeam creates a team, or gives one that exists the limits of it.
func PutTeam(t testing.TB, repository *teams.Repository, team teams.Team) {
	t.Helper()
	_, err := repository.Create(t.Context(), team)
	if errors.Is(err, records.ErrExists) {
		_, err = repository.Update(t.Context(), team.ID, func(stored *teams.Team) error { stored.Limits = team.Limits; return nil })
	}
	if err != nil {
		t.Fatal(err)
	}
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
	Write(w.T, w.Settings.Maintenance, platformcfg.Maintenance{On: on}, func(m *platformcfg.Maintenance, at time.Time) { m.UpdatedAt = at })
}

// Reserve holds slots back for the platform's bot of that name.
func (w *World) Reserve(bot holdfast.BotID, slots holdfast.Slots) {
	w.T.Helper()
	policy := budgetfloor.Policy{}
	if slots > 0 {
		policy.Reservations = []budgetfloor.Reservation{{Bot: bot, ConcurrentRuns: slots}}
	}
	Write(w.T, w.Settings.BudgetFloor, policy, func(p *budgetfloor.Policy, at time.Time) { p.UpdatedAt = at })
}

// Write replaces the value of a setting, whatever is in force. stamp puts the token of
// what is in force into the value.
func Write[T any](t testing.TB, setting *platformcfg.Setting[T], value T, stamp func(*T, time.Time)) {
	t.Helper()
	_, err := setting.Write(t.Context(), value, "test")
	conflict := &platformcfg.ConflictError{}
	if errors.As(err, &conflict) {
		stamp(&value, conflict.Stored)
		_, err = setting.Write(t.Context(), value, "test")
	}
	if err != nil {
		t.Fatal(err)
	}
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

// Footprint is everything that launches of this world can take, as text.
func (w *World) Footprint() string {
	w.T.Helper()
	return Footprint(w.T, w.Ledger, w.Runs, w.Queue) + fmt.Sprintf(", %d launches left", Must(w.Rates.Left(w.T.Context(), "acme", 600, w.Clock.Now()))(w.T))
}

// Footprint is what launches can take, as text: what subjects hold, every run, and every
// message.
func Footprint(t testing.TB, ledger *capacityledger.Ledger, repository *runs.Repository, queue *Queue) string {
	t.Helper()
	ctx := t.Context()
	out := ""
	for _, subject := range Must(ledger.Subjects(ctx, "", 1000))(t) {
		b := Must(ledger.Outstanding(ctx, subject))(t)
		if b.Total() != 0 || len(b.Open) != 0 {
			out += fmt.Sprintf("%s: %d+%d in %d entries\n", subject, b.Settled, b.Outstanding, len(b.Open))
		}
	}
	list, _, err := repository.List(ctx, runs.Filter{Limit: records.MaxPage})
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range list {
		out += fmt.Sprintf("run %s is %s\n", run.ID, run.Status)
	}
	return out + fmt.Sprintf("%d messages", len(queue.All()))
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

// Message is a run's message; the zero one when none waits.
func (q *Queue) Message(id holdfast.RunID) queue.RunMessage {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.messages[id]
}
