package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/secrets"
)

func (s *Server) secretRoutes() {
	register(s, route{method: "GET", path: "/api/teams/{team}/secrets", id: "list-secrets", group: "secrets", who: admins, summary: "List the names of a team's secrets; no route shows a value"}, s.listSecrets)
	register(s, route{method: "PUT", path: "/api/teams/{team}/secrets/{name}", id: "put-secret", group: "secrets", who: admins, also: []int{http.StatusCreated}, problems: []int{http.StatusNotFound, http.StatusConflict}, summary: "Set a secret of a team; runs that are cloned use forge-token"}, s.putSecret)
	register(s, route{method: "DELETE", path: "/api/teams/{team}/secrets/{name}", id: "delete-secret", group: "secrets", who: admins, summary: "Remove a secret of a team"}, s.deleteSecret)
}

type secretsInput struct {
	teamInput
	pageInput
}

func (s *Server) listSecrets(ctx context.Context, c call, in secretsInput) (answer[api.Page[api.Secret]], error) {
	var out answer[api.Page[api.Secret]]
	if _, err := s.team(ctx, c.team); err != nil {
		return out, err
	}
	list, next, err := s.deps.Secrets.List(ctx, c.team, in.Limit, in.Cursor)
	if err != nil {
		return out, err
	}
	out.Body = page(list, next, secretOnWire)
	return out, nil
}

func secretOnWire(e secrets.Entry) api.Secret {
	return api.Secret{Name: e.Name, CreatedAt: e.CreatedAt, UpdatedAt: e.UpdatedAt, UpdatedBy: e.UpdatedBy}
}

type secretInput struct {
	teamInput
	Name string `path:"name" doc:"the secret's name, such as forge-token"`
}

type secretPutInput struct {
	secretInput
	Body api.SecretPut
}

func (s *Server) putSecret(ctx context.Context, c call, in secretPutInput) (answer[api.Secret], error) {
	if _, err := s.team(ctx, c.team); err != nil {
		return answer[api.Secret]{}, err
	}
	entry, created, err := s.deps.Secrets.Put(ctx, c.team, in.Name, []byte(in.Body.Value), c.Name)
	switch {
	case errors.Is(err, secrets.ErrNoKey):
		return answer[api.Secret]{}, because(fail(http.StatusConflict, "secrets_off", "this server was given no key to seal secrets with; its operator sets HOLDFAST_SECRETS_KEY"), err)
	case err != nil:
		return answer[api.Secret]{}, err
	}
	s.noteAudit(ctx, c, c.team, "secret.set", secretTarget(c.team, entry.Name), nil)
	out := answer[api.Secret]{Status: http.StatusOK, Body: secretOnWire(entry)}
	if created {
		out.Status = http.StatusCreated
	}
	return out, nil
}

func secretTarget(team holdfast.TeamID, name string) string { return fmt.Sprintf("%s/%s", team, name) }

func (s *Server) deleteSecret(ctx context.Context, c call, in secretInput) (answer[done], error) {
	if err := secrets.CheckName(in.Name); err != nil {
		return answer[done]{}, err
	}
	err := s.deps.Secrets.Delete(ctx, c.team, in.Name)
	switch {
	case errors.Is(err, records.ErrNotFound):
		return answer[done]{}, because(notFound("secret"), err)
	case err != nil:
		return answer[done]{}, err
	}
	s.noteAudit(ctx, c, c.team, "secret.removed", secretTarget(c.team, in.Name), nil)
	return answer[done]{}, nil
}
