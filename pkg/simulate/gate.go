package simulate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/audit"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/botsource"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// replayer is who asks in a replay; like a server's operator it may launch for every
// team and is judged like everybody else.
var replayer = auth.Principal{Name: "simulate", Operator: true}

// gate is a server's launch gate over stores in memory, on the replay's clock. Each
// run of the trace is an external run: the replay is its runner and settles it. No
// lease ends in a replay, because nothing sweeps.
type gate struct {
	service *launch.Service
	ledger  *capacityledger.Ledger
	// documents are those of the runs that live.
	documents *forgetful
	quotas    bool // the policy has quotas of repositories
}

// held is what an admitted run has: its id, the budget that it is held to, and its
// allocations.
type held struct {
	run    holdfast.RunID
	budget holdfast.MicroUSD
	holds  []runs.Hold
}

// forever is longer than any replay: nothing changes a setting while one runs, so
// none is read twice.
const forever = 200 * 365 * 24 * time.Hour

// newGate sets a gate up with the trace's teams and bots, the caps as limits, and the
// policy.
func newGate(ctx context.Context, clock *movedClock, t Trace, caps Caps, policy budgetfloor.Policy) (*gate, error) {
	db := &forgetful{DB: memory.NewRecords()}
	deps := launch.Deps{Ledger: capacityledger.New(memory.NewLedger(), capacityledger.Options{Clock: clock}), Queue: noQueue{}}
	bots, err := botsource.New(ctx, db)
	if err != nil {
		return nil, err
	}
	deps.Bots = botsource.NewResolver(bots, botsource.Options{})
	if deps.Teams, err = teams.New(ctx, db); err != nil {
		return nil, err
	}
	if deps.Runs, err = runs.New(ctx, db); err != nil {
		return nil, err
	}
	if deps.Settings, err = platformcfg.New(ctx, db, clock, platformcfg.Options{TTL: forever}); err != nil {
		return nil, err
	}
	// Nobody asks a replay to explain itself: its decisions are let go.
	if deps.Decisions, err = decisions.New(ctx, db, clock, decisions.Options{Buffer: 1}); err != nil {
		return nil, err
	}
	if deps.Audit, err = audit.New(ctx, db, clock); err != nil {
		return nil, err
	}
	if err := furnish(ctx, clock.now, deps, bots, t, caps, policy); err != nil {
		return nil, err
	}
	service, err := launch.New(deps, launch.Options{Clock: clock})
	if err != nil {
		return nil, err
	}
	return &gate{service: service, ledger: deps.Ledger, documents: db, quotas: len(policy.RepoQuotas) > 0}, nil
}

// furnish writes what an operator would have written.
func furnish(ctx context.Context, now time.Time, deps launch.Deps, bots *botsource.Repository, t Trace, caps Caps, policy budgetfloor.Policy) error {
	for _, id := range t.Teams() {
		own := caps.of(id)
		limits := teams.Limits{MaxConcurrentRuns: own.MaxConcurrentRuns, MonthlyUSD: own.MonthlyUSD, MonthlyRuns: own.MonthlyRuns, LaunchesPerMinute: own.LaunchesPerMinute}
		if limits.LaunchesPerMinute.Inherits() {
			limits.LaunchesPerMinute.LimitSetting = holdfast.Unlimited
		}
		if _, err := deps.Teams.Create(ctx, teams.Team{ID: id, Name: string(id), Limits: limits, CreatedAt: now, UpdatedAt: now}); err != nil {
			return fmt.Errorf("create team %s: %w", id, err)
		}
	}
	seen := map[holdfast.Identity]bool{}
	for _, r := range t.Rows {
		if seen[r.Identity] {
			continue
		}
		seen[r.Identity] = true
		bot := holdfast.Bot{Name: r.Identity.Bot(), Lane: holdfast.LaneCommand, Command: []string{"true"}}
		if _, _, err := bots.Put(ctx, now, r.Identity.Team(), bot, replayer.Name); err != nil {
			return fmt.Errorf("write bot %s: %w", r.Identity, err)
		}
	}
	limits := platformcfg.LimitsSetting{Platform: platformcfg.PlatformLimits{MaxConcurrentRuns: caps.Platform.MaxConcurrentRuns, MonthlyUSD: caps.Platform.MonthlyUSD}}
	if _, err := deps.Settings.Limits.Write(ctx, limits, replayer.Name); err != nil {
		return err
	}
	policy.UpdatedAt = time.Time{} // the token of another deployment
	_, err := deps.Settings.BudgetFloor.Write(ctx, policy, replayer.Name)
	return err
}

