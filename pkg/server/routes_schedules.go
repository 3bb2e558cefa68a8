package server

import (
	"cmp"
	"context"
	"net/http"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/schedule"
	"github.com/holdfast-io/holdfast/pkg/surface"
)

func (s *Server) scheduleRoutes() {
	register(s, route{method: "GET", path: "/api/schedules", id: "list-schedules", group: "schedules", who: viewers, summary: "List schedules, with their next tick and what became of the last"}, s.listSchedules)
	register(s, route{method: "POST", path: "/api/schedules", id: "create-schedule", group: "schedules", who: members, status: http.StatusCreated, problems: []int{http.StatusConflict}, summary: "Launch a bot by the clock"}, s.createSchedule)
	register(s, route{method: "GET", path: "/api/schedules/{schedule}", id: "get-schedule", group: "schedules", who: viewers, summary: "Show a schedule"}, s.getSchedule)
	register(s, route{method: "PATCH", path: "/api/schedules/{schedule}", id: "patch-schedule", group: "schedules", who: members, problems: []int{http.StatusConflict}, summary: "Change, pause or resume a schedule"}, s.patchSchedule)
	register(s, route{method: "DELETE", path: "/api/schedules/{schedule}", id: "delete-schedule", group: "schedules", who: members, summary: "Remove a schedule; runs that it launched go on"}, s.deleteSchedule)
}

type teamPageInput struct {
	Team string `query:"team" doc:"only this team's; absent: the caller's, or all for an operator"`
	pageInput
}

func (s *Server) listSchedules(ctx context.Context, c call, in teamPageInput) (answer[api.Page[api.Schedule]], error) {
	var out answer[api.Page[api.Schedule]]
	team, err := s.scope(c, in.Team)
	if err != nil {
		return out, err
	}
	list, next, err := s.deps.Surfaces.Schedules.List(ctx, team, in.Limit, in.Cursor)
	if err != nil {
		return out, err
	}
	out.Body = page(list, next, s.schedulesShown(ctx))
	return out, nil
}

func scheduleOnWire(s schedule.Schedule) api.Schedule {
	out := api.Schedule{
		ID: s.ID, Team: string(s.Team), Name: s.Name, Cron: s.Cron, TimeZone: cmp.Or(s.TimeZone, "UTC"),
		Bot: s.Bot, Repo: s.Repo, Inputs: s.Inputs, BudgetUSD: s.BudgetUSD, Pool: s.Pool, Enabled: s.Enabled,
		CatchUp: string(cmp.Or(s.CatchUp, schedule.CatchNone)), CreatedAt: utc(s.CreatedAt), UpdatedAt: utc(s.UpdatedAt), CreatedBy: s.CreatedBy,
		NextAt: utc(s.NextAt), Trying: s.Pending != nil, LastRun: string(s.LastRun), LastRunAt: utc(s.LastRunAt), LastError: refusalOnWire(s.LastError),
		Missed: s.Missed, MissedSince: utc(s.MissedSince),
	}
	return out
}

type scheduleCreateInput struct{ Body api.ScheduleCreate }

func (s *Server) createSchedule(ctx context.Context, c call, in scheduleCreateInput) (answer[api.Schedule], error) {
	b := in.Body
	team, err := s.wanted(c, b.Team)
	if err != nil {
		return answer[api.Schedule]{}, err
	}
	if _, err := s.team(ctx, team); err != nil {
		return answer[api.Schedule]{}, err
	}
	stored, err := s.deps.Surfaces.Schedules.Create(ctx, schedule.Schedule{
		Team: team, Name: b.Name, Cron: b.Cron, TimeZone: b.TimeZone, CatchUp: schedule.CatchUp(b.CatchUp), CreatedBy: c.Name,
		Work:    surface.Work{Bot: b.Bot, Repo: b.Repo, Inputs: b.Inputs, BudgetUSD: b.BudgetUSD, Pool: b.Pool},
		Enabled: b.Enabled == nil || *b.Enabled,
	})
	if err != nil {
		return answer[api.Schedule]{}, err
	}
	s.noteAudit(ctx, c, team, "schedule.created", stored.ID, map[string]string{"cron": stored.Cron, "time_zone": stored.TimeZone, "bot": stored.Bot})
	return answer[api.Schedule]{Body: s.schedulesShown(ctx)(stored)}, nil
}

type scheduleInput struct {
	Schedule string `path:"schedule" doc:"the schedule's id: TEAM.NAME"`
}

// schedule reads a schedule that the caller may see and, where the route writes,
// change.
func (s *Server) schedule(ctx context.Context, c call, id string) (schedule.Schedule, error) {
	stored, err := s.deps.Surfaces.Schedules.Get(ctx, id)
	if err != nil {
		return stored, found("schedule", err)
	}
	return stored, c.mine(stored.Team, "schedule")
}

func (s *Server) getSchedule(ctx context.Context, c call, in scheduleInput) (answer[api.Schedule], error) {
	stored, err := s.schedule(ctx, c, in.Schedule)
	if err != nil {
		return answer[api.Schedule]{}, err
	}
	return answer[api.Schedule]{Body: s.schedulesShown(ctx)(stored)}, nil
}

type schedulePatchInput struct {
	scheduleInput
	Body api.SchedulePatch
}

func (s *Server) patchSchedule(ctx context.Context, c call, in schedulePatchInput) (answer[api.Schedule], error) {
	if _, err := s.schedule(ctx, c, in.Schedule); err != nil {
		return answer[api.Schedule]{}, err
	}
	b, action := in.Body, "schedule.changed"
	stored, err := s.deps.Surfaces.Schedules.Update(ctx, in.Schedule, func(k *schedule.Schedule) error {
		set(&k.Cron, b.Cron)
		set(&k.TimeZone, b.TimeZone)
		patchWork(&k.Work, b.Bot, b.Repo, b.Pool, b.Inputs, b.BudgetUSD)
		if b.CatchUp != nil {
			k.CatchUp = schedule.CatchUp(*b.CatchUp)
		}
		if b.Enabled != nil && *b.Enabled != k.Enabled {
			k.Enabled = *b.Enabled
			action = map[bool]string{true: "schedule.resumed", false: "schedule.paused"}[k.Enabled]
		}
		return nil
	})
	if err != nil {
		return answer[api.Schedule]{}, found("schedule", err)
	}
	s.noteAudit(ctx, c, stored.Team, action, stored.ID, map[string]string{"cron": stored.Cron, "time_zone": stored.TimeZone, "bot": stored.Bot})
	return answer[api.Schedule]{Body: s.schedulesShown(ctx)(stored)}, nil
}

func (s *Server) deleteSchedule(ctx context.Context, c call, in scheduleInput) (answer[done], error) {
	stored, err := s.schedule(ctx, c, in.Schedule)
	if err == nil {
		err = found("schedule", s.deps.Surfaces.Schedules.Delete(ctx, in.Schedule))
	}
	if err != nil {
		return answer[done]{}, err
	}
	s.noteAudit(ctx, c, stored.Team, "schedule.removed", stored.ID, nil)
	return answer[done]{}, nil
}
