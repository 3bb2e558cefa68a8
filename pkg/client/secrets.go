package client

import (
	"context"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
)

// Secrets lists the names of a team's secrets.
func (c *Client) Secrets(ctx context.Context, team string, window Window) (api.Page[api.Secret], error) {
	return get[api.Page[api.Secret]](ctx, c, values(window, time.Time{}), "api", "teams", team, "secrets")
}

// PutSecret sets a secret of a team; created says that there was none of that name.
func (c *Client) PutSecret(ctx context.Context, team, name, value string) (stored api.Secret, created bool, err error) {
	status, err := c.do(ctx, request{method: http.MethodPut, path: []string{"api", "teams", team, "secrets", name}, body: api.SecretPut{Value: value}}, &stored)
	return stored, status == http.StatusCreated, err
}

// DeleteSecret removes a secret of a team.
func (c *Client) DeleteSecret(ctx context.Context, team, name string) error {
	_, err := c.do(ctx, request{method: http.MethodDelete, path: []string{"api", "teams", team, "secrets", name}}, nil)
	return err
}
