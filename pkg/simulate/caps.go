package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
)

// Caps are what the runs of a replay are judged against. A reservation creates no
// cap: on what is not capped here nobody is ever refused. The names are those of
// the caps file.
type Caps struct {
	// Teams has the limits of teams by name; "*" is every team's where its own says
	// nothing. What both leave out is unlimited.
	Teams map[string]TeamCaps `json:"teams,omitempty"`
	// Platform has the limits over all teams together.
	Platform PlatformCaps `json:"platform,omitzero"`
	// Windows are those of the one account that all runs share.
	Windows Windows `json:"windows,omitzero"`
}

// TeamCaps are one team's limits. Null is unlimited, 0 lets nothing launch.
type TeamCaps struct {
	MaxConcurrentRuns holdfast.CountLimit `json:"max_concurrent_runs,omitzero"`
	MonthlyUSD        holdfast.USDLimit   `json:"monthly_usd,omitzero"`
	MonthlyRuns       holdfast.CountLimit `json:"monthly_runs,omitzero"`
	LaunchesPerMinute holdfast.CountLimit `json:"launches_per_minute,omitzero"`
}

// PlatformCaps are the limits over all teams.
type PlatformCaps struct {
	MaxConcurrentRuns holdfast.CountLimit `json:"max_concurrent_runs,omitzero"`
	MonthlyUSD        holdfast.USDLimit   `json:"monthly_usd,omitzero"`
}

// Windows are the usage windows; nil is not capped.
type Windows struct {
	FiveHour *WindowCap `json:"five_hour,omitempty"`
	Week     *WindowCap `json:"week,omitempty"`
}

// WindowCap says what a window is worth and up to where it may be used.
type WindowCap struct {
	USD        holdfast.MicroUSD `json:"usd"`                   // of a full window, as a dollar-equivalent
	CapPercent *int              `json:"cap_percent,omitempty"` // 1 to 100; nil is 100
}

// share is the window's cap in basis points.
func (w WindowCap) share() holdfast.BasisPoints {
	if w.CapPercent == nil {
		return holdfast.Whole
	}
	return holdfast.BasisPoints(*w.CapPercent) * 100
}

// maxCapTeams bounds a caps file.
const maxCapTeams = 10_000

// Checked folds the teams' names and refuses caps that cannot be meant, with an
// *holdfast.InvalidError.
func (c Caps) Checked() (Caps, error) {
	if len(c.Teams) > maxCapTeams {
		return c, &holdfast.InvalidError{Field: "teams", Problem: "there are too many", Allowed: fmt.Sprintf("at most %d", maxCapTeams)}
	}
	teams := map[string]TeamCaps{}
	for _, name := range slices.Sorted(maps.Keys(c.Teams)) {
		folded := name
		if name != everyTeam {
			var err error
			if folded, err = holdfast.FoldName(name); err != nil {
				return c, holdfast.InField("teams", err)
			}
		}
		if _, twice := teams[folded]; twice {
			return c, &holdfast.InvalidError{Field: "teams." + folded, Problem: "the team stands there twice", Allowed: "each team once"}
		}
		teams[folded] = c.Teams[name]
	}
	c.Teams = teams
	for name, w := range map[string]*WindowCap{"five_hour": c.Windows.FiveHour, "week": c.Windows.Week} {
		switch {
		case w == nil:
		case w.USD <= 0 || w.USD > holdfast.MaxUSD:
			return c, &holdfast.InvalidError{Field: "windows." + name + ".usd", Problem: "a window must be worth something", Allowed: "what a full window is worth in dollars, above 0"}
		case w.CapPercent != nil && (*w.CapPercent < 1 || *w.CapPercent > 100):
			return c, &holdfast.InvalidError{Field: "windows." + name + ".cap_percent", Problem: fmt.Sprintf("%d is not a cap", *w.CapPercent), Allowed: "a whole number from 1 to 100, or absent for 100"}
		}
	}
	return c, nil
}

const everyTeam = "*"

// of are the limits of a team.
func (c Caps) of(team holdfast.TeamID) TeamCaps {
	own, all := c.Teams[string(team)], c.Teams[everyTeam]
	return TeamCaps{
		MaxConcurrentRuns: holdfast.CountLimit{LimitSetting: own.MaxConcurrentRuns.Or(all.MaxConcurrentRuns.LimitSetting)},
		MonthlyUSD:        holdfast.USDLimit{LimitSetting: own.MonthlyUSD.Or(all.MonthlyUSD.LimitSetting)},
		MonthlyRuns:       holdfast.CountLimit{LimitSetting: own.MonthlyRuns.Or(all.MonthlyRuns.LimitSetting)},
		LaunchesPerMinute: holdfast.CountLimit{LimitSetting: own.LaunchesPerMinute.Or(all.LaunchesPerMinute.LimitSetting)},
	}
}

