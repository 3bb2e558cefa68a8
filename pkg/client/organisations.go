package client

import (
	"context"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
)

// Organisations lists organisations by id.
func (c *Client) Organisations(ctx context.Context, window Window) (api.Page[api.Organisation], error) {
	return get[api.Page[api.Organisation]](ctx, c, values(window, time.Time{}), "api", "organisations")
}

// Organisation reads one organisation.
func (c *Client) Organisation(ctx context.Context, id string) (api.Organisation, error) {
	return get[api.Organisation](ctx, c, nil, "api", "organisations", id)
}

// CreateOrganisation creates an organisation; *[Conflict] when it exists.
func (c *Client) CreateOrganisation(ctx context.Context, org api.OrganisationCreate) (api.Organisation, error) {
	return post[api.Organisation](ctx, c, org, "api", "organisations")
}

// PatchOrganisation changes what the patch names.
func (c *Client) PatchOrganisation(ctx context.Context, id string, patch api.OrganisationPatch) (api.Organisation, error) {
	var org api.Organisation
	_, err := c.do(ctx, request{method: http.MethodPatch, path: []string{"api", "organisations", id}, body: patch}, &org)
	return org, err
}
