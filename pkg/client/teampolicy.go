package client

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/api"
)

// TeamPolicy reads what of the policy and of the limits touches a team; any role of
// the team may.
func (c *Client) TeamPolicy(ctx context.Context, team string) (api.TeamPolicy, error) {
	return get[api.TeamPolicy](ctx, c, nil, "api", "teams", team, "policy")
}
