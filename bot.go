package holdfast

import "time"

// Lane is how a bot is executed.
type Lane string

// The lanes. A build executes some of them; a launch on another is refused with
// [DenyLane], which says so.
const (
	LaneCommand    Lane = "command"
	LaneClaudeCode Lane = "claude_code"
	LaneClaw       Lane = "claw"
)

// Provider is whose API a bot needs.
type Provider string

// The providers.
const (
	ProviderAnthropic Provider = "anthropic"
	ProviderOpenAI    Provider = "openai"
)

// Bot is what a launch runs, as an operator or a team wrote it. Only the lane and
// what it runs are required. It is copied into the run, so that an edit never
// changes a run that was admitted.
type Bot struct {
	Name        BotID               `json:"bot"`
	Lane        Lane                `json:"lane"`
	Command     []string            `json:"command,omitempty"` // command lane; {{input}} stands for a whole argument or a part of one, never for shell text
	Prompt      string              `json:"prompt,omitempty"`  // the other lanes
	Model       string              `json:"model,omitempty"`
	Needs       []Provider          `json:"needs,omitempty"`          // empty: the run needs no provider
	BudgetUSD   *MicroUSD           `json:"budget_usd,omitempty"`     // nil: none of its own
	MinBudget   *MicroUSD           `json:"min_budget_usd,omitempty"` // nil: the rule of the gate
	MaxDuration Duration            `json:"max_duration,omitempty"`   // zero: the runner's default
	Retries     int                 `json:"retries,omitempty"`        // how often a run that was lost or interrupted is resumed by itself; zero: never
	Env         map[string]string   `json:"env,omitempty"`
	RepoURL     string              `json:"repo_url,omitempty"`
	Ref         string              `json:"ref,omitempty"`
	Inputs      map[string]BotInput `json:"inputs,omitempty"`
	Description string              `json:"description,omitempty"`
}

// BotInput declares one input of a bot. A required one without a default must come
// with the launch.
type BotInput struct {
	Required bool   `json:"required,omitempty"`
	Default  string `json:"default,omitempty"`
}

// Duration is a time.Duration that is written as text: "30s", "2h".
type Duration time.Duration

// MarshalText writes the duration as [time.Duration.String] does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a positive duration; an empty text is zero.
func (d *Duration) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*d = 0
		return nil
	}
	parsed, err := time.ParseDuration(string(text))
	if err != nil || parsed < 0 {
		return &InvalidError{Problem: "\"" + Clip(string(text), 40) + "\" is not a duration", Allowed: "a positive duration such as 30s, 15m or 2h"}
	}
	*d = Duration(parsed)
	return nil
}
