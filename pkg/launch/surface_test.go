package launch_test

import (
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/botsource"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// What a retry waits for and what it gives up on is decided once, for every reason.
func TestEveryReasonIsTransientOrPermanent(t *testing.T) {
	transient := map[holdfast.DenyReason]bool{
		holdfast.DenyMaintenance: true, holdfast.DenyRepoQuota: true, holdfast.DenyLaunchRate: true, holdfast.DenyConcurrency: true,
		holdfast.DenyMonthlyRuns: true, holdfast.DenyMonthlyUSD: true, holdfast.DenyWindowExhausted: true, holdfast.DenyDonorLimit: true, holdfast.DenyRunnerPoolInUse: true,
	}
	for _, reason := range holdfast.DenyReasons() {
		if got := launch.Transient(holdfast.Denial{Reason: reason}); got != transient[reason] {
			t.Errorf("%s is transient: %v", reason, got)
		}
		if !launch.Transient(holdfast.Denial{Reason: reason, Cause: holdfast.CauseReserved}) {
			t.Errorf("%s because of a reservation is permanent; what is reserved comes back", reason)
		}
	}
	if launch.Transient(holdfast.Denial{}) {
		t.Error("no denial is a transient one")
	}
}

// A machine may launch in its one team, and is no operator.
func TestAMachineIsAMemberOfOneTeam(t *testing.T) {
	w := newWorld(t)
	who := launch.Machine(launch.SurfaceRetry, "acme")
	if who.Name != "retry-sweeper" || who.Operator || !who.May("acme", auth.Member) || who.May("acme", auth.Admin) || who.May("globex", auth.Viewer) {
		t.Errorf("the machine is %+v", who)
	}
	if _, denial, err := w.Launch(w.ctx, who, ask("probe")); denial.Denied() || err != nil {
		t.Errorf("denied %q, error %v", denial.Reason, err)
	}
	if _, denial, _ := w.Launch(w.ctx, launch.Machine(launch.SurfaceWebhook, "globex"), ask("probe")); denial.Reason != holdfast.DenyNoTeam {
		t.Errorf("another team's machine is denied %q", denial.Reason)
	}
}

// The gate's subject is the served bot, or a continuation's document; a document
// that is older than tiers was the platform's.
func TestAWorkloadIsWhatTheServerKnows(t *testing.T) {
	team, platform := holdfast.TeamBot("acme", "review-pr"), holdfast.PlatformBot("review-pr")
	bot := holdfast.Bot{Name: "review-pr"}
	for name, c := range map[string]struct {
		got  launch.Workload
		want holdfast.Identity
	}{
		"a team's bot":        {launch.WorkloadOf(botsource.Resolved{Identity: team, Bot: bot}), team},
		"the platform's":      {launch.WorkloadOf(botsource.Resolved{Identity: platform, Bot: bot}), platform},
		"a run of a team's":   {launch.WorkloadOf(runs.Run{Identity: team, Team: "acme", Bot: bot}), team},
		"a run without tiers": {launch.WorkloadOf(runs.Run{Team: "acme", Bot: bot}), platform},
	} {
		if c.got.Identity() != c.want || c.got.Bot().Name != "review-pr" {
			t.Errorf("%s: %s, want %s", name, c.got.Identity(), c.want)
		}
	}
}