// request is a row as a launch. Its repository matters to quotas alone.
func (g *gate) request(r Row) launch.Request {
	ask := r.Ask
	request := launch.Request{Team: string(r.Team), Bot: string(r.Identity.Bot()), BudgetUSD: &ask, External: true, Surface: launch.SurfaceSimulate}
	if g.quotas {
		request.Repo = budgetfloor.RepoName(r.Repo)
	}
	return request
}

// preview says what the gate would refuse the row with. It takes nothing.
func (g *gate) preview(ctx context.Context, r Row) (holdfast.Denial, error) {
	p, err := g.service.Preview(ctx, replayer, g.request(r))
	return p.Denial, err
}

// launch asks the gate for the row.
func (g *gate) launch(ctx context.Context, r Row) (held, holdfast.Denial, error) {
	run, denial, err := g.service.Launch(ctx, replayer, g.request(r))
	switch {
	case errors.Is(err, capacityledger.ErrTooManyOpen):
		return held{}, holdfast.Denial{}, &holdfast.InvalidError{Field: "trace", Problem: fmt.Sprintf("at %s more than %d of its runs run at once", r.At.Format(time.RFC3339), holdfast.MaxOpenPerSubject), Allowed: "a trace of runs, not of single requests, or caps that hold them down"}
	case err != nil:
		return held{}, holdfast.Denial{}, fmt.Errorf("launch the row of %s: %w", r.At.Format(time.RFC3339Nano), err)
	case denial.Denied():
		return held{}, denial, nil
	case run.Unheld != "":
		return held{}, holdfast.Denial{}, fmt.Errorf("the gate admitted a run without holding anything: %s", run.Unheld)
	case run.Identity != r.Identity:
		return held{}, holdfast.Denial{}, fmt.Errorf("the gate took %s for %s", r.Identity, run.Identity)
	}
	return held{run: run.ID, budget: run.Budget, holds: run.Holds}, holdfast.Denial{}, nil
}

// settle ends a run with what it spent. Its document is not rewritten for nobody to
// read it, unless quotas are judged on the documents of the month: then the service
// settles it, with the same closes of the same allocations.
func (g *gate) settle(ctx context.Context, h held, spent holdfast.MicroUSD) error {
	if g.quotas {
		_, err := g.service.Settle(ctx, replayer, h.run, spent, "finished")
		return err
	}
	for _, hold := range h.holds {
		report := capacityledger.Report{Attempt: 1, Sequence: 1}
		switch hold.Subject.Axis {
		case holdfast.AxisUSD:
			report.Spent = holdfast.USDAmount(spent)
		case holdfast.AxisRuns:
			continue // used up by the launch
		case holdfast.AxisSlots, holdfast.AxisFiveHour, holdfast.AxisWeek, holdfast.AxisInFlight:
		}
		closed, err := g.ledger.Settle(ctx, hold.ID, report)
		if err == nil && !closed {
			err = fmt.Errorf("%s had been closed before its run ended", hold.ID)
		}
		if err != nil {
			return err
		}
	}
	return g.documents.forget(ctx, h.run)
}

// forgetful is a record store that lets the documents of ended runs go, so that a
// replay of many runs costs what the live ones cost.
type forgetful struct {
	records.DB
	runs records.Collection
}

// Collection implements [records.DB].
func (f *forgetful) Collection(ctx context.Context, schema records.Schema) (records.Collection, error) {
	c, err := f.DB.Collection(ctx, schema)
	if schema.Name == "runs" {
		f.runs = c
	}
	return c, err
}

func (f *forgetful) forget(ctx context.Context, run holdfast.RunID) error {
	return f.runs.Delete(ctx, string(run), 0)
}

// noQueue is the queue of a replay: external runs are never queued.
type noQueue struct{}

var errNoQueue = errors.New("a replay queues nothing")

// Publish implements [launch.Publisher].
func (noQueue) Publish(context.Context, queue.RunMessage) error { return errNoQueue }

// Cancel implements [launch.Publisher].
func (noQueue) Cancel(context.Context, holdfast.RunID) error { return errNoQueue }

// Queued implements [launch.Publisher].
func (noQueue) Queued(context.Context, string, holdfast.RunID) (bool, error) {
	return false, errNoQueue
}
