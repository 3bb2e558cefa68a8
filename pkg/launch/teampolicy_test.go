package launch_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/surface/surfacetest"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// A team reads what is reserved for whom on its own subjects, its organisation's and
// the platform's, with the notes; of other teams it reads totals only.
func TestATeamReadsWhatOfThePolicyTouchesIt(t *testing.T) {
	w := newWorld(t)
	w.team("acme", teams.Limits{MaxConcurrentRuns: slots(4), LaunchesPerMinute: slots(9)})
	w.organisation("eu", teams.Limits{MaxConcurrentRuns: slots(6)}, "acme", "globex")
	w.limits(platformcfg.LimitsSetting{Platform: platformcfg.PlatformLimits{MaxConcurrentRuns: slots(8)}, MaxRunUSD: ptr(usd(7))})
	surfacetest.Write(w.t, w.settings.UsageCaps, platformcfg.UsageCaps{FiveHourPercent: 80}, func(c *platformcfg.UsageCaps, at time.Time) { c.UpdatedAt = at })
	w.policy(budgetfloor.Policy{Reservations: []budgetfloor.Reservation{
		{Bot: "review-pr", ConcurrentRuns: 1, FiveHourPercent: 20, Note: "reviews never wait", Teams: []holdfast.TeamID{"acme", "secret-team"}},
		{Bot: "nightly", Tier: holdfast.TierTeam, Team: "globex", ConcurrentRuns: 2, Note: "our secret plan"},
		{Bot: "own", Tier: holdfast.TierTeam, Team: "acme", ConcurrentRuns: 1},
		{Bot: "elsewhere", ConcurrentRuns: 1, Teams: []holdfast.TeamID{"globex"}, Note: "not acme's"},
	}})
	p := must(w.TeamPolicy(w.ctx, viewer, "acme"))(t)
	var got []string
	for _, subject := range p.Subjects {
		line := fmt.Sprintf("%s cap %s ordinary %s:", subject.Subject, subject.Cap, subject.Ordinary)
		for _, share := range subject.Reserved {
			line += fmt.Sprintf(" [%s %s]", share.Holder, share.Amount)
		}
		got = append(got, line)
	}
	want := []string{
		"team/acme/slots cap 4 slots ordinary 2 slots: [platform/review-pr 1 slot] [team:acme/own 1 slot]",
		"org/eu/slots cap 6 slots ordinary 1 slot: [platform/review-pr 1 slot] [team:acme/own 1 slot] [platform/elsewhere 1 slot] [ 2 slots]",
		"platform/all/slots cap 8 slots ordinary 3 slots: [platform/review-pr 1 slot] [team:acme/own 1 slot] [platform/elsewhere 1 slot] [ 2 slots]",
		"team/acme/usd@2026-03 cap no limit ordinary no limit:", "org/eu/usd@2026-03 cap no limit ordinary no limit:",
		"team/acme/runs@2026-03 cap no limit ordinary no limit:", "org/eu/runs@2026-03 cap no limit ordinary no limit:",
		"account/any/five_hour cap 80% ordinary 60%: [platform/review-pr 20%]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	text := fmt.Sprintf("%+v", p)
	if !strings.Contains(text, "reviews never wait") || strings.Contains(text, "secret") || strings.Contains(text, "nightly") || strings.Contains(text, "not acme's") {
		t.Errorf("it says %s", text)
	}
	if p.TeamRate.String() != "9 runs" || !p.OrgRate.None() || *p.MaxRunUSD != usd(7) || p.Organisation != "eu" || p.Standing.State != platformcfg.Fresh {
		t.Errorf("its limits are %+v", p)
	}
	for _, id := range []holdfast.TeamID{"globex", "nowhere"} {
		if _, err := w.TeamPolicy(w.ctx, viewer, id); !errors.Is(err, launch.ErrNotFound) {
			t.Errorf("%s: error %v", id, err)
		}
	}
}
