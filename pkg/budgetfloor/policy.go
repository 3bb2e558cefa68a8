// Package budgetfloor is the policy of reservations: what is held back for a named
// workload from everybody else, and what one repository may spend. It is pure
// arithmetic over the policy as written, the time, and what it is told of the
// deployment; it keeps nothing, reads nothing and grants nothing (the ledger's judge
// does, with the numbers from here).
//
// Two laws hold everywhere: a reservation never creates a cap, and it never lets its
// holder past the deployment's cap.
package budgetfloor

import (
	"time"

	"github.com/holdfast-io/holdfast"
)

// Policy is everything that an operator wrote. The zero policy changes nothing.
type Policy struct {
	// Reservations are served in this order where they sum above a cap.
	Reservations []Reservation `json:"reservations,omitempty"`
	RepoQuotas   []RepoQuota   `json:"repo_quotas,omitempty"`
	// UpdatedAt is the compare token of the stored policy; zero when none is stored.
	UpdatedAt time.Time `json:"updated_at,omitzero"`
}

// Reservation holds something back for one workload. An axis that is zero is not
// reserved.
type Reservation struct {
	Bot holdfast.BotID `json:"bot"`
	// Tier and Team say whose bot it is. A stored reservation without a tier is of
	// the platform's bot.
	Tier            holdfast.Tier     `json:"tier,omitempty"`
	Team            holdfast.TeamID   `json:"team,omitempty"`
	FiveHourPercent int               `json:"five_hour_percent,omitempty"`
	WeekPercent     int               `json:"week_percent,omitempty"`
	ConcurrentRuns  holdfast.Slots    `json:"concurrent_runs,omitempty"`
	MonthlyUSD      holdfast.MicroUSD `json:"monthly_usd,omitempty"`
	// PoolEligible lets the holder draw from pledged pools. Off unless written.
	PoolEligible bool `json:"pool_eligible,omitempty"`
	// Teams keeps the reservation out of every other team's subjects; empty: it
	// counts in all of them. What spans teams is not a team's subject.
	Teams []holdfast.TeamID `json:"teams,omitempty"`
	// SuspendedUntil lends the reservation out until then; zero: not lent out.
	SuspendedUntil time.Time `json:"suspended_until,omitzero"`
	Note           string    `json:"note,omitempty"`
}

// Holder is the identity that the reservation is for.
func (r Reservation) Holder() holdfast.Identity { return qualified(r.Bot, r.Tier, r.Team) }

func qualified(bot holdfast.BotID, tier holdfast.Tier, team holdfast.TeamID) holdfast.Identity {
	if tier == holdfast.TierTeam {
		return holdfast.TeamBot(team, bot)
	}
	return holdfast.PlatformBot(bot)
}

// InForce says whether the reservation withholds anything at an instant.
func (r Reservation) InForce(now time.Time) bool { return !now.Before(r.SuspendedUntil) }

// amount is what is reserved on an axis, in the grain of its unit; zero where
// nothing is.
func (r Reservation) amount(axis holdfast.Axis) int64 {
	switch axis {
	case holdfast.AxisSlots:
		return int64(r.ConcurrentRuns)
	case holdfast.AxisUSD:
		return int64(r.MonthlyUSD)
	case holdfast.AxisFiveHour:
		return int64(percent(r.FiveHourPercent))
	case holdfast.AxisWeek:
		return int64(percent(r.WeekPercent))
	case holdfast.AxisRuns, holdfast.AxisInFlight:
	}
	return 0 // runs of a month and pool ceilings cannot be reserved
}

// reservable lists the axes that a reservation can hold something of.
func reservable() []holdfast.Axis {
	return []holdfast.Axis{holdfast.AxisFiveHour, holdfast.AxisWeek, holdfast.AxisSlots, holdfast.AxisUSD}
}

func percent(n int) holdfast.BasisPoints { return holdfast.BasisPoints(n) * holdfast.Whole / 100 }

// RepoQuota caps what one repository spends in a month, inside the shared budget:
// an amount, a share of a reservation's dollars, or the smaller of both.
type RepoQuota struct {
	Repo                string             `json:"repo"` // as [RepoName] writes it
	MonthlyUSD          *holdfast.MicroUSD `json:"monthly_usd,omitempty"`
	ReserveSharePercent int                `json:"reserve_share_percent,omitempty"`
	ShareOf             *ShareOf           `json:"share_of,omitempty"`
}

// ShareOf names the reservation that a quota is a share of.
type ShareOf struct {
	Bot  holdfast.BotID  `json:"bot"`
	Tier holdfast.Tier   `json:"tier,omitempty"`
	Team holdfast.TeamID `json:"team,omitempty"`
}

// Holder is the identity whose reservation is shared.
func (s ShareOf) Holder() holdfast.Identity { return qualified(s.Bot, s.Tier, s.Team) }

// Decode reads a policy from JSON, strictly, and returns it [Policy.Checked].
func Decode(data []byte) (Policy, error) {
	var p Policy
	if err := holdfast.DecodeJSON(data, &p); err != nil {
		return Policy{}, err
	}
	return p.Checked()
}

// Holders lists the identities that something is reserved for, in policy order.
func (p Policy) Holders() []holdfast.Identity {
	holders := make([]holdfast.Identity, 0, len(p.Reservations))
	for _, r := range p.Reservations {
		holders = append(holders, r.Holder())
	}
	return holders
}

// ReservationOf is the reservation of an identity, and whether there is one.
func (p Policy) ReservationOf(holder holdfast.Identity) (Reservation, bool) {
	for _, r := range p.Reservations {
		if r.Holder() == holder {
			return r, true
		}
	}
	return Reservation{}, false
}
