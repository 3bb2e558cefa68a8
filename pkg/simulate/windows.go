package simulate

import (
	"context"
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

const (
	fiveHours = 5 * time.Hour
	oneWeek   = 7 * 24 * time.Hour
)

// account is the one account whose windows all runs of a replay share.
const account = "trace"

// Window is one instance of a usage window in a scenario.
type Window struct {
	Axis    holdfast.Axis     `json:"axis"`
	Opens   time.Time         `json:"opens"`
	Closes  time.Time         `json:"closes"`
	USD     holdfast.MicroUSD `json:"usd"`      // what a full window is worth
	UsedUSD holdfast.MicroUSD `json:"used_usd"` // by the runs that began in it
	Percent string            `json:"used_percent"`
	Runs    int               `json:"runs"`
	Refused int               `json:"refused"` // launches that found it full
}

// window judges launches against one usage window of the account, as dollar
// equivalents on the real ledger: a run asks, when it begins, for the share of the
// window that it will cost, holds it while it runs, and settles it at its end. An
// instance opens with the first run after the one before has closed.
type window struct {
	axis   holdfast.Axis
	length time.Duration
	cap    WindowCap
	policy budgetfloor.Policy
	ledger *capacityledger.Ledger

	subject holdfast.Subject // of the instance that is open
	seen    []Window
}

// current is the subject of an ask at an instant, and whether its instance is open.
func (w *window) current(now time.Time) (subject holdfast.Subject, open bool) {
	if n := len(w.seen); n > 0 && now.Before(w.seen[n-1].Closes) {
		return w.subject, true
	}
	reset := now.Add(w.length)
	return holdfast.Subject{Kind: holdfast.KindAccount, ID: account, Axis: w.axis, Period: strconv.FormatInt(reset.Unix(), 10)}, false
}

// ask is what a run wants of the window: at least the smallest share.
func (w *window) ask(run holdfast.RunID, r Row, now time.Time) capacityledger.Ask {
	subject, _ := w.current(now)
	share := holdfast.ShareAmount(w.share(r.Cost, true))
	terms := capacityledger.Terms{Cap: holdfast.AtMost(holdfast.ShareAmount(w.cap.share()))}
	for _, s := range w.policy.Reserved(subject, now) {
		terms.Reserved = append(terms.Reserved, capacityledger.Reserved{Holder: s.Holder, Amount: s.Amount})
	}
	return capacityledger.Ask{
		ID: holdfast.NewAllocationID(run, subject, 0), Terms: terms, Holder: r.Identity, Run: run,
		Requested: share, Minimum: share, Expires: now.Add(maxDuration),
	}
}

// share is a part of the window in basis points; an ask is rounded up and at least
// one, so that many small runs do not ride for nothing.
func (w *window) share(cost holdfast.MicroUSD, up bool) holdfast.BasisPoints {
	const most = uint64(holdfast.MaxUSD) // the largest number that the ledger takes
	high, low := bits.Mul64(uint64(cost), uint64(holdfast.Whole))
	if high >= uint64(w.cap.USD) {
		return holdfast.BasisPoints(most)
	}
	points, rest := bits.Div64(high, low, uint64(w.cap.USD))
	if up && rest > 0 {
		points++
	}
	return holdfast.BasisPoints(min(max(1, points), most))
}

// preview says whether the window would refuse the run now. It takes nothing.
func (w *window) preview(ctx context.Context, run holdfast.RunID, r Row, now time.Time) (holdfast.Denial, error) {
	_, denial, _, err := w.ledger.Preview(ctx, w.ask(run, r, now))
	if denial.Denied() {
		if subject, open := w.current(now); open && denial.Retryable {
			denial.ResetAt = w.seen[len(w.seen)-1].Closes
			denial.RetryAfter = denial.ResetAt.Sub(now)
			denial.Subject = subject
		}
	}
	return denial, err
}

// refused counts a launch that the open instance refused.
func (w *window) refused(now time.Time) {
	if _, open := w.current(now); open {
		w.seen[len(w.seen)-1].Refused++
	}
}

// take holds the run's share; it was previewed at the same instant.
func (w *window) take(ctx context.Context, run holdfast.RunID, r Row, now time.Time) (holdfast.AllocationID, error) {
	ask := w.ask(run, r, now)
	subject, open := w.current(now)
	allocation, denial, err := w.ledger.Reserve(ctx, ask)
	if err != nil {
		return "", err
	}
	if denial.Denied() {
		return "", fmt.Errorf("%s refused what it had room for: %s", subject, denial.Public)
	}
	if !open {
		w.subject = subject
		w.seen = append(w.seen, Window{Axis: w.axis, Opens: now, Closes: now.Add(w.length), USD: w.cap.USD})
	}
	seen := &w.seen[len(w.seen)-1]
	seen.Runs++
	return allocation.ID, nil
}

// settle ends the run's part of the window with what it cost. The run may end after
// its window closed; the share is that of the window in which it began.
func (w *window) settle(ctx context.Context, id holdfast.AllocationID, spent holdfast.MicroUSD) error {
	share := holdfast.BasisPoints(0)
	if spent > 0 {
		share = w.share(spent, true)
	}
	if _, err := w.ledger.Settle(ctx, id, capacityledger.Report{Attempt: 1, Sequence: 1, Spent: holdfast.ShareAmount(share)}); err != nil {
		return err
	}
	subject, err := id.Subject()
	if err != nil {
		return err
	}
	for i := len(w.seen) - 1; i >= 0; i-- {
		if strconv.FormatInt(w.seen[i].Closes.Unix(), 10) == subject.Period {
			w.seen[i].UsedUSD += spent
			break
		}
	}
	return nil
}

// instances are the windows of the scenario, by opening.
func (w *window) instances() []Window {
	for i := range w.seen {
		points := w.share(w.seen[i].UsedUSD, false)
		if w.seen[i].UsedUSD == 0 {
			points = 0
		}
		w.seen[i].Percent = holdfast.ShareAmount(points).Value()
	}
	return w.seen
}
