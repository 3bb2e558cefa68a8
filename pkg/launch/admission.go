package launch

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// admission is one passage through the gate: what it has taken so far, how each of
// that is given back, and the arithmetic of every check. It carries no identity, so
// that what judges before the resolution cannot judge by one.
type admission struct {
	run  holdfast.RunID
	at   time.Time // one instant names every period of the launch
	asks int       // the generation of its allocation ids
	dry  bool      // a preview: judge, take nothing
	// shared says that another launch may be under way under the same id: its caller
	// named it. Then the two ask for the same allocations and get them once.
	shared bool
	rules  rules
	owners

	holds  []runs.Hold
	budget holdfast.MicroUSD
	unheld string // why it holds nothing, when it passed without the ledger

	decision string // the id of its judgement, once it is recorded

	checks []decisions.Check
	undo   []undo
	found  []func(context.Context) error // take over what the other launch under its id was granted
	// Where checks and undo stood when the first check of capacity began.
	checkMark, undoMark int
}

// undo gives back one thing that was taken.
type undo struct {
	what string
	give func(context.Context) error
}

// call is what a check may know before the bot is resolved. It has no identity and
// no way to one.
type call struct {
	who  auth.Principal
	team holdfast.TeamID
	repo string // as budgetfloor.RepoName has it; empty: none
}

// took remembers how to give back what is about to be taken. It is called before
// the taking where the answer can be lost: giving back what was never taken is
// harmless.
func (a *admission) took(what string, give func(context.Context) error) {
	a.undo = append(a.undo, undo{what: what, give: give})
}

// untook forgets the newest entry, which turned out to have taken nothing.
func (a *admission) untook() { a.undo = a.undo[:len(a.undo)-1] }

// undoTime bounds how long an unwinding may take.
const undoTime = 5 * time.Second

// unwind gives back everything above a mark, newest first, also when the caller has
// hung up. What cannot be given back is logged and told; its lease ends it.
func (s *Service) unwind(ctx context.Context, a *admission, mark int) {
	if len(a.undo) <= mark {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	for len(a.undo) > mark {
		last := a.undo[len(a.undo)-1]
		a.untook()
		if err := last.give(ctx); err != nil {
			s.log.WarnContext(ctx, "could not give back", "what", last.what, "run", a.run, "error", err)
			if f := s.options.Events.UndoFailed; f != nil {
				f(last.what, err)
			}
		}
	}
}

// judged notes what a check said, where the check has not noted its arithmetic.
func (a *admission) judged(check string, denial holdfast.Denial, err error) {
	for _, c := range a.checks {
		if c.Name == check {
			return
		}
	}
	switch {
	case denial.Denied():
		a.checks = append(a.checks, decisions.DenyCheck(check, denial))
	case err != nil:
	case a.unheld == UnheldPolicy:
		a.checks = append(a.checks, decisions.Check{Name: check, Verdict: decisions.Unknown, Detail: "the policy was never read: passed without an allocation"})
	default:
		a.checks = append(a.checks, decisions.Check{Name: check, Verdict: decisions.Pass})
	}
}

// weighed notes the arithmetic of an ask.
func (a *admission) weighed(check string, ask capacityledger.Ask, verdict capacityledger.Verdict, denial holdfast.Denial, subject holdfast.Subject) {
	if denial.Denied() {
		a.checks = append(a.checks, decisions.DenyCheck(check, denial))
		return
	}
	c := decisions.Check{Name: check, Verdict: decisions.Pass, Subject: subject, Figures: &decisions.Figures{
		Cap: decisions.CapOf(ask.Terms.Cap), Requested: ask.Requested.Int(), Minimum: ask.Minimum.Int(),
		Settled: verdict.Settled, Outstanding: verdict.Outstanding, Withheld: verdict.Withheld, Remaining: verdict.Remaining,
		Allowance: verdict.Allowance,
	}}
	if a.unheld == UnheldLedger {
		c.Detail = "judged on the run documents, because the ledger could not be asked"
	}
	a.checks = append(a.checks, c)
}
