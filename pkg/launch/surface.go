package launch

import (
	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
)

// Surface says where a launch came from. It is kept in the decision and is a metric
// label, so it is a word of this code and never a caller's.
type Surface string

// The surfaces. None of them has a way of its own into a run: each calls
// [Service.Launch] or [Service.ResumeFrom], and is judged and metered like every other.
const (
	SurfaceREST      Surface = "rest"
	SurfaceExec      Surface = "exec"
	SurfaceResume    Surface = "resume"     // a person or a program goes on with a run
	SurfaceRetry     Surface = "retry"      // the sweeper of due retries does
	SurfaceDLQReplay Surface = "dlq-replay" // an operator replays a dead letter
	SurfaceWebhook   Surface = "webhook"
	SurfaceSchedule  Surface = "schedule"
	SurfaceBoard     Surface = "board"
	SurfaceSimulate  Surface = "simulate" // a replay of a trace; nothing runs
)

// Surfaces lists every surface.
func Surfaces() []Surface {
	return []Surface{
		SurfaceREST, SurfaceExec, SurfaceResume, SurfaceRetry, SurfaceDLQReplay, SurfaceWebhook, SurfaceSchedule, SurfaceBoard,
		SurfaceSimulate,
	}
}

// Machine is who asks when no person does: a member of exactly one team, under the
// name of the surface that acts. Whose configuration makes it act (the owner of a
// webhook, a schedule, a card, or a run that is retried) is the team; a surface
// takes the team from its own record and never from what came from outside.
func Machine(surface Surface, team holdfast.TeamID) auth.Principal {
	name := string(surface)
	if surface == SurfaceRetry {
		name = "retry-sweeper"
	}
	return auth.Principal{Name: name, Team: team, Role: auth.Member}
}

// Transient says whether a refusal may pass without anybody changing the request:
// capacity comes back, a month or a minute ends, a fence is lifted, a limit is
// raised. Machinery asks again later after such a one, with a backoff, and gives up
// after any other. No denial is not transient.
func Transient(d holdfast.Denial) bool {
	if d.Denied() && d.Cause == holdfast.CauseReserved {
		return true
	}
	switch d.Reason {
	case holdfast.DenyMaintenance, holdfast.DenyRepoQuota, holdfast.DenyLaunchRate, holdfast.DenyConcurrency,
		holdfast.DenyMonthlyRuns, holdfast.DenyMonthlyUSD, holdfast.DenyWindowExhausted, holdfast.DenyDonorLimit, holdfast.DenyRunnerPoolInUse:
		return true
	case holdfast.DenyNoTeam, holdfast.DenyRole, holdfast.DenyUnknownTeam, holdfast.DenyTeamSuspended, holdfast.DenyUnknownBot,
		holdfast.DenyLane, holdfast.DenyNoCredential, holdfast.DenyUnknownCapacity:
	}
	return false
}
