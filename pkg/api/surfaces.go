package api

import (
	"time"

	"github.com/holdfast-io/holdfast"
)

// LaunchRefusal is why something that launches by itself did not, the last time.
type LaunchRefusal struct {
	At         time.Time `json:"at"`
	Reason     string    `json:"reason" doc:"a reason of the gate, or store_unavailable, or invalid_request"`
	Cause      string    `json:"cause,omitempty"`
	Detail     string    `json:"detail,omitempty"`
	DecisionID string    `json:"decision_id,omitempty"`
	Transient  bool      `json:"transient" doc:"it is tried again by itself"`
}

// Schedule launches a bot by the clock.
type Schedule struct {
	ID        string             `json:"id" example:"web.nightly"`
	Team      string             `json:"team"`
	Name      string             `json:"name"`
	Cron      string             `json:"cron" example:"30 2 * * MON-FRI"`
	TimeZone  string             `json:"time_zone" example:"Europe/Berlin"`
	Bot       string             `json:"bot"`
	Repo      string             `json:"repo,omitempty"`
	Inputs    map[string]string  `json:"inputs,omitempty"`
	BudgetUSD *holdfast.MicroUSD `json:"budget_usd,omitempty"`
	Pool      string             `json:"pool,omitempty"`
	Enabled   bool               `json:"enabled"`
	CatchUp   string             `json:"catch_up" enum:"none,one"`
	CreatedAt time.Time          `json:"created_at"`
	UpdatedAt time.Time          `json:"updated_at"`
	CreatedBy string             `json:"created_by,omitempty"`

	NextAt      time.Time      `json:"next_at,omitzero" doc:"the next tick; absent while paused"`
	Trying      bool           `json:"trying,omitempty" doc:"the newest tick was refused and is tried again"`
	LastRun     string         `json:"last_run,omitempty"`
	LastRunAt   time.Time      `json:"last_run_at,omitzero"`
	LastError   *LaunchRefusal `json:"last_error,omitempty" doc:"until the next launch that succeeds"`
	Missed      int64          `json:"missed,omitempty" doc:"ticks that came while no server ran, since missed_since"`
	MissedSince time.Time      `json:"missed_since,omitzero"`
	Warnings    []string       `json:"warnings,omitempty" doc:"what would refuse its launches for good as things stand, such as a bot that is not there"`
}

// ScheduleCreate creates a schedule.
type ScheduleCreate struct {
	Team      string             `json:"team"`
	Name      string             `json:"name" doc:"1 to 63 lower case letters, digits and dashes; unique in the team"`
	Cron      string             `json:"cron" doc:"minute hour day-of-month month day-of-week, or @hourly, @daily, @weekly, @monthly, @yearly"`
	TimeZone  string             `json:"time_zone,omitempty" doc:"a name of the IANA database; absent: UTC"`
	Bot       string             `json:"bot"`
	Repo      string             `json:"repo,omitempty"`
	Inputs    map[string]string  `json:"inputs,omitempty"`
	BudgetUSD *holdfast.MicroUSD `json:"budget_usd,omitempty"`
	Pool      string             `json:"pool,omitempty"`
	Enabled   *bool              `json:"enabled,omitempty" doc:"absent: true"`
	CatchUp   string             `json:"catch_up,omitempty" enum:"none,one" doc:"what becomes of ticks that came while no server ran: none is launched (absent), or the newest one"`
}

// SchedulePatch changes what it names.
type SchedulePatch struct {
	Cron      *string            `json:"cron,omitempty"`
	TimeZone  *string            `json:"time_zone,omitempty"`
	Bot       *string            `json:"bot,omitempty"`
	Repo      *string            `json:"repo,omitempty"`
	Inputs    map[string]string  `json:"inputs,omitempty" doc:"replaces all inputs"`
	BudgetUSD *holdfast.MicroUSD `json:"budget_usd,omitempty"`
	Pool      *string            `json:"pool,omitempty"`
	Enabled   *bool              `json:"enabled,omitempty"`
	CatchUp   *string            `json:"catch_up,omitempty"`
}

// CardNote is one thing that happened to a card.
type CardNote struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	What   string    `json:"what" enum:"created,moved,edited,launched,launch_refused,launch_given_up,run_finished,run_failed_again,run_failed"`
	Reason string    `json:"reason,omitempty"`
	Detail string    `json:"detail,omitempty"`
	Run    string    `json:"run,omitempty"`
	Count  int       `json:"count,omitempty" doc:"how often in a row, when more than once"`
}

