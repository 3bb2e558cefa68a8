package server

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/launch"
)

func (s *Server) teamPolicyRoutes() {
	register(s, route{method: "GET", path: "/api/teams/{team}/policy", id: "team-policy", group: "teams", who: viewers, summary: "Show what of the policy and of the limits touches a team"}, s.teamPolicy)
}

func (s *Server) teamPolicy(ctx context.Context, c call, _ teamInput) (answer[api.TeamPolicy], error) {
	view, err := s.deps.Launch.TeamPolicy(ctx, c.Principal, c.team)
	if errors.Is(err, launch.ErrNotFound) {
		err = because(notFound("team"), err)
	}
	if err != nil {
		return answer[api.TeamPolicy]{}, err
	}
	wire := api.TeamPolicy{
		Team: string(view.Team), Organisation: string(view.Organisation), Policy: s.policyStanding(c),
		Subjects: make([]api.SubjectPolicy, 0, len(view.Subjects)), Reservations: make([]api.VisibleReservation, 0, len(view.Reservations)),
		LaunchesPerMinute: countOf(view.TeamRate), OrganisationLaunchesPerMinute: countOf(view.OrgRate),
		DefaultRunUSD: view.DefaultRunUSD, MaxRunUSD: view.MaxRunUSD,
	}
	for _, subject := range view.Subjects {
		out := api.SubjectPolicy{Subject: subject.Subject.String(), Cap: api.LimitOf(subject.Cap), Ordinary: api.LimitOf(subject.Ordinary), Reserved: make([]api.ReservedPart, 0, len(subject.Reserved))}
		for _, share := range subject.Reserved {
			holder := share.Holder.String()
			if holder == "" {
				holder = "others"
			}
			out.Reserved = append(out.Reserved, api.ReservedPart{Holder: holder, Amount: api.AmountOf(share.Amount)})
		}
		wire.Subjects = append(wire.Subjects, out)
	}
	for _, r := range view.Reservations {
		wire.Reservations = append(wire.Reservations, api.VisibleReservation{
			Holder: r.Holder().String(), ConcurrentRuns: int64(r.ConcurrentRuns), MonthlyUSD: r.MonthlyUSD, FiveHourPercent: r.FiveHourPercent, WeekPercent: r.WeekPercent,
			PoolEligible: r.PoolEligible, SuspendedUntil: utc(r.SuspendedUntil), Note: r.Note,
		})
	}
	return answer[api.TeamPolicy]{Body: wire}, nil
}

// countOf is a limit of launches; nil where there is none.
func countOf(limit holdfast.Limit) *int64 {
	if limit.None() {
		return nil
	}
	n := limit.Max().Int()
	return &n
}
