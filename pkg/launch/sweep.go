package launch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// sweep is one of the nets under the life of a run. Each looks at what is stored and
// puts right what a crash or an outage left; each may run on every replica. It
// returns how many runs it changed.
type sweep struct {
	name string
	run  func(context.Context) (int, error)
}

// sweeps are made in this order, after what the dead hold was given back.
func (s *Service) sweeps() []sweep {
	return []sweep{
		{"settle", s.sweepUnsettled},
		{"republish", s.sweepQueued},
		{"adopt", s.sweepUnheld},
	}
}

// Run sweeps every period until ctx ends, and then returns nil. What goes wrong is
// logged and tried again in the next pass.
func (s *Service) Run(ctx context.Context) error {
	ticker := time.NewTicker(s.options.SweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "a sweep failed; the next one tries again", "error", err)
			}
		}
	}
}

// Sweep makes one pass: it gives back what the dead hold and ends their runs, but in
// a quiet time, when holders could not renew; and then makes every other sweep. A
// sweep that fails does not keep the others from their work; the errors are returned
// together. A store or a queue that was away begins a quiet time.
func (s *Service) Sweep(ctx context.Context) error {
	pass, err := s.sweeper.Pass(ctx)
	if err == nil && !pass.Quiet {
		var ended int
		if ended, err = s.sweepSilent(ctx); ended > 0 {
			s.swept("silent", ended)
		}
	}
	all := wrap("expire", err)
	for _, sweep := range s.sweeps() {
		n, err := sweep.run(ctx)
		if n > 0 {
			s.swept(sweep.name, n)
		}
		all = errors.Join(all, wrap(sweep.name, err))
	}
	if errors.Is(all, ErrUnavailable) {
		s.NoteOutage()
	}
	return all
}

