package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/audit"
	"github.com/holdfast-io/holdfast/pkg/botsource"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// Errors that callers branch on. None of them is a denial, and a bad request is an
// *holdfast.InvalidError.
var (
	// ErrNotFound: there is no such thing, or it belongs to another team.
	ErrNotFound = errors.New("not found")
	// ErrForbidden: it is the caller's team, and not a thing for the caller's role.
	ErrForbidden = errors.New("the caller's role may not do this")
	// ErrConflict: how the thing stands does not allow it.
	ErrConflict = errors.New("how it stands does not allow this")
	// ErrAllocationClosed: the run's allocations were closed, by its end, by an expiry
	// or by an operator. It matches [ErrConflict] too.
	ErrAllocationClosed = fmt.Errorf("the allocation is closed: %w", ErrConflict)
	// ErrUnavailable: a store or the queue could not be reached; nothing is known.
	ErrUnavailable = errors.New("a store is unavailable")
)

// Publisher is the queue as this package needs it.
type Publisher interface {
	// Publish returns when the message is durable. The same run and publication again
	// is the same message.
	Publish(ctx context.Context, message queue.RunMessage) error
	// Cancel removes the run's message if it still waits, and tells the runner that
	// has it.
	Cancel(ctx context.Context, run holdfast.RunID) error
	// Queued says whether a message of the run waits in its pool or is being worked on.
	Queued(ctx context.Context, pool string, run holdfast.RunID) (bool, error)
}

// Deps are what a [Service] is built from; all of them are required.
type Deps struct {
	Ledger    *capacityledger.Ledger
	Runs      *runs.Repository
	Teams     *teams.Repository
	Bots      *botsource.Resolver
	Settings  *platformcfg.Settings
	Decisions *decisions.Recorder
	Audit     *audit.Log
	Queue     Publisher
}

// Options are a service's settings; a zero field has the stated default.
type Options struct {
	Clock       clock.Clock     // nil: the machine's
	Lease       time.Duration   // how long a running run's allocations live without a renewal: 120 s
	Heartbeat   time.Duration   // how often an external caller is asked to renew: 20 s
	LaunchLease time.Duration   // how long a launch has until its document exists: 30 s
	Skew        time.Duration   // how far clocks may be apart: 15 s
	SweepEvery  time.Duration   // 15 s
	Lanes       []holdfast.Lane // the lanes that the runners of this build execute: "command"
	Rates       RateLimiter     // nil: token buckets in this process
	// Stopwatch starts to measure and returns what tells how long it has been; nil
	// measures nothing. It is a monotonic clock, which [clock.Clock] is not.
	Stopwatch func() func() time.Duration
	Log       *slog.Logger // nil: nothing is logged
	Events    Events
	// Sweep configures the sweep over the ledger; its clock, lease, skew and period are
	// those above.
	Sweep capacityledger.SweeperOptions
}

// Events are told what happened, after it is certain. Nil fields are no-ops; a
// callee must not block.
type Events struct {
	// Decided is told every judgement of a launch or resume, with what it is recorded
	// as and how long the gate took.
	Decided func(d decisions.Decision, denial holdfast.Denial, took time.Duration)
	// RunChanged is told every new state of a run document.
	RunChanged func(runs.Run)
	// FailedOpen: a check that could not be made as it should let a launch through.
	FailedOpen func(check string)
	// LedgerFallback: an axis was judged on the run documents.
	LedgerFallback func(holdfast.Axis)
	// PolicyUnavailable: the policy was served stale, or never read.
	PolicyUnavailable func(reader string, state platformcfg.State)
	// UndoFailed: something that was taken could not be given back; its lease will.
	UndoFailed func(what string, err error)
	// SettleFailed: a run ended and its allocations could not be closed; a sweep will.
	SettleFailed func(run holdfast.RunID, err error)
	// Swept is told what one sweep did to how many runs.
	Swept func(sweep string, runs int)
}

// Request is a wish to start a run, as any surface brings it. Team and Bot are
// names as people write them; they are folded here.
type Request struct {
	Team, Bot string
	Repo      string // "owner/name"; empty: none
	// BudgetUSD is the most that the run may spend; nil: what the bot or the platform
	// says. MinBudgetUSD is the least that is worth running with; nil: the bot's, else
	// the lesser of the ask and max(0.05 USD, a tenth of it).
	BudgetUSD, MinBudgetUSD *holdfast.MicroUSD
	Inputs                  map[string]string
	Pool                    string  // empty: the default pool
	External                bool    // the caller runs the work and reports on it
	Surface                 Surface // where it came from; kept in the decision
	// Run is the id that the run shall have, made by [runs.Repository.NewID] and never
	// used before; empty: a new one. A surface that must find the run again when its
	// own process dies in between names it.
	Run holdfast.RunID
}

// Lease tells an external caller how long its run is believed to be alive.
type Lease struct {
	ExpiresAt      time.Time
	HeartbeatEvery time.Duration
	Stop           bool   // stop the work now, then settle
	Reason         string // why, when Stop
}

// Service is the launch gate and everything that a run's life needs behind it. All
// its methods may be called from any number of goroutines and replicas.
type Service struct {
	Deps
	options Options
	rates   RateLimiter
	log     *slog.Logger
	sweeper *capacityledger.Sweeper
}

// New is a service over its parts. Its sweep of the ledger is quiet for one lease
// from now on, unless [Service.Recover] ends that.
func New(deps Deps, options Options) (*Service, error) {
	if deps.Ledger == nil || deps.Runs == nil || deps.Teams == nil || deps.Bots == nil || deps.Settings == nil ||
		deps.Decisions == nil || deps.Audit == nil || deps.Queue == nil {
		return nil, errors.New("launch: a part is missing")
	}
	s := &Service{Deps: deps, options: options.withDefaults()}
	s.rates, s.log = s.options.Rates, s.options.Log
	sweep := s.options.Sweep
	sweep.Clock, sweep.Every, sweep.Lease, sweep.Skew = s.options.Clock, s.options.SweepEvery, s.options.Lease, s.options.Skew
	var err error
	s.sweeper, err = capacityledger.NewSweeper(deps.Ledger, s.Liveness, sweep)
	return s, err
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Rates == nil {
		o.Rates = &Buckets{}
	}
	if o.Stopwatch == nil {
		o.Stopwatch = func() func() time.Duration { return func() time.Duration { return 0 } }
	}
	if len(o.Lanes) == 0 {
		o.Lanes = []holdfast.Lane{holdfast.LaneCommand}
	}
	o.Lease = cmp.Or(o.Lease, 120*time.Second)
	o.Heartbeat = cmp.Or(o.Heartbeat, 20*time.Second)
	o.LaunchLease = cmp.Or(o.LaunchLease, 30*time.Second)
	o.Skew = cmp.Or(o.Skew, 15*time.Second)
	o.SweepEvery = cmp.Or(o.SweepEvery, 15*time.Second)
	return o
}

func (s *Service) now() time.Time { return s.options.Clock.Now() }

// changed tells a new state of a run.
func (s *Service) changed(run runs.Run) {
	if f := s.options.Events.RunChanged; f != nil {
		f(run)
	}
}
