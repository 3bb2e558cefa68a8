package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// launchID is the launch route's id: its idempotency key also fixes the run's id.
const launchID = "launch"

func (s *Server) runRoutes() {
	gate := []int{http.StatusPaymentRequired, http.StatusConflict, http.StatusTooManyRequests}
	register(s, route{method: "POST", path: "/api/runs", id: launchID, group: "runs", who: anyToken, trail: noted, status: http.StatusAccepted, also: []int{http.StatusCreated}, problems: gate, summary: "Launch a run"}, s.launch)
	register(s, route{method: "POST", path: "/api/launch/preview", id: "preview", group: "runs", who: anyToken, trail: readsOnly, summary: "Say what a launch would get, and take nothing"}, s.preview)
	register(s, route{method: "GET", path: "/api/runs", id: "list-runs", group: "runs", who: viewers, summary: "List runs, the newest first"}, s.listRuns)
	register(s, route{method: "GET", path: "/api/runs/{run}", id: "get-run", group: "runs", who: viewers, summary: "Show a run"}, s.getRun)
	register(s, route{method: "GET", path: "/api/runs/{run}/explain", id: "explain-run", group: "runs", who: viewers, summary: "Say how a run came to stand as it does"}, s.explain)
	registerRaw(s, route{method: "GET", path: "/api/runs/{run}/logs", id: "run-logs", group: "runs", who: viewers, stream: true, text: "text/plain", summary: "Read the output of a run's newest attempt"}, s.logs)
	register(s, route{method: "POST", path: "/api/runs/{run}/cancel", id: "cancel-run", group: "runs", who: members, trail: noted, summary: "End a run"}, s.cancel)
	register(s, route{method: "POST", path: "/api/runs/{run}/resume", id: "resume-run", group: "runs", who: members, trail: noted, status: http.StatusAccepted, problems: gate, summary: "Bring a run back through the gate"}, s.resume)
	register(s, route{method: "POST", path: "/api/runs/{run}/heartbeat", id: "heartbeat", group: "external runs", who: members, trail: renewed, summary: "Renew an external run"}, s.heartbeat)
	register(s, route{method: "POST", path: "/api/runs/{run}/settle", id: "settle", group: "external runs", who: members, trail: noted, summary: "End an external run with what it used"}, s.settle)
}

type launchInput struct{ Body api.LaunchRequest }

func requestOf(b api.LaunchRequest) launch.Request {
	surface := launch.SurfaceREST
	if b.External {
		surface = launch.SurfaceExec
	}
	return launch.Request{
		Team: b.Team, Bot: b.Bot, Repo: b.Repo, BudgetUSD: b.BudgetUSD, MinBudgetUSD: b.MinBudgetUSD,
		Inputs: b.Inputs, Pool: b.Pool, External: b.External, Surface: surface,
	}
}

func (s *Server) launch(ctx context.Context, c call, in launchInput) (answer[api.Run], error) {
	if run, found, err := s.launchedBefore(ctx, c.before); err != nil || found {
		return s.accepted(ctx, run), err
	}
	request := requestOf(in.Body)
	request.Run = c.run
	c.about(in.Body.Team)
	run, denial, err := s.deps.Launch.Launch(ctx, c.Principal, request)
	switch {
	case err != nil:
		return answer[api.Run]{}, err
	case denial.Denied():
		return answer[api.Run]{}, refusal(denial)
	}
	s.noteRun(c, "run.launched", run)
	return s.accepted(ctx, run), nil
}

// launchedBefore finds the run of an earlier call under the same idempotency key,
// whose process died or could not tell how it ended. A run that failed to be queued
// was taken back, and is launched anew.
func (s *Server) launchedBefore(ctx context.Context, id holdfast.RunID) (run runs.Run, found bool, err error) {
	if id == "" {
		return runs.Run{}, false, nil
	}
	run, err = s.deps.Runs.Get(ctx, id)
	if errors.Is(err, records.ErrNotFound) {
		return runs.Run{}, false, nil
	}
	return run, err == nil && run.StatusReason != runs.ReasonLaunchFailed, err
}

// accepted is the answer to a launch.
func (s *Server) accepted(ctx context.Context, run runs.Run) answer[api.Run] {
	out := answer[api.Run]{Status: http.StatusAccepted, Body: s.withLease(ctx, run)}
	if run.External {
		out.Status = http.StatusCreated
	}
	return out
}

// withLease is the run on the wire, with its lease and policy while it is an open
// external one.
func (s *Server) withLease(ctx context.Context, run runs.Run) api.Run {
	out := RunOnWire(run)
	if run.External && !run.Status.Ended() {
		lease := s.deps.Launch.LeaseOf(run)
		out.Lease = &api.Lease{ExpiresAt: utc(lease.ExpiresAt), HeartbeatEveryS: wholeSeconds(lease.HeartbeatEvery)}
		caps, _ := s.deps.Settings.UsageCaps.Lookup(ctx)
		const percent = holdfast.Whole / 100
		out.CapPolicy = &api.CapPolicy{FiveHourPercent: int(caps.Cap(holdfast.AxisFiveHour) / percent), WeekPercent: int(caps.Cap(holdfast.AxisWeek) / percent)}
	}
	return out
}

func (s *Server) preview(ctx context.Context, c call, in launchInput) (answer[api.Preview], error) {
	p, err := s.deps.Launch.Preview(ctx, c.Principal, requestOf(in.Body))
	if err != nil {
		return answer[api.Preview]{}, err
	}
	return answer[api.Preview]{Body: previewOnWire(p)}, nil
}

