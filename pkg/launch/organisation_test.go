package launch_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/store/embedded"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// organisation writes an organisation and makes the teams its members.
func (w *world) organisation(id holdfast.OrgID, limits teams.Limits, members ...holdfast.TeamID) {
	w.t.Helper()
	_, err := w.teams.CreateOrganisation(w.ctx, teams.Organisation{ID: id, Limits: limits, CreatedAt: w.clock.Now()})
	if errors.Is(err, records.ErrExists) {
		_, err = w.teams.UpdateOrganisation(w.ctx, id, func(o *teams.Organisation) error { o.Limits = limits; return nil })
	}
	if err != nil {
		w.t.Fatal(err)
	}
	for _, team := range members {
		_, err := w.teams.Create(w.ctx, teams.Team{ID: team, Organisation: id})
		if errors.Is(err, records.ErrExists) {
			_, err = w.teams.Update(w.ctx, team, func(t *teams.Team) error { t.Organisation = id; return nil })
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

var globexMember = auth.Principal{Name: "dev2", Team: "globex", Role: auth.Member}

func askOf(team, bot string) launch.Request {
	r := ask(bot)
	r.Team = team
	return r
}

// twins runs a test over the stores of one process.
func twins(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		test(t, newWorldOver(t, memory.NewLedger(), memory.NewRecords()))
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		store, err := embedded.Open(t.Context(), t.TempDir(), embedded.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
		test(t, newWorldOver(t, store.Ledger(), store.Records()))
	})
}

// 64 callers of two teams get exactly what their organisation has, and who is
// refused has taken nothing of the team's.
func TestTwoTeamsTogetherGetExactlyTheirOrganisationsCap(t *testing.T) {
	twins(t, func(t *testing.T, w *world) {
		const callers, most = 64, 7
		w.organisation("eu", teams.Limits{MaxConcurrentRuns: slots(most)}, "acme", "globex")
		admitted, refused := race(w, callers, func(i int) (auth.Principal, launch.Request) {
			if i%2 == 0 {
				return member, ask("probe")
			}
			return globexMember, askOf("globex", "probe")
		})
		if len(admitted) != most || len(refused) != callers-most {
			t.Fatalf("%d admitted and %d refused of %d, want %d admitted", len(admitted), len(refused), callers, most)
		}
		for _, denial := range refused {
			if denial.Reason != holdfast.DenyConcurrency || denial.Subject != holdfast.OrgSubject("eu", holdfast.AxisSlots, "") {
				t.Fatalf("denied %q on %s; it is the organisation that is full", denial.Reason, denial.Subject)
			}
		}
		total := w.slotsOf("acme") + w.slotsOf("globex")
		if org := w.balance(holdfast.OrgSubject("eu", holdfast.AxisSlots, "")).Outstanding; org != most || total != most {
			t.Errorf("the organisation holds %d slots and its teams %d, want %d", org, total, most)
		}
	})
}

// race launches from many callers at once.
func race(w *world, callers int, who func(i int) (auth.Principal, launch.Request)) (admitted []runs.Run, refused []holdfast.Denial) {
	w.t.Helper()
	var mu sync.Mutex
	var wait sync.WaitGroup
	start := make(chan struct{})
	for i := range callers {
		wait.Go(func() {
			<-start
			principal, request := who(i)
			run, denial, err := w.Launch(w.ctx, principal, request)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				w.t.Error(err)
			case denial.Denied():
				refused = append(refused, denial)
			default:
				admitted = append(admitted, run)
			}
		})
	}
	close(start)
	wait.Wait()
	return admitted, refused
}

// Each owner's limit refuses under its own name, and whoever is refused leaves
// nothing anywhere, the other owners' rate tokens included.
func TestEveryOwnerMustAdmitAndARefusalNamesWhoseLimitItWas(t *testing.T) {
	month := holdfast.MonthPeriod(newWorld(t).clock.Now())
	for name, c := range map[string]struct {
		team, org teams.Limits
		platform  platformcfg.PlatformLimits
		reason    holdfast.DenyReason
		subject   holdfast.Subject
		says      string
	}{
		"slots of the organisation":   {org: teams.Limits{MaxConcurrentRuns: slots(0)}, reason: holdfast.DenyConcurrency, subject: holdfast.OrgSubject("eu", holdfast.AxisSlots, ""), says: "org/eu/slots"},
		"runs of the organisation":    {org: teams.Limits{MonthlyRuns: slots(0)}, reason: holdfast.DenyMonthlyRuns, subject: holdfast.OrgSubject("eu", holdfast.AxisRuns, month), says: "org/eu/runs"},
		"dollars of the organisation": {org: teams.Limits{MonthlyUSD: usdLimit(0.01)}, reason: holdfast.DenyMonthlyUSD, subject: holdfast.OrgSubject("eu", holdfast.AxisUSD, month), says: "org/eu/usd"},
		"rate of the organisation":    {org: teams.Limits{LaunchesPerMinute: slots(0)}, reason: holdfast.DenyLaunchRate, says: "organisation eu"},
		"slots of the team":           {team: teams.Limits{MaxConcurrentRuns: slots(0)}, org: teams.Limits{MaxConcurrentRuns: slots(9)}, reason: holdfast.DenyConcurrency, subject: holdfast.TeamSubject("acme", holdfast.AxisSlots, ""), says: "team/acme/slots"},
		"dollars of the platform":     {org: teams.Limits{MonthlyUSD: usdLimit(9)}, platform: platformcfg.PlatformLimits{MonthlyUSD: usdLimit(0.01)}, reason: holdfast.DenyMonthlyUSD, subject: holdfast.PlatformSubject(holdfast.AxisUSD, month), says: "platform/all/usd"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.team("acme", c.team)
			w.organisation("eu", c.org, "acme")
			w.limits(platformcfg.LimitsSetting{Platform: c.platform})
			before := w.footprint()
			preview, err := w.Preview(w.ctx, member, ask("review-pr"))
			if err != nil || preview.Denial.Reason != c.reason || preview.Denial.Subject != c.subject {
				t.Errorf("previewed as %q on %s, error %v", preview.Denial.Reason, preview.Denial.Subject, err)
			}
			denial := w.refused(ask("review-pr"), c.reason)
			if denial.Subject != c.subject || !strings.Contains(denial.Public, c.says) {
				t.Errorf("denied on %s: %s; want %s", denial.Subject, denial.Public, c.subject)
			}
			if diff := cmp.Diff(before, w.footprint()); diff != "" {
				t.Errorf("it left something behind: %s", diff)
			}
		})
	}
}

