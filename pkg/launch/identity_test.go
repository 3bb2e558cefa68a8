package launch_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/botsource"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// own registers a team's own bot.
func (w *world) own(team holdfast.TeamID, name holdfast.BotID) {
	w.t.Helper()
	if _, _, err := w.bots.Put(w.ctx, w.clock.Now(), team, holdfast.Bot{Name: name, Lane: holdfast.LaneCommand, Command: []string{"true"}}, "test"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) launchAs(who auth.Principal, r launch.Request) (holdfast.Identity, holdfast.Denial) {
	w.t.Helper()
	run, denial, err := w.Launch(w.ctx, who, r)
	if err != nil {
		w.t.Fatal(err)
	}
	return run.Identity, denial
}

// Both directions of a homonym, in one world: a team that owns a bot under the
// reserved name launches it as ordinary work (272), and another team's launch of
// that name is the holder (273), however it is spelled.
func TestAHomonymIsJudgedAsWhatServesIt(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(2)})
	w.team("globex", teams.Limits{MaxConcurrentRuns: slots(2)})
	w.policy(reviews(2, 0))
	w.own("acme", "review-pr")
	if _, denial := w.launchAs(member, ask("review-pr")); denial.Reason != holdfast.DenyConcurrency || denial.Cause != holdfast.CauseReserved {
		t.Errorf("the team's own bot is denied %q because of %q, want %q", denial.Reason, denial.Cause, holdfast.CauseReserved)
	}
	for _, spelling := range []string{"review-pr", "Review PR"} {
		if identity, denial := w.launchAs(globexMember, askOf("globex", spelling)); denial.Denied() || identity != holdfast.PlatformBot("review-pr") {
			t.Errorf("another team's %q is %s, denied %q", spelling, identity, denial.Reason)
		}
	}
}

// 276: one name reserved in both tiers is two reservations, each for its own
// launches.
func TestOneNameReservedInTwoTiersIsHeldForEach(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(2)})
	w.team("globex", teams.Limits{MaxConcurrentRuns: slots(1)})
	w.policy(budgetfloor.Policy{Reservations: []budgetfloor.Reservation{
		{Bot: "review-pr", ConcurrentRuns: 1},
		{Bot: "review-pr", Tier: holdfast.TierTeam, Team: "acme", ConcurrentRuns: 1},
	}})
	w.own("acme", "review-pr")
	if identity, denial := w.launchAs(member, ask("review-pr")); denial.Denied() || identity != holdfast.TeamBot("acme", "review-pr") {
		t.Fatalf("the team's holder is %s, denied %q", identity, denial.Reason)
	}
	// The second slot is the platform's bot's, and the team's has used its own.
	if _, denial := w.launchAs(member, ask("review-pr")); denial.Cause != holdfast.CauseReserved {
		t.Errorf("the team's bot on the platform's reserve is denied %q because of %q", denial.Reason, denial.Cause)
	}
	if _, denial := w.launchAs(globexMember, askOf("globex", "probe")); denial.Cause != holdfast.CauseReserved {
		t.Errorf("ordinary work of another team is denied %q because of %q", denial.Reason, denial.Cause)
	}
	if identity, denial := w.launchAs(globexMember, askOf("globex", "review-pr")); denial.Denied() || identity != holdfast.PlatformBot("review-pr") {
		t.Errorf("the platform's holder is %s, denied %q", identity, denial.Reason)
	}
}

// 141: a reservation that was stored before tiers existed is the platform's, for the
// gate too; it is not one of nobody (286).
func TestAStoredReservationWithoutATierIsHeldForThePlatformsBot(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(1)})
	collection := must(w.db.Collection(w.ctx, records.Schema{Name: "settings"}))(t)
	body := `{"family":"budget-floor","updated_at":"2025-01-02T03:04:05Z","value":{"reservations":[{"bot":"review-pr","concurrent_runs":1}]}}`
	if _, err := collection.Insert(w.ctx, records.Record{ID: "budget-floor", Body: []byte(body)}); err != nil {
		t.Fatal(err)
	}
	if denial := w.refused(ask("probe"), holdfast.DenyConcurrency); denial.Cause != holdfast.CauseReserved {
		t.Errorf("cause %q", denial.Cause)
	}
	w.admitted(ask("review-pr"))
}

