package api

import (
	"time"

	"github.com/holdfast-io/holdfast"
)

// SettingState is what every setting has beside its own fields. UpdatedAt is the
// compare token: a write sends the one it read, and leaves it out only when nothing
// was ever written. The rest is of answers; in a write it is ignored.
type SettingState struct {
	UpdatedAt time.Time `json:"updated_at,omitzero" doc:"the compare token"`
	Origin    string    `json:"origin,omitempty" doc:"stored or default; ignored in a write"`
	Warnings  []string  `json:"warnings,omitempty" doc:"ignored in a write"`
}

// Reservation is what a policy holds back for one bot.
type Reservation struct {
	Bot             string            `json:"bot"`
	Tier            string            `json:"tier,omitempty" enum:"platform,team" doc:"absent: platform"`
	Team            string            `json:"team,omitempty" doc:"of tier team only"`
	FiveHourPercent int               `json:"five_hour_percent,omitempty"`
	WeekPercent     int               `json:"week_percent,omitempty"`
	ConcurrentRuns  int64             `json:"concurrent_runs,omitempty"`
	MonthlyUSD      holdfast.MicroUSD `json:"monthly_usd,omitempty"`
	PoolEligible    bool              `json:"pool_eligible,omitempty"`
	Teams           []string          `json:"teams,omitempty" doc:"withheld only in these teams' subjects; absent: in every team's"`
	SuspendedUntil  time.Time         `json:"suspended_until,omitzero" doc:"lent out until then"`
	Note            string            `json:"note,omitempty"`
}

// ShareOf names the reservation that a repository's share is of.
type ShareOf struct {
	Bot  string `json:"bot"`
	Tier string `json:"tier,omitempty" enum:"platform,team"`
	Team string `json:"team,omitempty"`
}

// RepoQuota is what one repository may spend in a month.
type RepoQuota struct {
	Repo                string             `json:"repo"`
	MonthlyUSD          *holdfast.MicroUSD `json:"monthly_usd,omitempty"`
	ReserveSharePercent int                `json:"reserve_share_percent,omitempty"`
	ShareOf             *ShareOf           `json:"share_of,omitempty"`
}

// BudgetFloor is the policy of reservations and repository quotas.
type BudgetFloor struct {
	Reservations []Reservation `json:"reservations,omitempty"`
	RepoQuotas   []RepoQuota   `json:"repo_quotas,omitempty"`
	SettingState
	Reserved []string       `json:"reserved,omitempty" doc:"the identities that something is reserved for; ignored in a write"`
	Effects  []PolicyEffect `json:"effects,omitempty" doc:"what the policy does on each subject when no holder uses anything; ignored in a write"`
}

// PolicyEffect is what a policy does on one subject, whatever its period.
type PolicyEffect struct {
	Subject  string  `json:"subject" example:"team/acme/slots"`
	Cap      *Amount `json:"cap" doc:"null: unlimited, so nothing is withheld"`
	Written  Amount  `json:"written" doc:"the sum of the reservations as written"`
	Withheld Amount  `json:"withheld"`
	Ordinary *Amount `json:"ordinary" doc:"what work without a reservation keeps; null: unlimited"`
}

// PlatformLimits are limits over all teams together.
type PlatformLimits struct {
	MaxConcurrentRuns holdfast.CountLimit `json:"max_concurrent_runs,omitzero"`
	MonthlyUSD        holdfast.USDLimit   `json:"monthly_usd,omitzero"`
}

// Limits are the defaults that teams inherit, the ceilings of a run and the limits
// over all teams.
type Limits struct {
	DefaultMaxConcurrentRuns holdfast.CountLimit `json:"default_max_concurrent_runs,omitzero"`
	DefaultMonthlyUSD        holdfast.USDLimit   `json:"default_monthly_usd,omitzero"`
	DefaultMonthlyRuns       holdfast.CountLimit `json:"default_monthly_runs,omitzero"`
	DefaultLaunchesPerMinute holdfast.CountLimit `json:"default_launches_per_minute,omitzero" doc:"absent: 600"`
	DefaultRunUSD            *holdfast.MicroUSD  `json:"default_run_usd,omitempty" doc:"the budget of a run when nobody names one; absent: 5"`
	MaxRunUSD                *holdfast.MicroUSD  `json:"max_run_usd,omitempty" doc:"the most that one run may have; absent: no ceiling"`
	Platform                 PlatformLimits      `json:"platform,omitzero"`
	TeamCommandBots          bool                `json:"team_command_bots,omitempty" doc:"team admins may write command bots"`
	SettingState
}

// Maintenance is the fence that refuses every launch.
type Maintenance struct {
	On      bool      `json:"on"`
	Message string    `json:"message,omitempty" maxLength:"500"`
	Until   time.Time `json:"until,omitzero"`
	SettingState
}

// UsageCaps are the ceilings of the usage windows. 0 percent is not enforced.
type UsageCaps struct {
	FiveHourPercent int    `json:"five_hour_percent,omitempty"`
	FiveHourMode    string `json:"five_hour_mode,omitempty" enum:"off,soft,hard" doc:"soft starts nothing new, hard also stops what runs; absent: soft"`
	WeekPercent     int    `json:"week_percent,omitempty"`
	WeekMode        string `json:"week_mode,omitempty" enum:"off,soft,hard" doc:"absent: hard"`
	SettingState
}

// RunnerPool is one runner pool. MaxAckPending is its own ceiling of work in flight;
// 0 inherits the configured one.
type RunnerPool struct {
	Name          string `json:"name"`
	State         string `json:"state,omitempty" enum:"provisioning,active,draining,disabled" doc:"absent: active"`
	MaxAckPending int    `json:"max_ack_pending,omitempty"`
	Note          string `json:"note,omitempty"`
}

// RunnerPools lists the runner pools.
type RunnerPools struct {
	Pools []RunnerPool `json:"pools,omitempty"`
	SettingState
}
