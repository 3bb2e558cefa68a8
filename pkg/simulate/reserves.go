package simulate

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// Reserve says what became of one axis of a reservation: how much was held back, how
// much of it its holder used, and how much lay idle. Slots are measured in
// slot-hours, money and windows in dollars.
type Reserve struct {
	Identity    holdfast.Identity `json:"identity"`
	Axis        holdfast.Axis     `json:"axis"`
	Capped      bool              `json:"capped"`   // false: nothing caps the axis in this replay, so nothing is held back
	Subjects    int               `json:"subjects"` // the subjects it was held back on, months and windows each for itself
	Unit        string            `json:"unit"`     // slot_hours or usd
	Reserved    string            `json:"reserved"`
	Idle        string            `json:"idle"`
	IdlePercent int64             `json:"idle_percent"`
}

// measure sums a reserve up in its grain: milliseconds of slots, or micro-dollars.
type measure struct {
	subjects       int
	reserved, idle int64
}

func (m *measure) add(reserved, idle int64) {
	m.subjects++
	m.reserved += reserved
	m.idle += idle
}

// reserves measures every axis of every reservation of a scenario.
func (e *engine) reserves(ctx context.Context, policy budgetfloor.Policy) ([]Reserve, error) {
	var out []Reserve
	for _, r := range policy.Reservations {
		for _, axis := range []holdfast.Axis{holdfast.AxisSlots, holdfast.AxisUSD, holdfast.AxisFiveHour, holdfast.AxisWeek} {
			if !reserves(r, axis) {
				continue
			}
			var m measure
			var err error
			switch axis {
			case holdfast.AxisSlots:
				e.measureSlots(policy, r, &m)
			case holdfast.AxisUSD:
				err = e.measureMonths(ctx, policy, r, &m)
			case holdfast.AxisFiveHour, holdfast.AxisWeek:
				err = e.measureWindows(ctx, policy, r, axis, &m)
			case holdfast.AxisRuns, holdfast.AxisInFlight:
			}
			if err != nil {
				return nil, err
			}
			reserve := reserveOf(r.Holder(), axis, m)
			reserve.Capped = e.capped(axis)
			out = append(out, reserve)
		}
	}
	return out, nil
}

// capped says whether anything of the axis has a cap.
func (e *engine) capped(axis holdfast.Axis) bool {
	if axis == holdfast.AxisFiveHour || axis == holdfast.AxisWeek {
		return slices.ContainsFunc(e.windows, func(w *window) bool { return w.axis == axis })
	}
	limit := func(slots holdfast.CountLimit, usd holdfast.USDLimit) bool {
		if axis == holdfast.AxisSlots {
			return !slots.Limit(holdfast.UnitSlots).None()
		}
		return !usd.Limit(holdfast.UnitUSD).None()
	}
	return limit(e.caps.Platform.MaxConcurrentRuns, e.caps.Platform.MonthlyUSD) ||
		slices.ContainsFunc(e.teams, func(team holdfast.TeamID) bool {
			own := e.caps.of(team)
			return limit(own.MaxConcurrentRuns, own.MonthlyUSD)
		})
}

func reserves(r budgetfloor.Reservation, axis holdfast.Axis) bool {
	switch axis {
	case holdfast.AxisSlots:
		return r.ConcurrentRuns > 0
	case holdfast.AxisUSD:
		return r.MonthlyUSD > 0
	case holdfast.AxisFiveHour:
		return r.FiveHourPercent > 0
	case holdfast.AxisWeek:
		return r.WeekPercent > 0
	case holdfast.AxisRuns, holdfast.AxisInFlight:
	}
	return false
}

func reserveOf(holder holdfast.Identity, axis holdfast.Axis, m measure) Reserve {
	r := Reserve{Identity: holder, Axis: axis, Subjects: m.subjects, Unit: "usd"}
	if axis == holdfast.AxisSlots {
		r.Unit = "slot_hours"
		r.Reserved, r.Idle = hours(m.reserved), hours(m.idle)
	} else {
		r.Reserved, r.Idle = holdfast.MicroUSD(m.reserved).String(), holdfast.MicroUSD(m.idle).String()
	}
	if m.reserved > 0 {
		r.IdlePercent = percentOf(m.idle, m.reserved)
	}
	return r
}

// percentOf is idle of reserved in percent, rounded to the nearest, without
// an overflow.
func percentOf(idle, reserved int64) int64 {
	for reserved > 1<<50 {
		idle, reserved = idle>>1, reserved>>1
	}
	return (idle*100 + reserved/2) / reserved
}