// The smallest allowance of all dollar subjects is the budget, and every larger one
// is corrected down to it.
func TestTheSmallestAllowanceOfAllOwnersIsTheBudget(t *testing.T) {
	twins(t, func(t *testing.T, w *world) {
		w.team("acme", teams.Limits{MonthlyUSD: usdLimit(2)})
		w.organisation("eu", teams.Limits{MonthlyUSD: usdLimit(1.25)}, "acme")
		w.limits(platformcfg.LimitsSetting{Platform: platformcfg.PlatformLimits{MonthlyUSD: usdLimit(1.5)}})
		run := w.admitted(ask("feature-dev")) // asks 3
		if run.Budget != usd(1.25) {
			t.Errorf("the budget is %s, want the organisation's $1.25", run.Budget.Dollars())
		}
		for _, subject := range []holdfast.Subject{
			holdfast.TeamSubject("acme", holdfast.AxisUSD, w.month()), holdfast.OrgSubject("eu", holdfast.AxisUSD, w.month()), holdfast.PlatformSubject(holdfast.AxisUSD, w.month()),
		} {
			if got := w.balance(subject).Outstanding; got != int64(usd(1.25)) {
				t.Errorf("%s has %s promised", subject, holdfast.MicroUSD(got).Dollars())
			}
		}
		grant := w.started(run.ID)
		w.apply(w.ended(run.ID, grant.Attempt, 0.5, queue.EndFinished))
		if b := w.balance(holdfast.OrgSubject("eu", holdfast.AxisUSD, w.month())); b.Settled != int64(usd(0.5)) || b.Outstanding != 0 {
			t.Errorf("after the end the organisation has %+v", b)
		}
		if b := w.balance(holdfast.OrgSubject("eu", holdfast.AxisRuns, w.month())); b.Settled != 1 || b.Outstanding != 0 {
			t.Errorf("the organisation counts %d runs", b.Settled)
		}
		if findings, err := w.CrossCheck(w.ctx, w.clock.Now()); err != nil || len(findings) != 0 {
			t.Errorf("the stores disagree: %v, %v", findings, err)
		}
	})
}

