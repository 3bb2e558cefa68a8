// Package incident plays the day on which a shared limit closes on everybody, with
// a reservation in place: three teams share slots and dollars, feature work storms
// in, and reviews arrive through the storm. It speaks to a running server over HTTP
// like any client, uses real runs, and checks what it prints.
package incident

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

// The stage: what all teams share, and what is reserved of it. One slot more is
// reserved than the review clients ever hold, so what refuses feature work for want
// of a slot is always the reservation and never chance.
const (
	sharedSlots   = 7
	sharedUSD     = 30 * holdfast.OneUSD
	reservedSlots = 3
	reservedUSD   = 6 * holdfast.OneUSD

	reviewBot  = "review-pr"
	featureBot = "feature-dev"
)

// teams share the stage.
var teams = []string{"payments", "search", "web"}

// Seed writes the teams, the limits over all of them and the policy. It is for an
// empty deployment; a team that exists is left as it is.
func Seed(ctx context.Context, c *client.Client) error {
	for _, id := range teams {
		var taken *client.Conflict
		if _, err := c.CreateTeam(ctx, api.TeamCreate{ID: id}); err != nil && !errors.As(err, &taken) {
			return fmt.Errorf("create team %s: %w", id, err)
		}
	}
	limits, err := c.Limits(ctx)
	if err != nil {
		return fmt.Errorf("read the limits: %w", err)
	}
	limits.Platform.MaxConcurrentRuns = holdfast.CountLimit{LimitSetting: holdfast.LimitTo(sharedSlots)}
	limits.Platform.MonthlyUSD = holdfast.USDLimit{LimitSetting: holdfast.LimitTo(int64(sharedUSD))}
	if _, err := c.PutLimits(ctx, limits); err != nil {
		return fmt.Errorf("write the limits: %w", err)
	}
	policy, err := c.BudgetFloor(ctx)
	if err != nil {
		return fmt.Errorf("read the policy: %w", err)
	}
	policy.Reservations = []api.Reservation{{
		Bot: reviewBot, ConcurrentRuns: reservedSlots, MonthlyUSD: reservedUSD,
		Note: "reviews must never wait for feature work",
	}}
	if _, err := c.PutBudgetFloor(ctx, policy); err != nil {
		return fmt.Errorf("write the policy: %w", err)
	}
	return nil
}
