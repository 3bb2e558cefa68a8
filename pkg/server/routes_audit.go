package server

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/audit"
)

func (s *Server) auditRoutes() {
	register(s, route{method: "GET", path: "/api/audit", id: "list-audit", group: "audit", who: admins, summary: "List what was changed and what was refused, the newest first; a team's admin sees the team's"}, s.listAudit)
}

type auditInput struct {
	Team   string `query:"team"`
	Actor  string `query:"actor" maxLength:"300"`
	Action string `query:"action" maxLength:"300"`
	Target string `query:"target" maxLength:"300"`
	// Outcome keeps what was done, or what was refused.
	Outcome string    `query:"outcome" enum:"done,refused"`
	Since   time.Time `query:"since"`
	pageInput
}

func (s *Server) listAudit(ctx context.Context, c call, in auditInput) (answer[api.Page[api.AuditEntry]], error) {
	var out answer[api.Page[api.AuditEntry]]
	team, err := s.scope(c, in.Team)
	if err != nil {
		return out, err
	}
	list, next, err := s.deps.Audit.List(ctx, audit.Filter{Team: team, Actor: in.Actor, Action: in.Action, Target: in.Target, Outcome: audit.Outcome(in.Outcome), Since: in.Since, Limit: in.Limit, Cursor: in.Cursor})
	if err != nil {
		return out, err
	}
	out.Body = page(list, next, auditOnWire)
	return out, nil
}

func auditOnWire(e audit.Entry) api.AuditEntry {
	var detail []string
	for _, key := range slices.Sorted(maps.Keys(e.Detail)) {
		detail = append(detail, key+"="+e.Detail[key])
	}
	return api.AuditEntry{
		ID: e.ID, At: utc(e.At), Actor: e.Actor, Action: e.Action, Target: e.Target, Team: string(e.Team), Detail: strings.Join(detail, ", "),
		Outcome: string(cmp.Or(e.Outcome, audit.Done)), Account: e.Account, TokenID: e.Token, DecisionID: e.Decision, RequestID: e.Request, IP: e.IP,
		Count: max(1, e.Count), LastAt: utc(e.LastAt),
	}
}
