// Package orgusage is a team's calendar month: how many runs it may begin and how many
// dollars it may spend. It keeps nothing of its own; it says which subjects of the
// capacity ledger a month has, and puts the calls of a monthly counter on top of
// them (ADR-155 §3), so that there is one count and not two.
package orgusage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// Month is one team's calendar month in UTC.
type Month struct {
	Team   holdfast.TeamID
	Period string // "2026-11"
}

// MonthOf is the team's month in which an instant lies. A launch takes it once, at
// its beginning, and stays with it when the month turns.
func MonthOf(team holdfast.TeamID, when time.Time) Month {
	return Month{Team: team, Period: holdfast.MonthPeriod(when)}
}

// Runs is the subject that counts the month's runs.
func (m Month) Runs() holdfast.Subject {
	return holdfast.TeamSubject(m.Team, holdfast.AxisRuns, m.Period)
}

// Dollars is the subject of the month's money.
func (m Month) Dollars() holdfast.Subject {
	return holdfast.TeamSubject(m.Team, holdfast.AxisUSD, m.Period)
}

// Terms are what a month is judged against. The zero value allows nothing; a limit
// that does not exist is [holdfast.NoLimit].
type Terms struct {
	Runs    capacityledger.Terms
	Dollars capacityledger.Terms
}

// Caller is who wants to begin a run.
type Caller struct {
	Run     holdfast.RunID
	Holder  holdfast.Identity
	Month   Month
	Expires time.Time // when the unit lapses unless it is kept
}

// Usage is what a month has used and promised. The zero value is an unused month.
type Usage struct {
	Runs     int64 // begun, and admitted and not yet begun
	Spent    holdfast.MicroUSD
	Promised holdfast.MicroUSD // reserved and not yet spent
}

// Counter counts the months of teams.
type Counter struct{ ledger *capacityledger.Ledger }

// New is a counter over the ledger.
func New(ledger *capacityledger.Ledger) *Counter { return &Counter{ledger: ledger} }

// AllowRun takes one run of the month, or says no. The number of runs is judged
// first; then the money, of which nothing is asked, so it refuses when nothing is
// left. A refusal takes nothing. The same run again is the same unit: who finds it is
// judged again, and gives nothing back of what the first was told.
func (c *Counter) AllowRun(ctx context.Context, caller Caller, terms Terms) (holdfast.Denial, error) {
	runs := caller.Month.Runs()
	ask := capacityledger.Ask{
		ID: holdfast.NewAllocationID(caller.Run, runs, 0), Terms: terms.Runs, Holder: caller.Holder, Run: caller.Run,
		Requested: holdfast.RunAmount(1), Expires: caller.Expires,
	}
	unit, verdict, denial, err := c.ledger.ReserveJudged(ctx, ask)
	if err != nil || denial.Denied() {
		return denial, err
	}
	denial, err = c.moneyLeft(ctx, caller, terms.Dollars)
	switch {
	case err == nil && !denial.Denied() && verdict.Replayed:
		return holdfast.Denial{}, c.ledger.TakeOver(ctx, unit, caller.Expires)
	case err == nil && !denial.Denied():
		return holdfast.Denial{}, nil
	case verdict.Replayed:
		return denial, err
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, undo := c.ledger.Withdraw(back, unit); undo != nil {
		// The unit comes back when it lapses; who asked must not take it for granted.
		return holdfast.Denial{}, errors.Join(err, fmt.Errorf("give the run of %s back: %w", runs, undo))
	}
	return denial, err
}

// moneyLeft refuses when not even the smallest amount is left.
func (c *Counter) moneyLeft(ctx context.Context, caller Caller, terms capacityledger.Terms) (holdfast.Denial, error) {
	if terms.Cap.None() {
		return holdfast.Denial{}, nil
	}
	_, denial, _, err := c.ledger.Preview(ctx, capacityledger.Ask{
		ID: holdfast.NewAllocationID(caller.Run, caller.Month.Dollars(), 0), Terms: terms, Holder: caller.Holder, Run: caller.Run,
		Requested: holdfast.USDAmount(1), Expires: caller.Expires,
	})
	return denial, err
}

// KeepRun makes the unit count for good: the run is under way. It says whether this
// call did it.
func (c *Counter) KeepRun(ctx context.Context, run holdfast.RunID, month Month) (bool, error) {
	return c.ledger.Settle(ctx, holdfast.NewAllocationID(run, month.Runs(), 0), capacityledger.Report{Spent: holdfast.RunAmount(1)})
}

// ReleaseRun gives the unit of a run back that never began. A unit that was kept, or
// never taken, stays as it is.
func (c *Counter) ReleaseRun(ctx context.Context, run holdfast.RunID, month Month) (bool, error) {
	return c.ledger.Release(ctx, holdfast.NewAllocationID(run, month.Runs(), 0))
}

// Spend is what an attempt of a run has spent so far.
type Spend struct {
	Run     holdfast.RunID
	Holder  holdfast.Identity
	Month   Month
	Attempt int
	Total   holdfast.MicroUSD // of this attempt; zero or less records nothing
	Expires time.Time         // of the entry that is made where the run reserved no money
}

// AddSpend records money that was spent. It never refuses, and it counts once however
// often it is said: an attempt's highest total is what counts, in the allocation that
// the run holds, or in one of its own where the run was admitted without.
func (c *Counter) AddSpend(ctx context.Context, s Spend) error {
	if s.Total <= 0 {
		return nil
	}
	id := holdfast.NewAllocationID(s.Run, s.Month.Dollars(), 0)
	spent := holdfast.USDAmount(s.Total)
	_, _, err := c.ledger.Renew(ctx, id, capacityledger.Renewal{Attempt: s.Attempt, Spent: spent})
	switch {
	case err == nil, errors.Is(err, capacityledger.ErrClosed):
		return nil
	case !errors.Is(err, capacityledger.ErrNotFound):
		return err
	}
	ask := capacityledger.Ask{
		ID: id, Terms: capacityledger.Terms{Cap: holdfast.NoLimit}, Holder: s.Holder, Run: s.Run,
		Requested: spent, Expires: s.Expires, Unjudged: true,
	}
	if _, _, err := c.ledger.Reserve(ctx, ask); err != nil && !errors.Is(err, capacityledger.ErrClosed) && !errors.Is(err, capacityledger.ErrMismatch) {
		return err
	}
	_, err = c.ledger.Settle(ctx, id, capacityledger.Report{Attempt: s.Attempt, Spent: spent})
	return err
}

// Usage is what the month has used; a month that nobody used is zero and no error.
func (c *Counter) Usage(ctx context.Context, month Month) (Usage, error) {
	runs, err := c.ledger.Outstanding(ctx, month.Runs())
	if err != nil {
		return Usage{}, err
	}
	dollars, err := c.ledger.Outstanding(ctx, month.Dollars())
	if err != nil {
		return Usage{}, err
	}
	return Usage{Runs: runs.Total(), Spent: holdfast.MicroUSD(dollars.Settled), Promised: holdfast.MicroUSD(dollars.Outstanding)}, nil
}
