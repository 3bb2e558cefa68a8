package simulate

import (
	"context"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

type ledger = *capacityledger.Ledger

// gate is the launch gate of a replay.
type gate struct {
	clock  *movedClock
	ledger ledger
	caps   Caps
	policy budgetfloor.Policy
	runs   int
}

// held is what an admitted run has.
type held struct {
	run    holdfast.RunID
	budget holdfast.MicroUSD
	ids    []holdfast.AllocationID
}

func newGate(_ context.Context, clock *movedClock, _ Trace, caps Caps, policy budgetfloor.Policy) (*gate, error) {
	return &gate{clock: clock, ledger: capacityledger.New(memory.NewLedger(), capacityledger.Options{Clock: clock}), caps: caps, policy: policy}, nil
}

type wish struct {
	subject   holdfast.Subject
	cap       holdfast.LimitSetting
	requested holdfast.Amount
	minimum   holdfast.Amount
}

func (g *gate) wishes(r Row) []wish {
	month := holdfast.MonthPeriod(g.clock.now)
	team := g.caps.of(r.Team)
	one, run, usd := holdfast.SlotAmount(1), holdfast.RunAmount(1), holdfast.USDAmount(r.Ask)
	least := holdfast.USDAmount(min(r.Ask, max(50_000, r.Ask/10)))
	return []wish{
		{holdfast.TeamSubject(r.Team, holdfast.AxisSlots, ""), team.MaxConcurrentRuns.LimitSetting, one, one},
		{holdfast.PlatformSubject(holdfast.AxisSlots, ""), g.caps.Platform.MaxConcurrentRuns.LimitSetting, one, one},
		{holdfast.TeamSubject(r.Team, holdfast.AxisRuns, month), team.MonthlyRuns.LimitSetting, run, run},
		{holdfast.TeamSubject(r.Team, holdfast.AxisUSD, month), team.MonthlyUSD.LimitSetting, usd, least},
		{holdfast.PlatformSubject(holdfast.AxisUSD, month), g.caps.Platform.MonthlyUSD.LimitSetting, usd, least},
	}
}

func (g *gate) ask(run holdfast.RunID, r Row, w wish) capacityledger.Ask {
	terms := capacityledger.Terms{Cap: w.cap.Limit(w.subject.Axis.Unit())}
	for _, s := range g.policy.Reserved(w.subject, g.clock.now) {
		terms.Reserved = append(terms.Reserved, capacityledger.Reserved{Holder: s.Holder, Amount: s.Amount})
	}
	return capacityledger.Ask{
		ID: holdfast.NewAllocationID(run, w.subject, 0), Terms: terms, Holder: r.Identity, Run: run,
		Requested: w.requested, Minimum: w.minimum, Expires: g.clock.now.Add(24 * 365 * time.Hour),
	}
}

func (g *gate) preview(ctx context.Context, r Row) (holdfast.Denial, error) {
	for _, w := range g.wishes(r) {
		_, denial, _, err := g.ledger.Preview(ctx, g.ask("preview", r, w))
		if err != nil || denial.Denied() {
			return denial, err
		}
	}
	return holdfast.Denial{}, nil
}

func (g *gate) launch(ctx context.Context, r Row) (held, holdfast.Denial, error) {
	g.runs++
	h := held{run: holdfast.RunID("run" + strconv.Itoa(g.runs)), budget: r.Ask}
	for _, w := range g.wishes(r) {
		allocation, denial, err := g.ledger.Reserve(ctx, g.ask(h.run, r, w))
		if err != nil || denial.Denied() {
			for _, id := range h.ids {
				if _, err := g.ledger.Release(ctx, id); err != nil {
					return held{}, holdfast.Denial{}, err
				}
			}
			return held{}, denial, err
		}
		if w.subject.Axis == holdfast.AxisUSD {
			h.budget = min(h.budget, holdfast.MicroUSD(allocation.Amount.Int()))
		}
		h.ids = append(h.ids, allocation.ID)
	}
	return h, holdfast.Denial{}, nil
}

func (g *gate) settle(ctx context.Context, h held, spent holdfast.MicroUSD) error {
	for _, id := range h.ids {
		subject, err := id.Subject()
		if err != nil {
			return err
		}
		report := capacityledger.Report{Attempt: 1, Sequence: 1}
		switch subject.Axis {
		case holdfast.AxisUSD:
			report.Spent = holdfast.USDAmount(spent)
		case holdfast.AxisRuns:
			report.Spent = holdfast.RunAmount(1)
		case holdfast.AxisSlots, holdfast.AxisFiveHour, holdfast.AxisWeek, holdfast.AxisInFlight:
		}
		if _, err := g.ledger.Settle(ctx, id, report); err != nil {
			return err
		}
	}
	return nil
}
