package launch

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// owners are whose limits a launch is under, besides the platform's: its team, and
// the organisation that the team belongs to. Every one of them must admit.
type owners struct {
	team teams.Team
	// org is zero for a team of none. One that a team names and nobody created has no
	// limits: nobody wrote any.
	org teams.Organisation
	// members are the organisation's teams, where the policy tells teams apart; what
	// is reserved for one of them counts on the organisation's subjects.
	members []holdfast.TeamID
}

// ownersOf reads a team and what it belongs to. The error matches
// [records.ErrNotFound] when there is no such team.
func (s *Service) ownersOf(ctx context.Context, rules rules, id holdfast.TeamID) (owners, error) {
	team, err := s.Teams.Get(ctx, id)
	if err != nil {
		return owners{}, err
	}
	o, err := s.orgOwners(ctx, rules, team.Organisation)
	if err != nil {
		// Not even an organisation that is gone makes the team one that is not there.
		return owners{}, unavailable(err)
	}
	o.team = team
	return o, nil
}

// orgOwners reads an organisation and its members; none for no id.
func (s *Service) orgOwners(ctx context.Context, rules rules, id holdfast.OrgID) (owners, error) {
	if id == "" {
		return owners{}, nil
	}
	org, err := s.Teams.Organisation(ctx, id)
	if errors.Is(err, records.ErrNotFound) {
		org, err = teams.Organisation{ID: id}, nil
	}
	if err != nil {
		return owners{}, err
	}
	o := owners{org: org}
	if rules.tellsTeamsApart() {
		o.members, err = s.membersOf(ctx, id)
	}
	return o, err
}

func (s *Service) membersOf(ctx context.Context, id holdfast.OrgID) ([]holdfast.TeamID, error) {
	list, err := s.Teams.Members(ctx, id)
	if err != nil {
		return nil, err
	}
	ids := make([]holdfast.TeamID, 0, len(list))
	for _, team := range list {
		ids = append(ids, team.ID)
	}
	return ids, nil
}

// tellsTeamsApart says whether the policy reserves anything for some teams only.
func (r rules) tellsTeamsApart() bool {
	for _, reservation := range r.policy.Reservations {
		if reservation.Tier == holdfast.TierTeam || len(reservation.Teams) > 0 {
			return true
		}
	}
	return false
}

// subjects are what a run takes from on an axis, from the nearest owner to the
// platform; period is that of the launch's instant, empty for slots. What is used is
// recorded on the organisation whether it has a limit or not, so that a limit that
// is written later counts what was used before. The one over all teams is only there
// where it has a cap: it is everybody's.
func (r rules) subjects(o owners, axis holdfast.Axis, period string) []holdfast.Subject {
	subjects := []holdfast.Subject{holdfast.TeamSubject(o.team.ID, axis, period)}
	if o.org.ID != "" {
		subjects = append(subjects, holdfast.OrgSubject(o.org.ID, axis, period))
	}
	if platform := holdfast.PlatformSubject(axis, period); !r.capOf(platform, o).None() {
		subjects = append(subjects, platform)
	}
	return subjects
}

// capOf is the cap in force on a subject; NoLimit where nothing caps it. o owns the
// subject of a team or an organisation.
func (r rules) capOf(subject holdfast.Subject, o owners) holdfast.Limit {
	unit := subject.Axis.Unit()
	switch subject.Kind {
	case holdfast.KindTeam:
		return written(o.team.Limits, subject.Axis).Or(r.defaults(subject.Axis)).Limit(unit)
	case holdfast.KindOrg:
		return written(o.org.Limits, subject.Axis).Limit(unit)
	case holdfast.KindPlatform:
		switch subject.Axis {
		case holdfast.AxisSlots:
			return r.limits.Platform.MaxConcurrentRuns.Limit(unit)
		case holdfast.AxisUSD:
			return r.limits.Platform.MonthlyUSD.Limit(unit)
		case holdfast.AxisRuns, holdfast.AxisFiveHour, holdfast.AxisWeek, holdfast.AxisInFlight:
		}
	case holdfast.KindAccount, holdfast.KindDonor, holdfast.KindRunnerPool:
	}
	return holdfast.NoLimit
}

// written is the limit of an axis as it was written on an owner.
func written(l teams.Limits, axis holdfast.Axis) holdfast.LimitSetting {
	switch axis {
	case holdfast.AxisSlots:
		return l.MaxConcurrentRuns.LimitSetting
	case holdfast.AxisUSD:
		return l.MonthlyUSD.LimitSetting
	case holdfast.AxisRuns:
		return l.MonthlyRuns.LimitSetting
	case holdfast.AxisFiveHour, holdfast.AxisWeek, holdfast.AxisInFlight:
	}
	return holdfast.LimitSetting{}
}

// defaults are what a team inherits on an axis.
func (r rules) defaults(axis holdfast.Axis) holdfast.LimitSetting {
	switch axis {
	case holdfast.AxisSlots:
		return r.limits.DefaultMaxConcurrentRuns.LimitSetting
	case holdfast.AxisUSD:
		return r.limits.DefaultMonthlyUSD.LimitSetting
	case holdfast.AxisRuns:
		return r.limits.DefaultMonthlyRuns.LimitSetting
	case holdfast.AxisFiveHour, holdfast.AxisWeek, holdfast.AxisInFlight:
	}
	return holdfast.LimitSetting{}
}

// rate is one limit of launches per minute, and whose it is.
type rate struct {
	key       RateKey
	who       string // for people
	perMinute int64
}

// rates are the launch rates that a launch is under, the nearest first; an owner
// without one is not among them.
func (r rules) rates(o owners) []rate {
	var rates []rate
	if n, ok := o.team.Limits.LaunchesPerMinute.Or(r.limits.DefaultLaunchesPerMinute.LimitSetting).Value(); ok {
		rates = append(rates, rate{TeamRate(o.team.ID), "the team " + string(o.team.ID), n})
	}
	if n, ok := o.org.Limits.LaunchesPerMinute.Value(); ok && o.org.ID != "" {
		rates = append(rates, rate{OrgRate(o.org.ID), "the organisation " + string(o.org.ID), n})
	}
	return rates
}

// memberIDs are the organisation's teams, the launching one among them even where the
// others were not read.
func (o owners) memberIDs() []holdfast.TeamID {
	if o.team.ID == "" || slices.Contains(o.members, o.team.ID) {
		return o.members
	}
	return append(slices.Clip(o.members), o.team.ID)
}
