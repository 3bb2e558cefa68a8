package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/pricing"
)

// facts count what was missing while a trace was completed.
type facts struct {
	tenantless, relative, spread, guessedDuration, costless, pricedRows int
	foldedRuns, foldedRows, botless, assigned, retold, resolved, asked  int
}

// assumptions are the sentences that say how the trace was read, in a fixed order.
func (c *collector) assumptions(f *facts, t Trace) []string {
	var out []string
	say := func(when bool, format string, args ...any) {
		if when {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	say(c.usedAny(), "columns used: %s", c.columnsUsed())
	say(len(c.ignored) > 0, "columns left aside: %s", clipNames(c.ignored))
	say(c.transcripts, "transcripts: a tenant is a project folder, a run is a session with its sub-agents; %d repeated lines of the same reply count once; a run works from reply to reply, a pause above %s is a person who was away", c.repeats, replyGap)
	say(f.foldedRuns > 0, "%d rows are the requests of %d runs and were folded into them; a run works through its requests and pauses of at most %s", f.foldedRows, f.foldedRuns, requestGap)
	say(f.spread > 0, "no submit time: %d rows start evenly over %s from %s on, in file order (--span)", f.spread, c.options.Span, Origin.Format("2006-01-02"))
	say(f.relative > 0, "times are relative to the trace's start, which is taken to be %s", Origin.Format("2006-01-02T15:04Z"))
	say(f.tenantless > 0, "no tenant: it is the file's name")
	say(f.guessedDuration > 0, "no duration: %d runs take their output tokens at %d a second", f.guessedDuration, tokensPerSecond)
	say(f.pricedRows > 0 || (c.transcripts && c.pricedRows > 0), "no cost: priced from tokens with the list prices of %s", pricing.Version)
	say(c.unnamedModel > 0, "no model: %d are priced as %s (--model)", c.unnamedModel, c.options.Model)
	if len(c.unpriced) > 0 {
		names := slices.Sorted(maps.Keys(c.unpriced))
		n := 0
		for _, name := range names {
			n += c.unpriced[name]
		}
		say(true, "without a price in the table: %s; %d are priced as %s (--model)", clipNames(names), n, c.options.Model)
	}
	say(f.costless > 0, "neither cost nor tokens: %d runs cost nothing", f.costless)
	say(len(c.renamed) > 0, "tenants are written as names: %s", c.renames())
	say(f.botless > 0, "no bot: %d rows are the bot %q of their team (--map bot=COLUMN or --assign tenant=T,bot=B say otherwise)", f.botless, DefaultBot)
	say(f.assigned > 0, "%d rows got their bot by --assign", f.assigned)
	say(f.retold > 0, "%d rows named a bot of another team and are that bot of their own team", f.retold)
	say(f.resolved > 0, "%d rows of a platform's bot are the bot of that name of their own team, which comes first", f.resolved)
	say(f.asked == 0, "no ask: a run asks for what it then costs")
	say(f.asked > 0 && f.asked < len(t.Rows), "%d rows without an ask ask for what they then cost", len(t.Rows)-f.asked)
	return out
}

func (c *collector) columnsUsed() string {
	var parts []string
	for i, column := range Columns() {
		for _, name := range c.used[i] {
			if plain(name) == plain(column.Name) {
				parts = append(parts, column.Name)
			} else {
				parts = append(parts, column.Name+" from "+holdfast.Clip(name, 40))
			}
		}
	}
	return strings.Join(parts, ", ")
}

func (c *collector) renames() string {
	const most = 3
	var parts []string
	for i, text := range slices.Sorted(maps.Keys(c.renamed)) {
		if i == most {
			parts = append(parts, fmt.Sprintf("… (%d in all)", len(c.renamed)))
			break
		}
		parts = append(parts, fmt.Sprintf("%q as %s", holdfast.Clip(text, 40), nameOf(text)))
	}
	return strings.Join(parts, ", ")
}