// countedRates counts what is taken and given back.
type countedRates struct {
	*launch.Buckets
	mu          sync.Mutex
	taken, back int
}

func (r *countedRates) Take(ctx context.Context, key launch.RateKey, perMinute int64, now time.Time) (bool, time.Duration, error) {
	r.mu.Lock()
	r.taken++
	r.mu.Unlock()
	return r.Buckets.Take(ctx, key, perMinute, now)
}

func (r *countedRates) Give(ctx context.Context, key launch.RateKey, perMinute int64, now time.Time) error {
	r.mu.Lock()
	r.back++
	r.mu.Unlock()
	return r.Buckets.Give(ctx, key, perMinute, now)
}

// rated is the world's gate with counted rate tokens.
func (w *world) rated() (*launch.Service, *countedRates) {
	rates := &countedRates{Buckets: w.rates}
	resolver := botsource.NewResolver(w.bots, botsource.Options{OnRead: func(holdfast.Identity) { w.mu.Lock(); w.resolved++; w.mu.Unlock() }})
	return must(launch.New(launch.Deps{
		Ledger: w.ledger, Runs: w.runs, Teams: w.teams, Bots: resolver, Settings: w.settings, Decisions: w.decisions, Audit: w.audit, Queue: w.queue,
	}, launch.Options{Clock: w.clock, Rates: rates}))(w.t), rates
}

// 156, 159, 282: whatever says no behind the resolution, the resolution itself
// included, gives the rate token back exactly once and leaves no document, which is
// the snapshot of the bot.
func TestARefusalBehindTheRateGivesItsTokenBackExactlyOnce(t *testing.T) {
	for _, trial := range trials() {
		w := newWorld(t)
		service, rates := w.rated()
		r, who := ask("probe"), member
		trial.spoil(w, &r, &who)
		want := 1
		switch trial.check {
		case "maintenance", "membership", "role", "team", "repo-quota", "launch-rate":
			want = 0
		}
		before := w.footprint()
		run, denial, err := service.Launch(w.ctx, who, r)
		if err != nil || denial.Reason != trial.reason || run.ID != "" {
			t.Fatalf("%s: denied %q, error %v", trial.reason, denial.Reason, err)
		}
		if rates.taken != want || rates.back != want {
			t.Errorf("%s: %d tokens were taken and %d given back, want %d", trial.reason, rates.taken, rates.back, want)
		}
		if diff := cmp.Diff(before, w.footprint()); diff != "" {
			t.Errorf("%s left something behind: %s", trial.reason, diff)
		}
	}
}

