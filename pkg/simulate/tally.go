package simulate

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
)

// outcome is how a row's launch ended.
type outcome uint8

const (
	outNone outcome = iota
	outAdmitted
	outRefused
	outWaiting
)

// fate is what became of one row in a scenario.
type fate struct {
	outcome    outcome
	denial     holdfast.DenyReason
	held       bool // refused because of a reservation alone
	cut        bool // granted less than it cost
	start, end time.Time
	spent      holdfast.MicroUSD
}

// tally keeps the fate of every row of a scenario.
type tally struct {
	rows  []Row
	fates []fate
}

func newTally(t Trace) *tally { return &tally{rows: t.Rows, fates: make([]fate, len(t.Rows))} }

func (t *tally) admitted(row int, at time.Time, cut bool) {
	t.fates[row] = fate{outcome: outAdmitted, start: at, cut: cut}
}

func (t *tally) refused(row int, d holdfast.Denial) {
	t.fates[row] = fate{outcome: outRefused, denial: d.Reason, held: d.Cause == holdfast.CauseReserved}
}

func (t *tally) waiting(row int) { t.fates[row] = fate{outcome: outWaiting} }

func (t *tally) ended(row int, at time.Time, spent holdfast.MicroUSD) {
	t.fates[row].end, t.fates[row].spent = at, spent
}

// Count is what became of a number of launches. Asked is the sum of Admitted, of all
// Refused, and of Waiting.
type Count struct {
	Asked    int                         `json:"asked"`
	Admitted int                         `json:"admitted"`
	Refused  map[holdfast.DenyReason]int `json:"refused"`
	HeldOut  int                         `json:"held_out"` // of the refused: only a reservation stood in the way
	Waiting  int                         `json:"waiting"`  // still asking when the trace ended
	CutShort int                         `json:"cut_short"`
	SpentUSD holdfast.MicroUSD           `json:"spent_usd"`
	WaitedS  int64                       `json:"waited_s"` // by those that were admitted
}

// AllRefused is the sum over the reasons.
func (c Count) AllRefused() int {
	n := 0
	for _, k := range c.Refused {
		n += k
	}
	return n
}

func (c *Count) add(r Row, f fate) {
	if c.Refused == nil {
		c.Refused = map[holdfast.DenyReason]int{}
	}
	c.Asked++
	switch f.outcome {
	case outAdmitted:
		c.Admitted++
		c.SpentUSD += f.spent
		c.WaitedS += int64(f.start.Sub(r.At) / time.Second)
		if f.cut {
			c.CutShort++
		}
	case outRefused:
		c.Refused[f.denial]++
		if f.held {
			c.HeldOut++
		}
	case outWaiting:
		c.Waiting++
	case outNone:
	}
}

// scenario sums the fates up.
func (t *tally) scenario(name string) Scenario {
	s := Scenario{Name: name, fates: t.fates}
	s.Totals.Refused = map[holdfast.DenyReason]int{}
	teams, bots := map[holdfast.TeamID]*Count{}, map[holdfast.Identity]*Count{}
	for i, r := range t.rows {
		f := t.fates[i]
		s.Totals.add(r, f)
		countOf(teams, r.Team).add(r, f)
		countOf(bots, r.Identity).add(r, f)
	}
	for team, c := range teams {
		s.ByTeam = append(s.ByTeam, TeamCount{team, *c})
	}
	for bot, c := range bots {
		s.ByBot = append(s.ByBot, BotCount{bot, *c})
	}
	slices.SortFunc(s.ByTeam, func(a, b TeamCount) int { return cmp.Compare(a.Team, b.Team) })
	slices.SortFunc(s.ByBot, func(a, b BotCount) int { return cmp.Compare(a.Identity.String(), b.Identity.String()) })
	s.PeakRuns = t.peak()
	return s
}

func countOf[K comparable](in map[K]*Count, key K) *Count {
	c := in[key]
	if c == nil {
		c = &Count{}
		in[key] = c
	}
	return c
}

// peak is the most runs at once.
func (t *tally) peak() int {
	type change struct {
		at time.Time
		by int
	}
	var changes []change
	for _, f := range t.fates {
		if f.outcome == outAdmitted && f.end.After(f.start) {
			changes = append(changes, change{f.start, 1}, change{f.end, -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), a.by-b.by) })
	now, peak := 0, 0
	for _, c := range changes {
		now += c.by
		peak = max(peak, now)
	}
	return peak
}

// unused is how much of n slots a holder's runs leave free between two instants, in
// slot time, in the teams that fit.
func (t *tally) unused(holder holdfast.Identity, n int64, from, to time.Time, fits func(Row) bool) time.Duration {
	type change struct {
		at time.Time
		by int64
	}
	var changes []change
	for i, r := range t.rows {
		f := t.fates[i]
		if r.Identity != holder || f.outcome != outAdmitted || !fits(r) || !f.end.After(from) || !f.start.Before(to) {
			continue
		}
		changes = append(changes, change{f.start, 1}, change{f.end, -1})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), int(a.by-b.by)) })
	var idle time.Duration
	live, last := int64(0), from
	for _, c := range append(changes, change{at: to}) {
		at := c.at
		if at.After(to) {
			at = to
		}
		if at.After(last) {
			idle += at.Sub(last) * time.Duration(max(0, n-live))
			last = at
		}
		live += c.by
	}
	return idle
}