// Card is one card of the board.
type Card struct {
	ID          string             `json:"id"`
	Team        string             `json:"team"`
	Title       string             `json:"title"`
	Column      string             `json:"column" enum:"todo,doing,done,blocked"`
	Bot         string             `json:"bot"`
	Repo        string             `json:"repo,omitempty"`
	Inputs      map[string]string  `json:"inputs,omitempty"`
	BudgetUSD   *holdfast.MicroUSD `json:"budget_usd,omitempty"`
	Pool        string             `json:"pool,omitempty"`
	Priority    int                `json:"priority"`
	MaxAttempts int                `json:"max_attempts"`
	Attempts    int                `json:"attempts" doc:"runs so far"`
	Run         string             `json:"run,omitempty" doc:"the newest run"`
	Refusals    int                `json:"refusals,omitempty" doc:"by the gate, since the last run; they consume no attempt"`
	Refused     *LaunchRefusal     `json:"refused,omitempty"`
	NotBefore   time.Time          `json:"not_before,omitzero" doc:"when it is tried again"`
	Log         []CardNote         `json:"log"`
	Warnings    []string           `json:"warnings,omitempty" doc:"of a card in todo: what would refuse its launch for good as things stand"`
	CreatedAt   time.Time          `json:"created_at"`
	UpdatedAt   time.Time          `json:"updated_at"`
	CreatedBy   string             `json:"created_by,omitempty"`
}

// CardCreate puts a card into todo.
type CardCreate struct {
	Team        string             `json:"team"`
	Title       string             `json:"title" minLength:"1" maxLength:"300"`
	Bot         string             `json:"bot"`
	Repo        string             `json:"repo,omitempty"`
	Inputs      map[string]string  `json:"inputs,omitempty"`
	BudgetUSD   *holdfast.MicroUSD `json:"budget_usd,omitempty"`
	Pool        string             `json:"pool,omitempty"`
	Priority    int                `json:"priority,omitempty" doc:"0 to 9, the highest first"`
	MaxAttempts int                `json:"max_attempts,omitempty" doc:"how many runs it may have; absent: 1"`
}

// CardPatch changes what it names. Moving a card to todo makes it ready at once.
type CardPatch struct {
	Column      *string            `json:"column,omitempty" doc:"todo, done or blocked; only its launch moves a card to doing"`
	Title       *string            `json:"title,omitempty"`
	Bot         *string            `json:"bot,omitempty"`
	Repo        *string            `json:"repo,omitempty"`
	Inputs      map[string]string  `json:"inputs,omitempty" doc:"replaces all inputs"`
	BudgetUSD   *holdfast.MicroUSD `json:"budget_usd,omitempty"`
	Pool        *string            `json:"pool,omitempty"`
	Priority    *int               `json:"priority,omitempty"`
	MaxAttempts *int               `json:"max_attempts,omitempty"`
}

// WebhookRule says which events launch which bot; the first that matches does. What
// is absent matches everything, but for actions, draft and forks.
type WebhookRule struct {
	Repo      string             `json:"repo,omitempty" doc:"a glob over owner/name, such as acme/*; acme/** is everything below"`
	Actions   []string           `json:"actions,omitempty" enum:"opened,reopened,synchronize,labeled,unlabeled,ready_for_review,converted_to_draft,edited,closed,merged" doc:"absent: opened, reopened, synchronize, ready_for_review"`
	Labels    []string           `json:"labels,omitempty" doc:"one of them must be on the pull request"`
	Base      string             `json:"base,omitempty" doc:"a glob over the branch that it is to be merged into"`
	Draft     string             `json:"draft,omitempty" enum:"include,exclude,only" doc:"absent: exclude"`
	Forks     string             `json:"forks,omitempty" enum:"include,exclude,only" doc:"whether pull requests of strangers start runs; absent: exclude"`
	Bot       string             `json:"bot"`
	Inputs    map[string]string  `json:"inputs,omitempty" doc:"{{number}}, {{repo}}, {{title}}, {{url}}, {{author}}, {{sender}}, {{action}}, {{labels}}, {{head_ref}}, {{head_sha}}, {{base_ref}} and {{clone_url}} stand for the event's"`
	BudgetUSD *holdfast.MicroUSD `json:"budget_usd,omitempty"`
}

