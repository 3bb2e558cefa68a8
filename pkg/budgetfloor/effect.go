package budgetfloor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
)

// Deployment is what a policy is weighed against: the caps in force, as the caller
// has resolved them.
type Deployment struct {
	Teams         []Team
	Organisations []Organisation
	// Limits over all teams; the zero Limit allows nothing, so say [holdfast.NoLimit].
	PlatformSlots, PlatformUSD holdfast.Limit
	// FiveHour and Week are the ceilings of the accounts' windows; zero is not
	// enforced.
	FiveHour, Week holdfast.BasisPoints
	// Pools says whether any pool can lend.
	Pools bool
	// Unknown are holders of whose name there is no bot.
	Unknown []holdfast.Identity
}

// Team is one team's limits in force, the platform's defaults included.
type Team struct {
	ID         holdfast.TeamID
	Slots, USD holdfast.Limit
}

// Organisation is one organisation's limits, and the teams that they are over.
type Organisation struct {
	ID         holdfast.OrgID
	Slots, USD holdfast.Limit
	Members    []holdfast.TeamID
}

// limit is the cap of an axis that an organisation has.
func (o Organisation) limit(axis holdfast.Axis) holdfast.Limit {
	switch axis {
	case holdfast.AxisSlots:
		return o.Slots
	case holdfast.AxisUSD:
		return o.USD
	case holdfast.AxisRuns, holdfast.AxisFiveHour, holdfast.AxisWeek, holdfast.AxisInFlight:
	}
	return holdfast.NoLimit
}

// Effect is what the policy does on one subject: the cap, what is withheld when no
// holder uses anything, and what ordinary work keeps. Shares are as served: in
// policy order, each cut to what the ones before it leave of the cap.
type Effect struct {
	// Subject has no period: it is the same in each. The account's is "any".
	Subject  holdfast.Subject
	Cap      holdfast.Limit
	Written  holdfast.Amount // the sum of the reservations as written
	Withheld holdfast.Amount // at most the cap; zero where there is no cap
	Ordinary holdfast.Limit  // what work without a reservation keeps
	Shares   []Share
}

// AnyAccount is the id under which effects name the windows of every account.
const AnyAccount = "any"

// Effects is what the policy does at an instant on every subject on which something
// is reserved: each team's slots and dollars, those of organisations that have a cap,
// those over all teams, and the windows.
func (p Policy) Effects(d Deployment, now time.Time) []Effect {
	var effects []Effect
	add := func(s holdfast.Subject, limit holdfast.Limit, members ...holdfast.TeamID) {
		if e, reserved := p.effect(s, limit, now, members...); reserved {
			effects = append(effects, e)
		}
	}
	for _, team := range d.Teams {
		add(holdfast.TeamSubject(team.ID, holdfast.AxisSlots, ""), team.Slots)
		add(holdfast.TeamSubject(team.ID, holdfast.AxisUSD, ""), team.USD)
	}
	for _, org := range d.Organisations {
		for _, axis := range []holdfast.Axis{holdfast.AxisSlots, holdfast.AxisUSD} {
			if limit := org.limit(axis); !limit.None() {
				add(holdfast.OrgSubject(org.ID, axis, ""), limit, org.Members...)
			}
		}
	}
	add(holdfast.PlatformSubject(holdfast.AxisSlots, ""), d.PlatformSlots)
	add(holdfast.PlatformSubject(holdfast.AxisUSD, ""), d.PlatformUSD)
	for axis, ceiling := range d.windows() {
		limit := holdfast.NoLimit
		if ceiling > 0 {
			limit = holdfast.AtMost(holdfast.ShareAmount(ceiling))
		}
		add(holdfast.Subject{Kind: holdfast.KindAccount, ID: AnyAccount, Axis: axis}, limit)
	}
	return effects
}

// windows yields the windows with their ceilings, in a fixed order.
func (d Deployment) windows() func(func(holdfast.Axis, holdfast.BasisPoints) bool) {
	return func(yield func(holdfast.Axis, holdfast.BasisPoints) bool) {
		_ = yield(holdfast.AxisFiveHour, d.FiveHour) && yield(holdfast.AxisWeek, d.Week)
	}
}

func (p Policy) effect(s holdfast.Subject, limit holdfast.Limit, now time.Time, members ...holdfast.TeamID) (Effect, bool) {
	unit := s.Axis.Unit()
	zero := holdfast.AmountOf(unit, 0)
	e := Effect{Subject: s, Cap: limit, Written: zero, Withheld: zero, Ordinary: holdfast.NoLimit, Shares: p.Reserved(s, now, members...)}
	if len(e.Shares) == 0 {
		return e, false
	}
	left := limit.Max()
	for i, share := range e.Shares {
		e.Written = e.Written.Plus(share.Amount)
		if limit.None() {
			continue
		}
		served := holdfast.MinAmount(share.Amount, left)
		left = left.Minus(served)
		e.Withheld = e.Withheld.Plus(served)
		e.Shares[i].Amount = served
	}
	if !limit.None() {
		e.Ordinary = holdfast.AtMost(left)
	}
	return e, true
}

// WarningKind tells warnings apart.
type WarningKind string

// The kinds of warnings. None of them refuses a policy: what it warns of may be
// wanted, or be about to be mended elsewhere.
const (
	WarnInertAxis    WarningKind = "inert_axis"    // something is reserved where there is no cap
	WarnSwallowedCap WarningKind = "swallowed_cap" // the reservations are the whole cap
	WarnOverReserved WarningKind = "over_reserved" // they are more than the cap
	WarnUnknownTeam  WarningKind = "unknown_team"  // a team that is named does not exist
	WarnUnknownBot   WarningKind = "unknown_bot"   // there is no bot of that name
	WarnNoPool       WarningKind = "no_pool"       // pool eligible, and no pool lends
	WarnHoldsNothing WarningKind = "holds_nothing" // a reservation of nothing
	WarnLentOut      WarningKind = "lent_out"      // a suspended reservation
)

