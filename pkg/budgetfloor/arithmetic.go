package budgetfloor

import (
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
)

// Share is what is reserved on a subject for one holder.
type Share struct {
	Holder holdfast.Identity
	Amount holdfast.Amount
}

// Reserved lists what counts as reserved on a subject at an instant, in policy
// order, the asker's own included:
//
//   - on a team's subject the reservations of the platform's bots and of that team's
//     own;
//   - on an organisation's those of the platform's bots and of its member teams,
//     which the caller names;
//   - on an account's window, and on what spans all teams, all of them.
//
// A reservation with `teams` counts in those teams' subjects only (in an
// organisation's when one of them is a member); one that is suspended counts
// nowhere. Months of runs, donors and pool ceilings cannot be reserved.
func (p Policy) Reserved(s holdfast.Subject, now time.Time, members ...holdfast.TeamID) []Share {
	var shares []Share
	for _, r := range p.Reservations {
		n := r.amount(s.Axis)
		if n <= 0 || !r.InForce(now) || !r.countsOn(s, members) {
			continue
		}
		shares = append(shares, Share{Holder: r.Holder(), Amount: holdfast.AmountOf(s.Axis.Unit(), n)})
	}
	return shares
}

func (r Reservation) countsOn(s holdfast.Subject, members []holdfast.TeamID) bool {
	switch s.Kind {
	case holdfast.KindTeam:
		return r.countsIn(holdfast.TeamID(s.ID))
	case holdfast.KindOrg:
		if len(r.Teams) == 0 && r.Tier != holdfast.TierTeam {
			return true
		}
		return slices.ContainsFunc(members, r.countsIn)
	case holdfast.KindAccount, holdfast.KindPlatform:
		return true
	case holdfast.KindDonor, holdfast.KindRunnerPool:
	}
	return false
}

// countsIn says whether the reservation is withheld in a team's subjects.
func (r Reservation) countsIn(team holdfast.TeamID) bool {
	if r.Tier == holdfast.TierTeam {
		return r.Team == team
	}
	return len(r.Teams) == 0 || slices.Contains(r.Teams, team)
}

// OtherReserved is the sum of what is reserved on a subject for anybody but the
// asker. It is the conservative rule, which counts reservations whole, whether
// their holders use them or not; it stands in where the ledger cannot be reached.
// Nobody (the zero identity) faces the full sum.
func (p Policy) OtherReserved(s holdfast.Subject, asker holdfast.Identity, now time.Time, members ...holdfast.TeamID) holdfast.Amount {
	sum := holdfast.AmountOf(s.Axis.Unit(), 0)
	for _, share := range p.Reserved(s, now, members...) {
		if share.Holder != asker {
			sum = sum.Plus(share.Amount)
		}
	}
	return sum
}

// OtherReservedSlots is [Policy.OtherReserved] on a team's slots.
func (p Policy) OtherReservedSlots(team holdfast.TeamID, asker holdfast.Identity, now time.Time) holdfast.Slots {
	return holdfast.Slots(p.OtherReserved(holdfast.TeamSubject(team, holdfast.AxisSlots, ""), asker, now).Int())
}

// OtherReservedUSD is [Policy.OtherReserved] on a team's month of dollars.
func (p Policy) OtherReservedUSD(team holdfast.TeamID, asker holdfast.Identity, now time.Time) holdfast.MicroUSD {
	return holdfast.MicroUSD(p.OtherReserved(holdfast.TeamSubject(team, holdfast.AxisUSD, ""), asker, now).Int())
}

// WindowCeiling is up to which utilisation of an account's window an asker may
// start, under the deployment's cap: the cap less what is reserved for others. A
// window that is not enforced (a cap of zero or less) stays so. held says that
// others have reserved the whole cap: the account is refused to this asker, which
// is not a ceiling of zero.
func (p Policy) WindowCeiling(asker holdfast.Identity, window holdfast.Axis, deployment holdfast.BasisPoints, now time.Time) (ceiling holdfast.BasisPoints, held bool) {
	if deployment <= 0 {
		return deployment, false
	}
	others := p.OtherReserved(holdfast.Subject{Kind: holdfast.KindAccount, Axis: window}, asker, now)
	if ceiling = deployment - holdfast.BasisPoints(others.Int()); ceiling <= 0 {
		return 0, true
	}
	return ceiling, false
}

// RepoCap is what a repository may spend in a month; no limit for one without a
// quota, and for no repository. A share is of the reservation as it is written now,
// suspended or not, rounded down; a share of a reservation that is gone allows
// nothing.
func (p Policy) RepoCap(repo string) holdfast.Limit {
	name := RepoName(repo)
	if name == "" {
		return holdfast.NoLimit
	}
	at := slices.IndexFunc(p.RepoQuotas, func(q RepoQuota) bool { return q.Repo == name })
	if at < 0 {
		return holdfast.NoLimit
	}
	quota, most := p.RepoQuotas[at], holdfast.MaxUSD
	if quota.MonthlyUSD != nil {
		most = *quota.MonthlyUSD
	}
	if quota.ShareOf != nil {
		reservation, _ := p.ReservationOf(quota.ShareOf.Holder())
		most = min(most, percent(quota.ReserveSharePercent).OfUSD(reservation.MonthlyUSD))
	}
	return holdfast.AtMost(holdfast.USDAmount(most))
}
