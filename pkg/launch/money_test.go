package launch_test

import (
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// I7: runs that cost more than they were granted are stopped at their own allowance,
// so that together they pass the cap by one turn of each at most; and what they did
// pass it by is recorded and shown.
func TestAnUnderpricedRunIsStoppedAtItsAllowance(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MonthlyUSD: usdLimit(0.45)})
	r := ask("feature-dev")
	r.External, r.BudgetUSD = true, ptr(usd(0.15))
	var live []holdfast.RunID
	for range 3 {
		live = append(live, w.admitted(r).ID)
	}
	for range 2 {
		w.refused(r, holdfast.DenyMonthlyUSD)
	}
	const turn = 20_000 // micro-dollars of the turn that was under way
	for _, id := range live {
		if lease := must(w.Heartbeat(w.ctx, member, id, usd(0.14)))(t); lease.Stop {
			t.Errorf("run %s is stopped below its allowance: %s", id, lease.Reason)
		}
		if lease := must(w.Heartbeat(w.ctx, member, id, usd(0.15)+turn)); !lease(t).Stop {
			t.Errorf("run %s goes on beyond its allowance", id)
		}
		must(w.Settle(w.ctx, member, id, usd(0.15)+turn, "finished"))(t)
	}
	subject := holdfast.TeamSubject("acme", holdfast.AxisUSD, w.month())
	view := must(w.CapacitySubject(w.ctx, member, subject))(t)
	if view.Settled.Int() != int64(usd(0.45))+3*turn || view.Outstanding.Int() != 0 || view.Over.Int() != 3*turn {
		t.Errorf("%s is settled, %s outstanding, %s over; want all of it recorded and a turn of each over", view.Settled, view.Outstanding, view.Over)
	}
}

// I3: the run's document, the ledger, the refusal and its text say the same number, to
// the micro-dollar.
func TestAmountsAreTheSameNumberWhereverTheyStand(t *testing.T) {
	const spent holdfast.MicroUSD = 333_334
	w := newWorld(t)
	w.team("acme", teams.Limits{MonthlyUSD: usdLimit(0.34)})
	r := ask("feature-dev")
	r.External, r.BudgetUSD = true, ptr(usd(0.34))
	run := w.admitted(r)
	must(w.Settle(w.ctx, member, run.ID, spent, "finished"))(t)
	r.MinBudgetUSD = r.BudgetUSD
	denial := w.refused(r, holdfast.DenyMonthlyUSD)
	if got := w.get(run.ID).Spent; got != spent {
		t.Errorf("the document says %s", got)
	}
	if got := w.balance(holdfast.TeamSubject("acme", holdfast.AxisUSD, w.month())); got.Settled != int64(spent) || got.Outstanding != 0 {
		t.Errorf("the ledger says %+v", got)
	}
	if denial.Settled.Int() != int64(spent) || !strings.Contains(denial.Public, "0.333334") {
		t.Errorf("the refusal says %s and %q", denial.Settled, denial.Public)
	}
}
