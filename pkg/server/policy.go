package server

import (
	"context"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// checkPolicy answers a policy as it would be stored, with its warnings and effects.
func (s *Server) checkPolicy(ctx context.Context, _ call, in settingBody[api.BudgetFloor]) (answer[api.BudgetFloor], error) {
	policy, err := s.deps.Settings.BudgetFloor.Check(policyFromWire(in.Body))
	if err != nil {
		return answer[api.BudgetFloor]{}, err
	}
	wire := policyToWire(policy)
	wire.UpdatedAt = utc(in.Body.UpdatedAt)
	if err := s.adornPolicy(ctx, &wire, policy); err != nil {
		return answer[api.BudgetFloor]{}, err
	}
	return answer[api.BudgetFloor]{Body: wire}, nil
}

// adornPolicy adds who something is reserved for, what the policy does on each
// subject of this deployment, and what an operator should know of that.
func (s *Server) adornPolicy(ctx context.Context, w *api.BudgetFloor, p budgetfloor.Policy) error {
	deployment, err := s.deployment(ctx)
	if err != nil {
		return err
	}
	for _, holder := range p.Holders() {
		w.Reserved = append(w.Reserved, holder.String())
	}
	if deployment.Unknown, err = s.unknown(ctx, p.Holders()); err != nil {
		return err
	}
	now := s.clock.Now()
	for _, warning := range p.Warnings(deployment, now) {
		w.Warnings = append(w.Warnings, warning.Text)
	}
	for _, e := range p.Effects(deployment, now) {
		w.Effects = append(w.Effects, api.PolicyEffect{
			Subject: e.Subject.String(), Cap: api.LimitOf(e.Cap), Written: api.AmountOf(e.Written),
			Withheld: api.AmountOf(e.Withheld), Ordinary: api.LimitOf(e.Ordinary),
		})
	}
	return nil
}

// unknown are the holders that no launch resolves to: nothing is stored or built in
// under their name.
func (s *Server) unknown(ctx context.Context, holders []holdfast.Identity) ([]holdfast.Identity, error) {
	var unknown []holdfast.Identity
	for _, holder := range holders {
		resolved, found, err := s.deps.Resolver.Resolve(ctx, holder.Team(), string(holder.Bot()))
		switch {
		case err != nil:
			return nil, err
		case !found || resolved.Identity != holder:
			unknown = append(unknown, holder)
		}
	}
	return unknown, nil
}

// deployment is the caps in force, that a policy is weighed against.
func (s *Server) deployment(ctx context.Context) (budgetfloor.Deployment, error) {
	all, err := s.deps.Teams.All(ctx)
	if err != nil {
		return budgetfloor.Deployment{}, err
	}
	reading, err := s.deps.Settings.Limits.Read(ctx)
	if err != nil {
		return budgetfloor.Deployment{}, err
	}
	caps, err := s.deps.Settings.UsageCaps.Read(ctx)
	if err != nil {
		return budgetfloor.Deployment{}, err
	}
	limits := s.deps.Settings.Limits.Effective(reading.Value)
	windows := s.deps.Settings.UsageCaps.Effective(caps.Value)
	d := budgetfloor.Deployment{
		PlatformSlots: limits.Platform.MaxConcurrentRuns.Limit(holdfast.UnitSlots),
		PlatformUSD:   limits.Platform.MonthlyUSD.Limit(holdfast.UnitUSD),
		FiveHour:      windows.Cap(holdfast.AxisFiveHour),
		Week:          windows.Cap(holdfast.AxisWeek),
	}
	for _, t := range all {
		d.Teams = append(d.Teams, teamCaps(t, limits.DefaultMaxConcurrentRuns.LimitSetting, limits.DefaultMonthlyUSD.LimitSetting))
	}
	d.Organisations, err = s.organisationCaps(ctx, all)
	return d, err
}

// organisationCaps are the limits of every organisation, with its teams of all.
func (s *Server) organisationCaps(ctx context.Context, all []teams.Team) ([]budgetfloor.Organisation, error) {
	var caps []budgetfloor.Organisation
	for cursor := ""; ; {
		page, next, err := s.deps.Teams.Organisations(ctx, records.MaxPage, cursor)
		if err != nil {
			return nil, err
		}
		for _, o := range page {
			org := budgetfloor.Organisation{ID: o.ID, Slots: o.Limits.MaxConcurrentRuns.Limit(holdfast.UnitSlots), USD: o.Limits.MonthlyUSD.Limit(holdfast.UnitUSD)}
			for _, t := range all {
				if t.Organisation == o.ID {
					org.Members = append(org.Members, t.ID)
				}
			}
			caps = append(caps, org)
		}
		if cursor = next; cursor == "" {
			return caps, nil
		}
	}
}

func teamCaps(t teams.Team, slots, usd holdfast.LimitSetting) budgetfloor.Team {
	return budgetfloor.Team{
		ID:    t.ID,
		Slots: t.Limits.MaxConcurrentRuns.Or(slots).Limit(holdfast.UnitSlots),
		USD:   t.Limits.MonthlyUSD.Or(usd).Limit(holdfast.UnitUSD),
	}
}

func policyFromWire(w api.BudgetFloor) budgetfloor.Policy {
	p := budgetfloor.Policy{UpdatedAt: w.UpdatedAt}
	for _, r := range w.Reservations {
		p.Reservations = append(p.Reservations, budgetfloor.Reservation{
			Bot: holdfast.BotID(r.Bot), Tier: holdfast.Tier(r.Tier), Team: holdfast.TeamID(r.Team),
			FiveHourPercent: r.FiveHourPercent, WeekPercent: r.WeekPercent, ConcurrentRuns: holdfast.Slots(r.ConcurrentRuns), MonthlyUSD: r.MonthlyUSD,
			PoolEligible: r.PoolEligible, Teams: texts[holdfast.TeamID](r.Teams), SuspendedUntil: utc(r.SuspendedUntil), Note: r.Note,
		})
	}
	for _, q := range w.RepoQuotas {
		quota := budgetfloor.RepoQuota{Repo: q.Repo, MonthlyUSD: q.MonthlyUSD, ReserveSharePercent: q.ReserveSharePercent}
		if q.ShareOf != nil {
			quota.ShareOf = &budgetfloor.ShareOf{Bot: holdfast.BotID(q.ShareOf.Bot), Tier: holdfast.Tier(q.ShareOf.Tier), Team: holdfast.TeamID(q.ShareOf.Team)}
		}
		p.RepoQuotas = append(p.RepoQuotas, quota)
	}
	return p
}

func policyToWire(p budgetfloor.Policy) api.BudgetFloor {
	var w api.BudgetFloor
	for _, r := range p.Reservations {
		w.Reservations = append(w.Reservations, api.Reservation{
			Bot: string(r.Bot), Tier: string(r.Holder().Tier()), Team: string(r.Team),
			FiveHourPercent: r.FiveHourPercent, WeekPercent: r.WeekPercent, ConcurrentRuns: int64(r.ConcurrentRuns), MonthlyUSD: r.MonthlyUSD,
			PoolEligible: r.PoolEligible, Teams: texts[string](r.Teams), SuspendedUntil: utc(r.SuspendedUntil), Note: r.Note,
		})
	}
	for _, q := range p.RepoQuotas {
		quota := api.RepoQuota{Repo: q.Repo, MonthlyUSD: q.MonthlyUSD, ReserveSharePercent: q.ReserveSharePercent}
		if q.ShareOf != nil {
			holder := q.ShareOf.Holder()
			quota.ShareOf = &api.ShareOf{Bot: string(holder.Bot()), Tier: string(holder.Tier()), Team: string(holder.Team())}
		}
		w.RepoQuotas = append(w.RepoQuotas, quota)
	}
	return w
}

// texts converts a list of one kind of text to another.
func texts[To, From ~string](list []From) []To {
	var out []To
	for _, item := range list {
		out = append(out, To(item))
	}
	return out
}
