package launch

import (
	"fmt"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// remember notes how a run stands that is queued again.
func remember(run *runs.Run) {
	attempt, _, _ := current(*run)
	run.Remember(attempt)
}

// past says in a sentence each how the earlier attempts of a run ended.
func past(run runs.Run) []string {
	var lines []string
	for _, p := range run.Past {
		at, text := p.EndedAt, "Before an attempt began"
		switch {
		case p.Attempt > 0 && p.StartedAt.IsZero():
			text = fmt.Sprintf("Attempt %d was claimed by %s and never began", p.Attempt, p.Runner)
		case p.Attempt > 0:
			at, text = p.StartedAt, fmt.Sprintf("Attempt %d ran", p.Attempt)
			if p.Runner != "" {
				text += " on " + p.Runner
			}
		}
		if !at.IsZero() {
			text = stamp(at) + ": " + text
		}
		if p.Status != runs.Running {
			text += ", and then the run was " + string(p.Status)
			if p.Reason != runs.ReasonNone {
				text += fmt.Sprintf(" (%s)", p.Reason)
			}
			if p.Attempt > 0 && !p.EndedAt.IsZero() {
				text += " at " + stamp(p.EndedAt)
			}
		}
		if p.Spent > 0 {
			text += ", having spent " + p.Spent.Dollars()
		}
		lines = append(lines, text+".")
	}
	return lines
}

// cutOf says what made a run's budget smaller than its caller asked for, and what was
// asked; nothing where it got it all, or named none.
func (c candidate) cutOf(asked *holdfast.MicroUSD, budget holdfast.MicroUSD) (holdfast.MicroUSD, runs.Cut) {
	switch {
	case asked == nil || budget >= *asked:
		return 0, runs.CutNone
	case budget < c.ask:
		return *asked, runs.CutCapacity
	case c.bot.BudgetUSD != nil && c.ask == *c.bot.BudgetUSD:
		return *asked, runs.CutBot
	}
	return *asked, runs.CutLimits
}

// cutWords says in words why a budget is smaller than what was asked.
func cutWords(by runs.Cut) string {
	switch by {
	case runs.CutBot:
		return "its bot's own is smaller"
	case runs.CutCapacity:
		return "no more was free"
	case runs.CutLimits:
		return "max_run_usd of the limits setting is smaller"
	case runs.CutNone:
	}
	return "it got less"
}
