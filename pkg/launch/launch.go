package launch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// Launch judges a request and, when it is admitted, holds its capacity, writes its
// document and queues it. Exactly one of the three is set: a run, a denial, or an
// error. A refused or failed launch has taken nothing when this returns, but for
// what a store that is away could not give back, which its lease ends. An external
// run is running when this returns, and its caller renews and settles it.
func (s *Service) Launch(ctx context.Context, who auth.Principal, r Request) (runs.Run, holdfast.Denial, error) {
	c, err := s.read(who, &r)
	if err != nil {
		return runs.Run{}, holdfast.Denial{}, err
	}
	if err := s.checkPool(ctx, r.Pool); err != nil {
		return runs.Run{}, holdfast.Denial{}, err
	}
	took := s.options.Stopwatch()
	now := s.now()
	a := &admission{run: r.Run, at: now, shared: r.Run != ""}
	if !a.shared {
		a.run = s.Runs.NewID(now)
	}

	found, denial, err := s.judge(ctx, a, c, s.resolve(&r))
	if err == nil {
		denial = s.decided(a, c, found, r, denial, took())
	}
	if denial.Denied() || err != nil {
		s.unwind(ctx, a, 0)
		return runs.Run{}, denial, err
	}
	run, err := s.start(ctx, a, s.document(a, c, found, r))
	if err != nil {
		s.unwind(ctx, a, 0)
		return runs.Run{}, holdfast.Denial{}, err
	}
	// From here on the launch has succeeded.
	s.useRun(ctx, run)
	s.changed(run)
	return run, holdfast.Denial{}, nil
}

// judge reads the rules and passes the gate.
func (s *Service) judge(ctx context.Context, a *admission, c call, resolve resolveFunc) (candidate, holdfast.Denial, error) {
	var err error
	if a.rules, err = s.readRules(ctx); err != nil {
		return candidate{}, holdfast.Denial{}, err
	}
	return s.admit(ctx, a, c, resolve)
}

// decided records a judgement with all its arithmetic and names it in the denial,
// which is cut to what the caller may see.
func (s *Service) decided(a *admission, c call, found candidate, r Request, denial holdfast.Denial, took time.Duration) holdfast.Denial {
	if denial.Denied() {
		denial.Holders = visibleHoldings(c.who, denial.Subject, denial.Holders)
	}
	decision := decisions.Decision{
		Team: c.team, Bot: r.Bot, Identity: found.identity, Surface: string(r.Surface), Caller: c.who.Name, Repo: r.Repo, Checks: a.checks,
	}
	if denial.Denied() {
		decision = decision.Refused(denial)
	} else {
		decision.Admitted, decision.Run, decision.Budget = true, a.run, a.budget
	}
	a.decision = s.Decisions.Record(decision)
	denial.DecisionID = a.decision
	if f := s.options.Events.Decided; f != nil {
		decision.ID = a.decision
		f(decision, denial, took)
	}
	return denial
}

// document is the run as it was admitted.
func (s *Service) document(a *admission, c call, found candidate, r Request) runs.Run {
	run := runs.Run{
		ID: a.run, Team: c.team, Identity: found.identity, Bot: found.bot, Repo: r.Repo, Inputs: r.Inputs, Pool: r.Pool,
		External: r.External, Caller: c.who.Name,
		Status: runs.Queued, Budget: a.budget, Holds: a.holds, Unheld: a.unheld, DecisionID: a.decision,
		Published: 1, CreatedAt: a.at, QueuedAt: a.at,
	}
	run.Asked, run.CutBy = found.cutOf(r.BudgetUSD, a.budget)
	if r.External {
		run.Status, run.Attempt, run.Published = runs.Running, 1, 0
		run.StartedAt, run.ReportedAt = a.at, s.now()
	}
	return run
}

// start writes the document and then the message, or for an external run the first
// renewal. What fails is for the unwinding, document included.
func (s *Service) start(ctx context.Context, a *admission, run runs.Run) (runs.Run, error) {
	if err := s.takeOver(ctx, a); err != nil {
		return runs.Run{}, err
	}
	a.took("document", func(ctx context.Context) error { return s.launchFailed(ctx, run.ID, run.Generation, run.DecisionID) })
	stored, err := s.Runs.Insert(ctx, run)
	if errors.Is(err, records.ErrExists) {
		a.untook() // the document under this id is not this launch's
		return runs.Run{}, fmt.Errorf("%w: run %s was launched already: %w", ErrConflict, run.ID, err)
	}
	if err != nil {
		return runs.Run{}, unavailable(err)
	}
	if run.External {
		return stored, s.renew(ctx, stored, stored.ReportedAt)
	}
	return stored, s.publish(ctx, stored)
}

// publish queues a run's message, made from its document.
func (s *Service) publish(ctx context.Context, run runs.Run) error {
	if err := s.Queue.Publish(ctx, messageOf(run)); err != nil {
		return fmt.Errorf("%w: publish run %s: %w", ErrUnavailable, run.ID, err)
	}
	return nil
}

// messageOf makes a run's message from its document.
func messageOf(run runs.Run) queue.RunMessage {
	return queue.RunMessage{
		Version: queue.MessageVersion, Run: run.ID, Team: run.Team, Identity: run.Identity, Bot: run.Bot, Inputs: run.Inputs,
		Repo: run.Repo, Pool: run.Pool, Budget: run.Budget - run.Spent, Generation: run.Generation,
		Publication: run.Published, PublishedAt: run.QueuedAt,
	}
}

// launchFailed is the undo of a document: the run could not be queued, or nobody
// knows whether it was. What it holds is given back, its run of the month included.
// It spares a run that has moved on, and a document that another launch under the
// same id has written: its judgement is another one.
func (s *Service) launchFailed(ctx context.Context, id holdfast.RunID, generation int, decision string) error {
	run, err := s.Runs.Update(ctx, id, func(run *runs.Run) error {
		if run.Generation != generation || run.DecisionID != decision || !run.Status.Active() {
			return errUnchanged
		}
		run.Status, run.StatusReason, run.EndedAt = runs.Failed, runs.ReasonLaunchFailed, s.now()
		if run.Generation > 0 { // what it did before can still be gone on with
			run.Status = runs.FailedResumable
		}
		return nil
	})
	switch {
	case errors.Is(err, errUnchanged) || errors.Is(err, records.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	_, err = s.finish(ctx, run)
	return err
}

// errUnchanged ends an update that has nothing to write.
var errUnchanged = errors.New("nothing to change")

// useRun settles the run of the month as used: from now on only the month gives it
// back. When the ledger is away the end of the run settles it.
func (s *Service) useRun(ctx context.Context, run runs.Run) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	for _, hold := range run.Holds {
		if hold.Subject.Axis != holdfast.AxisRuns {
			continue
		}
		if _, err := s.Ledger.Settle(ctx, hold.ID, capacityledger.Report{Spent: holdfast.RunAmount(1)}); err != nil {
			s.settleFailed(ctx, run.ID, err)
		}
	}
}
