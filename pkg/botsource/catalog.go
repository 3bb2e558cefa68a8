package botsource

import (
	"maps"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
)

// Executable is the first word of a baked bot's command: the runner replaces it by
// the path of its own binary.
const Executable = "holdfast"

// Baked is the catalog that this build carries: bots that work on any machine,
// because they run the binary's own sample agent. An operator overrides one by
// storing a platform bot of its name.
func Baked() []holdfast.Bot {
	reviews := sample("review-pr", "3", "0.30", 1*holdfast.OneUSD, "Reviews a pull request (a sample: works some seconds and reports spend).")
	reviews.Inputs["pr"] = holdfast.BotInput{} // what a webhook names; the sample reads no pull request
	return []holdfast.Bot{
		sample("probe", "0", "0", 50_000, "Prints a line and ends at once: shows that a launch goes all the way through."),
		reviews,
		sample("feature-dev", "6", "1.20", 3*holdfast.OneUSD, "Builds a feature (a sample: works some seconds and reports spend)."),
		sample("docs-writer", "4", "0.40", 1*holdfast.OneUSD, "Writes documentation (a sample: works some seconds and reports spend)."),
	}
}

// sample is a command bot on the sample agent; how long it works and what it
// spends are inputs.
func sample(name holdfast.BotID, seconds, spend string, budget holdfast.MicroUSD, description string) holdfast.Bot {
	return holdfast.Bot{
		Name:        name,
		Lane:        holdfast.LaneCommand,
		Command:     []string{Executable, "sample-agent", "--name", string(name), "--seconds", "{{seconds}}", "--spend", "{{spend}}"},
		BudgetUSD:   &budget,
		MaxDuration: holdfast.Duration(time.Hour),
		Inputs:      map[string]holdfast.BotInput{"seconds": {Default: seconds}, "spend": {Default: spend}},
		Description: description,
	}
}

// clone is a copy that shares nothing with the catalog.
func clone(bot holdfast.Bot) holdfast.Bot {
	bot.Command = slices.Clone(bot.Command)
	bot.Needs = slices.Clone(bot.Needs)
	bot.Env = maps.Clone(bot.Env)
	bot.Inputs = maps.Clone(bot.Inputs)
	if bot.BudgetUSD != nil {
		budget := *bot.BudgetUSD
		bot.BudgetUSD = &budget
	}
	if bot.MinBudget != nil {
		least := *bot.MinBudget
		bot.MinBudget = &least
	}
	return bot
}
