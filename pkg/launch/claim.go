package launch

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// Claim answers a runner that wants to begin a run (attempt 0) or to go on with it.
// It starts nothing twice: a message that was superseded, settled or claimed before
// is dropped. What cannot be told now is "later"; there is no error for it.
func (s *Service) Claim(ctx context.Context, c queue.Claim) (queue.Grant, error) {
	c.Spent = min(max(0, c.Spent), holdfast.MaxUSD)
	run, err := s.Runs.Get(ctx, c.Run)
	switch {
	case errors.Is(err, records.ErrNotFound) && c.Attempt == 0:
		return queue.Grant{Verdict: queue.GrantDrop, Reason: "there is no such run"}, nil
	case errors.Is(err, records.ErrNotFound):
		return queue.Grant{Verdict: queue.GrantStop, Reason: "there is no such run"}, nil
	case err != nil:
		return s.later(ctx, c, err), nil
	case c.Attempt == 0:
		return s.begin(ctx, c, run), nil
	}
	return s.goOn(ctx, c), nil
}

func (s *Service) later(ctx context.Context, c queue.Claim, err error) queue.Grant {
	s.log.WarnContext(ctx, "a claim cannot be answered now", "run", c.Run, "runner", c.Runner, "error", err)
	return queue.Grant{Verdict: queue.GrantLater, Reason: "a store is unavailable"}
}

// stale says why a message must not start anything; empty when it may.
func stale(c queue.Claim, run runs.Run) string {
	switch {
	case c.Generation != run.Generation || c.Publication != run.Published:
		return "a newer message of the run was published"
	case run.CancelAsked:
		return string(runs.ReasonCancelled)
	case run.Status != runs.Queued:
		return "the run is " + string(run.Status)
	}
	return ""
}

// begin gives a queued run its next attempt. The allocations are renewed first, so
// that an attempt never begins on a promise that is gone; where they are, the run is
// judged again.
func (s *Service) begin(ctx context.Context, c queue.Claim, run runs.Run) queue.Grant {
	if askedBefore(c, run) {
		return s.beginAgain(ctx, c, run)
	}
	if reason := stale(c, run); reason != "" {
		return queue.Grant{Verdict: queue.GrantDrop, Reason: reason}
	}
	held, again := run.Holds, false
	now := s.now()
	err := s.renew(ctx, run, now)
	if errors.Is(err, ErrAllocationClosed) {
		var denial holdfast.Denial
		again = true
		if held, denial, err = s.judgeAgain(ctx, run); denial.Denied() {
			return s.park(ctx, c, run, denial)
		}
	}
	if err != nil {
		return s.later(ctx, c, err)
	}
	taken, err := s.Runs.Update(ctx, run.ID, func(stored *runs.Run) error {
		if stale(c, *stored) != "" {
			return errUnchanged
		}
		if again {
			hold(stored, held)
		}
		stored.Status, stored.StatusReason = runs.Running, runs.ReasonNone
		stored.Attempt++
		stored.Sequence, stored.Runner, stored.ClaimNonce, stored.ReportedAt = 0, c.Runner, c.Nonce, now
		return nil
	})
	switch {
	case errors.Is(err, errUnchanged):
		s.giveBack(ctx, held, taken.Holds)
		return queue.Grant{Verdict: queue.GrantDrop, Reason: "another claim of the run was faster"}
	case err != nil:
		return s.later(ctx, c, err)
	}
	s.changed(taken)
	return s.granted(taken)
}

// askedBefore says that a claim is one that was granted, and whose answer was lost:
// the run waits for this very runner to start it.
func askedBefore(c queue.Claim, run runs.Run) bool {
	return run.Status == runs.Running && c.Nonce != "" && c.Nonce == run.ClaimNonce && run.StartedAt.IsZero()
}

// beginAgain gives a claim the attempt that it was given before. The attempt's lease
// begins anew, in the document first: a sweep that takes the run for silent and
// queues it again either came before, and then nothing is granted here, or sees that
// it is not silent.
func (s *Service) beginAgain(ctx context.Context, c queue.Claim, run runs.Run) queue.Grant {
	run, err := s.Runs.Update(ctx, run.ID, func(stored *runs.Run) error {
		if !askedBefore(c, *stored) {
			return errUnchanged
		}
		stored.ReportedAt = s.now()
		return nil
	})
	switch {
	case errors.Is(err, errUnchanged):
		return queue.Grant{Verdict: queue.GrantDrop, Reason: "the run did not wait for this claim"}
	case err != nil:
		return s.later(ctx, c, err)
	}
	switch err := s.renew(ctx, run, run.ReportedAt); {
	case errors.Is(err, ErrAllocationClosed): // nothing runs yet: it is judged again with its next message
		if err := s.republish(ctx, run); err != nil {
			return s.later(ctx, c, err)
		}
		return queue.Grant{Verdict: queue.GrantDrop, Reason: "its allocation was closed meanwhile; it is queued again"}
	case err != nil:
		return s.later(ctx, c, err)
	}
	return s.granted(run)
}

func (s *Service) granted(run runs.Run) queue.Grant {
	return queue.Grant{
		Verdict: queue.GrantGo, Attempt: run.Attempt, Budget: left(run, run.Attempt), Expires: run.ReportedAt.Add(s.options.Lease),
	}
}

// hold replaces what a run holds, and the budget with it when dollars were cut.
func hold(run *runs.Run, held []runs.Hold) {
	if attempt, _, _ := current(*run); attempt > 0 {
		run.Former = append(run.Former, runs.Former{LastAttempt: attempt, Holds: run.Holds})
	}
	run.Holds = held
	for _, hold := range held {
		if hold.Subject.Axis == holdfast.AxisUSD {
			run.Budget = min(run.Budget, run.Spent+holdfast.MicroUSD(hold.Amount))
		}
	}
}

