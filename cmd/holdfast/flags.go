package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/cmd/internal/yamlfile"
	"github.com/holdfast-io/holdfast/pkg/api"
)

// usdFlag is an amount of dollars on the command line, exact. nil: not typed.
type usdFlag struct{ value *holdfast.MicroUSD }

func (f *usdFlag) String() string {
	if f.value == nil {
		return ""
	}
	return f.value.String()
}

// typedUSD reads dollars as people type them: 0.50 or $0.50.
func typedUSD(text string) (holdfast.MicroUSD, error) {
	return holdfast.ParseUSD(strings.TrimPrefix(text, "$"))
}

func (f *usdFlag) Set(text string) error {
	amount, err := typedUSD(text)
	if err != nil {
		return err
	}
	f.value = &amount
	return nil
}

func (f *usdFlag) Type() string { return "USD" }

// sinceFlag is an instant: a span before now ("90m", "2d") or a time or date.
type sinceFlag struct {
	at  time.Time
	now func() time.Time
}

func (f *sinceFlag) String() string {
	if f.at.IsZero() {
		return ""
	}
	return f.at.Format(time.RFC3339)
}

func (f *sinceFlag) Set(text string) error {
	if at, err := parseInstant(text); err == nil {
		f.at = at
		return nil
	}
	span, err := parseSpan(text)
	if err != nil {
		return fmt.Errorf("%q is neither a span nor a time (allowed: 30m, 2h, 7d, 2026-11-30 or 2026-11-30T08:00:00Z)", holdfast.Clip(text, 40))
	}
	f.at = f.now().Add(-span)
	return nil
}

func (f *sinceFlag) Type() string { return "span|time" }

func parseInstant(text string) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.UTC(), nil
	}
	return time.Parse(time.DateOnly, text)
}

// maxSpan bounds spans that are typed: ten years.
const maxSpan = 10 * 366 * 24 * time.Hour

// parseSpan reads a positive duration; whole days may be written as "7d".
func parseSpan(text string) (time.Duration, error) {
	var span time.Duration
	days, isDays := strings.CutSuffix(text, "d")
	if isDays {
		var n int
		if _, err := fmt.Sscanf(days, "%d", &n); err != nil || fmt.Sprint(n) != days || n > 3660 {
			return 0, fmt.Errorf("%q is not a number of days", holdfast.Clip(text, 40))
		}
		span = time.Duration(n) * 24 * time.Hour
	} else {
		var err error
		if span, err = time.ParseDuration(text); err != nil {
			return 0, fmt.Errorf("%q is not a duration", holdfast.Clip(text, 40))
		}
	}
	if span <= 0 || span > maxSpan {
		return 0, fmt.Errorf("%q is out of bounds", holdfast.Clip(text, 40))
	}
	return span, nil
}

// waitFlag is how long to wait; zero: not at all.
type waitFlag struct{ span time.Duration }

func (f *waitFlag) String() string {
	if f.span == 0 {
		return ""
	}
	return f.span.String()
}

func (f *waitFlag) Set(text string) error {
	span, err := parseSpan(text)
	if err != nil {
		return fmt.Errorf("%w (allowed: a positive duration such as 30s, 30m or 2h)", err)
	}
	f.span = span
	return nil
}

func (f *waitFlag) Type() string { return "duration" }

// oneOf is a word out of a few.
type oneOf struct {
	value   string
	allowed []string
	kind    string // what help calls the word; empty: the words themselves
}

func (f *oneOf) String() string { return f.value }

func (f *oneOf) Set(text string) error {
	for _, word := range f.allowed {
		if text == word {
			f.value = text
			return nil
		}
	}
	return fmt.Errorf("%q is not known (allowed: %s)", holdfast.Clip(text, 40), strings.Join(f.allowed, ", "))
}

func (f *oneOf) Type() string {
	if f.kind != "" {
		return f.kind
	}
	return strings.Join(f.allowed, "|")
}

// limitFlag is a limit as an operator types it: a number, "unlimited" or, where there
// is a default, "inherit". parse reads the number.
type limitFlag struct {
	text     string // empty: not typed
	setting  holdfast.LimitSetting
	parse    func(string) (int64, error)
	kind     string
	inherits bool
}

func countLimit(inherits bool) *limitFlag {
	return &limitFlag{kind: "N", inherits: inherits, parse: func(text string) (int64, error) {
		var n int64
		if _, err := fmt.Sscanf(text, "%d", &n); err != nil || fmt.Sprint(n) != text || n < 0 || n > int64(holdfast.MaxSlots) {
			return 0, fmt.Errorf("%q is not a limit (allowed: a whole number from 0 to %d)", holdfast.Clip(text, 40), holdfast.MaxSlots)
		}
		return n, nil
	}}
}

func usdLimit(inherits bool) *limitFlag {
	return &limitFlag{kind: "USD", inherits: inherits, parse: func(text string) (int64, error) {
		amount, err := typedUSD(text)
		return int64(amount), err
	}}
}

func (f *limitFlag) String() string { return f.text }

