package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

func (s *Server) organisationRoutes() {
	register(s, route{method: "POST", path: "/api/organisations", id: "create-organisation", group: "teams", who: operators, status: http.StatusCreated, summary: "Create an organisation, with limits over all its teams together"}, s.createOrganisation)
	register(s, route{method: "GET", path: "/api/organisations", id: "list-organisations", group: "teams", who: operators, summary: "List organisations"}, s.listOrganisations)
	register(s, route{method: "GET", path: "/api/organisations/{organisation}", id: "get-organisation", group: "teams", who: operators, summary: "Show an organisation and its teams"}, s.getOrganisation)
	register(s, route{method: "PATCH", path: "/api/organisations/{organisation}", id: "patch-organisation", group: "teams", who: operators, summary: "Change an organisation's limits, or suspend all its teams"}, s.patchOrganisation)
}

type organisationCreateInput struct{ Body api.OrganisationCreate }

func (s *Server) createOrganisation(ctx context.Context, c call, in organisationCreateInput) (answer[api.Organisation], error) {
	id, err := orgID("id", in.Body.ID)
	if err != nil {
		return answer[api.Organisation]{}, err
	}
	now := s.clock.Now()
	org, err := s.deps.Teams.CreateOrganisation(ctx, teams.Organisation{ID: id, Name: in.Body.Name, Limits: teams.Limits(in.Body.Limits), CreatedAt: now, UpdatedAt: now})
	if errors.Is(err, records.ErrExists) {
		return answer[api.Organisation]{}, because(fail(http.StatusConflict, "exists", fmt.Sprintf("the organisation %s exists already", id)), err)
	}
	if err != nil {
		return answer[api.Organisation]{}, err
	}
	s.noteAudit(ctx, c, "", "organisation.created", string(id), nil)
	return s.organisationAnswer(ctx, org)
}

func (s *Server) listOrganisations(ctx context.Context, _ call, in pageInput) (answer[api.Page[api.Organisation]], error) {
	var out answer[api.Page[api.Organisation]]
	list, next, err := s.deps.Teams.Organisations(ctx, in.Limit, in.Cursor)
	if err != nil {
		return out, err
	}
	out.Body = api.Page[api.Organisation]{Items: make([]api.Organisation, 0, len(list)), NextCursor: next}
	for _, org := range list {
		wire, err := s.organisationOnWire(ctx, org)
		if err != nil {
			return out, err
		}
		out.Body.Items = append(out.Body.Items, wire)
	}
	return out, nil
}

type organisationInput struct {
	Organisation string `path:"organisation" doc:"the organisation's id"`
}

func (s *Server) getOrganisation(ctx context.Context, _ call, in organisationInput) (answer[api.Organisation], error) {
	id, err := orgID("organisation", in.Organisation)
	if err != nil {
		return answer[api.Organisation]{}, err
	}
	org, err := s.deps.Teams.Organisation(ctx, id)
	if errors.Is(err, records.ErrNotFound) {
		return answer[api.Organisation]{}, because(notFound("organisation"), err)
	}
	if err != nil {
		return answer[api.Organisation]{}, err
	}
	return s.organisationAnswer(ctx, org)
}

type organisationPatchInput struct {
	organisationInput
	Body api.OrganisationPatch
}

func (s *Server) patchOrganisation(ctx context.Context, c call, in organisationPatchInput) (answer[api.Organisation], error) {
	id, err := orgID("organisation", in.Organisation)
	if err != nil {
		return answer[api.Organisation]{}, err
	}
	org, err := s.deps.Teams.UpdateOrganisation(ctx, id, func(o *teams.Organisation) error {
		o.UpdatedAt = s.clock.Now()
		patchedOrganisation(o, in.Body)
		return nil
	})
	if errors.Is(err, records.ErrNotFound) {
		return answer[api.Organisation]{}, because(notFound("organisation"), err)
	}
	if err != nil {
		return answer[api.Organisation]{}, err
	}
	s.noteAudit(ctx, c, "", "organisation.changed", string(id), map[string]string{"changed": strings.TrimPrefix(patchWords(api.TeamPatch{
		Name: in.Body.Name, Suspended: in.Body.Suspended, Limits: in.Body.Limits,
	}), ", ")})
	return s.organisationAnswer(ctx, org)
}

// patchedOrganisation applies what a patch names.
func patchedOrganisation(o *teams.Organisation, p api.OrganisationPatch) {
	if p.Name != nil {
		o.Name = *p.Name
	}
	if p.Suspended != nil {
		if o.Suspended = *p.Suspended; !o.Suspended {
			o.SuspendedReason = ""
		}
	}
	if p.SuspendedReason != nil {
		o.SuspendedReason = *p.SuspendedReason
	}
	if p.Limits != nil {
		limits := teams.Limits(*p.Limits)
		replaceLimits(&o.Limits, &limits)
	}
}

// replaceLimits replaces the limits that are given.
func replaceLimits(in, given *teams.Limits) {
	fields := limitFields(in)
	for i, limit := range limitFields(given) {
		if !limit.limit.Inherits() {
			*fields[i].limit = *limit.limit
		}
	}
}

func (s *Server) organisationAnswer(ctx context.Context, org teams.Organisation) (answer[api.Organisation], error) {
	wire, err := s.organisationOnWire(ctx, org)
	return answer[api.Organisation]{Body: wire}, err
}

func (s *Server) organisationOnWire(ctx context.Context, o teams.Organisation) (api.Organisation, error) {
	members, err := s.deps.Teams.Members(ctx, o.ID)
	if err != nil {
		return api.Organisation{}, err
	}
	wire := api.Organisation{
		ID: string(o.ID), Name: o.Name, Suspended: o.Suspended, SuspendedReason: o.SuspendedReason, Limits: api.TeamLimits(o.Limits),
		Teams: make([]string, 0, len(members)), CreatedAt: utc(o.CreatedAt), UpdatedAt: utc(o.UpdatedAt),
	}
	for _, team := range members {
		wire.Teams = append(wire.Teams, string(team.ID))
	}
	return wire, nil
}

// orgID folds an organisation's name of a path or a body.
func orgID(field, name string) (holdfast.OrgID, error) {
	folded, err := holdfast.FoldName(name)
	if err != nil {
		return "", holdfast.InField(field, err)
	}
	return holdfast.OrgID(folded), nil
}

// membership is the organisation that a team shall belong to: none for an empty
// name, and else one that exists.
func (s *Server) membership(ctx context.Context, name string) (holdfast.OrgID, error) {
	if name == "" {
		return "", nil
	}
	id, err := orgID("organisation", name)
	if err != nil {
		return "", err
	}
	if _, err = s.deps.Teams.Organisation(ctx, id); errors.Is(err, records.ErrNotFound) {
		return "", invalid("organisation", fmt.Sprintf("there is no organisation %s", id), "the id of one that exists, or empty for none; holdfast orgs lists them and holdfast orgs create makes one")
	}
	return id, err
}
