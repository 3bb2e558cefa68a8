package launch

import (
	"fmt"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/botsource"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// Workload is who a launch is and what it would run, as the server knows it. It is
// the gate's subject: everything that judges after the resolution judges one.
// [WorkloadOf] is its only constructor; a static sweep refuses another.
type Workload struct {
	identity holdfast.Identity
	bot      holdfast.Bot
}

// WorkloadOf makes the gate's subject from what a name resolved to, or from the
// document of a run that is gone on with; nothing else can be one, a request's label
// least of all (ADR-155 §11). A continuation keeps its document's identity even
// where the name resolves to another bot by now. A document without an identity is
// older than tiers, and was the platform's.
func WorkloadOf[From botsource.Resolved | runs.Run](from From) Workload {
	switch from := any(from).(type) {
	case botsource.Resolved:
		return Workload{identity: from.Identity, bot: from.Bot}
	case runs.Run:
		if from.Identity.IsZero() {
			return Workload{identity: holdfast.PlatformBot(from.Bot.Name), bot: from.Bot}
		}
		return Workload{identity: from.Identity, bot: from.Bot}
	}
	return Workload{}
}

// Identity is who it is judged as.
func (w Workload) Identity() holdfast.Identity { return w.identity }

// Bot is what it would run.
func (w Workload) Bot() holdfast.Bot { return w.bot }

// candidate is what is judged once the bot is resolved: a workload with what it asks
// for. [Service.candidate] is its only constructor, for a launch and
// for a continuation alike.
type candidate struct {
	Workload
	ask, minimum holdfast.MicroUSD
	unit         bool // it takes a run of the month
}

// leastUSD is the smallest amount that a run is worth starting with, unless a tenth
// of its ask is more.
const leastUSD = holdfast.OneUSD / 20

// candidate says what a workload asks for, on every road into the gate. The ask is
// the least of the run's budget, the bot's and the platform's ceiling; where neither
// the run nor its bot names one it begins at the platform's default, so that a
// promise is never of nothing. A continuation's budget was decided at its launch.
func (s *Service) candidate(a *admission, w Workload, budget, least *holdfast.MicroUSD) (candidate, error) {
	c := candidate{Workload: w, unit: true}
	limits := a.rules.limits
	switch {
	case budget != nil && w.bot.BudgetUSD != nil:
		c.ask = min(*budget, *w.bot.BudgetUSD)
	case budget != nil:
		c.ask = *budget
	case w.bot.BudgetUSD != nil:
		c.ask = *w.bot.BudgetUSD
	default:
		c.ask = *limits.DefaultRunUSD
	}
	if limits.MaxRunUSD != nil {
		c.ask = min(c.ask, *limits.MaxRunUSD)
	}
	c.minimum = min(c.ask, max(leastUSD, c.ask/10))
	switch {
	case c.ask <= 0:
		return candidate{}, invalid("budget_usd", fmt.Sprintf("the run would ask for %s", c.ask.Dollars()), "more than 0 dollars")
	case least != nil && *least > c.ask:
		return candidate{}, invalid("min_budget_usd", fmt.Sprintf("the run asks for %s at most", c.ask.Dollars()), "at most "+c.ask.Dollars())
	case least != nil:
		c.minimum = *least
	case w.bot.MinBudget != nil && *w.bot.MinBudget > c.ask:
		return candidate{}, invalid("budget_usd", fmt.Sprintf("the run would ask for %s, and its bot needs %s", c.ask.Dollars(), w.bot.MinBudget.Dollars()), "at least "+w.bot.MinBudget.Dollars())
	case w.bot.MinBudget != nil:
		c.minimum = *w.bot.MinBudget
	}
	return c, nil
}

// continuation is what is left of a run's budget, asked for as its document's
// workload. unit says whether it takes a run of the month.
func continuation(run runs.Run, ask holdfast.MicroUSD, unit bool) candidate {
	return candidate{Workload: WorkloadOf(run), ask: ask, minimum: min(ask, max(leastUSD, ask/10)), unit: unit}
}
