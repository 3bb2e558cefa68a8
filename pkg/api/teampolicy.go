package api

import (
	"time"

	"github.com/holdfast-io/holdfast"
)

// TeamPolicy is what of the policy and of the limits touches one team.
type TeamPolicy struct {
	Team         string               `json:"team"`
	Organisation string               `json:"organisation,omitempty"`
	Policy       PolicyStanding       `json:"policy"`
	Subjects     []SubjectPolicy      `json:"subjects" nullable:"false" doc:"what the team's launches take from, and what is reserved on each"`
	Reservations []VisibleReservation `json:"reservations" nullable:"false" doc:"the entries that touch the team, in the order in which they are served"`
	// The limits that are no subject.
	LaunchesPerMinute             *int64             `json:"launches_per_minute" doc:"of the team; null: unlimited"`
	OrganisationLaunchesPerMinute *int64             `json:"organisation_launches_per_minute" doc:"of its organisation; null: unlimited"`
	DefaultRunUSD                 holdfast.MicroUSD  `json:"default_run_usd" doc:"the budget of a run where nobody names one"`
	MaxRunUSD                     *holdfast.MicroUSD `json:"max_run_usd" doc:"the most that a run may ask for; null: no ceiling"`
}

// SubjectPolicy is what the policy does on one subject.
type SubjectPolicy struct {
	Subject  string         `json:"subject" example:"team/acme/slots"`
	Cap      *Amount        `json:"cap" doc:"null: unlimited"`
	Reserved []ReservedPart `json:"reserved" nullable:"false" doc:"in policy order, each cut to what is left of the cap"`
	Ordinary *Amount        `json:"ordinary" doc:"what work without a reservation keeps; null: unlimited"`
}

// ReservedPart is what is reserved for one holder; "others" stands for other teams'
// own bots together.
type ReservedPart struct {
	Holder string `json:"holder" example:"platform/review-pr"`
	Amount Amount `json:"amount"`
}

// VisibleReservation is an entry of the policy as a team sees it.
type VisibleReservation struct {
	Holder          string            `json:"holder" example:"platform/review-pr"`
	ConcurrentRuns  int64             `json:"concurrent_runs,omitempty"`
	MonthlyUSD      holdfast.MicroUSD `json:"monthly_usd,omitempty"`
	FiveHourPercent int               `json:"five_hour_percent,omitempty"`
	WeekPercent     int               `json:"week_percent,omitempty"`
	PoolEligible    bool              `json:"pool_eligible,omitempty"`
	SuspendedUntil  time.Time         `json:"suspended_until,omitzero" doc:"it is lent out until then"`
	Note            string            `json:"note,omitempty"`
}