func TestASuspendedOrganisationSuspendsItsTeams(t *testing.T) {
	w := newWorld(t)
	w.organisation("eu", teams.Limits{}, "acme")
	set := func(on bool) {
		_, err := w.teams.UpdateOrganisation(w.ctx, "eu", func(o *teams.Organisation) error { o.Suspended, o.SuspendedReason = on, "unpaid"; return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	set(true)
	before := w.footprint()
	if denial := w.refused(ask("probe"), holdfast.DenyTeamSuspended); !strings.Contains(denial.Public, "organisation eu") || !strings.Contains(denial.Public, "unpaid") {
		t.Errorf("it says %q", denial.Public)
	}
	if diff := cmp.Diff(before, w.footprint()); diff != "" || w.resolved != 0 {
		t.Errorf("%d resolutions, left behind: %s", w.resolved, diff)
	}
	set(false)
	w.admitted(ask("probe"))
}

// What is reserved for a member's own bot counts on the organisation, and another
// organisation's does not.
func TestAMembersReservationCountsOnItsOrganisation(t *testing.T) {
	w := newWorld(t)
	w.organisation("eu", teams.Limits{MaxConcurrentRuns: slots(2)}, "acme", "globex")
	w.organisation("us", teams.Limits{}, "initech")
	w.policy(budgetfloor.Policy{Reservations: []budgetfloor.Reservation{
		{Bot: "nightly", Tier: holdfast.TierTeam, Team: "globex", ConcurrentRuns: 1},
		{Bot: "nightly", Tier: holdfast.TierTeam, Team: "initech", ConcurrentRuns: 1},
	}})
	w.admitted(ask("probe"))
	denial := w.refused(ask("probe"), holdfast.DenyConcurrency)
	if denial.Cause != holdfast.CauseReserved || denial.Withheld.Int() != 1 || denial.Subject.Kind != holdfast.KindOrg {
		t.Errorf("cause %q, %s withheld on %s", denial.Cause, denial.Withheld, denial.Subject)
	}
	if _, _, err := w.bots.Put(w.ctx, w.clock.Now(), "globex", holdfast.Bot{Name: "nightly", Lane: holdfast.LaneCommand, Command: []string{"true"}}, "test"); err != nil {
		t.Fatal(err)
	}
	if _, denial, err := w.Launch(w.ctx, globexMember, askOf("globex", "nightly")); denial.Denied() || err != nil {
		t.Errorf("the holder is denied %q, error %v", denial.Reason, err)
	}
}

// When the ledger cannot be asked, an organisation is judged on the documents of all
// its teams.
func TestAnOrganisationIsJudgedOnItsTeamsDocuments(t *testing.T) {
	w := newWorld(t)
	w.organisation("eu", teams.Limits{MaxConcurrentRuns: slots(2)}, "acme", "globex")
	w.admitted(ask("probe"))
	if _, denial, err := w.Launch(w.ctx, globexMember, askOf("globex", "probe")); denial.Denied() || err != nil {
		t.Fatalf("denied %q, error %v", denial.Reason, err)
	}
	w.store.set(func(string, ...holdfast.Subject) error { return capacityledger.ErrUnavailable })
	denial := w.refused(ask("probe"), holdfast.DenyConcurrency)
	if denial.Subject != holdfast.OrgSubject("eu", holdfast.AxisSlots, "") || w.count("fallback: slots") == 0 {
		t.Errorf("denied on %s, %d fallbacks", denial.Subject, w.count("fallback: slots"))
	}
}

// An organisation that a team names and nobody created has no limits, and one that
// cannot be read is an error and no denial.
func TestAnOrganisationThatCannotBeReadIsAnError(t *testing.T) {
	w := newWorld(t)
	if _, err := w.teams.Update(w.ctx, "acme", func(t *teams.Team) error { t.Organisation = "ghost"; return nil }); err != nil {
		t.Fatal(err)
	}
	w.admitted(ask("probe"))
	before := w.footprint()
	w.db.fail("organisations", "get")
	if _, denial, err := w.Launch(w.ctx, member, ask("probe")); !errors.Is(err, launch.ErrUnavailable) || denial.Denied() {
		t.Errorf("denied %q, error %v", denial.Reason, err)
	}
	w.db.set(nil)
	if diff := cmp.Diff(before, w.footprint()); diff != "" {
		t.Error(diff)
	}
}

// The board shows an organisation to its teams: the totals, and of others' own bots
// neither names nor single amounts.
func TestATeamSeesItsOrganisationsTotals(t *testing.T) {
	w := newWorld(t)
	w.organisation("eu", teams.Limits{MaxConcurrentRuns: slots(5)}, "acme", "globex")
	w.organisation("us", teams.Limits{}, "initech")
	for _, bot := range []holdfast.BotID{"secret-one", "secret-two"} {
		if _, _, err := w.bots.Put(w.ctx, w.clock.Now(), "globex", holdfast.Bot{Name: bot, Lane: holdfast.LaneCommand, Command: []string{"true"}}, "test"); err != nil {
			t.Fatal(err)
		}
		if _, denial, err := w.Launch(w.ctx, globexMember, askOf("globex", string(bot))); denial.Denied() || err != nil {
			t.Fatalf("denied %q, error %v", denial.Reason, err)
		}
	}
	shown := ""
	for _, view := range must(w.Capacity(w.ctx, viewer, ""))(t) {
		shown += fmt.Sprintf("%s %s %v\n", view.Subject, view.Outstanding, view.Holders)
	}
	if !strings.Contains(shown, "org/eu/slots 2 slots") || strings.Contains(shown, "secret") || strings.Contains(shown, "org/us") {
		t.Errorf("a viewer of acme is shown\n%s", shown)
	}
	view, err := w.CapacitySubject(w.ctx, viewer, holdfast.OrgSubject("eu", holdfast.AxisSlots, ""))
	if err != nil || len(view.Entries) != 0 || len(view.Holders) != 1 || view.Holders[0].Outstanding.Int() != 2 {
		t.Errorf("the subject is shown as %+v, error %v", view, err)
	}
	for _, id := range []holdfast.OrgID{"us", "nowhere"} {
		if _, err := w.CapacitySubject(w.ctx, viewer, holdfast.OrgSubject(id, holdfast.AxisSlots, "")); !errors.Is(err, launch.ErrNotFound) {
			t.Errorf("%s: error %v", id, err)
		}
	}
	all := ""
	for _, view := range must(w.Capacity(w.ctx, operator, ""))(t) {
		all += view.Subject.String() + "\n"
	}
	if strings.Count(all, "org/eu/slots") != 1 || !strings.Contains(all, "org/us/slots") {
		t.Errorf("the operator is shown\n%s", all)
	}
}

// An organisation's launch rate is its teams' together, and comes back with time.
func TestAnOrganisationsLaunchRateIsItsTeamsTogether(t *testing.T) {
	w := newWorld(t)
	w.organisation("eu", teams.Limits{LaunchesPerMinute: slots(2)}, "acme", "globex")
	w.admitted(ask("probe"))
	if _, denial, err := w.Launch(w.ctx, globexMember, askOf("globex", "probe")); denial.Denied() || err != nil {
		t.Fatalf("denied %q, error %v", denial.Reason, err)
	}
	before := w.footprint()
	if denial := w.refused(ask("probe"), holdfast.DenyLaunchRate); denial.RetryAfter != 30*time.Second {
		t.Errorf("retry after %s", denial.RetryAfter)
	}
	if diff := cmp.Diff(before, w.footprint()); diff != "" {
		t.Errorf("the team's token is gone: %s", diff)
	}
	w.clock.Advance(30 * time.Second)
	w.admitted(ask("probe"))
}
