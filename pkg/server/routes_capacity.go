package server

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/records"
)

func (s *Server) capacityRoutes() {
	register(s, route{method: "GET", path: "/api/capacity", id: "capacity", group: "capacity", who: viewers, summary: "Show what is used, promised, withheld and free"}, s.capacity)
	register(s, route{method: "GET", path: "/api/capacity/subject", id: "capacity-subject", group: "capacity", who: viewers, summary: "Show one subject with its open allocations"}, s.capacitySubject)
	register(s, route{method: "POST", path: "/api/admin/allocations/{allocation}/release", id: "release-allocation", group: "capacity", who: operators, trail: keptElsewhere, summary: "Take an allocation away and fence its run"}, s.releaseAllocation)
	register(s, route{method: "GET", path: "/api/decisions", id: "list-decisions", group: "decisions", who: viewers, summary: "List what the gate decided, the newest first"}, s.listDecisions)
	register(s, route{method: "GET", path: "/api/decisions/{decision}", id: "get-decision", group: "decisions", who: viewers, summary: "Show a decision with its arithmetic"}, s.getDecision)
	register(s, route{method: "GET", path: "/api/decisions/{decision}/explain", id: "explain-decision", group: "decisions", who: viewers, summary: "Say why the gate decided so, and what would have changed it"}, s.explainDecision)
}

type teamQuery struct {
	Team string `query:"team" doc:"absent: the token's team, or all of an operator"`
}

func (s *Server) capacity(ctx context.Context, c call, in teamQuery) (answer[api.Capacity], error) {
	team, err := s.scope(c, in.Team)
	if err != nil {
		return answer[api.Capacity]{}, err
	}
	views, err := s.deps.Launch.Capacity(ctx, c.Principal, string(team))
	if errors.Is(err, launch.ErrNotFound) {
		err = because(notFound("team"), err)
	}
	if err != nil {
		return answer[api.Capacity]{}, err
	}
	return answer[api.Capacity]{Body: api.Capacity{Subjects: capacitiesOnWire(views), Policy: s.policyStanding(c)}}, nil
}

type subjectInput struct {
	Subject holdfast.Subject `query:"subject" required:"true" doc:"kind/id/axis[@period], such as team/acme/usd@2026-11"`
}

func (s *Server) capacitySubject(ctx context.Context, c call, in subjectInput) (answer[api.SubjectCapacity], error) {
	if in.Subject.IsZero() {
		return answer[api.SubjectCapacity]{}, invalid("subject", "the parameter is empty", "kind/id/axis or kind/id/axis@period, such as team/acme/slots")
	}
	view, err := s.deps.Launch.CapacitySubject(ctx, c.Principal, in.Subject)
	if err != nil {
		return answer[api.SubjectCapacity]{}, err
	}
	return answer[api.SubjectCapacity]{Body: CapacityOnWire(view)}, nil
}

type releaseInput struct {
	Allocation string `path:"allocation" doc:"the allocation's id"`
	Body       api.ReleaseRequest
}

func (s *Server) releaseAllocation(ctx context.Context, c call, in releaseInput) (answer[api.ReleaseAnswer], error) {
	closed, err := s.deps.Launch.ReleaseAllocation(ctx, c.Principal, holdfast.AllocationID(in.Allocation), strings.TrimSpace(in.Body.Reason))
	if err != nil {
		return answer[api.ReleaseAnswer]{}, err
	}
	return answer[api.ReleaseAnswer]{Body: api.ReleaseAnswer{Closed: closed}}, nil
}

type decisionsInput struct {
	Team   string    `query:"team"`
	Bot    string    `query:"bot"`
	Reason string    `query:"reason" maxLength:"64"`
	Cause  string    `query:"cause" maxLength:"64"`
	Since  time.Time `query:"since"`
	pageInput
}

func (s *Server) listDecisions(ctx context.Context, c call, in decisionsInput) (answer[api.Page[api.Decision]], error) {
	var out answer[api.Page[api.Decision]]
	team, err := s.scope(c, in.Team)
	if err != nil {
		return out, err
	}
	list, next, err := s.deps.Decisions.List(ctx, decisions.Filter{
		Team: team, Bot: in.Bot, Reason: holdfast.DenyReason(in.Reason), Cause: holdfast.Cause(in.Cause), Since: in.Since, Limit: in.Limit, Cursor: in.Cursor,
	})
	if err != nil {
		return out, err
	}
	out.Body = page(list, next, DecisionOnWire)
	return out, nil
}

type decisionInput struct {
	Decision string `path:"decision" doc:"the decision's id"`
}

func (s *Server) decision(ctx context.Context, c call, id string) (decisions.Decision, error) {
	d, err := s.deps.Decisions.Get(ctx, id)
	if errors.Is(err, records.ErrNotFound) || (err == nil && !c.In(d.Team)) {
		return decisions.Decision{}, notFound("decision")
	}
	return d, err
}

func (s *Server) getDecision(ctx context.Context, c call, in decisionInput) (answer[api.Decision], error) {
	d, err := s.decision(ctx, c, in.Decision)
	if err != nil {
		return answer[api.Decision]{}, err
	}
	return answer[api.Decision]{Body: DecisionOnWire(d)}, nil
}

func (s *Server) explainDecision(ctx context.Context, c call, in decisionInput) (answer[api.Explanation], error) {
	d, err := s.decision(ctx, c, in.Decision)
	if err != nil {
		return answer[api.Explanation]{}, err
	}
	return s.story(ctx, c, d.ID)
}