// giveBack releases allocations that the stored document does not name.
func (s *Service) giveBack(ctx context.Context, held, stored []runs.Hold) {
	kept := map[holdfast.AllocationID]bool{}
	for _, hold := range stored {
		kept[hold.ID] = true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	for _, hold := range held {
		if kept[hold.ID] {
			continue
		}
		if _, err := s.Ledger.Release(ctx, hold.ID); err != nil {
			s.log.WarnContext(ctx, "could not give back", "what", hold.ID, "error", err)
		}
	}
}

// judgeAgain asks anew, under the run's own identity, for what the run held when its
// launch was admitted and has lost since. It takes no second run of the month. What
// it got is returned, with the run of the month that it has. What is still open of
// the old allocations goes back first, so that the run is not refused by itself.
func (s *Service) judgeAgain(ctx context.Context, run runs.Run) ([]runs.Hold, holdfast.Denial, error) {
	asks, err := s.nextAsk(ctx, run.ID)
	if err != nil {
		return nil, holdfast.Denial{}, err
	}
	a := &admission{run: run.ID, at: s.now(), asks: asks}
	if a.rules, err = s.readRules(ctx); err != nil {
		return nil, holdfast.Denial{}, err
	}
	if a.owners, err = s.ownersOf(ctx, a.rules, run.Team); err != nil {
		return nil, holdfast.Denial{}, unavailable(err)
	}
	ask := left(run, run.Attempt+1)
	if ask <= 0 {
		return nil, holdfast.Denial{Reason: holdfast.DenyMonthlyUSD, Public: "the run has spent its budget"}, nil
	}
	c := continuation(run, ask, false)
	var unit []runs.Hold
	for _, hold := range run.Holds {
		if hold.Subject.Axis == holdfast.AxisRuns {
			unit = append(unit, hold)
		}
	}
	s.giveBack(ctx, run.Holds, unit)
	for _, check := range s.launchChecks() {
		denial, err := check.run(ctx, a, c)
		if err == nil && a.unheld != "" {
			err = ErrUnavailable // nothing is urgent here: the message waits until it can be judged
		}
		if denial.Denied() || err != nil {
			s.unwind(ctx, a, 0)
			return nil, denial, err
		}
	}
	return append(a.holds, unit...), holdfast.Denial{}, nil
}

// nextAsk is a generation for allocation ids that nobody else uses for this run.
func (s *Service) nextAsk(ctx context.Context, id holdfast.RunID) (int, error) {
	run, err := s.Runs.Update(ctx, id, func(run *runs.Run) error {
		run.Asks++
		return nil
	})
	if err != nil {
		return 0, unavailable(err)
	}
	return run.Asks, nil
}

// park sets a run aside whose capacity is gone and cannot be had again. It holds
// nothing while it waits; a resume brings it back through the gate.
func (s *Service) park(ctx context.Context, c queue.Claim, run runs.Run, denial holdfast.Denial) queue.Grant {
	e := ending{status: runs.Parked, reason: runs.ReasonCapacity, detail: denial.Public}
	_, _, err := s.end(ctx, run.ID, e, func(stored *runs.Run) bool { return stale(c, *stored) == "" })
	if err != nil {
		return s.later(ctx, c, err)
	}
	return queue.Grant{Verdict: queue.GrantDrop, Reason: string(runs.ReasonCapacity)}
}

// goOn answers a heartbeat: the attempt may go on until the expiry, or must stop.
func (s *Service) goOn(ctx context.Context, c queue.Claim) queue.Grant {
	run, err := s.Runs.Update(ctx, c.Run, func(run *runs.Run) error {
		if c.Attempt > run.Attempt {
			return errUnchanged
		}
		spend(run, c.Attempt, c.Spent)
		if c.Attempt == run.Attempt && run.Status == runs.Running {
			run.Sequence = max(run.Sequence, c.Sequence)
			run.ReportedAt = s.now()
			if run.StartedAt.IsZero() { // only what runs renews, and the report of its start may be lost
				run.StartedAt = run.ReportedAt
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, errUnchanged):
		return queue.Grant{Verdict: queue.GrantStop, Reason: "there is no such attempt"}
	case err != nil:
		return s.later(ctx, c, err)
	}
	if reason := mustStop(run, c.Attempt); reason != "" {
		if err := s.recordSpend(ctx, run, c.Attempt, c.Sequence, c.Spent); err != nil {
			return s.later(ctx, c, err)
		}
		return queue.Grant{Verdict: queue.GrantStop, Attempt: c.Attempt, Reason: reason}
	}
	switch err := s.renew(ctx, run, run.ReportedAt); {
	case errors.Is(err, ErrAllocationClosed):
		s.lost(ctx, run)
		return queue.Grant{Verdict: queue.GrantStop, Attempt: c.Attempt, Reason: string(runs.ReasonLeaseLost)}
	case err != nil:
		return s.later(ctx, c, err)
	}
	s.changed(run)
	return s.granted(run)
}

// mustStop says why an attempt must not go on; empty when it may.
func mustStop(run runs.Run, attempt int) string {
	switch {
	case attempt < run.Attempt:
		return "a later attempt of the run was begun"
	case run.CancelAsked:
		return string(runs.ReasonCancelled)
	case run.Status != runs.Running && run.StatusReason != "":
		return string(run.StatusReason)
	case run.Status != runs.Running:
		return "the run is " + string(run.Status)
	}
	return ""
}
