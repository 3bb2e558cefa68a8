package launch_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/audit"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/botsource"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
	"github.com/holdfast-io/holdfast/pkg/surface/surfacetest"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// world is a service over memory twins whose failures and order a test decides.
type world struct {
	*launch.Service
	t         testing.TB
	ctx       context.Context
	clock     *clocktest.Manual
	store     *hookedStore
	db        *hookedDB
	ledger    *capacityledger.Ledger
	runs      *runs.Repository
	teams     *teams.Repository
	bots      *botsource.Repository
	settings  *platformcfg.Settings
	decisions *decisions.Recorder
	audit     *audit.Log
	queue     *fakeQueue
	rates     *launch.Buckets
	deps      launch.Deps // with the hooks above

	mu       sync.Mutex
	resolved int
	counts   map[string]int
}

var (
	operator = auth.Principal{Name: "op", Operator: true}
	member   = auth.Principal{Name: "dev", Team: "acme", Role: auth.Member}
	viewer   = auth.Principal{Name: "eye", Team: "acme", Role: auth.Viewer}
	stranger = auth.Principal{Name: "other", Team: "globex", Role: auth.Admin}
)

const lease = 120 * time.Second

func newWorld(t *testing.T) *world { t.Helper(); return newWorldFor(t) }

func newWorldFor(t testing.TB) *world {
	t.Helper()
	return newWorldOver(t, memory.NewLedger(), memory.NewRecords())
}

func newWorldOver(t testing.TB, ledger capacityledger.Store, db records.DB) *world {
	t.Helper()
	w := &world{t: t, ctx: t.Context(), clock: clocktest.New(), store: &hookedStore{Store: ledger}, db: &hookedDB{DB: db}, queue: &fakeQueue{}, rates: &launch.Buckets{}, counts: map[string]int{}}
	w.deps, w.bots = surfacetest.Parts(t, w.clock, w.store, w.db, func(holdfast.Identity) { w.mu.Lock(); w.resolved++; w.mu.Unlock() })
	w.ledger, w.runs, w.teams, w.settings, w.decisions, w.audit = w.deps.Ledger, w.deps.Runs, w.deps.Teams, w.deps.Settings, w.deps.Decisions, w.deps.Audit
	w.Service = w.replica()
	w.team("acme", teams.Limits{})
	return w
}

// replica is another service over the same stores.
func (w *world) replica() *launch.Service {
	count := func(what string) { w.mu.Lock(); w.counts[what]++; w.mu.Unlock() }
	deps := w.deps
	deps.Queue = w.queue
	return must(launch.New(deps, launch.Options{Clock: w.clock, Rates: w.rates, Events: launch.Events{
		FailedOpen:        func(check string) { count("failed open: " + check) },
		LedgerFallback:    func(axis holdfast.Axis) { count("fallback: " + string(axis)) },
		PolicyUnavailable: func(reader string, state platformcfg.State) { count("policy " + string(state) + ": " + reader) },
		UndoFailed:        func(string, error) { count("undo failed") },
		SettleFailed:      func(holdfast.RunID, error) { count("settle failed") },
		Swept:             func(sweep string, n int) { w.mu.Lock(); w.counts["swept: "+sweep] += n; w.mu.Unlock() },
	}, Sweep: capacityledger.SweeperOptions{Quiet: -1, Events: capacityledger.SweepEvents{Expired: func(capacityledger.Allocation) { count("expired") }}}}))(w.t)
}

func must[T any](v T, err error) func(testing.TB) T { return surfacetest.Must(v, err) }

func (w *world) team(id holdfast.TeamID, limits teams.Limits) {
	w.t.Helper()
	surfacetest.PutTeam(w.t, w.teams, teams.Team{ID: id, Limits: limits, CreatedAt: w.clock.Now()})
}

func slots(n int64) holdfast.CountLimit {
	return holdfast.CountLimit{LimitSetting: holdfast.LimitTo(n)}
}

func usd(dollars float64) holdfast.MicroUSD { return holdfast.MicroUSD(dollars * 1e6) }

func usdLimit(dollars float64) holdfast.USDLimit {
	return holdfast.USDLimit{LimitSetting: holdfast.LimitTo(int64(usd(dollars)))}
}

