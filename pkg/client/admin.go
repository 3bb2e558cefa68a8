package client

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
)

// Teams lists teams by id.
func (c *Client) Teams(ctx context.Context, window Window) (api.Page[api.Team], error) {
	return get[api.Page[api.Team]](ctx, c, values(window, time.Time{}), "api", "teams")
}

// Team reads one team.
func (c *Client) Team(ctx context.Context, id string) (api.Team, error) {
	return get[api.Team](ctx, c, nil, "api", "teams", id)
}

// CreateTeam creates a team; *[Conflict] when it exists.
func (c *Client) CreateTeam(ctx context.Context, team api.TeamCreate) (api.Team, error) {
	return post[api.Team](ctx, c, team, "api", "teams")
}

// PatchTeam changes what the patch names.
func (c *Client) PatchTeam(ctx context.Context, id string, patch api.TeamPatch) (api.Team, error) {
	var team api.Team
	_, err := c.do(ctx, request{method: http.MethodPatch, path: []string{"api", "teams", id}, body: patch}, &team)
	return team, err
}

// Tokens lists a team's tokens, without their secrets.
func (c *Client) Tokens(ctx context.Context, team string, window Window) (api.Page[api.Token], error) {
	return get[api.Page[api.Token]](ctx, c, values(window, time.Time{}), "api", "teams", team, "tokens")
}

// CreateToken issues a token; its secret is in the answer and nowhere else.
func (c *Client) CreateToken(ctx context.Context, team string, token api.TokenCreate) (api.TokenIssued, error) {
	return post[api.TokenIssued](ctx, c, token, "api", "teams", team, "tokens")
}

// RevokeToken ends a token at once.
func (c *Client) RevokeToken(ctx context.Context, team, id string) error {
	_, err := c.do(ctx, request{method: http.MethodDelete, path: []string{"api", "teams", team, "tokens", id}}, nil)
	return err
}

// Bots lists the bots as they resolve for a team, or the platform's when team is
// empty.
func (c *Client) Bots(ctx context.Context, team string, window Window) (api.Page[api.Bot], error) {
	return get[api.Page[api.Bot]](ctx, c, values(window, time.Time{}), botPath(team)...)
}

// Bot reads one bot as it resolves for a team, or the platform's when team is empty.
func (c *Client) Bot(ctx context.Context, team, bot string) (api.Bot, error) {
	return get[api.Bot](ctx, c, nil, botPath(team, bot)...)
}

// PutBot writes a team's bot, or the platform's when team is empty. created says
// whether there was none before.
func (c *Client) PutBot(ctx context.Context, team, bot string, body api.BotBody) (stored api.Bot, created bool, err error) {
	status, err := c.do(ctx, request{method: http.MethodPut, path: botPath(team, bot), body: body}, &stored)
	return stored, status == http.StatusCreated, err
}

// DeleteBot removes a team's bot, or the platform's when team is empty.
func (c *Client) DeleteBot(ctx context.Context, team, bot string) error {
	_, err := c.do(ctx, request{method: http.MethodDelete, path: botPath(team, bot)}, nil)
	return err
}

func botPath(team string, bot ...string) []string {
	path := []string{"api", "bots"}
	if team != "" {
		path = []string{"api", "teams", team, "bots"}
	}
	return append(path, bot...)
}

// BudgetFloor reads the policy of reservations and repository quotas.
func (c *Client) BudgetFloor(ctx context.Context) (api.BudgetFloor, error) {
	return get[api.BudgetFloor](ctx, c, nil, "api", "admin", "settings", "budget-floor")
}

// PutBudgetFloor replaces the policy; *[Conflict] when its updated_at is not the
// stored one.
func (c *Client) PutBudgetFloor(ctx context.Context, policy api.BudgetFloor) (api.BudgetFloor, error) {
	return put(ctx, c, "budget-floor", policy)
}

// Limits reads the platform's limits and defaults.
func (c *Client) Limits(ctx context.Context) (api.Limits, error) {
	return get[api.Limits](ctx, c, nil, "api", "admin", "settings", "limits")
}

// PutLimits replaces them; *[Conflict] when updated_at is not the stored one.
func (c *Client) PutLimits(ctx context.Context, limits api.Limits) (api.Limits, error) {
	return put(ctx, c, "limits", limits)
}

// Maintenance reads the maintenance fence.
func (c *Client) Maintenance(ctx context.Context) (api.Maintenance, error) {
	return get[api.Maintenance](ctx, c, nil, "api", "admin", "settings", "maintenance")
}

// PutMaintenance replaces it; *[Conflict] when updated_at is not the stored one.
func (c *Client) PutMaintenance(ctx context.Context, maintenance api.Maintenance) (api.Maintenance, error) {
	return put(ctx, c, "maintenance", maintenance)
}

// UsageCaps reads the ceilings of the usage windows.
func (c *Client) UsageCaps(ctx context.Context) (api.UsageCaps, error) {
	return get[api.UsageCaps](ctx, c, nil, "api", "admin", "settings", "usage-caps")
}

// PutUsageCaps replaces them; *[Conflict] when updated_at is not the stored one.
func (c *Client) PutUsageCaps(ctx context.Context, caps api.UsageCaps) (api.UsageCaps, error) {
	return put(ctx, c, "usage-caps", caps)
}

// RunnerPools reads the runner pools.
func (c *Client) RunnerPools(ctx context.Context) (api.RunnerPools, error) {
	return get[api.RunnerPools](ctx, c, nil, "api", "admin", "settings", "runner-pools")
}

// PutRunnerPools replaces them; *[Conflict] when updated_at is not the stored one.
func (c *Client) PutRunnerPools(ctx context.Context, pools api.RunnerPools) (api.RunnerPools, error) {
	return put(ctx, c, "runner-pools", pools)
}

func put[T any](ctx context.Context, c *Client, setting string, body T) (T, error) {
	var answer T
	_, err := c.do(ctx, request{method: http.MethodPut, path: []string{"api", "admin", "settings", setting}, body: body}, &answer)
	return answer, err
}

// Ready asks whether the server is ready. One that says that it is not is no error:
// the answer's checks say why.
func (c *Client) Ready(ctx context.Context) (api.Health, error) {
	health, err := get[api.Health](ctx, c, nil, "readyz")
	var not *notReady
	if errors.As(err, &not) {
		return not.health, nil
	}
	return health, err
}

// CheckBudgetFloor says what a policy would do and what is wrong with it; nothing is
// written.
func (c *Client) CheckBudgetFloor(ctx context.Context, policy api.BudgetFloor) (api.BudgetFloor, error) {
	return post[api.BudgetFloor](ctx, c, policy, "api", "admin", "settings", "budget-floor", "check")
}
