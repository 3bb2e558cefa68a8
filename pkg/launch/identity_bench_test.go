package launch_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/store/embedded"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// BenchmarkIdentityAndPolicy times, in one run and one after the other, a durable
// reserve and what identity and policy add to it: the bot's resolution from the stored
// tiers, the settings, and what ten reservations withhold. The figure is the ratio of
// their medians (goal: at most 0.10 where a reserve waits for its own sync).
func BenchmarkIdentityAndPolicy(b *testing.B) {
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprintf("%d callers", callers), func(b *testing.B) {
			store, err := embedded.Open(b.Context(), b.TempDir(), embedded.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			r := newReserver(b, store.Ledger(), store.Records())
			for b.Loop() {
				r.round(callers, 300)
			}
			slices.Sort(r.added)
			slices.Sort(r.reserves)
			added, reserve := r.added[len(r.added)/2], r.reserves[len(r.reserves)/2]
			b.ReportMetric(float64(added)/float64(reserve), "added/reserve")
			b.ReportMetric(float64(reserve.Nanoseconds())/1e3, "µs/reserve")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// reserver reserves and settles on a durable ledger.
type reserver struct {
	*world
	owner teams.Team

	mu              sync.Mutex
	added, reserves []time.Duration
}

func newReserver(b *testing.B, ledger capacityledger.Store, db records.DB) *reserver {
	w := newWorldOver(b, ledger, db)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(1000)})
	policy := budgetfloor.Policy{}
	for i := range 5 {
		policy.Reservations = append(policy.Reservations,
			budgetfloor.Reservation{Bot: holdfast.BotID(fmt.Sprintf("bot-%d", i)), ConcurrentRuns: 1, MonthlyUSD: usd(5)},
			budgetfloor.Reservation{Bot: holdfast.BotID(fmt.Sprintf("bot-%d", i)), Tier: holdfast.TierTeam, Team: "acme", ConcurrentRuns: 1, MonthlyUSD: usd(5)})
	}
	w.policy(policy)
	w.own("acme", "bot-1")
	return &reserver{world: w, owner: must(w.teams.Get(w.ctx, "acme"))(b)}
}

// round makes so many reserves from each of so many callers.
func (r *reserver) round(callers, each int) {
	var wait sync.WaitGroup
	for range callers {
		wait.Go(func() {
			for range each {
				r.one()
			}
		})
	}
	wait.Wait()
}

func (r *reserver) one() {
	subject, run := holdfast.TeamSubject("acme", holdfast.AxisSlots, ""), r.runs.NewID(r.clock.Now())
	began := time.Now()
	workload, terms, err := r.Judged(r.ctx, r.owner, "Bot_1", subject)
	if err != nil {
		r.t.Error(err)
		return
	}
	judged := time.Now()
	ask := capacityledger.Ask{
		ID: holdfast.NewAllocationID(run, subject, 0), Run: run, Holder: workload.Identity(), Terms: terms,
		Requested: holdfast.SlotAmount(1), Minimum: holdfast.SlotAmount(1), Expires: r.clock.Now().Add(time.Minute),
	}
	if _, denial, err := r.ledger.Reserve(r.ctx, ask); err != nil || denial.Denied() {
		r.t.Errorf("denied %q, error %v", denial.Reason, err)
		return
	}
	reserved := time.Now()
	if _, err := r.ledger.Settle(r.ctx, ask.ID, capacityledger.Report{}); err != nil {
		r.t.Error(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.added, r.reserves = append(r.added, judged.Sub(began)), append(r.reserves, reserved.Sub(judged))
}
