package surface

import (
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/launch"
)

// Work is what a record of a surface launches: the fields of a request that its
// owner writes. The team is the record's.
type Work struct {
	Bot       string             `json:"bot"` // as it is written; the gate folds and resolves it
	Repo      string             `json:"repo,omitempty"`
	Inputs    map[string]string  `json:"inputs,omitempty"`
	BudgetUSD *holdfast.MicroUSD `json:"budget_usd,omitempty"` // absent: what the bot or the platform says
	Pool      string             `json:"pool,omitempty"`       // absent: the default pool
}

// Bounds of a stored [Work].
const (
	maxWord       = 200
	maxInputs     = 64
	maxInputBytes = 32 << 10
)

// Check refuses work that could never be launched, before it is stored. Whether the
// bot exists is the gate's to say, at the time.
func (w Work) Check() error {
	if _, err := holdfast.FoldName(w.Bot); err != nil {
		return holdfast.InField("bot", err)
	}
	for _, word := range []struct{ field, value string }{{"repo", w.Repo}, {"pool", w.Pool}} {
		if len(word.value) > maxWord || holdfast.Clip(word.value, maxWord) != word.value {
			return &holdfast.InvalidError{Field: word.field, Problem: "it is too long or holds control characters", Allowed: fmt.Sprintf("at most %d bytes of text", maxWord)}
		}
	}
	if b := w.BudgetUSD; b != nil && (*b <= 0 || *b > holdfast.MaxUSD) {
		return &holdfast.InvalidError{Field: "budget_usd", Problem: fmt.Sprintf("%s is not a budget", b.Dollars()), Allowed: "more than 0 and at most 1000000000 dollars, or absent"}
	}
	if len(w.Inputs) > maxInputs {
		return &holdfast.InvalidError{Field: "inputs", Problem: "there are too many", Allowed: fmt.Sprintf("at most %d", maxInputs)}
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(w.Inputs)) {
		value := w.Inputs[name]
		if total += len(name) + len(value); total > maxInputBytes || !utf8.ValidString(value) {
			return &holdfast.InvalidError{Field: "inputs." + holdfast.Clip(name, 60), Problem: "it is too long or not text", Allowed: fmt.Sprintf("at most %d bytes of UTF-8 over all inputs", maxInputBytes)}
		}
	}
	return nil
}

// Request is the launch of the work for its team, from a surface.
func (w Work) Request(team holdfast.TeamID, from launch.Surface) launch.Request {
	return launch.Request{
		Team: string(team), Bot: w.Bot, Repo: w.Repo, Inputs: maps.Clone(w.Inputs), BudgetUSD: w.BudgetUSD, Pool: w.Pool, Surface: from,
	}
}