func ptr[T any](v T) *T { return &v }

// policy replaces the policy in force.
func (w *world) policy(p budgetfloor.Policy) {
	w.t.Helper()
	surfacetest.Write(w.t, w.settings.BudgetFloor, p, func(p *budgetfloor.Policy, at time.Time) { p.UpdatedAt = at })
}

func (w *world) limits(l platformcfg.LimitsSetting) {
	w.t.Helper()
	surfacetest.Write(w.t, w.settings.Limits, l, func(l *platformcfg.LimitsSetting, at time.Time) { l.UpdatedAt = at })
}

func (w *world) maintenance(m platformcfg.Maintenance) {
	w.t.Helper()
	surfacetest.Write(w.t, w.settings.Maintenance, m, func(m *platformcfg.Maintenance, at time.Time) { m.UpdatedAt = at })
}

// reviews reserves slots and dollars for the platform's review-pr.
func reviews(slots holdfast.Slots, dollars float64) budgetfloor.Policy {
	return budgetfloor.Policy{Reservations: []budgetfloor.Reservation{{Bot: "review-pr", ConcurrentRuns: slots, MonthlyUSD: usd(dollars)}}}
}

func ask(bot string) launch.Request { return launch.Request{Team: "acme", Bot: bot, Surface: "test"} }

// admitted launches and demands that it is admitted.
func (w *world) admitted(r launch.Request) runs.Run {
	w.t.Helper()
	run, denial, err := w.Launch(w.ctx, member, r)
	if err != nil || denial.Denied() {
		w.t.Fatalf("launch %s: denied %q %s, error %v", r.Bot, denial.Reason, denial.Public, err)
	}
	return run
}

// refused launches and demands that it is refused with the reason.
func (w *world) refused(r launch.Request, reason holdfast.DenyReason) holdfast.Denial {
	w.t.Helper()
	run, denial, err := w.Launch(w.ctx, member, r)
	if err != nil || denial.Reason != reason {
		w.t.Fatalf("launch %s: run %q, denied %q, error %v; want denied %q", r.Bot, run.ID, denial.Reason, err, reason)
	}
	return denial
}

func (w *world) get(id holdfast.RunID) runs.Run {
	w.t.Helper()
	return must(w.runs.Get(w.ctx, id))(w.t)
}

func (w *world) status(id holdfast.RunID, status runs.Status, reason runs.Reason) runs.Run {
	w.t.Helper()
	run := w.get(id)
	if run.Status != status || run.StatusReason != reason {
		w.t.Fatalf("run is %s (%s), want %s (%s)", run.Status, run.StatusReason, status, reason)
	}
	return run
}

func (w *world) balance(subject holdfast.Subject) capacityledger.Balance {
	w.t.Helper()
	return must(w.ledger.Outstanding(context.WithoutCancel(w.ctx), subject))(w.t)
}

func (w *world) slotsOf(team holdfast.TeamID) int64 {
	w.t.Helper()
	return w.balance(holdfast.TeamSubject(team, holdfast.AxisSlots, "")).Outstanding
}

func (w *world) month() string { return holdfast.MonthPeriod(w.clock.Now()) }

// held demands the totals of acme: slots promised, dollars promised and spent, runs
// of the month promised and used.
func (w *world) held(slots int64, promised, spent float64, runsPromised, runsUsed int64) {
	w.t.Helper()
	dollars := w.balance(holdfast.TeamSubject("acme", holdfast.AxisUSD, w.month()))
	units := w.balance(holdfast.TeamSubject("acme", holdfast.AxisRuns, w.month()))
	got := fmt.Sprintf("%d slots, %s promised, %s spent, %d+%d runs", w.slotsOf("acme"), holdfast.MicroUSD(dollars.Outstanding), holdfast.MicroUSD(dollars.Settled), units.Outstanding, units.Settled)
	want := fmt.Sprintf("%d slots, %s promised, %s spent, %d+%d runs", slots, usd(promised), usd(spent), runsPromised, runsUsed)
	if got != want {
		w.t.Fatalf("acme holds %s; want %s", got, want)
	}
}

