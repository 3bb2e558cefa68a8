package server

import (
	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/launch"
)

// DecisionOnWire is a decision as the API shows it.
func DecisionOnWire(d decisions.Decision) api.Decision {
	out := api.Decision{
		ID: d.ID, At: utc(d.At), Team: string(d.Team), Bot: d.Bot, Run: string(d.Run), Surface: d.Surface, Admitted: d.Admitted,
		Reason: string(d.Reason), Cause: string(d.Cause), Detail: d.Detail, Checks: checksOnWire(d.Checks), Count: d.Count,
	}
	if !d.Identity.IsZero() {
		identity := api.IdentityOf(d.Identity)
		out.Identity = &identity
	}
	if !d.Subject.IsZero() {
		out.Subject = d.Subject.String()
		out.Holders = api.HoldingsOf(d.Holdings())
	}
	return out
}

func checksOnWire(checks []decisions.Check) []api.Check {
	out := make([]api.Check, 0, len(checks))
	for _, c := range checks {
		wire := api.Check{Name: c.Name, Verdict: string(c.Verdict), Reason: string(c.Reason), Cause: string(c.Cause), Detail: c.Detail}
		if !c.Subject.IsZero() {
			wire.Subject = c.Subject.String()
		}
		if f := c.Figures; f != nil {
			amount := func(n int64) *api.Amount { a := api.AmountOf(c.Amount(n)); return &a }
			wire.Cap = api.LimitOf(c.Limit())
			wire.Requested, wire.Settled, wire.Outstanding = amount(f.Requested), amount(f.Settled), amount(f.Outstanding)
			wire.Withheld, wire.Remaining, wire.Allowance = amount(f.Withheld), amount(f.Remaining), amount(f.Allowance)
		}
		out = append(out, wire)
	}
	return out
}

func previewOnWire(p launch.Preview) api.Preview {
	out := api.Preview{Admitted: p.Admitted, Checks: checksOnWire(p.Checks), Walk: []api.WalkStep{}}
	if p.Admitted {
		budget := p.Budget
		out.BudgetUSD, out.AskedUSD, out.CutBy = &budget, p.Asked, string(p.CutBy)
	}
	if p.Identity != (holdfast.Identity{}) {
		identity := api.IdentityOf(p.Identity)
		out.Identity = &identity
	}
	if p.Denial.Denied() {
		problem := refusal(p.Denial).problem
		out.Refusal = &problem
	}
	return out
}
