package scripts_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/audit"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/botsource"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// stores are the two stores under a world; several worlds may share them.
type stores struct {
	ledger  capacityledger.Store
	records records.DB
}

// world is one server over stores and a queue whose calls can be made to fail.
type world struct {
	*launch.Service
	ctx    context.Context //nolint:containedctx // a world lives as long as its test
	team   holdfast.TeamID
	under  stores
	board  *board
	seen   *seen
	queue  *messages
	clock  *clocktest.Manual
	runs   *runs.Repository
	judged *decisions.Recorder
}

const (
	lease = 120 * time.Second
	skew  = 15 * time.Second
)

var operator = auth.Principal{Name: "op", Operator: true}

// full is the team of a world that may run nothing at all.
func (w *world) full() string { return string(w.team) + "-full" }

// newWorld is a server over the stores, with a team of its own; setting it up is not
// on the board.
func newWorld(ctx context.Context, under stores, team holdfast.TeamID, clock *clocktest.Manual) (*world, error) {
	w := &world{ctx: ctx, team: team, under: under, board: &board{}, seen: newSeen(), clock: clock}
	w.queue = newMessages(w.board)
	repository, err := teams.New(ctx, under.records)
	if err != nil {
		return nil, err
	}
	count := func(n int64) holdfast.CountLimit { return holdfast.CountLimit{LimitSetting: holdfast.LimitTo(n)} }
	// Wide enough for whatever a script leaves running: a refusal is a fault here.
	usd := holdfast.USDLimit{LimitSetting: holdfast.LimitTo(int64(300 * holdfast.OneUSD))}
	for id, limits := range map[holdfast.TeamID]teams.Limits{
		team:                      {MaxConcurrentRuns: count(60), MonthlyUSD: usd, MonthlyRuns: count(60), LaunchesPerMinute: count(200)},
		holdfast.TeamID(w.full()): {MaxConcurrentRuns: count(0), LaunchesPerMinute: count(200)},
	} {
		if _, err := repository.Create(ctx, teams.Team{ID: id, Limits: limits, CreatedAt: clock.Now()}); err != nil && !errors.Is(err, records.ErrExists) {
			return nil, err
		}
	}
	if w.Service, err = w.server(); err != nil {
		return nil, err
	}
	w.board.mu.Lock()
	w.board.names = nil
	w.board.mu.Unlock()
	return w, nil
}

// server is a service as a process would build it.
func (w *world) server() (*launch.Service, error) {
	db := w.board.records(w.under.records)
	ledger := capacityledger.New(w.board.ledger(w.under.ledger, w.seen), capacityledger.Options{Clock: w.clock})
	var failed error
	note := func(err error) { failed = errors.Join(failed, err) }
	repository, err := teams.New(w.ctx, db)
	note(err)
	bots, err := botsource.New(w.ctx, db)
	note(err)
	settings, err := platformcfg.New(w.ctx, db, w.clock, platformcfg.Options{})
	note(err)
	w.judged, err = decisions.New(w.ctx, db, w.clock, decisions.Options{})
	note(err)
	log, err := audit.New(w.ctx, db, w.clock)
	note(err)
	w.runs, err = runs.New(w.ctx, db)
	note(err)
	if failed != nil {
		return nil, failed
	}
	service, err := launch.New(launch.Deps{
		Ledger: ledger, Runs: w.runs, Teams: repository, Bots: botsource.NewResolver(bots, botsource.Options{}), Settings: settings,
		Decisions: w.judged, Audit: log, Queue: w.queue,
	}, launch.Options{Clock: w.clock, Lease: lease, Skew: skew, Rates: &launch.Buckets{}, Sweep: capacityledger.SweeperOptions{Quiet: -1}})
	return service, err
}

// policy writes a reservation where there is none, so that the gate has one to read.
func policy(ctx context.Context, db records.DB, clock *clocktest.Manual) error {
	settings, err := platformcfg.New(ctx, db, clock, platformcfg.Options{})
	if err != nil {
		return err
	}
	_, err = settings.BudgetFloor.Write(ctx, budgetfloor.Policy{Reservations: []budgetfloor.Reservation{{Bot: "review-pr", ConcurrentRuns: 2, MonthlyUSD: holdfast.OneUSD}}}, "test")
	if conflict := (*platformcfg.ConflictError)(nil); errors.As(err, &conflict) {
		return nil
	}
	return err
}

// answer demands that a verb did not say two things at once.
func answer(what string, denial holdfast.Denial, err error) error {
	if denial.Denied() && err != nil {
		return fmt.Errorf("%s is denied (%s) and an error: %w", what, denial.Reason, err)
	}
	return nil
}

