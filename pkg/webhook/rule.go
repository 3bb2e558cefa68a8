package webhook

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/surface"
)

// Choice says whether a kind of pull request matches a rule.
type Choice string

// The choices. Which one the empty choice reads as is said where it is used.
const (
	Include Choice = "include"
	Exclude Choice = "exclude"
	Only    Choice = "only"
)

func (c Choice) allows(is bool) bool {
	switch c {
	case Include:
		return true
	case Only:
		return is
	case Exclude:
	}
	return !is // also the empty choice
}

// Rule says which events launch which bot. What is empty matches everything, but for
// Actions, Draft and Forks.
type Rule struct {
	// Repo is a glob over "owner/name": "*" stands for anything but a slash, and a
	// trailing "/**" for everything below.
	Repo string `json:"repo,omitempty"`
	// Actions are those that launch; empty: opened, reopened, synchronize and
	// ready_for_review.
	Actions []Action `json:"actions,omitempty"`
	Labels  []string `json:"labels,omitempty"` // one of them must be on the pull request
	Base    string   `json:"base,omitempty"`   // a glob over the branch that it is to be merged into
	Draft   Choice   `json:"draft,omitempty"`  // empty: exclude
	// Forks says whether strangers can start runs with their pull requests; empty:
	// exclude.
	Forks Choice `json:"forks,omitempty"`

	Bot string `json:"bot"`
	// Inputs are the bot's inputs; {{number}} and the other fields of the event stand
	// for their values.
	Inputs    map[string]string  `json:"inputs,omitempty"`
	BudgetUSD *holdfast.MicroUSD `json:"budget_usd,omitempty"`
}

// MaxRules is how many rules a webhook may have.
const MaxRules = 50

const (
	maxGlob   = 200
	maxLabels = 20
)

// check refuses a rule that cannot be meant; at is its field.
func (r Rule) check(at string) error {
	bad := func(field, problem, allowed string) error {
		return &holdfast.InvalidError{Field: at + "." + field, Problem: problem, Allowed: allowed}
	}
	for _, p := range []struct{ field, glob string }{{"repo", r.Repo}, {"base", r.Base}} {
		if _, err := path.Match(p.glob, ""); err != nil || len(p.glob) > maxGlob {
			return bad(p.field, fmt.Sprintf("%q is not a pattern", holdfast.Clip(p.glob, 60)), "a name with * and ?, such as acme/*, or acme/** for everything below")
		}
	}
	for _, action := range r.Actions {
		if !slices.Contains(Actions(), action) {
			return bad("actions", fmt.Sprintf("%q is not an action", holdfast.Clip(string(action), 40)), fmt.Sprint(Actions()))
		}
	}
	if len(r.Labels) > maxLabels {
		return bad("labels", "there are too many", fmt.Sprintf("at most %d", maxLabels))
	}
	for _, c := range []struct {
		field  string
		choice Choice
	}{{"draft", r.Draft}, {"forks", r.Forks}} {
		if c.choice != "" && c.choice != Include && c.choice != Exclude && c.choice != Only {
			return bad(c.field, fmt.Sprintf("%q is not a choice", holdfast.Clip(string(c.choice), 40)), "include, exclude, only")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Inputs)) {
		if _, unknown := fill(r.Inputs[name], Event{Actions: []Action{Opened}}); unknown != "" {
			return bad("inputs."+holdfast.Clip(name, 60), fmt.Sprintf("an event has no field %q", holdfast.Clip(unknown, 40)), "{{"+strings.Join(fieldNames(), "}}, {{")+"}}")
		}
	}
	return holdfast.InField(at, surface.Work{Bot: r.Bot, Inputs: r.Inputs, BudgetUSD: r.BudgetUSD}.Check())
}

// matches says whether the rule wants an event.
func (r Rule) matches(e Event) bool {
	actions := r.Actions
	if len(actions) == 0 {
		actions = []Action{Opened, Reopened, Synchronize, ReadyForReview}
	}
	return e.Is(actions) && globbed(r.Repo, e.Repo) && globbed(r.Base, e.BaseRef) && r.Draft.allows(e.Draft) && r.Forks.allows(e.Fork) &&
		(len(r.Labels) == 0 || slices.ContainsFunc(r.Labels, func(label string) bool {
			return slices.ContainsFunc(e.Labels, func(has string) bool { return strings.EqualFold(has, label) })
		}))
}

// globbed matches without regard to case, as forges name repositories.
func globbed(glob, name string) bool {
	glob, name = strings.ToLower(glob), strings.ToLower(name)
	if below, ok := strings.CutSuffix(glob, "/**"); ok {
		parts := strings.Split(name, "/")
		for n := 1; n < len(parts); n++ {
			if matched, err := path.Match(below, strings.Join(parts[:n], "/")); err == nil && matched {
				return true
			}
		}
		return false
	}
	matched, err := path.Match(glob, name)
	return glob == "" || (err == nil && matched)
}

// work is what the rule launches for an event.
func (r Rule) work(e Event) surface.Work {
	w := surface.Work{Bot: r.Bot, Repo: e.Repo, BudgetUSD: r.BudgetUSD}
	for name, text := range r.Inputs {
		if w.Inputs == nil {
			w.Inputs = map[string]string{}
		}
		w.Inputs[name], _ = fill(text, e)
	}
	return w
}

// fill puts the event's fields into a text. Every {{name}} is replaced once: what a
// field holds is not read again. unknown is the first name that no event has.
func fill(text string, e Event) (filled, unknown string) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "{{")
		b.WriteString(before)
		if !found {
			return b.String(), unknown
		}
		name, after, closed := strings.Cut(rest, "}}")
		if !closed {
			b.WriteString("{{" + rest)
			return b.String(), unknown
		}
		value, ok := e.field(strings.TrimSpace(name))
		if !ok && unknown == "" {
			unknown = name
		}
		b.WriteString(value)
		text = after
	}
}