// 280 and its like: a launch over its repository's quota, a viewer's and one without
// a rate token are refused without a resolver call, also where the bot does not exist.
func TestTheEarlyRefusalsDoNotEvenLookForABot(t *testing.T) {
	for name, c := range map[string]struct {
		who    auth.Principal
		reason holdfast.DenyReason
		spoil  func(*world)
	}{
		"a viewer (278)":             {viewer, holdfast.DenyRole, func(*world) {}},
		"out of launch tokens (279)": {member, holdfast.DenyLaunchRate, func(w *world) { w.team("acme", teams.Limits{LaunchesPerMinute: slots(1)}); w.admitted(ask("probe")) }},
		"over a repository quota (280)": {member, holdfast.DenyRepoQuota, func(w *world) {
			w.policy(budgetfloor.Policy{RepoQuotas: []budgetfloor.RepoQuota{repoQuota("acme/widgets", 0)}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.spoil(w)
			w.resolved = 0
			for _, bot := range []string{"probe", "no-such-bot"} {
				r := ask(bot)
				r.Repo = "acme/widgets"
				if _, denial := w.launchAs(c.who, r); denial.Reason != c.reason {
					t.Errorf("%s is denied %q, want %q", bot, denial.Reason, c.reason)
				}
			}
			if w.resolved != 0 {
				t.Errorf("the resolver read %d times", w.resolved)
			}
		})
	}
}

// A tier that cannot be read is an error at the gate, never an older bot and never a
// refusal; everything comes back.
func TestAnUnreadableTierIsUnavailableAtTheGate(t *testing.T) {
	w := newWorld(t)
	service, rates := w.rated()
	w.own("acme", "review-pr")
	before := w.footprint()
	w.db.fail("bots", "get")
	_, denial, err := service.Launch(w.ctx, member, ask("review-pr"))
	if !errors.Is(err, launch.ErrUnavailable) || denial.Denied() {
		t.Errorf("denied %q, error %v", denial.Reason, err)
	}
	if rates.taken != 1 || rates.back != 1 {
		t.Errorf("%d tokens were taken and %d given back", rates.taken, rates.back)
	}
	w.db.set(nil)
	if diff := cmp.Diff(before, w.footprint()); diff != "" {
		t.Error(diff)
	}
}

// 149: a continuation is who its document says, whatever the name resolves to by
// now, in both directions; and it resolves nothing.
func TestAContinuationKeepsItsDocumentsIdentity(t *testing.T) {
	interrupted := func(w *world, bot string) holdfast.RunID {
		run := w.admitted(ask(bot))
		grant := w.started(run.ID)
		w.apply(w.ended(run.ID, grant.Attempt, 0.01, queue.EndInterrupted))
		return run.ID
	}
	t.Run("a platform's run whose name a team took since", func(t *testing.T) {
		w := newWorld(t)
		w.team("acme", teams.Limits{MaxConcurrentRuns: slots(1)})
		w.policy(reviews(1, 0))
		id := interrupted(w, "review-pr")
		w.own("acme", "review-pr")
		w.resolved = 0
		run, denial, err := w.Resume(w.ctx, member, id)
		if err != nil || denial.Denied() || run.Identity != holdfast.PlatformBot("review-pr") || w.resolved != 0 {
			t.Errorf("it is %s, denied %q (%q), error %v, %d resolutions", run.Identity, denial.Reason, denial.Cause, err, w.resolved)
		}
	})
	t.Run("a team's run whose bot is gone", func(t *testing.T) {
		w := newWorld(t)
		w.own("acme", "review-pr")
		id := interrupted(w, "review-pr")
		if err := w.bots.Delete(w.ctx, "acme", "review-pr"); err != nil {
			t.Fatal(err)
		}
		w.team("acme", teams.Limits{MaxConcurrentRuns: slots(1)})
		w.policy(reviews(1, 0))
		if _, denial, err := w.Resume(w.ctx, member, id); err != nil || denial.Cause != holdfast.CauseReserved {
			t.Errorf("denied %q because of %q, error %v; a fork is not the holder", denial.Reason, denial.Cause, err)
		}
	})
}

// 163: what a team's fork runs and spends is never the platform holder's.
func TestWhatAForkUsesIsNotTheHolders(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(4), MonthlyUSD: usdLimit(40)})
	w.own("acme", "review-pr")
	run := w.admitted(ask("review-pr"))
	grant := w.started(run.ID)
	w.apply(w.ended(run.ID, grant.Attempt, 2, queue.EndFinished))
	w.admitted(ask("review-pr"))
	for _, subject := range []holdfast.Subject{holdfast.TeamSubject("acme", holdfast.AxisSlots, ""), holdfast.TeamSubject("acme", holdfast.AxisUSD, w.month())} {
		balance := w.balance(subject)
		for _, holder := range balance.Holders {
			if holder.Holder != holdfast.TeamBot("acme", "review-pr") {
				t.Errorf("%s counts %+v", subject, holder)
			}
		}
		if len(balance.Holders) != 1 {
			t.Errorf("%s has holders %+v", subject, balance.Holders)
		}
	}
}
