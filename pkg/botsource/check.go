package botsource

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast"
)

// Bounds of what a bot may hold.
const (
	maxArgs        = 256
	maxArg         = 32 << 10
	maxCommand     = 64 << 10
	maxPrompt      = 128 << 10
	maxEnv         = 100
	maxEnvValue    = 32 << 10
	maxInputs      = 64
	maxText        = 2_000
	maxMaxDuration = 7 * 24 * time.Hour
	maxRetries     = 10
)

var (
	envKey    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	inputName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
	model     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}$`)
)

// Check refuses a bot that cannot be meant, with an *holdfast.InvalidError that
// names the field. It accepts every lane of the product: whether this build
// executes it is the launch's question.
func Check(bot holdfast.Bot) error {
	for _, check := range []func(holdfast.Bot) error{checkName, checkLane, checkNeeds, checkBudget, checkEnv, checkInputs, checkPlaceholders, checkTexts} {
		if err := check(bot); err != nil {
			return err
		}
	}
	return nil
}

func invalid(field, problem, allowed string) error {
	return &holdfast.InvalidError{Field: field, Problem: problem, Allowed: allowed}
}

func checkName(bot holdfast.Bot) error {
	if !holdfast.ValidName(string(bot.Name)) {
		return invalid("bot", fmt.Sprintf("%q is not a bot's name", holdfast.Clip(string(bot.Name), 80)), "1 to 63 lower case letters, digits and single dashes")
	}
	return nil
}

func checkLane(bot holdfast.Bot) error {
	switch bot.Lane {
	case holdfast.LaneCommand:
		return checkCommand(bot)
	case holdfast.LaneClaudeCode, holdfast.LaneClaw:
		switch {
		case len(bot.Command) > 0:
			return invalid("command", "only the lane command runs a command", "a prompt for the lane "+string(bot.Lane))
		case strings.TrimSpace(bot.Prompt) == "":
			return invalid("prompt", "it is missing", "what the agent shall do, as text")
		case len(bot.Prompt) > maxPrompt || !text(bot.Prompt):
			return invalid("prompt", "it is too long or not text", fmt.Sprintf("at most %d bytes of UTF-8", maxPrompt))
		}
		return nil
	}
	return invalid("lane", fmt.Sprintf("%q is not a lane", holdfast.Clip(string(bot.Lane), 40)), "command, claude_code, claw")
}

func checkCommand(bot holdfast.Bot) error {
	switch {
	case bot.Prompt != "":
		return invalid("prompt", "the lane command has none", "a command")
	case bot.Model != "":
		return invalid("model", "the lane command chooses no model", "a command; the program chooses its model")
	case len(bot.Command) == 0 || strings.TrimSpace(bot.Command[0]) == "":
		return invalid("command", "it is missing", "the program and its arguments, as a list")
	case len(bot.Command) > maxArgs:
		return invalid("command", "it has too many arguments", fmt.Sprintf("at most %d", maxArgs))
	case strings.Contains(bot.Command[0], "{{"):
		return invalid("command[0]", "the program cannot be an input", "placeholders in the arguments")
	}
	total := 0
	for i, arg := range bot.Command {
		total += len(arg)
		if len(arg) > maxArg || total > maxCommand || !text(arg) {
			return invalid(fmt.Sprintf("command[%d]", i), "it is too long or not text", fmt.Sprintf("at most %d bytes of UTF-8 without zero bytes, %d in all", maxArg, maxCommand))
		}
	}
	return nil
}

func checkNeeds(bot holdfast.Bot) error {
	seen := map[holdfast.Provider]bool{}
	for i, provider := range bot.Needs {
		field := fmt.Sprintf("needs[%d]", i)
		switch provider {
		case holdfast.ProviderAnthropic, holdfast.ProviderOpenAI:
		default:
			return invalid(field, fmt.Sprintf("%q is not a provider", holdfast.Clip(string(provider), 40)), "anthropic, openai")
		}
		if seen[provider] {
			return invalid(field, "the provider is listed twice", "each provider once")
		}
		seen[provider] = true
	}
	return nil
}

func checkBudget(bot holdfast.Bot) error {
	const allowed = "more than 0 and at most 1000000000 dollars, or absent"
	if b := bot.BudgetUSD; b != nil && (*b <= 0 || *b > holdfast.MaxUSD) {
		return invalid("budget_usd", fmt.Sprintf("a run cannot have a budget of %s", b.Dollars()), allowed)
	}
	if m := bot.MinBudget; m != nil && (*m <= 0 || *m > holdfast.MaxUSD) {
		return invalid("min_budget_usd", fmt.Sprintf("%s is no minimum", m.Dollars()), allowed)
	}
	if b, m := bot.BudgetUSD, bot.MinBudget; b != nil && m != nil && *m > *b {
		return invalid("min_budget_usd", fmt.Sprintf("the minimum %s is above the budget %s", m.Dollars(), b.Dollars()), "at most budget_usd")
	}
	if bot.Retries < 0 || bot.Retries > maxRetries {
		return invalid("retries", fmt.Sprintf("%d is not a number of retries", bot.Retries), fmt.Sprintf("0 to %d", maxRetries))
	}
	if d := time.Duration(bot.MaxDuration); d < 0 || d > maxMaxDuration || (d > 0 && d < time.Second) {
		return invalid("max_duration", fmt.Sprintf("a run cannot last %s", d), "1s to 168h, or absent for the runner's default")
	}
	return nil
}

func checkEnv(bot holdfast.Bot) error {
	if len(bot.Env) > maxEnv {
		return invalid("env", "it has too many variables", fmt.Sprintf("at most %d", maxEnv))
	}
	for _, key := range slices.Sorted(maps.Keys(bot.Env)) {
		field, value := "env."+holdfast.Clip(key, 60), bot.Env[key]
		switch {
		case !envKey.MatchString(key):
			return invalid(field, "it is not a variable's name", "letters, digits and underscores, not beginning with a digit, at most 128")
		case strings.HasPrefix(key, "HOLDFAST_"):
			return invalid(field, "variables that begin with HOLDFAST_ are the runner's", "another name")
		case len(value) > maxEnvValue || !text(value):
			return invalid(field, "the value is too long or not text", fmt.Sprintf("at most %d bytes of UTF-8 without zero bytes", maxEnvValue))
		}
	}
	return nil
}

func checkInputs(bot holdfast.Bot) error {
	if len(bot.Inputs) > maxInputs {
		return invalid("inputs", "it declares too many", fmt.Sprintf("at most %d", maxInputs))
	}
	for _, name := range slices.Sorted(maps.Keys(bot.Inputs)) {
		field, input := "inputs."+holdfast.Clip(name, 60), bot.Inputs[name]
		switch {
		case !inputName.MatchString(name):
			return invalid(field, "it is not an input's name", "a lower case letter, then letters, digits and underscores, at most 63")
		case len(input.Default) > maxArg || !text(input.Default):
			return invalid(field+".default", "it is too long or not text", fmt.Sprintf("at most %d bytes of UTF-8 without zero bytes", maxArg))
		}
	}
	return nil
}

// checkPlaceholders demands that everything that is substituted is declared.
func checkPlaceholders(bot holdfast.Bot) error {
	for i, arg := range bot.Command {
		if err := placeholders(fmt.Sprintf("command[%d]", i), arg, bot.Inputs); err != nil {
			return err
		}
	}
	return placeholders("prompt", bot.Prompt, bot.Inputs)
}

func placeholders(field, s string, declared map[string]holdfast.BotInput) error {
	for {
		_, after, found := strings.Cut(s, "{{")
		if !found {
			return nil
		}
		name, rest, closed := strings.Cut(after, "}}")
		if !closed {
			return invalid(field, "a placeholder is not closed", "{{input}}")
		}
		if _, ok := declared[name]; !ok {
			return invalid(field, fmt.Sprintf("{{%s}} is not declared", holdfast.Clip(name, 60)), "the names under inputs, without blanks: "+strings.Join(slices.Sorted(maps.Keys(declared)), ", "))
		}
		s = rest
	}
}

func checkTexts(bot holdfast.Bot) error {
	switch {
	case bot.Model != "" && !model.MatchString(bot.Model):
		return invalid("model", fmt.Sprintf("%q is not a model's name", holdfast.Clip(bot.Model, 60)), "letters, digits and . _ : / @ -, at most 128")
	case bot.Ref != "" && (len(bot.Ref) > 255 || !text(bot.Ref) || strings.HasPrefix(bot.Ref, "-") || strings.ContainsAny(bot.Ref, " \t\r\n~^:?*[\\")):
		return invalid("ref", "it is not a git reference", "a branch, tag or commit")
	case len(bot.Description) > maxText || !text(bot.Description):
		return invalid("description", "it is too long or not text", fmt.Sprintf("at most %d bytes", maxText))
	}
	return checkRepo(bot.RepoURL)
}

func checkRepo(repo string) error {
	if repo == "" {
		return nil
	}
	const allowed = "an https:// or ssh:// URL without user or password"
	u, err := url.Parse(repo)
	switch {
	case err != nil || len(repo) > maxText || !text(repo) || u.Host == "":
		return invalid("repo_url", "it is not a URL", allowed)
	case u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "ssh":
		return invalid("repo_url", "it has another scheme", allowed)
	case u.User != nil && (u.Scheme != "ssh" || hasPassword(u)):
		return invalid("repo_url", "it holds a user or password", allowed)
	}
	return nil
}

func hasPassword(u *url.URL) bool {
	_, has := u.User.Password()
	return has
}

// text says whether s can be an argument or variable of a process.
func text(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
