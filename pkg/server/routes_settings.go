package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
)

// family is one setting: how its stored form and its form on the wire become one
// another. W is the wire's, T the stored one.
type family[W, T any] struct {
	setting  *platformcfg.Setting[T]
	fromWire func(W) T
	toWire   func(T) W
	// state is where the wire form has the fields that every setting has.
	state func(*W) *api.SettingState
	token func(T) time.Time
	// adorn adds what an operator should know of a value: its warnings, and what only
	// this family answers; nil: nothing.
	adorn func(context.Context, *W, T) error
}

func (s *Server) settingRoutes() {
	set := s.deps.Settings
	addFamily(s, "budget-floor", "the policy of reservations and repository quotas", family[api.BudgetFloor, budgetfloor.Policy]{
		setting: set.BudgetFloor, fromWire: policyFromWire, toWire: policyToWire,
		state: func(w *api.BudgetFloor) *api.SettingState { return &w.SettingState },
		token: func(p budgetfloor.Policy) time.Time { return p.UpdatedAt },
		adorn: s.adornPolicy,
	})
	register(s, route{method: "POST", path: "/api/admin/settings/budget-floor/check", id: "check-budget-floor", group: "settings", who: operators, trail: readsOnly, summary: "Say what a policy would do, and write nothing"}, s.checkPolicy)
	addFamily(s, "limits", "the limits that teams inherit and those over all teams", family[api.Limits, platformcfg.LimitsSetting]{
		setting: set.Limits, fromWire: limitsFromWire, toWire: limitsToWire,
		state: func(w *api.Limits) *api.SettingState { return &w.SettingState },
		token: func(l platformcfg.LimitsSetting) time.Time { return l.UpdatedAt },
		adorn: adornLimits,
	})
	addFamily(s, "maintenance", "the fence that refuses every launch", family[api.Maintenance, platformcfg.Maintenance]{
		setting: set.Maintenance,
		fromWire: func(w api.Maintenance) platformcfg.Maintenance {
			return platformcfg.Maintenance{On: w.On, Message: w.Message, Until: w.Until.UTC(), UpdatedAt: w.UpdatedAt}
		},
		toWire: func(m platformcfg.Maintenance) api.Maintenance {
			return api.Maintenance{On: m.On, Message: m.Message, Until: utc(m.Until)}
		},
		state: func(w *api.Maintenance) *api.SettingState { return &w.SettingState },
		token: func(m platformcfg.Maintenance) time.Time { return m.UpdatedAt },
		adorn: s.adornMaintenance,
	})
	addFamily(s, "usage-caps", "the ceilings of the usage windows", family[api.UsageCaps, platformcfg.UsageCaps]{
		setting: set.UsageCaps,
		fromWire: func(w api.UsageCaps) platformcfg.UsageCaps {
			return platformcfg.UsageCaps{FiveHourPercent: w.FiveHourPercent, FiveHourMode: platformcfg.Mode(w.FiveHourMode), WeekPercent: w.WeekPercent, WeekMode: platformcfg.Mode(w.WeekMode), UpdatedAt: w.UpdatedAt}
		},
		toWire: func(c platformcfg.UsageCaps) api.UsageCaps {
			return api.UsageCaps{FiveHourPercent: c.FiveHourPercent, FiveHourMode: string(c.FiveHourMode), WeekPercent: c.WeekPercent, WeekMode: string(c.WeekMode)}
		},
		state: func(w *api.UsageCaps) *api.SettingState { return &w.SettingState },
		token: func(c platformcfg.UsageCaps) time.Time { return c.UpdatedAt },
	})
	addFamily(s, "runner-pools", "the registry of runner pools", family[api.RunnerPools, platformcfg.RunnerPools]{
		setting: set.RunnerPools, fromWire: poolsFromWire, toWire: poolsToWire,
		state: func(w *api.RunnerPools) *api.SettingState { return &w.SettingState },
		token: func(p platformcfg.RunnerPools) time.Time { return p.UpdatedAt },
	})
}

type settingBody[W any] struct{ Body W }

// addFamily makes the two routes of a family.
func addFamily[W, T any](s *Server, name, words string, f family[W, T]) {
	path := "/api/admin/settings/" + name
	register(s, route{method: "GET", path: path, id: "get-" + name, group: "settings", who: operators, summary: "Show " + words},
		func(ctx context.Context, _ call, _ struct{}) (answer[W], error) {
			reading, err := f.setting.Read(ctx)
			if err != nil {
				return answer[W]{}, err
			}
			return f.answer(ctx, reading)
		})
	register(s, route{method: "PUT", path: path, id: "put-" + name, group: "settings", who: operators, summary: "Replace " + words},
		func(ctx context.Context, c call, in settingBody[W]) (answer[W], error) {
			reading, err := f.setting.Write(ctx, f.fromWire(in.Body), c.Name)
			if errors.Is(err, platformcfg.ErrConflict) {
				return answer[W]{}, because(fail(http.StatusConflict, "changed", err.Error()), err)
			}
			if err != nil {
				return answer[W]{}, err
			}
			s.noteAudit(ctx, c, "", "settings."+name+".updated", name, nil)
			s.deps.Broker.Publish(api.Event{Type: EventPolicy, Policy: &api.PolicyChange{Setting: name, Actor: c.Name}})
			return f.answer(ctx, reading)
		})
}