type runsInput struct {
	Team   string    `query:"team"`
	Bot    string    `query:"bot" doc:"a bot's name, or an identity such as platform/review-pr"`
	Status string    `query:"status" enum:"queued,running,paused,parked,finished,failed,failed_resumable,cancelled"`
	Since  time.Time `query:"since" doc:"launched then or later"`
	pageInput
}

// pageInput is what every list takes.
type pageInput struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" doc:"how many; absent: 100"`
	Cursor string `query:"cursor" doc:"next_cursor of the page before"`
}

func (s *Server) listRuns(ctx context.Context, c call, in runsInput) (answer[api.Page[api.Run]], error) {
	var out answer[api.Page[api.Run]]
	team, err := s.scope(c, in.Team)
	if err != nil {
		return out, err
	}
	list, next, err := s.deps.Runs.List(ctx, runs.Filter{Team: team, Bot: in.Bot, Status: runs.Status(in.Status), Since: in.Since, Limit: in.Limit, Cursor: in.Cursor})
	if err != nil {
		return out, err
	}
	out.Body = page(list, next, RunOnWire)
	return out, nil
}

// page makes a page of the wire.
func page[S, D any](list []S, next string, convert func(S) D) api.Page[D] {
	out := api.Page[D]{Items: make([]D, 0, len(list)), NextCursor: next}
	for _, item := range list {
		out.Items = append(out.Items, convert(item))
	}
	return out
}

type runInput struct {
	Run string `path:"run" doc:"the run's id"`
}

// run reads a run that the caller may see; another team's does not exist.
func (s *Server) run(ctx context.Context, c call, id string) (runs.Run, error) {
	run, err := s.deps.Runs.Get(ctx, holdfast.RunID(id))
	if errors.Is(err, records.ErrNotFound) || (err == nil && !c.In(run.Team)) {
		return runs.Run{}, notFound("run")
	}
	return run, err
}

func (s *Server) getRun(ctx context.Context, c call, in runInput) (answer[api.Run], error) {
	run, err := s.run(ctx, c, in.Run)
	if err != nil {
		return answer[api.Run]{}, err
	}
	return answer[api.Run]{Body: s.withLease(ctx, run)}, nil
}

func (s *Server) explain(ctx context.Context, c call, in runInput) (answer[api.Explanation], error) {
	run, err := s.run(ctx, c, in.Run)
	if err != nil {
		return answer[api.Explanation]{}, err
	}
	return s.story(ctx, c, string(run.ID))
}

// story explains a run or a decision that the caller may see.
func (s *Server) story(ctx context.Context, c call, id string) (answer[api.Explanation], error) {
	story, err := s.deps.Launch.Explain(ctx, c.Principal, id)
	if err != nil {
		return answer[api.Explanation]{}, err
	}
	out := api.Explanation{Capacity: capacitiesOnWire(story.Capacity), Summary: story.Summary, Change: story.Change, Earliest: utc(story.Earliest), Until: story.Until}
	if out.Summary == nil {
		out.Summary = []string{}
	}
	decision := id
	if story.Run != nil {
		run := s.withLease(ctx, *story.Run)
		out.Run, decision = &run, story.Run.DecisionID
	}
	d, err := s.deps.Decisions.Get(ctx, decision)
	switch {
	case err == nil:
		wire := DecisionOnWire(d)
		out.Decision = &wire
	case !errors.Is(err, records.ErrNotFound):
		return answer[api.Explanation]{}, err
	}
	return answer[api.Explanation]{Body: out}, nil
}

// ofRun has an error of one run say that it is the run which is not there.
func ofRun(err error) error {
	if errors.Is(err, launch.ErrNotFound) {
		return because(notFound("run"), err)
	}
	return err
}

func (s *Server) cancel(ctx context.Context, c call, in runInput) (answer[api.Run], error) {
	run, err := s.deps.Launch.Cancel(ctx, c.Principal, holdfast.RunID(in.Run))
	if err != nil {
		return answer[api.Run]{}, ofRun(err)
	}
	s.noteRun(c, "run.cancelled", run)
	return answer[api.Run]{Body: RunOnWire(run)}, nil
}

func (s *Server) resume(ctx context.Context, c call, in runInput) (answer[api.Run], error) {
	run, denial, err := s.deps.Launch.Resume(ctx, c.Principal, holdfast.RunID(in.Run))
	switch {
	case err != nil:
		return answer[api.Run]{}, ofRun(err)
	case denial.Denied():
		return answer[api.Run]{}, refusal(denial)
	}
	s.noteRun(c, "run.resumed", run)
	return answer[api.Run]{Body: s.withLease(ctx, run)}, nil
}

type heartbeatInput struct {
	runInput
	Body api.Heartbeat
}

func (s *Server) heartbeat(ctx context.Context, c call, in heartbeatInput) (answer[api.HeartbeatAnswer], error) {
	lease, err := s.deps.Launch.Heartbeat(ctx, c.Principal, holdfast.RunID(in.Run), in.Body.SpentUSD)
	if err != nil {
		return answer[api.HeartbeatAnswer]{}, ofRun(err)
	}
	return answer[api.HeartbeatAnswer]{Body: api.HeartbeatAnswer{ExpiresAt: utc(lease.ExpiresAt), Stop: lease.Stop, Reason: lease.Reason}}, nil
}

type settleInput struct {
	runInput
	Body api.Settle
}

func (s *Server) settle(ctx context.Context, c call, in settleInput) (answer[api.SettleAnswer], error) {
	closed, err := s.deps.Launch.Settle(ctx, c.Principal, holdfast.RunID(in.Run), in.Body.SpentUSD, in.Body.Outcome)
	if err != nil {
		return answer[api.SettleAnswer]{}, ofRun(err)
	}
	return answer[api.SettleAnswer]{Body: api.SettleAnswer{Closed: closed}}, nil
}