// unavailableOnly demands that a call failed, if it did, because a store was away.
func unavailableOnly(what string, err error) error {
	for _, known := range []error{nil, launch.ErrUnavailable, capacityledger.ErrUnavailable, records.ErrUnavailable, launch.ErrConflict} {
		if errors.Is(err, known) {
			return nil
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// drain is a runner that works off the queue until nothing is left in it.
func (w *world) drain() error {
	for message, ok := w.queue.take(); ok; message, ok = w.queue.take() {
		grant, err := w.Claim(w.ctx, queue.Claim{Run: message.Run, Publication: message.Publication, Generation: message.Generation, Runner: "late", Nonce: fmt.Sprintf("late-%d", message.Publication)})
		if err != nil {
			return fmt.Errorf("claim %s: %w", message.Run, err)
		}
		switch grant.Verdict {
		case queue.GrantGo:
			report := queue.Report{Version: 1, Run: message.Run, Attempt: grant.Attempt, Sequence: 1, Kind: queue.ReportStarted, Runner: "late", At: w.clock.Now()}
			if err := w.Apply(w.ctx, report); err != nil {
				return err
			}
			report.Kind, report.Sequence, report.Ending, report.Spent = queue.ReportEnded, 2, queue.EndFinished, min(grant.Budget, 100_000)
			if err := w.Apply(w.ctx, report); err != nil {
				return err
			}
		case queue.GrantLater:
			return fmt.Errorf("claim %s: later, though nothing is away: %s", message.Run, grant.Reason)
		case queue.GrantDrop, queue.GrantStop:
		}
		w.queue.ack(message)
	}
	return nil
}

// settleDown ends the faults, lets the runner work off what waits, and lets lease,
// skew and the sweeps that are due pass.
func (w *world) settleDown() error {
	w.board.quiet()
	for range 4 {
		if err := w.drain(); err != nil {
			return err
		}
		w.clock.Advance(lease + skew + time.Second)
		if err := w.Sweep(w.ctx); err != nil {
			return fmt.Errorf("sweep with everything back: %w", err)
		}
	}
	return w.drain()
}

// kept checks the invariants of the whole, once nothing is under way: the ledger's
// own (V1, V3, V8), nothing above a cap (V2), each close once (V4), nothing held by a
// refusal or a failure (V5), and spend exactly as the runs report it (V6).
func (w *world) kept() error {
	if err := ledgertest.Invariants(w.ctx, w.under.ledger); err != nil {
		return err
	}
	due, err := w.under.ledger.Due(w.ctx, w.clock.Now().AddDate(100, 0, 0), capacityledger.Cursor{}, 10)
	if err != nil || len(due) != 0 {
		return fmt.Errorf("%d allocations are open in the end, %v", len(due), due)
	}
	w.seen.mu.Lock()
	defer w.seen.mu.Unlock()
	if len(w.seen.above) > 0 {
		return fmt.Errorf("granted above the cap: %v", w.seen.above)
	}
	type totals struct{ settled, outstanding int64 }
	replayed := map[holdfast.Subject]totals{}
	for id := range w.seen.ids {
		a, err := w.under.ledger.Get(w.ctx, id)
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		if n := w.seen.closes[id]; n != 1 {
			return fmt.Errorf("%s was closed %d times", id, n)
		}
		sum := replayed[a.Subject]
		replayed[a.Subject] = totals{sum.settled + a.Spent.Int(), sum.outstanding + a.Outstanding().Int()}
	}
	for subject, want := range replayed {
		if subject.Kind != holdfast.KindTeam {
			continue // other worlds share it
		}
		b, err := w.under.ledger.Balance(w.ctx, subject)
		if err != nil || (totals{b.Settled, b.Outstanding}) != want {
			return fmt.Errorf("%s has %d + %d, and its allocations add up to %v, %w", subject, b.Settled, b.Outstanding, want, err)
		}
	}
	return w.documents()
}

// documents checks that the runs' documents and the ledger tell the same.
func (w *world) documents() error {
	var reported int64
	filter := runs.Filter{Team: w.team, Limit: records.MaxPage}
	list, _, err := w.runs.List(w.ctx, filter)
	if err != nil {
		return err
	}
	for _, run := range list {
		if run.Status.Active() || run.Unsettled() {
			return fmt.Errorf("run %s is %s, settled %t, in the end", run.ID, run.Status, run.Settled)
		}
		for attempt, spent := range run.SpentBy {
			if heldDollars(run, attempt) {
				reported += int64(spent)
			}
		}
		for _, hold := range run.Holds {
			if _, err := w.under.ledger.Get(w.ctx, hold.ID); err != nil {
				return fmt.Errorf("run %s names %s: %w", run.ID, hold.ID, err)
			}
		}
	}
	month, err := w.under.ledger.Balance(w.ctx, w.dollars())
	if err != nil {
		return err
	}
	if month.Settled != reported {
		return fmt.Errorf("%d micro-dollars are settled, the runs reported %d", month.Settled, reported)
	}
	return nil
}

// heldDollars says whether an attempt spent on an allocation. One of a run that was
// admitted while the ledger was away, and ended before it was adopted, did not.
func heldDollars(run runs.Run, attempt int) bool {
	held := run.Holds
	for i := len(run.Former) - 1; i >= 0 && attempt <= run.Former[i].LastAttempt; i-- {
		held = run.Former[i].Holds
	}
	return slices.ContainsFunc(held, func(h runs.Hold) bool { return h.Subject.Axis == holdfast.AxisUSD })
}

func (w *world) dollars() holdfast.Subject {
	return holdfast.TeamSubject(w.team, holdfast.AxisUSD, holdfast.MonthPeriod(clocktest.T0))
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
