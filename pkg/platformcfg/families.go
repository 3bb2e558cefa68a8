package platformcfg

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
)

// Mode says what an enforced usage window does at its cap.
type Mode string

// The modes. Empty is the window's default: soft for five hours, hard for the week.
const (
	ModeOff  Mode = "off"  // not enforced; nothing re-arms it
	ModeSoft Mode = "soft" // starts nothing new
	ModeHard Mode = "hard" // also stops what runs
)

// UsageCaps are the ceilings of the accounts' usage windows. Zero percent is not
// enforced.
type UsageCaps struct {
	FiveHourPercent int       `json:"five_hour_percent,omitempty"`
	FiveHourMode    Mode      `json:"five_hour_mode,omitempty"`
	WeekPercent     int       `json:"week_percent,omitempty"`
	WeekMode        Mode      `json:"week_mode,omitempty"`
	UpdatedAt       time.Time `json:"updated_at,omitzero"`
}

// Cap is the ceiling of a window; zero where it is not enforced.
func (c UsageCaps) Cap(window holdfast.Axis) holdfast.BasisPoints {
	percent, mode := 0, ModeOff
	switch window {
	case holdfast.AxisFiveHour:
		percent, mode = c.FiveHourPercent, c.FiveHourMode
	case holdfast.AxisWeek:
		percent, mode = c.WeekPercent, c.WeekMode
	case holdfast.AxisSlots, holdfast.AxisRuns, holdfast.AxisUSD, holdfast.AxisInFlight:
	}
	if mode == ModeOff {
		return 0
	}
	return holdfast.BasisPoints(percent) * holdfast.Whole / 100
}

func (c UsageCaps) checked() (UsageCaps, error) {
	for _, window := range []struct {
		percent  int
		mode     Mode
		name     string
		unstated Mode
	}{{c.FiveHourPercent, c.FiveHourMode, "five_hour", ModeSoft}, {c.WeekPercent, c.WeekMode, "week", ModeHard}} {
		if window.percent < 0 || window.percent > 100 {
			return c, invalid(window.name+"_percent", fmt.Sprintf("%d is not a ceiling", window.percent), "a whole number from 0 to 100; 0 is not enforced")
		}
		switch window.mode {
		case "", ModeOff, ModeSoft, ModeHard:
		default:
			return c, invalid(window.name+"_mode", fmt.Sprintf("%q is not a mode", holdfast.Clip(string(window.mode), 40)), "off, soft, hard; absent: "+string(window.unstated))
		}
	}
	return c, nil
}

func (c UsageCaps) effective() UsageCaps {
	if c.FiveHourMode == "" {
		c.FiveHourMode = ModeSoft
	}
	if c.WeekMode == "" {
		c.WeekMode = ModeHard
	}
	return c
}

// PoolState says whether a runner pool takes work.
type PoolState string

// The states of a pool. Empty is active.
const (
	PoolProvisioning PoolState = "provisioning"
	PoolActive       PoolState = "active"
	PoolDraining     PoolState = "draining"
	PoolDisabled     PoolState = "disabled"
)

// RunnerPool is one registered pool of runners.
type RunnerPool struct {
	Name  string    `json:"name"`
	State PoolState `json:"state,omitempty"`
	// MaxAckPending is the pool's own ceiling of work in flight; 0 inherits the
	// configured global.
	MaxAckPending int    `json:"max_ack_pending,omitempty"`
	Note          string `json:"note,omitempty"`
}

// RunnerPools is the registry of pools.
type RunnerPools struct {
	Pools     []RunnerPool `json:"pools,omitempty"`
	UpdatedAt time.Time    `json:"updated_at,omitzero"`
}

// Pool is the pool of that name, and whether there is one.
func (p RunnerPools) Pool(name string) (RunnerPool, bool) {
	i := slices.IndexFunc(p.Pools, func(pool RunnerPool) bool { return pool.Name == name })
	if i < 0 {
		return RunnerPool{}, false
	}
	return p.Pools[i], true
}

const (
	maxPools      = 200
	maxAckPending = 1_000_000
	maxText       = 1_000
)

func (p RunnerPools) checked() (RunnerPools, error) {
	if len(p.Pools) > maxPools {
		return p, invalid("pools", "there are too many", fmt.Sprintf("at most %d", maxPools))
	}
	p.Pools = slices.Clone(p.Pools)
	for i, pool := range p.Pools {
		field := fmt.Sprintf("pools[%d].", i)
		name, err := holdfast.FoldName(pool.Name)
		if err != nil {
			return p, holdfast.InField(field+"name", err)
		}
		p.Pools[i].Name = name
		switch pool.State {
		case "":
			p.Pools[i].State = PoolActive
		case PoolProvisioning, PoolActive, PoolDraining, PoolDisabled:
		default:
			return p, invalid(field+"state", fmt.Sprintf("%q is not a state", holdfast.Clip(string(pool.State), 40)), "provisioning, active, draining, disabled")
		}
		switch {
		case slices.ContainsFunc(p.Pools[:i], func(other RunnerPool) bool { return other.Name == name }):
			return p, invalid(field+"name", fmt.Sprintf("%q is listed twice", name), "each pool once")
		case pool.MaxAckPending < 0 || pool.MaxAckPending > maxAckPending:
			return p, invalid(field+"max_ack_pending", fmt.Sprintf("%d is not a ceiling", pool.MaxAckPending), fmt.Sprintf("0 to %d; 0 inherits the configured global", maxAckPending))
		case len(pool.Note) > maxText:
			return p, invalid(field+"note", "it is too long", fmt.Sprintf("at most %d bytes", maxText))
		}
	}
	return p, nil
}