// percentile is which of the trace's own peaks becomes a cap.
const percentile = 75

// DeriveCaps makes caps of a trace's own peaks, for a replay without a caps file:
// the 75th percentile of its busiest moments by the hour (by the 24th part of a
// shorter trace), of its five-hour and weekly spends, and of its months, where there
// are at least two of them. It says what it did.
func DeriveCaps(t Trace) (Caps, []string) {
	var c Caps
	var said []string
	if slots := int64(peakRuns(t)); slots > 0 {
		c.Platform.MaxConcurrentRuns.LimitSetting = holdfast.LimitTo(slots)
		said = append(said, fmt.Sprintf("platform slots %d: the %dth percentile of the most runs at once in each %s", slots, percentile, bucketWord(t)))
	}
	if usd, n := peakWindow(t, fiveHours); usd > 0 && n > 1 {
		c.Windows.FiveHour = &WindowCap{USD: usd}
		said = append(said, fmt.Sprintf("five-hour window %s: the %dth percentile of the spends of its %d windows", usd.Dollars(), percentile, n))
	}
	if usd, n := peakWindow(t, oneWeek); usd > 0 && n > 1 {
		c.Windows.Week = &WindowCap{USD: usd}
		said = append(said, fmt.Sprintf("week %s: the %dth percentile of the spends of its %d weeks", usd.Dollars(), percentile, n))
	}
	months := map[string]holdfast.MicroUSD{}
	for _, r := range t.Rows {
		months[holdfast.MonthPeriod(r.At)] += r.Cost
	}
	if usd := wholeCents(ranked(slices.Collect(maps.Values(months)))); usd > 0 && len(months) > 1 {
		c.Platform.MonthlyUSD.LimitSetting = holdfast.LimitTo(int64(usd))
		said = append(said, fmt.Sprintf("platform month %s: the %dth percentile of the spends of its %d months", usd.Dollars(), percentile, len(months)))
	}
	return c, said
}

// ranked is the percentile of values by nearest rank; zero of none.
func ranked[T cmp.Ordered](values []T) T {
	var zero T
	if len(values) == 0 {
		return zero
	}
	slices.Sort(values)
	return values[(len(values)*percentile+99)/100-1]
}

// bucket is the stretch of time whose peaks are taken.
func bucket(t Trace) time.Duration {
	if span := t.To().Sub(t.From()); span < 24*time.Hour {
		return max(time.Second, span/24)
	}
	return time.Hour
}

func bucketWord(t Trace) string {
	if b := bucket(t); b != time.Hour {
		return b.Round(time.Second).String()
	}
	return "hour"
}

// peakRuns ranks the peaks of concurrent runs, by bucket, leaving out buckets in
// which nothing ran.
func peakRuns(t Trace) int {
	type change struct {
		at time.Time
		by int
	}
	changes := make([]change, 0, 2*len(t.Rows))
	for _, r := range t.Rows {
		if r.Duration > 0 {
			changes = append(changes, change{r.At, 1}, change{r.At.Add(r.Duration), -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), a.by-b.by) })
	size, from := bucket(t), t.From()
	var peaks []int
	now, last := 0, int64(-1)
	for i, ch := range changes {
		index := int64(ch.at.Sub(from) / size)
		if now > 0 {
			for last < index-1 && len(peaks) < 1_000_000 { // buckets that were only run through
				last++
				peaks = append(peaks, now)
			}
		}
		if index > last {
			last = index
			peaks = append(peaks, now)
		}
		now += ch.by
		if n := len(peaks) - 1; now > peaks[n] && (i+1 == len(changes) || changes[i+1].at.After(ch.at)) {
			peaks[n] = now
		}
	}
	return ranked(slices.DeleteFunc(peaks, func(n int) bool { return n == 0 }))
}

// peakWindow ranks the spends of windows that open with the first run after the one
// before has closed, and says how many there were.
func peakWindow(t Trace, length time.Duration) (holdfast.MicroUSD, int) {
	var sums []holdfast.MicroUSD
	var closes time.Time
	for _, r := range t.Rows {
		if len(sums) == 0 || !r.At.Before(closes) {
			closes = r.At.Add(length)
			sums = append(sums, 0)
		}
		sums[len(sums)-1] += r.Cost
	}
	return wholeCents(ranked(sums)), len(sums)
}

// wholeCents rounds money up to the cent, at most to what an edge accepts.
func wholeCents(m holdfast.MicroUSD) holdfast.MicroUSD {
	const cent = holdfast.OneUSD / 100
	return min((m+cent-1)/cent*cent, holdfast.MaxUSD)
}