// Warning is one thing that an operator should know of a policy.
type Warning struct {
	Kind    WarningKind
	Subject holdfast.Subject  // zero where it is about no one subject
	Holder  holdfast.Identity // nobody where it is about no one reservation
	Text    string            // for people, with the way out
}

// Warnings is what an operator should know of the policy on the deployment, in a
// fixed order: about the subjects, then about the reservations.
func (p Policy) Warnings(d Deployment, now time.Time) []Warning {
	effects := p.Effects(d, now)
	warnings := inert(effects, d.Organisations)
	for _, e := range effects {
		if w, warn := e.warning(); warn {
			warnings = append(warnings, w)
		}
	}
	for _, r := range p.Reservations {
		warnings = append(warnings, r.warnings(d, now)...)
	}
	return warnings
}

// warning says that a subject's reservations leave nothing to ordinary work.
func (e Effect) warning() (Warning, bool) {
	if e.Cap.None() || e.Written.Less(e.Cap.Max()) {
		return Warning{}, false
	}
	w := Warning{Kind: WarnSwallowedCap, Subject: e.Subject}
	if e.Cap.Max().Less(e.Written) {
		w.Kind = WarnOverReserved
	}
	var served []string
	for _, share := range e.Shares {
		served = append(served, fmt.Sprintf("%s gets %s", share.Holder, share.Amount))
	}
	w.Text = fmt.Sprintf("%s: %s is reserved of a cap of %s, so %s, and work without a reservation is refused always; reserve less or raise the cap",
		e.Subject, e.Written, e.Cap, strings.Join(served, ", "))
	return w, true
}

// inert says, once for each axis, where reservations hold nothing because there is
// no cap. A limit over all teams gives the axis its bite in every team, and one of an
// organisation in its teams.
func inert(effects []Effect, organisations []Organisation) []Warning {
	var warnings []Warning
	for _, axis := range reservable() {
		var uncapped []string
		bites := false
		for _, e := range effects {
			switch {
			case e.Subject.Axis != axis:
			case e.Subject.Kind == holdfast.KindPlatform:
				bites = bites || !e.Cap.None()
			case e.Cap.None() && !bittenBy(organisations, e.Subject):
				uncapped = append(uncapped, e.Subject.String())
			}
		}
		if bites || len(uncapped) == 0 {
			continue
		}
		warnings = append(warnings, Warning{Kind: WarnInertAxis, Text: fmt.Sprintf(
			"nothing is held on %s: a reservation creates no cap, and there is none there; %s", listed(uncapped), wayToCap(axis))})
	}
	return warnings
}

// bittenBy says whether an organisation of the team has a cap on the subject's axis.
func bittenBy(organisations []Organisation, s holdfast.Subject) bool {
	return s.Kind == holdfast.KindTeam && slices.ContainsFunc(organisations, func(o Organisation) bool {
		return slices.Contains(o.Members, holdfast.TeamID(s.ID)) && !o.limit(s.Axis).None()
	})
}

func wayToCap(axis holdfast.Axis) string {
	switch axis {
	case holdfast.AxisFiveHour:
		return "set five_hour_percent of the usage-caps setting, with a mode that is not off"
	case holdfast.AxisWeek:
		return "set week_percent of the usage-caps setting, with a mode that is not off"
	case holdfast.AxisSlots:
		return "set max_concurrent_runs of the team, or a default or a platform limit in the limits setting"
	case holdfast.AxisUSD:
		return "set monthly_usd of the team, or a default or a platform limit in the limits setting"
	case holdfast.AxisRuns, holdfast.AxisInFlight:
	}
	return "set a cap"
}

// listed names the first few.
func listed(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

func (r Reservation) warnings(d Deployment, now time.Time) []Warning {
	holder := r.Holder()
	var warnings []Warning
	warn := func(kind WarningKind, text string) {
		warnings = append(warnings, Warning{Kind: kind, Holder: holder, Text: text})
	}
	named := r.Teams
	if r.Tier == holdfast.TierTeam {
		named = []holdfast.TeamID{r.Team}
	}
	for _, team := range named {
		if !slices.ContainsFunc(d.Teams, func(t Team) bool { return t.ID == team }) {
			warn(WarnUnknownTeam, fmt.Sprintf("the reservation of %s names the team %s, which does not exist; it holds nothing there until it does", holder, team))
		}
	}
	if slices.Contains(d.Unknown, holder) {
		warn(WarnUnknownBot, fmt.Sprintf("there is no bot %s: what is reserved for it is withheld from everybody until there is one; see `holdfast bots`, and `holdfast policy rm` removes it", holder))
	}
	if r.PoolEligible && !d.Pools {
		warn(WarnNoPool, fmt.Sprintf("%s may draw from pools, and no pool lends; once one does, a run with a grant spends the lent credential and not the platform's", holder))
	}
	if !slices.ContainsFunc(reservable(), func(axis holdfast.Axis) bool { return r.amount(axis) > 0 }) {
		warn(WarnHoldsNothing, fmt.Sprintf("the reservation of %s reserves nothing; give it an axis or remove it", holder))
	}
	if !r.InForce(now) {
		warn(WarnLentOut, fmt.Sprintf("the reservation of %s is lent out until %s", holder, r.SuspendedUntil.UTC().Format(time.RFC3339)))
	}
	return warnings
}