// Maintenance is the fence that refuses every launch.
type Maintenance struct {
	On        bool      `json:"on"`
	Message   string    `json:"message,omitempty"` // shown to those who are refused
	Until     time.Time `json:"until,omitzero"`    // lifts itself then; zero: until it is turned off
	UpdatedAt time.Time `json:"updated_at,omitzero"`
}

// InForce says whether the fence is up at an instant.
func (m Maintenance) InForce(now time.Time) bool {
	return m.On && (m.Until.IsZero() || now.Before(m.Until))
}

func (m Maintenance) checked() (Maintenance, error) {
	if len(m.Message) > maxText {
		return m, invalid("message", "it is too long", fmt.Sprintf("at most %d bytes", maxText))
	}
	return m, nil
}

// PlatformLimits are limits over all teams together; absent is unlimited.
type PlatformLimits struct {
	MaxConcurrentRuns holdfast.CountLimit `json:"max_concurrent_runs,omitzero"`
	MonthlyUSD        holdfast.USDLimit   `json:"monthly_usd,omitzero"`
}

// LimitsSetting is what teams inherit where nothing is written on them, what runs
// may cost, and the limits over all teams. What is absent is the build's own
// default: [DefaultLaunchesPerMinute], [DefaultRunUSD], else unlimited.
type LimitsSetting struct {
	DefaultMaxConcurrentRuns holdfast.CountLimit `json:"default_max_concurrent_runs,omitzero"`
	DefaultMonthlyUSD        holdfast.USDLimit   `json:"default_monthly_usd,omitzero"`
	DefaultMonthlyRuns       holdfast.CountLimit `json:"default_monthly_runs,omitzero"`
	DefaultLaunchesPerMinute holdfast.CountLimit `json:"default_launches_per_minute,omitzero"`
	// DefaultRunUSD is the budget of a run where neither it nor its bot names one.
	DefaultRunUSD *holdfast.MicroUSD `json:"default_run_usd,omitempty"`
	// MaxRunUSD is the most that a run may ask for; nil: no ceiling.
	MaxRunUSD *holdfast.MicroUSD `json:"max_run_usd,omitempty"`
	Platform  PlatformLimits     `json:"platform,omitzero"`
	// TeamCommandBots lets a team's admins write bots of the lane command, which run
	// any program on the runner. Off unless written.
	TeamCommandBots bool      `json:"team_command_bots,omitempty"`
	UpdatedAt       time.Time `json:"updated_at,omitzero"`
}

// The build's own defaults.
const (
	DefaultLaunchesPerMinute                   = 600
	DefaultRunUSD            holdfast.MicroUSD = 5 * holdfast.OneUSD
)

// effective fills in what is absent.
func (l LimitsSetting) effective() LimitsSetting {
	if l.DefaultLaunchesPerMinute.Inherits() {
		l.DefaultLaunchesPerMinute.LimitSetting = holdfast.LimitTo(DefaultLaunchesPerMinute)
	}
	if l.DefaultRunUSD == nil {
		budget := DefaultRunUSD
		if l.MaxRunUSD != nil {
			budget = min(budget, *l.MaxRunUSD)
		}
		l.DefaultRunUSD = &budget
	}
	return l
}

func (l LimitsSetting) checked() (LimitsSetting, error) {
	const money = "more than 0 and at most 1000000000 dollars, or absent"
	switch {
	case l.DefaultRunUSD != nil && (*l.DefaultRunUSD <= 0 || *l.DefaultRunUSD > holdfast.MaxUSD):
		return l, invalid("default_run_usd", fmt.Sprintf("a run cannot have a budget of %s", l.DefaultRunUSD.Dollars()), money)
	case l.MaxRunUSD != nil && (*l.MaxRunUSD <= 0 || *l.MaxRunUSD > holdfast.MaxUSD):
		return l, invalid("max_run_usd", fmt.Sprintf("%s lets nothing run", l.MaxRunUSD.Dollars()), money)
	case l.DefaultRunUSD != nil && l.MaxRunUSD != nil && *l.DefaultRunUSD > *l.MaxRunUSD:
		return l, invalid("default_run_usd", fmt.Sprintf("it is above max_run_usd, %s", l.MaxRunUSD.Dollars()), "at most max_run_usd")
	}
	for _, limit := range []struct {
		field   string
		setting holdfast.LimitSetting
		most    int64
	}{
		{"default_max_concurrent_runs", l.DefaultMaxConcurrentRuns.LimitSetting, int64(holdfast.MaxSlots)},
		{"default_monthly_usd", l.DefaultMonthlyUSD.LimitSetting, int64(holdfast.MaxUSD)},
		{"default_monthly_runs", l.DefaultMonthlyRuns.LimitSetting, int64(holdfast.MaxSlots)},
		{"default_launches_per_minute", l.DefaultLaunchesPerMinute.LimitSetting, int64(holdfast.MaxSlots)},
		{"platform.max_concurrent_runs", l.Platform.MaxConcurrentRuns.LimitSetting, int64(holdfast.MaxSlots)},
		{"platform.monthly_usd", l.Platform.MonthlyUSD.LimitSetting, int64(holdfast.MaxUSD)},
	} {
		if n, ok := limit.setting.Value(); ok && (n < 0 || n > limit.most) {
			return l, invalid(limit.field, fmt.Sprintf("%d is not a limit", n), "0 to a billion, null for unlimited, or absent for the default")
		}
	}
	return l, nil
}

func invalid(field, problem, allowed string) error {
	return &holdfast.InvalidError{Field: field, Problem: problem, Allowed: allowed}
}