func wrap(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

func (s *Service) swept(name string, n int) {
	if f := s.options.Events.Swept; f != nil {
		f(name, n)
	}
}

// NoteOutage tells that a store or the queue was unreachable until now: holders could
// not renew, so nobody is held dead for one lease.
func (s *Service) NoteOutage() { s.sweeper.NoteOutage(s.now()) }

// Liveness says whether the holder of an allocation whose lease ran out is alive. A
// run without a document is dead, and so is an allocation that its run does not
// name: both are what a crash leaves. A queued run lives, because its message is
// known or can be published again. A running one lives while its last report is
// younger than a lease, and the skew of clocks; an external one has the lease alone.
func (s *Service) Liveness(ctx context.Context, a capacityledger.Allocation) (capacityledger.Liveness, error) {
	run, err := s.Runs.Get(ctx, a.Run)
	switch {
	case errors.Is(err, records.ErrNotFound):
		return capacityledger.Dead, nil
	case err != nil:
		return capacityledger.LivenessUnknown, err
	case run.Status == runs.Queued && holds(run, a.ID):
		return capacityledger.Alive, nil
	case run.Status == runs.Running && holds(run, a.ID) && !s.silent(run):
		return capacityledger.Alive, nil
	}
	return capacityledger.Dead, nil
}

// silent says that a running run has not reported for longer than a lease and the
// skew of clocks.
func (s *Service) silent(run runs.Run) bool {
	return s.now().After(run.ReportedAt.Add(s.options.Lease + s.options.Skew))
}

// sweepSilent ends the running runs that nobody reports on, with the spend that was
// last reported, and closes what they hold. One that was claimed and never started
// goes back to the queue instead.
func (s *Service) sweepSilent(ctx context.Context) (n int, err error) {
	err = s.Runs.Walk(ctx, runs.Running, func(run runs.Run) error {
		if !s.silent(run) || s.sweeper.Quiet() { // an outage may have ended while it was read
			return nil
		}
		n++
		if !run.External && run.StartedAt.IsZero() && !run.CancelAsked {
			return s.republish(ctx, run)
		}
		return s.endSilent(ctx, run, runs.ReasonLeaseLost)
	})
	return n, unavailable(err)
}

// endSilent ends a run that stopped reporting; reason is that of one which a runner
// executes.
func (s *Service) endSilent(ctx context.Context, run runs.Run, reason runs.Reason) error {
	e := ending{status: runs.FailedResumable, reason: reason}
	switch {
	case run.CancelAsked:
		e = ending{status: runs.Cancelled, reason: runs.ReasonCancelled}
	case run.External:
		e = ending{status: runs.Failed, reason: runs.ReasonAbandoned}
	}
	_, _, err := s.end(ctx, run.ID, e, func(stored *runs.Run) bool {
		return stored.Status == runs.Running && stored.Attempt == run.Attempt && stored.ReportedAt.Equal(run.ReportedAt)
	})
	return err
}

// sweepUnsettled closes what ended runs still hold, because the ledger was away when
// they ended.
func (s *Service) sweepUnsettled(ctx context.Context) (n int, err error) {
	err = s.Runs.WalkUnsettled(ctx, func(run runs.Run) error {
		if _, err := s.finish(ctx, run); err != nil {
			return unavailable(err)
		}
		n++
		return nil
	})
	return n, unavailable(err)
}

// sweepQueued publishes the queued runs again whose message the queue does not have.
// A run that was queued just now may be on its way there.
func (s *Service) sweepQueued(ctx context.Context) (n int, err error) {
	err = s.Runs.Walk(ctx, runs.Queued, func(run runs.Run) error {
		if s.now().Before(run.QueuedAt.Add(s.options.LaunchLease)) {
			return nil
		}
		return s.requeueVanished(ctx, run, &n)
	})
	return n, unavailable(err)
}

// requeueVanished publishes a queued run again if its message is gone. A queue that
// cannot tell is an error, and then nothing is published.
func (s *Service) requeueVanished(ctx context.Context, run runs.Run, n *int) error {
	known, err := s.Queue.Queued(ctx, run.Pool, run.ID)
	if err != nil {
		return unavailable(err)
	}
	if known {
		return nil
	}
	*n++
	return s.republish(ctx, run)
}

// republish queues a run as a new message, which makes every earlier one of it
// stale. The document comes first; where the message then fails, the next sweep
// finds it missing.
func (s *Service) republish(ctx context.Context, was runs.Run) error {
	run, err := s.Runs.Update(ctx, was.ID, func(run *runs.Run) error {
		if run.Status != was.Status || run.Published != was.Published || run.Attempt != was.Attempt || !run.ReportedAt.Equal(was.ReportedAt) {
			return errUnchanged
		}
		if run.Status == runs.Running {
			remember(run)
		}
		run.Status, run.Runner, run.ClaimNonce = runs.Queued, "", ""
		run.Published++
		run.QueuedAt = s.now()
		return nil
	})
	switch {
	case errors.Is(err, errUnchanged):
		return nil
	case err != nil:
		return unavailable(err)
	}
	s.changed(run)
	return s.publish(ctx, run)
}

// sweepUnheld adopts the active runs that hold no slot, because they were admitted
// while the ledger or the policy could not be asked: what they use is recorded, above
// the cap too, so that whoever asks next is judged with them.
func (s *Service) sweepUnheld(ctx context.Context) (n int, err error) {
	var adopt []runs.Run
	err = s.Runs.WalkActive(ctx, func(run runs.Run) error {
		for _, hold := range run.Holds {
			if hold.Subject.Axis == holdfast.AxisSlots {
				return nil
			}
		}
		adopt = append(adopt, run)
		return nil
	})
	if err != nil || len(adopt) == 0 {
		return 0, unavailable(err)
	}
	rules, err := s.readRules(ctx)
	if err != nil {
		return 0, err
	}
	for _, run := range adopt {
		if err := s.adopt(ctx, rules, run); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// adopt records what a run uses, unjudged.
func (s *Service) adopt(ctx context.Context, rules rules, run runs.Run) error {
	asks, err := s.nextAsk(ctx, run.ID)
	if err != nil {
		return err
	}
	o, err := s.ownersOf(ctx, rules, run.Team)
	if errors.Is(err, records.ErrNotFound) { // a team that is gone caps nothing
		o, err = owners{team: teams.Team{ID: run.Team}}, nil
	}
	if err != nil {
		return unavailable(err)
	}
	month := holdfast.MonthPeriod(run.CreatedAt)
	wants := map[holdfast.Subject]holdfast.Amount{}
	var order []holdfast.Subject
	want := func(amount holdfast.Amount, subjects ...holdfast.Subject) {
		for _, subject := range subjects {
			wants[subject] = amount
			order = append(order, subject)
		}
	}
	want(holdfast.SlotAmount(1), rules.subjects(o, holdfast.AxisSlots, "")...)
	if len(run.Holds) == 0 {
		want(holdfast.RunAmount(1), rules.subjects(o, holdfast.AxisRuns, month)...)
	}
	if remaining := left(run, run.Attempt); remaining > 0 {
		want(holdfast.USDAmount(remaining), rules.subjects(o, holdfast.AxisUSD, month)...)
	}
	held := run.Holds
	for _, subject := range order {
		ask := capacityledger.Ask{
			ID: holdfast.NewAllocationID(run.ID, subject, asks), Terms: rules.terms(subject, o, s.now()),
			Holder: run.Identity, Run: run.ID, Requested: wants[subject], Minimum: wants[subject],
			Expires: s.now().Add(s.options.Lease), Unjudged: true,
		}
		allocation, _, err := s.Ledger.Reserve(ctx, ask)
		if err != nil {
			s.giveBack(ctx, held, run.Holds)
			return unavailable(err)
		}
		held = append(held[:len(held):len(held)], runs.Hold{ID: allocation.ID, Subject: subject, Amount: allocation.Amount.Int()})
	}
	adopted, err := s.Runs.Update(ctx, run.ID, func(stored *runs.Run) error {
		if !stored.Status.Active() || stored.Generation != run.Generation || len(stored.Holds) != len(run.Holds) {
			return errUnchanged
		}
		stored.Holds = held
		return nil
	})
	switch {
	case errors.Is(err, errUnchanged):
		s.giveBack(ctx, held, adopted.Holds)
		return nil
	case err != nil:
		return unavailable(err) // not named by its run: the leases end what was recorded
	}
	s.useRun(ctx, adopted)
	return nil
}