func (f *limitFlag) Set(text string) error {
	switch {
	case text == "unlimited":
		f.setting = holdfast.Unlimited
	case text == "inherit" && f.inherits:
		f.setting = holdfast.LimitSetting{}
	default:
		n, err := f.parse(text)
		if err != nil {
			return fmt.Errorf("%s, %s)", strings.TrimSuffix(err.Error(), ")"), strings.Join(f.words(), ", ")) // one list of what is allowed
		}
		f.setting = holdfast.LimitTo(n)
	}
	f.text = text
	return nil
}

func (f *limitFlag) Type() string { return f.kind + "|" + strings.Join(f.words(), "|") }

// words are what may be typed instead of a number.
func (f *limitFlag) words() []string {
	if f.inherits {
		return []string{"unlimited", "inherit"}
	}
	return []string{"unlimited"}
}

// typed says whether the flag was given; it may be given as "inherit".
func (f *limitFlag) typed() bool { return f.text != "" }

// launchFlags are the flags of everything that asks the gate: launch, preview, exec.
type launchFlags struct {
	team, bot, repo, pool string
	budget, minBudget     usdFlag
	inputs                []string
}

func (f *launchFlags) add(flags *pflag.FlagSet) {
	ownTeamFlag(flags, &f.team, "team that the run belongs to (required)")
	flags.StringVar(&f.repo, "repo", "", "repository that the run works on, as owner/name")
	flags.Var(&f.budget, "budget", "most that the run may spend, in dollars; never more than the bot's (default: the bot's, else the platform's)")
	flags.Var(&f.minBudget, "min-budget", "least that is worth running with, in dollars")
}

func (f *launchFlags) addInputs(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&f.inputs, "input", "i", nil, "input of the bot, as NAME=VALUE; repeat for several")
	flags.StringVar(&f.pool, "pool", "", "runner pool (default: the deployment's)")
}

// request is the launch that the flags describe.
func (f *launchFlags) request(bot string) (api.LaunchRequest, error) {
	if f.team == "" {
		return api.LaunchRequest{}, usagef("--team is missing (allowed: the id of a team; see holdfast teams)")
	}
	inputs := map[string]string{}
	for _, pair := range f.inputs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return api.LaunchRequest{}, usagef("--input %q is not an input (allowed: NAME=VALUE)", holdfast.Clip(pair, 60))
		}
		if _, twice := inputs[name]; twice {
			return api.LaunchRequest{}, usagef("--input names %q twice (allowed: each input once)", holdfast.Clip(name, 60))
		}
		inputs[name] = value
	}
	request := api.LaunchRequest{
		Team: f.team, Bot: bot, Repo: f.repo, Pool: f.pool,
		BudgetUSD: f.budget.value, MinBudgetUSD: f.minBudget.value,
	}
	if len(inputs) > 0 {
		request.Inputs = inputs
	}
	return request, nil
}

// readFile reads a file that a flag names; "-" is stdin.
func (c *cli) readFile(name string) ([]byte, error) {
	if name == "-" {
		text, err := io.ReadAll(io.LimitReader(c.stdin, yamlfile.MaxBytes+1))
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return text, nil
	}
	info, err := os.Stat(name)
	if err == nil && info.IsDir() {
		return nil, usagef("%s is a folder (allowed: a file, or - for standard input)", name)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, usagef("%s (allowed: a file that you may read, or - for standard input)", err)
	}
	defer file.Close()
	// A pipe or a device tells no size: no more is read than can be used.
	text, err := io.ReadAll(io.LimitReader(file, yamlfile.MaxBytes+1))
	if err != nil {
		return nil, usagef("%s (allowed: a file that you may read, or - for standard input)", err)
	}
	if len(text) > yamlfile.MaxBytes {
		return nil, usagef("%s is too large (allowed: at most %d bytes)", name, yamlfile.MaxBytes)
	}
	return text, nil
}

// teamFromEnv is the annotation of a --team that HOLDFAST_TEAM stands in for.
const teamFromEnv = "holdfast-team"

// ownTeamFlag is the flag --team of a command that is about one team: where it is not
// typed it is HOLDFAST_TEAM, and typed empty it is none.
func ownTeamFlag(flags *pflag.FlagSet, team *string, usage string) {
	flags.StringVarP(team, "team", "t", "", usage+" (default HOLDFAST_TEAM)")
	_ = flags.SetAnnotation("team", teamFromEnv, []string{"yes"}) // the flag exists
}

// defaultTeam fills in a --team that was not typed.
func (c *cli) defaultTeam(cmd *cobra.Command) {
	flag := cmd.Flags().Lookup("team")
	if flag == nil || flag.Changed || flag.Annotations[teamFromEnv] == nil {
		return
	}
	_ = flag.Value.Set(c.getenv("HOLDFAST_TEAM")) // any text is a name until the server reads it
}

// required refuses a flag that was not given.
func required(cmd *cobra.Command, name, allowed string) error {
	if flag := cmd.Flags().Lookup(name); flag == nil || flag.Value.String() == "" || flag.Value.String() == "[]" {
		return usagef("--%s is missing (allowed: %s)", name, allowed)
	}
	return nil
}