// footprint is everything that a launch can take, as text.
func (w *world) footprint() string {
	w.t.Helper()
	left, _ := w.rates.Left(w.ctx, "acme", 600, w.clock.Now())
	return surfacetest.Footprint(w.t, w.ledger, w.runs, &w.queue.Queue) + fmt.Sprintf(", %d launches left", left)
}

func (w *world) count(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[what]
}

// claim begins a run as a runner would.
func (w *world) claim(id holdfast.RunID) queue.Grant {
	w.t.Helper()
	run := w.get(id)
	return must(w.Claim(w.ctx, queue.Claim{Run: id, Publication: run.Published, Generation: run.Generation, Runner: "r1", Nonce: "n" + string(id)}))(w.t)
}

// started claims a run and reports that it began.
func (w *world) started(id holdfast.RunID) queue.Grant {
	w.t.Helper()
	grant := w.claim(id)
	if grant.Verdict != queue.GrantGo {
		w.t.Fatalf("the claim was answered %s (%s)", grant.Verdict, grant.Reason)
	}
	w.apply(queue.Report{Run: id, Attempt: grant.Attempt, Sequence: 1, Kind: queue.ReportStarted, At: w.clock.Now()})
	return grant
}

func (w *world) apply(r queue.Report) {
	w.t.Helper()
	if err := w.Apply(w.ctx, r); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) ended(id holdfast.RunID, attempt int, spent float64, how queue.Ending) queue.Report {
	return queue.Report{Run: id, Attempt: attempt, Sequence: 99, Kind: queue.ReportEnded, At: w.clock.Now(), Spent: usd(spent), Ending: how}
}

func (w *world) sweep() {
	w.t.Helper()
	if err := w.Sweep(w.ctx); err != nil {
		w.t.Fatal(err)
	}
}

// fakeQueue is a queue that keeps messages until they are taken.
type fakeQueue struct {
	surfacetest.Queue
	mu        sync.Mutex
	cancelled []holdfast.RunID
	publish   func(queue.RunMessage) error // before it is kept
	queued    error
}

func (q *fakeQueue) Publish(ctx context.Context, m queue.RunMessage) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.publish != nil {
		if err := q.publish(m); err != nil {
			return err
		}
	}
	return q.Queue.Publish(ctx, m)
}

func (q *fakeQueue) Cancel(ctx context.Context, id holdfast.RunID) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cancelled = append(q.cancelled, id)
	return q.Queue.Cancel(ctx, id)
}

func (q *fakeQueue) Queued(ctx context.Context, pool string, id holdfast.RunID) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	known, _ := q.Queue.Queued(ctx, pool, id)
	return known, q.queued
}

func (q *fakeQueue) lose(id holdfast.RunID) { _ = q.Queue.Cancel(context.Background(), id) }

// hookedStore lets a test fail or hold up what goes to the ledger's store. A hook's
// error is returned in place of the write, or after it when it wraps errAfter.
type hookedStore struct {
	capacityledger.Store
	mu   sync.Mutex
	hook func(op string, subjects ...holdfast.Subject) error
}

var errAfter = errors.New("the write happened and its answer was lost")

func (h *hookedStore) set(hook func(op string, subjects ...holdfast.Subject) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hook = hook
}

// fail makes every operation of that name fail on subjects of that axis.
func (h *hookedStore) fail(op string, axis holdfast.Axis) {
	h.set(func(o string, subjects ...holdfast.Subject) error {
		for _, subject := range subjects {
			if o == op && subject.Axis == axis {
				return capacityledger.ErrUnavailable
			}
		}
		return nil
	})
}

func (h *hookedStore) before(op string, subjects ...holdfast.Subject) error {
	h.mu.Lock()
	hook := h.hook
	h.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(op, subjects...)
}

func (h *hookedStore) Admit(ctx context.Context, now time.Time, subject holdfast.Subject, asks []capacityledger.Ask, judge capacityledger.JudgeFunc) ([]capacityledger.Admission, error) {
	err := h.before("admit", subject)
	if err != nil && !errors.Is(err, errAfter) {
		return nil, err
	}
	answers, failed := h.Store.Admit(ctx, now, subject, asks, judge)
	return answers, errors.Join(failed, err)
}

