package simulate

import (
	"cmp"
	"container/heap"
	"context"
	"math/bits"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// Input is what a replay is made of.
type Input struct {
	Trace  Trace
	Policy budgetfloor.Policy
	// Against, when set, is replayed too, to be compared with Policy.
	Against *budgetfloor.Policy
	// Caps, when nil, are derived from the trace's own peaks, see [DeriveCaps].
	Caps *Caps
	// Patience is how long a refused run keeps asking, as often as it is told it may;
	// zero: a refusal is final.
	Patience time.Duration
}

// Run replays the trace without a policy, with the policy, and against another one
// when there is one.
func Run(ctx context.Context, in Input) (Result, error) {
	result := newResult(in)
	caps := in.Caps
	if caps == nil {
		derived, said := DeriveCaps(in.Trace)
		caps = &derived
		result.Caps.Derived = true
		result.Caps.Said = said
	}
	checked, err := caps.Checked()
	if err != nil {
		return Result{}, err
	}
	result.Caps.Caps = checked
	plans := []plan{{name: ScenarioWithout}, {name: ScenarioWith, policy: in.Policy}}
	if in.Against != nil {
		plans = append(plans, plan{name: ScenarioAgainst, policy: *in.Against})
	}
	// The scenarios share nothing, so they are replayed side by side.
	result.Scenarios = make([]Scenario, len(plans))
	replays, ctx := errgroup.WithContext(ctx)
	for i, p := range plans {
		replays.Go(func() error {
			e, err := newEngine(ctx, in, checked, p, &movedClock{now: in.Trace.From()})
			if err == nil {
				result.Scenarios[i], err = e.replay(ctx)
			}
			return err
		})
	}
	if err := replays.Wait(); err != nil {
		return Result{}, err
	}
	result.compare(in)
	return result, nil
}

// The names of scenarios.
const (
	ScenarioWithout = "without"
	ScenarioWith    = "with"
	ScenarioAgainst = "against"
)

// plan is one scenario to be replayed.
type plan struct {
	name   string
	policy budgetfloor.Policy
}

// askAgain is how long a refused run waits when nobody can say when to come back.
const askAgain = time.Minute

// event is something that happens at an instant.
type event struct {
	at   time.Time
	ends *running // a run's end; nil: a launch, or one more try of it
	row  int
	seq  int
}

// events is a heap by time; at one instant ends come before launches, because
// what returns can be had at once, and then the trace's order counts.
type events []event

func (q events) Len() int      { return len(q) }
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}

func (q events) Less(i, j int) bool {
	a, b := q[i], q[j]
	order := cmp.Or(a.at.Compare(b.at), rank(a)-rank(b), a.seq-b.seq)
	return order < 0
}

func rank(e event) int {
	if e.ends != nil {
		return 0
	}
	return 1
}

// running is a run that was admitted.
type running struct {
	row     int
	held    held
	windows []windowHold
	spent   holdfast.MicroUSD
}

type windowHold struct {
	window *window
	id     holdfast.AllocationID
}

// engine replays one scenario.
type engine struct {
	plan     plan
	rows     []Row
	patience time.Duration
	clock    *movedClock
	gate     *gate
	windows  []*window
	tally    *tally
	queue    events
	seq      int
	caps     Caps
	teams    []holdfast.TeamID
	from     time.Time
	horizon  time.Time // when the trace ends: who then still waits is waiting
}

// movedClock is the time of a replay.
type movedClock struct{ now time.Time }

// Now implements clock.Clock.
func (c *movedClock) Now() time.Time { return c.now }

func newEngine(ctx context.Context, in Input, caps Caps, p plan, clock *movedClock) (*engine, error) {
	g, err := newGate(ctx, clock, in.Trace, caps, p.policy)
	if err != nil {
		return nil, err
	}
	e := &engine{
		plan: p, rows: in.Trace.Rows, patience: in.Patience, clock: clock, gate: g, caps: caps,
		teams: in.Trace.Teams(), from: in.Trace.From(), horizon: in.Trace.To(),
		windows: newWindows(caps, p.policy, g.ledger), tally: newTally(in.Trace),
	}
	for i, r := range e.rows {
		e.push(event{at: r.At, row: i})
	}
	return e, nil
}

// replay works through the events until none is left: every run has ended then.
func (e *engine) replay(ctx context.Context) (Scenario, error) {
	for n := 0; e.queue.Len() > 0; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return Scenario{}, ctx.Err()
		}
		next := heap.Pop(&e.queue).(event)
		e.clock.now = next.at
		var err error
		if next.ends != nil {
			err = e.end(ctx, next.ends)
		} else {
			err = e.launch(ctx, next)
		}
		if err != nil {
			return Scenario{}, err
		}
	}
	return e.scenario(ctx)
}