// hours prints milliseconds as hours with one decimal.
func hours(ms int64) string {
	tenths := (ms + 180_000) / 360_000
	return fmt.Sprintf("%d.%d", tenths/10, tenths%10)
}

// effective is what the policy holds back for a holder on a subject, as cut to the
// cap by the reservations before it; zero where nothing is.
func effective(policy budgetfloor.Policy, subject holdfast.Subject, limit holdfast.Limit, holder holdfast.Identity, at time.Time) int64 {
	if limit.None() {
		return 0
	}
	terms := capacityledger.Terms{Cap: limit}
	for _, s := range policy.Reserved(subject, at) {
		terms.Reserved = append(terms.Reserved, capacityledger.Reserved{Holder: s.Holder, Amount: s.Amount})
	}
	for _, h := range capacityledger.Holdings(terms, capacityledger.Balance{Subject: subject}) {
		if h.Holder == holder {
			return h.Reserved.Int()
		}
	}
	return 0
}

func (e *engine) measureSlots(policy budgetfloor.Policy, r budgetfloor.Reservation, m *measure) {
	from, to := e.from, e.horizon
	if r.SuspendedUntil.After(from) {
		from = r.SuspendedUntil
	}
	if !to.After(from) {
		return
	}
	one := func(subject holdfast.Subject, limit holdfast.Limit, fits func(Row) bool) {
		n := effective(policy, subject, limit, r.Holder(), from)
		if n == 0 {
			return
		}
		idle := e.tally.unused(r.Holder(), n, from, to, fits)
		m.add(n*int64(to.Sub(from)/time.Millisecond), int64(idle/time.Millisecond))
	}
	one(holdfast.PlatformSubject(holdfast.AxisSlots, ""), e.caps.Platform.MaxConcurrentRuns.Limit(holdfast.UnitSlots), func(Row) bool { return true })
	for _, team := range e.teams {
		one(holdfast.TeamSubject(team, holdfast.AxisSlots, ""), e.caps.of(team).MaxConcurrentRuns.Limit(holdfast.UnitSlots), func(row Row) bool { return row.Team == team })
	}
}

func (e *engine) measureMonths(ctx context.Context, policy budgetfloor.Policy, r budgetfloor.Reservation, m *measure) error {
	one := func(subject holdfast.Subject, limit holdfast.Limit, at time.Time) error {
		n := effective(policy, subject, limit, r.Holder(), at)
		if n == 0 {
			return nil
		}
		settled, err := e.settled(ctx, subject, r.Holder())
		m.add(n, max(0, n-settled))
		return err
	}
	for at := e.from; !at.After(e.horizon); at = holdfast.MonthEnd(at) {
		month := holdfast.MonthPeriod(at)
		if err := one(holdfast.PlatformSubject(holdfast.AxisUSD, month), e.caps.Platform.MonthlyUSD.Limit(holdfast.UnitUSD), at); err != nil {
			return err
		}
		for _, team := range e.teams {
			if err := one(holdfast.TeamSubject(team, holdfast.AxisUSD, month), e.caps.of(team).MonthlyUSD.Limit(holdfast.UnitUSD), at); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *engine) measureWindows(ctx context.Context, policy budgetfloor.Policy, r budgetfloor.Reservation, axis holdfast.Axis, m *measure) error {
	for _, w := range e.windows {
		if w.axis != axis {
			continue
		}
		for _, seen := range w.seen {
			subject := holdfast.Subject{Kind: holdfast.KindAccount, ID: account, Axis: axis, Period: strconv.FormatInt(seen.Closes.Unix(), 10)}
			n := effective(policy, subject, holdfast.AtMost(holdfast.ShareAmount(w.cap.share())), r.Holder(), seen.Opens)
			if n == 0 {
				continue
			}
			settled, err := e.settled(ctx, subject, r.Holder())
			if err != nil {
				return err
			}
			m.add(int64(holdfast.BasisPoints(n).OfUSD(w.cap.USD)), int64(holdfast.BasisPoints(max(0, n-settled)).OfUSD(w.cap.USD)))
		}
	}
	return nil
}

// settled is what a holder used of a subject, in the end.
func (e *engine) settled(ctx context.Context, subject holdfast.Subject, holder holdfast.Identity) (int64, error) {
	balance, err := e.gate.ledger.Outstanding(ctx, subject)
	if err != nil {
		return 0, err
	}
	for _, h := range balance.Holders {
		if h.Holder == holder {
			return h.Settled, nil
		}
	}
	return 0, nil
}