// Webhook is one webhook of a team, without its secret.
type Webhook struct {
	ID        string        `json:"id"`
	Team      string        `json:"team"`
	Name      string        `json:"name"`
	Forge     string        `json:"forge" enum:"github,gitlab,forgejo"`
	Path      string        `json:"path" doc:"where the forge sends its deliveries, under this server's address"`
	Rules     []WebhookRule `json:"rules"`
	Quiet     bool          `json:"quiet" doc:"a refusal of the gate is answered 200"`
	Enabled   bool          `json:"enabled"`
	CreatedAt time.Time     `json:"created_at"`
	UpdatedAt time.Time     `json:"updated_at"`
	CreatedBy string        `json:"created_by,omitempty"`
	Warnings  []string      `json:"warnings,omitempty" doc:"what would refuse the launches of its rules for good as things stand"`
}

// WebhookCreate creates a webhook.
type WebhookCreate struct {
	Name   string        `json:"name" minLength:"1" maxLength:"100"`
	Forge  string        `json:"forge" enum:"github,gitlab,forgejo" doc:"forgejo also reads what Gitea sends"`
	Secret string        `json:"secret,omitempty" maxLength:"200" doc:"what the forge signs with, 16 bytes or more; absent: a new one, which the answer shows this once"`
	Rules  []WebhookRule `json:"rules"`
	Quiet  bool          `json:"quiet,omitempty" doc:"answer a refusal of the gate with 200, for a forge that switches webhooks off which fail too often"`
}

// WebhookPatch changes what it names.
type WebhookPatch struct {
	Name    *string       `json:"name,omitempty"`
	Secret  *string       `json:"secret,omitempty" doc:"a new secret, at once in force"`
	Rules   []WebhookRule `json:"rules,omitempty" doc:"replaces all rules"`
	Quiet   *bool         `json:"quiet,omitempty"`
	Enabled *bool         `json:"enabled,omitempty"`
}

// WebhookIssued is a new webhook with its secret.
type WebhookIssued struct {
	Webhook
	Secret string `json:"secret" doc:"to be given to the forge; it is kept sealed and cannot be shown again"`
}

// WebhookDelivery is what came of one delivery. It is kept for 7 days.
type WebhookDelivery struct {
	ID      string         `json:"id" doc:"the forge's own"`
	At      time.Time      `json:"at"`
	Count   int            `json:"count" doc:"how often it came"`
	Event   string         `json:"event,omitempty"`
	Repo    string         `json:"repo,omitempty"`
	Number  int64          `json:"number,omitempty"`
	Bot     string         `json:"bot,omitempty" doc:"of the rule that matched"`
	Outcome string         `json:"outcome" enum:"launched,ignored,refused,in_progress"`
	Run     string         `json:"run,omitempty"`
	Ignored string         `json:"ignored,omitempty" doc:"why it launched nothing"`
	Refused *LaunchRefusal `json:"refused,omitempty"`
}

// WebhookAnswer is what a forge is told of a delivery that was no error.
type WebhookAnswer struct {
	Run        string `json:"run,omitempty"`
	Ignored    string `json:"ignored,omitempty"`
	Refused    string `json:"refused,omitempty" doc:"the gate's reason, of a quiet webhook"`
	DecisionID string `json:"decision_id,omitempty"`
	Duplicate  bool   `json:"duplicate,omitempty" doc:"it was answered before"`
}

// DeadLetter is a message that no runner could take.
type DeadLetter struct {
	Seq        int64     `json:"seq"`
	At         time.Time `json:"at"`
	Reason     string    `json:"reason" doc:"unreadable or exhausted"`
	Run        string    `json:"run,omitempty"`
	Team       string    `json:"team,omitempty"`
	Bot        string    `json:"bot,omitempty"`
	Pool       string    `json:"pool,omitempty"`
	Deliveries int       `json:"deliveries"`
	Bytes      int       `json:"bytes"`
	RunStatus  string    `json:"run_status,omitempty" doc:"as it is now; absent when there is no such run"`
	// Message is the message itself; only of one that is shown alone.
	Message string `json:"message,omitempty" doc:"with inputs that look secret masked; cut at 64 KiB"`
}
