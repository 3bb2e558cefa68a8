package api

import (
	"time"

	"github.com/holdfast-io/holdfast"
)

// TeamLimits are a team's limits. Absent inherits the platform's default, null is
// unlimited, 0 lets nothing launch.
type TeamLimits struct {
	MaxConcurrentRuns holdfast.CountLimit `json:"max_concurrent_runs,omitzero"`
	MonthlyUSD        holdfast.USDLimit   `json:"monthly_usd,omitzero"`
	MonthlyRuns       holdfast.CountLimit `json:"monthly_runs,omitzero"`
	LaunchesPerMinute holdfast.CountLimit `json:"launches_per_minute,omitzero"`
}

// Team is one team.
type Team struct {
	ID              string     `json:"id"`
	Name            string     `json:"name,omitempty"`
	Organisation    string     `json:"organisation,omitempty"`
	Suspended       bool       `json:"suspended"`
	SuspendedReason string     `json:"suspended_reason,omitempty"`
	Limits          TeamLimits `json:"limits"`
	CreatedAt       time.Time  `json:"created_at"`
	UpdatedAt       time.Time  `json:"updated_at"`
}

// TeamCreate creates a team.
type TeamCreate struct {
	ID           string     `json:"id" doc:"1 to 63 lower case letters, digits and dashes"`
	Name         string     `json:"name,omitempty" maxLength:"200"`
	Organisation string     `json:"organisation,omitempty"`
	Limits       TeamLimits `json:"limits,omitzero"`
}

// TeamPatch changes what it names. Limits are replaced one by one: a limit that is
// absent stays as it is; InheritLimits names those that shall inherit again.
type TeamPatch struct {
	Name            *string     `json:"name,omitempty" maxLength:"200"`
	Organisation    *string     `json:"organisation,omitempty"`
	Suspended       *bool       `json:"suspended,omitempty"`
	SuspendedReason *string     `json:"suspended_reason,omitempty" maxLength:"500"`
	Limits          *TeamLimits `json:"limits,omitempty"`
	InheritLimits   []string    `json:"inherit_limits,omitempty" doc:"names of limits that shall inherit the platform's default again"`
}

// Token is one bearer token, without its secret.
type Token struct {
	ID         string    `json:"id"`
	Name       string    `json:"name"`
	Team       string    `json:"team,omitempty"`
	Role       string    `json:"role" enum:"viewer,member,admin"`
	CreatedAt  time.Time `json:"created_at"`
	ExpiresAt  time.Time `json:"expires_at,omitzero"`
	LastUsedAt time.Time `json:"last_used_at,omitzero"`
	RevokedAt  time.Time `json:"revoked_at,omitzero"`
}

// TokenCreate asks for a token.
type TokenCreate struct {
	Name      string    `json:"name" minLength:"1" maxLength:"200"`
	Role      string    `json:"role" enum:"viewer,member,admin"`
	ExpiresAt time.Time `json:"expires_at,omitzero" doc:"absent: it does not expire"`
}

// TokenIssued is a new token with its secret, which is shown this once.
type TokenIssued struct {
	Token
	Secret string `json:"token" doc:"the bearer token; it is not kept and cannot be shown again"`
}

// BotBody is a bot as it is written. What it runs is a command for the command lane
// and a prompt for the others.
type BotBody struct {
	Bot          string                       `json:"bot,omitempty" doc:"if given, the name in the path"`
	Lane         string                       `json:"lane" enum:"command,claude_code,claw"`
	Command      []string                     `json:"command,omitempty" doc:"argument vector; {{input}} stands for an input, never for shell text"`
	Prompt       string                       `json:"prompt,omitempty"`
	Model        string                       `json:"model,omitempty"`
	Needs        []string                     `json:"needs,omitempty" doc:"the providers that a run needs: anthropic, openai"`
	BudgetUSD    *holdfast.MicroUSD           `json:"budget_usd,omitempty"`
	MinBudgetUSD *holdfast.MicroUSD           `json:"min_budget_usd,omitempty"`
	MaxDuration  holdfast.Duration            `json:"max_duration,omitempty" doc:"such as 30m; absent: the runner's default"`
	Retries      int                          `json:"retries,omitempty" doc:"0 to 10: how often a run that was lost or interrupted is resumed by itself; absent: never"`
	Env          map[string]string            `json:"env,omitempty"`
	RepoURL      string                       `json:"repo_url,omitempty"`
	Ref          string                       `json:"ref,omitempty"`
	Inputs       map[string]holdfast.BotInput `json:"inputs,omitempty"`
	Description  string                       `json:"description,omitempty"`
}

// Bot is a bot as it is resolved, with where it comes from.
type Bot struct {
	BotBody
	Tier   string `json:"tier" enum:"platform,team"`
	Team   string `json:"team,omitempty"`
	Origin string `json:"origin,omitempty" doc:"team, platform or baked"`
}

// Event is one server-sent event. Which of the parts is set follows Type.
type Event struct {
	ID       string           `json:"id" doc:"pass the last one as Last-Event-ID to go on where the stream broke"`
	Type     string           `json:"type" enum:"run,decision,capacity,capacity_near,policy,dropped,closing"`
	At       time.Time        `json:"at"`
	Team     string           `json:"team,omitempty"`
	Run      *Run             `json:"run,omitempty"`
	Decision *Decision        `json:"decision,omitempty"`
	Capacity *SubjectCapacity `json:"capacity,omitempty"`
	Policy   *PolicyChange    `json:"policy,omitempty"`
	// Percent is the mark that a capacity_near event passed.
	Percent int    `json:"percent,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// PolicyChange says which setting changed.
type PolicyChange struct {
	Setting string `json:"setting"`
	Actor   string `json:"actor,omitempty"`
}

// AuditEntry is one act, or one refusal with its repeats within a minute.
type AuditEntry struct {
	ID     string    `json:"id,omitempty"`
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"`
	Target string    `json:"target"`
	Team   string    `json:"team,omitempty"`
	Detail string    `json:"detail,omitempty"`
	// Outcome says whether it was done.
	Outcome    string    `json:"outcome" enum:"done,refused"`
	Account    string    `json:"account,omitempty" doc:"the account that acted; absent of a team's own token and the operator's"`
	TokenID    string    `json:"token_id,omitempty" doc:"the token or the browser session"`
	DecisionID string    `json:"decision_id,omitempty" doc:"the gate's arithmetic, for a launch and its refusal"`
	RequestID  string    `json:"request_id,omitempty" doc:"X-Request-Id of the answer"`
	IP         string    `json:"ip,omitempty" doc:"who was connected: a proxy where one stands in front"`
	Count      int       `json:"count" doc:"how many refusals the row stands for; 1 of an act"`
	LastAt     time.Time `json:"last_at,omitzero" doc:"the last of them"`
}

// Health is the answer of /healthz and /readyz. Warnings make nobody unready: they
// are for an operator to look at.
type Health struct {
	Status string            `json:"status" enum:"ok,not_ready"`
	Checks map[string]string `json:"checks,omitempty" doc:"what is not ready, and why"`
	// Warnings name no team and no amount: the answer needs no token.
	Warnings []string `json:"warnings,omitempty" doc:"what an operator should look at"`
}