func (h *hookedStore) Move(ctx context.Context, now time.Time, movings []capacityledger.Moving) ([]capacityledger.Moved, error) {
	var subjects []holdfast.Subject
	for _, m := range movings {
		subject, _ := m.ID.Subject()
		subjects = append(subjects, subject)
	}
	if err := h.before("move", subjects...); err != nil {
		return nil, err
	}
	return h.Store.Move(ctx, now, movings)
}

func (h *hookedStore) Close(ctx context.Context, now time.Time, closings []capacityledger.Closing) ([]capacityledger.Closed, error) {
	var subjects []holdfast.Subject
	for _, c := range closings {
		subject, _ := c.ID.Subject()
		subjects = append(subjects, subject)
	}
	if err := h.before("close", subjects...); err != nil {
		return nil, err
	}
	return h.Store.Close(ctx, now, closings)
}

// hookedDB lets a test fail what goes to a collection.
type hookedDB struct {
	records.DB
	mu      sync.Mutex
	hook    func(collection, op, id string) error
	schemas map[string]records.Schema
}

func (h *hookedDB) set(hook func(collection, op, id string) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hook = hook
}

// fail makes an operation on a collection fail, "" for every operation.
func (h *hookedDB) fail(collection, op string) {
	h.set(func(c, o, _ string) error {
		if c == collection && (op == "" || op == o) {
			return records.ErrUnavailable
		}
		return nil
	})
}

func (h *hookedDB) before(collection, op, id string) error {
	h.mu.Lock()
	hook := h.hook
	h.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(collection, op, id)
}

func (h *hookedDB) Collection(ctx context.Context, schema records.Schema) (records.Collection, error) {
	h.mu.Lock()
	if h.schemas == nil {
		h.schemas = map[string]records.Schema{}
	}
	h.schemas[schema.Name] = schema
	h.mu.Unlock()
	c, err := h.DB.Collection(ctx, schema)
	return &hookedCollection{c, schema.Name, h}, err
}

type hookedCollection struct {
	records.Collection
	name string
	db   *hookedDB
}

func (c *hookedCollection) Get(ctx context.Context, id string) (records.Record, error) {
	if err := c.db.before(c.name, "get", id); err != nil {
		return records.Record{}, err
	}
	return c.Collection.Get(ctx, id)
}

func (c *hookedCollection) Insert(ctx context.Context, r records.Record) (records.Record, error) {
	err := c.db.before(c.name, "insert", r.ID)
	if err != nil && !errors.Is(err, errAfter) {
		return records.Record{}, err
	}
	stored, failed := c.Collection.Insert(ctx, r)
	return stored, errors.Join(failed, err)
}

func (c *hookedCollection) Replace(ctx context.Context, r records.Record) (records.Record, error) {
	if err := c.db.before(c.name, "replace", r.ID); err != nil {
		return records.Record{}, err
	}
	return c.Collection.Replace(ctx, r)
}

func (c *hookedCollection) List(ctx context.Context, q records.Query) (records.Page, error) {
	if err := c.db.before(c.name, "list", ""); err != nil {
		return records.Page{}, err
	}
	return c.Collection.List(ctx, q)
}

func (c *hookedCollection) Count(ctx context.Context, index, value string) (int64, error) {
	if err := c.db.before(c.name, "count", ""); err != nil {
		return 0, err
	}
	return c.Collection.Count(ctx, index, value)
}

func repoQuota(repo string, dollars float64) budgetfloor.RepoQuota {
	return budgetfloor.RepoQuota{Repo: repo, MonthlyUSD: ptr(usd(dollars))}
}

func auditOf(id holdfast.AllocationID) audit.Filter { return audit.Filter{Target: string(id)} }

// runsSchema is the schema that the collection was opened with.
func runsSchema(t *testing.T, w *world) records.Schema {
	t.Helper()
	w.db.mu.Lock()
	defer w.db.mu.Unlock()
	schema, ok := w.db.schemas["runs"]
	if !ok {
		t.Fatal("nobody opened the collection")
	}
	return schema
}