func newWindows(caps Caps, policy budgetfloor.Policy, l *capacityledger.Ledger) []*window {
	var windows []*window
	if caps.Windows.FiveHour != nil {
		windows = append(windows, &window{axis: holdfast.AxisFiveHour, length: fiveHours, cap: *caps.Windows.FiveHour, policy: policy, ledger: l})
	}
	if caps.Windows.Week != nil {
		windows = append(windows, &window{axis: holdfast.AxisWeek, length: oneWeek, cap: *caps.Windows.Week, policy: policy, ledger: l})
	}
	return windows
}

func (e *engine) push(ev event) {
	ev.seq = e.seq
	e.seq++
	heap.Push(&e.queue, ev)
}

// launch asks the gate, and the windows behind it, for a row.
func (e *engine) launch(ctx context.Context, ev event) error {
	row := e.rows[ev.row]
	full, denial, err := e.askWindows(ctx, row)
	if err != nil {
		return err
	}
	if denial.Denied() {
		// A window is asked last: what an earlier check refuses is refused by that one.
		earlier, err := e.gate.preview(ctx, row)
		if err != nil {
			return err
		}
		if earlier.Denied() {
			denial = earlier
		} else {
			full.refused(e.clock.now)
		}
		e.refuse(ev, denial)
		return nil
	}
	h, denial, err := e.gate.launch(ctx, row)
	if err != nil {
		return err
	}
	if denial.Denied() {
		e.refuse(ev, denial)
		return nil
	}
	return e.admit(ctx, ev, h)
}

// askWindows is the first window that would refuse the row, with its denial.
func (e *engine) askWindows(ctx context.Context, row Row) (*window, holdfast.Denial, error) {
	for _, w := range e.windows {
		denial, err := w.preview(ctx, "preview", row, e.clock.now)
		if err != nil || denial.Denied() {
			return w, denial, err
		}
	}
	return nil, holdfast.Denial{}, nil
}

// admit starts the run. One that was granted less than it costs works until that is
// spent.
func (e *engine) admit(ctx context.Context, ev event, h held) error {
	row := e.rows[ev.row]
	run := &running{row: ev.row, held: h, spent: row.Cost}
	lasts := row.Duration
	cut := h.budget < row.Cost
	if cut {
		run.spent = h.budget
		lasts = partOf(row.Duration, h.budget, row.Cost)
	}
	for _, w := range e.windows {
		id, err := w.take(ctx, h.run, row, e.clock.now)
		if err != nil {
			return err
		}
		run.windows = append(run.windows, windowHold{w, id})
	}
	e.tally.admitted(ev.row, e.clock.now, cut)
	e.push(event{at: e.clock.now.Add(lasts), ends: run})
	return nil
}

// partOf is the part of a duration that a part of the cost pays for; part is less
// than whole.
func partOf(d time.Duration, part, whole holdfast.MicroUSD) time.Duration {
	high, low := bits.Mul64(uint64(d/time.Millisecond), uint64(part))
	ms, _ := bits.Div64(high, low, uint64(whole))
	return time.Duration(ms) * time.Millisecond
}

// refuse ends the launch, or lets it come back while it has patience.
func (e *engine) refuse(ev event, denial holdfast.Denial) {
	row := e.rows[ev.row]
	wait := denial.RetryAfter
	if wait <= 0 && !denial.ResetAt.IsZero() {
		wait = denial.ResetAt.Sub(e.clock.now)
	}
	if wait <= 0 {
		wait = askAgain
	}
	gone := row.At.Add(e.patience)
	if e.patience <= 0 || !denial.Retryable || e.clock.now.Add(wait).After(gone) {
		e.tally.refused(ev.row, denial)
		return
	}
	if e.clock.now.Add(wait).After(e.horizon) {
		e.tally.waiting(ev.row)
		return
	}
	ev.at = e.clock.now.Add(wait)
	e.push(ev)
}

// end settles a run.
func (e *engine) end(ctx context.Context, run *running) error {
	if err := e.gate.settle(ctx, run.held, run.spent); err != nil {
		return err
	}
	for _, w := range run.windows {
		if err := w.window.settle(ctx, w.id, run.spent); err != nil {
			return err
		}
	}
	e.tally.ended(run.row, e.clock.now, run.spent)
	return nil
}

func (e *engine) scenario(ctx context.Context) (Scenario, error) {
	s := e.tally.scenario(e.plan.name)
	for _, w := range e.windows {
		s.Windows = append(s.Windows, w.instances()...)
	}
	var err error
	s.Reserves, err = e.reserves(ctx, e.plan.policy)
	return s, err
}