// answer is a setting with its token, its origin and its warnings.
func (f family[W, T]) answer(ctx context.Context, reading platformcfg.Reading[T]) (answer[W], error) {
	wire := f.toWire(reading.Value)
	state := f.state(&wire)
	*state = api.SettingState{UpdatedAt: utc(f.token(reading.Value)), Origin: "default"}
	if reading.Written {
		state.Origin = "stored"
	}
	if f.adorn != nil {
		if err := f.adorn(ctx, &wire, reading.Value); err != nil {
			return answer[W]{}, err
		}
	}
	return answer[W]{Body: wire}, nil
}

func limitsFromWire(w api.Limits) platformcfg.LimitsSetting {
	return platformcfg.LimitsSetting{
		DefaultMaxConcurrentRuns: w.DefaultMaxConcurrentRuns, DefaultMonthlyUSD: w.DefaultMonthlyUSD, DefaultMonthlyRuns: w.DefaultMonthlyRuns,
		DefaultLaunchesPerMinute: w.DefaultLaunchesPerMinute, DefaultRunUSD: w.DefaultRunUSD, MaxRunUSD: w.MaxRunUSD,
		Platform: platformcfg.PlatformLimits(w.Platform), TeamCommandBots: w.TeamCommandBots, UpdatedAt: w.UpdatedAt,
	}
}

func limitsToWire(l platformcfg.LimitsSetting) api.Limits {
	return api.Limits{
		DefaultMaxConcurrentRuns: l.DefaultMaxConcurrentRuns, DefaultMonthlyUSD: l.DefaultMonthlyUSD, DefaultMonthlyRuns: l.DefaultMonthlyRuns,
		DefaultLaunchesPerMinute: l.DefaultLaunchesPerMinute, DefaultRunUSD: l.DefaultRunUSD, MaxRunUSD: l.MaxRunUSD,
		Platform: api.PlatformLimits(l.Platform), TeamCommandBots: l.TeamCommandBots,
	}
}

// adornLimits names limits that let nothing launch.
func adornLimits(_ context.Context, w *api.Limits, l platformcfg.LimitsSetting) error {
	for _, limit := range []struct {
		name    string
		setting holdfast.LimitSetting
	}{
		{"default_max_concurrent_runs", l.DefaultMaxConcurrentRuns.LimitSetting},
		{"default_monthly_usd", l.DefaultMonthlyUSD.LimitSetting},
		{"default_monthly_runs", l.DefaultMonthlyRuns.LimitSetting},
		{"default_launches_per_minute", l.DefaultLaunchesPerMinute.LimitSetting},
		{"platform.max_concurrent_runs", l.Platform.MaxConcurrentRuns.LimitSetting},
		{"platform.monthly_usd", l.Platform.MonthlyUSD.LimitSetting},
	} {
		if n, ok := limit.setting.Value(); ok && n == 0 {
			w.Warnings = append(w.Warnings, limit.name+" is 0: nothing that it applies to may launch; null is unlimited")
		}
	}
	return nil
}

func (s *Server) adornMaintenance(_ context.Context, w *api.Maintenance, m platformcfg.Maintenance) error {
	switch {
	case m.On && !m.InForce(s.clock.Now()):
		w.Warnings = []string{"until has passed: the fence is down although it is on"}
	case m.On && m.Until.IsZero():
		w.Warnings = []string{"every launch is refused until this is turned off"}
	}
	return nil
}

func poolsFromWire(w api.RunnerPools) platformcfg.RunnerPools {
	p := platformcfg.RunnerPools{UpdatedAt: w.UpdatedAt}
	for _, pool := range w.Pools {
		p.Pools = append(p.Pools, platformcfg.RunnerPool{Name: pool.Name, State: platformcfg.PoolState(pool.State), MaxAckPending: pool.MaxAckPending, Note: pool.Note})
	}
	return p
}

func poolsToWire(p platformcfg.RunnerPools) api.RunnerPools {
	var w api.RunnerPools
	for _, pool := range p.Pools {
		w.Pools = append(w.Pools, api.RunnerPool{Name: pool.Name, State: string(pool.State), MaxAckPending: pool.MaxAckPending, Note: pool.Note})
	}
	return w
}
