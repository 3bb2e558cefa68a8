// Package pricing turns the tokens of a model's answers into money. Its table is
// data in Go: per model the rates of plain input, output, cache reads and cache
// writes, dated, with long-context tiers. The arithmetic is exact in integers;
// the only rounding is the last step, up to the next micro-dollar, once per call.
//
// Rates are the list prices of the providers' standard service. Batch, priority,
// fast and regional factors and fees per search are not in the table.
package pricing

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
)

// Version names the state of the table: the day on which its rows were last
// checked. A record of money should carry it.
const Version = "2026-11-30"

// MaxTokens is the largest count of one kind of tokens that [Price] accepts; the
// dearest rate times it stays far from an overflow.
const MaxTokens = 10_000_000_000

// Usage is what one answer, or the sum of several, used. The kinds of input do not
// overlap: a prompt is Input + CacheRead + CacheWrite5m + CacheWrite1h. (OpenAI
// and most traces count cached tokens inside the input; [Inclusive] takes them
// apart.) The zero Usage costs nothing.
type Usage struct {
	Input        int64 // neither read from nor written to a cache
	CacheRead    int64
	CacheWrite5m int64 // writes that live five minutes; where nobody says how long, they count here
	CacheWrite1h int64
	Output       int64 // thinking included
	// Requests is how many answers the numbers are the sum of; 0 and 1 are one
	// answer. A long-context tier is decided by the mean prompt of an answer.
	Requests int64
}

// Inclusive is the usage of a record whose input counts the cached tokens too. Of
// cached more than there is input, the input is what counts.
func Inclusive(input, cacheRead, cacheWrite5m, cacheWrite1h, output int64) Usage {
	read := min(cacheRead, input)
	short := min(cacheWrite5m, input-read)
	long := min(cacheWrite1h, input-read-short)
	return Usage{Input: input - read - short - long, CacheRead: read, CacheWrite5m: short, CacheWrite1h: long, Output: output}
}

// Plus is the sum of two usages, requests included.
func (u Usage) Plus(v Usage) Usage {
	return Usage{
		Input: u.Input + v.Input, CacheRead: u.CacheRead + v.CacheRead, CacheWrite5m: u.CacheWrite5m + v.CacheWrite5m,
		CacheWrite1h: u.CacheWrite1h + v.CacheWrite1h, Output: u.Output + v.Output, Requests: max(1, u.Requests) + max(1, v.Requests),
	}
}

// Prompt is all input of whatever kind.
func (u Usage) Prompt() int64 { return u.Input + u.CacheRead + u.CacheWrite5m + u.CacheWrite1h }

// IsZero says whether no token was used.
func (u Usage) IsZero() bool { return u.Prompt() == 0 && u.Output == 0 }

// UnpricedError says that the table has no price for the model. It is never a
// price of zero.
type UnpricedError struct{ Model string }

// Error names the model.
func (e *UnpricedError) Error() string {
	return fmt.Sprintf("the price table of %s has no model %q", Version, holdfast.Clip(e.Model, 80))
}

// Price is what the usage of a model cost at an instant. A model that the table
// does not know is an *UnpricedError; a count of tokens below zero or above
// [MaxTokens] is an *holdfast.InvalidError. A dated rate counts from its day, UTC.
// Where a provider publishes no rate for cache reads or writes they cost what plain
// input costs, and a one-hour write without a rate costs what a five-minute one does.
func Price(model string, at time.Time, u Usage) (holdfast.MicroUSD, error) {
	for _, n := range []int64{u.Input, u.CacheRead, u.CacheWrite5m, u.CacheWrite1h, u.Output, u.Requests} {
		if n < 0 || n > MaxTokens {
			return 0, &holdfast.InvalidError{Field: "tokens", Problem: fmt.Sprintf("%d is not a count of tokens", n), Allowed: fmt.Sprintf("0 to %d", int64(MaxTokens))}
		}
	}
	entry, ok := find(model)
	if !ok {
		return 0, &UnpricedError{Model: model}
	}
	rates := entry.at(at, u.Prompt()/max(1, u.Requests))
	nano := u.Input*rates.input + u.Output*rates.output +
		u.CacheRead*or(rates.read, rates.input) +
		u.CacheWrite5m*or(rates.write5m, rates.input) +
		u.CacheWrite1h*or(rates.write1h, or(rates.write5m, rates.input))
	return holdfast.MicroUSD((nano + 999) / 1000), nil
}

// Known says whether the table has the model, and under which id.
func Known(model string) (id string, ok bool) {
	entry, ok := find(model)
	return entry.id, ok
}

// rates are nano-dollars per token, which is the same number as thousandths of a
// dollar per million tokens. Zero is "no rate of its own".
type rates struct {
	input, output, read, write5m, write1h int64
}

// row is what a model costs from a day on.
type row struct {
	from string // "2026-03-13", UTC; empty is since ever
	rates
	// above, when set, is what the whole answer costs once its prompt is larger
	// than over tokens: a cliff, not a slope.
	over  int64
	above rates
}

// entry is one model. Its names are those that providers and tools write; each may
// be followed by a date or version, see [find].
type entry struct {
	id    string
	names []string
	rows  []row // by from
}

// at picks the rates of an instant and a size of prompt.
func (e entry) at(t time.Time, prompt int64) rates {
	day := t.UTC().Format(time.DateOnly)
	picked := e.rows[0]
	for _, r := range e.rows[1:] {
		if r.from <= day {
			picked = r
		}
	}
	if picked.over > 0 && prompt > picked.over {
		return picked.above
	}
	return picked.rates
}

func or(rate, otherwise int64) int64 {
	if rate == 0 {
		return otherwise
	}
	return rate
}

// find looks a model up by name. A provider's prefix ("anthropic/", "us.anthropic.",
// "models/") and a date, "latest" or version behind the name ("-20251101",
// "-2026-04-23", "@20250514", "-v1:0", "[1m]") are not part of it. What remains must
// be a name of the table: a newer model is unpriced and never priced as its elder.
func find(model string) (entry, bool) {
	name := strings.ToLower(strings.TrimSpace(model))
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		name = name[i+1:]
	}
	if i := strings.Index(name, "anthropic."); i >= 0 {
		name = name[i+len("anthropic."):]
	}
	name, _, _ = strings.Cut(name, "[")
	for _, table := range [][]entry{anthropic, openai, google} {
		for _, e := range table {
			for _, alias := range e.names {
				if rest, ok := strings.CutPrefix(name, alias); ok && version(rest) {
					return e, true
				}
			}
		}
	}
	return entry{}, false
}

// version says whether the text behind a model's name is only a date or version.
func version(rest string) bool {
	if rest == "" {
		return true
	}
	if i := strings.Index(rest, "-v"); i >= 0 { // "-v1:0", alone or behind a date
		tail := rest[i+2:]
		if tail == "" || strings.Trim(tail, "0123456789:") != "" {
			return false
		}
		rest = rest[:i]
	}
	switch {
	case rest == "", rest == "-latest":
		return true
	case rest[0] != '-' && rest[0] != '@':
		return false
	}
	digits := strings.ReplaceAll(rest[1:], "-", "")
	return len(digits) == 8 && strings.Trim(digits, "0123456789") == ""
}
