package client

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
)

// Schedules lists the schedules of a team, or all that the caller may see when team
// is empty.
func (c *Client) Schedules(ctx context.Context, team string, window Window) (api.Page[api.Schedule], error) {
	return get[api.Page[api.Schedule]](ctx, c, values(window, time.Time{}, "team", team), "api", "schedules")
}

// Schedule reads one schedule; its id is TEAM.NAME.
func (c *Client) Schedule(ctx context.Context, id string) (api.Schedule, error) {
	return get[api.Schedule](ctx, c, nil, "api", "schedules", id)
}

// CreateSchedule creates a schedule; *[Conflict] when the team has one of that name.
func (c *Client) CreateSchedule(ctx context.Context, schedule api.ScheduleCreate) (api.Schedule, error) {
	return post[api.Schedule](ctx, c, schedule, "api", "schedules")
}

// PatchSchedule changes what the patch names.
func (c *Client) PatchSchedule(ctx context.Context, id string, patch api.SchedulePatch) (api.Schedule, error) {
	return change[api.Schedule](ctx, c, patch, "api", "schedules", id)
}

// DeleteSchedule removes a schedule.
func (c *Client) DeleteSchedule(ctx context.Context, id string) error {
	return c.remove(ctx, "api", "schedules", id)
}

// Cards lists the cards of a team and a column; what is empty selects all.
func (c *Client) Cards(ctx context.Context, team, column string, window Window) (api.Page[api.Card], error) {
	return get[api.Page[api.Card]](ctx, c, values(window, time.Time{}, "team", team, "column", column), "api", "board", "cards")
}

// Card reads one card.
func (c *Client) Card(ctx context.Context, id string) (api.Card, error) {
	return get[api.Card](ctx, c, nil, "api", "board", "cards", id)
}

// CreateCard puts a card into todo.
func (c *Client) CreateCard(ctx context.Context, card api.CardCreate) (api.Card, error) {
	return post[api.Card](ctx, c, card, "api", "board", "cards")
}

// PatchCard changes or moves a card; *[Conflict] while its run lives.
func (c *Client) PatchCard(ctx context.Context, id string, patch api.CardPatch) (api.Card, error) {
	return change[api.Card](ctx, c, patch, "api", "board", "cards", id)
}

// DeleteCard removes a card; *[Conflict] while its run lives.
func (c *Client) DeleteCard(ctx context.Context, id string) error {
	return c.remove(ctx, "api", "board", "cards", id)
}

// Webhooks lists a team's webhooks, without their secrets.
func (c *Client) Webhooks(ctx context.Context, team string, window Window) (api.Page[api.Webhook], error) {
	return get[api.Page[api.Webhook]](ctx, c, values(window, time.Time{}), "api", "teams", team, "webhooks")
}

// Webhook reads one webhook.
func (c *Client) Webhook(ctx context.Context, team, id string) (api.Webhook, error) {
	return get[api.Webhook](ctx, c, nil, "api", "teams", team, "webhooks", id)
}

// CreateWebhook creates a webhook; its secret is in the answer and nowhere else.
func (c *Client) CreateWebhook(ctx context.Context, team string, hook api.WebhookCreate) (api.WebhookIssued, error) {
	return post[api.WebhookIssued](ctx, c, hook, "api", "teams", team, "webhooks")
}

// PatchWebhook changes what the patch names.
func (c *Client) PatchWebhook(ctx context.Context, team, id string, patch api.WebhookPatch) (api.Webhook, error) {
	return change[api.Webhook](ctx, c, patch, "api", "teams", team, "webhooks", id)
}

// DeleteWebhook removes a webhook.
func (c *Client) DeleteWebhook(ctx context.Context, team, id string) error {
	return c.remove(ctx, "api", "teams", team, "webhooks", id)
}

// WebhookDeliveries lists what came to a webhook in the last week, the newest first.
func (c *Client) WebhookDeliveries(ctx context.Context, team, id string, window Window) (api.Page[api.WebhookDelivery], error) {
	return get[api.Page[api.WebhookDelivery]](ctx, c, values(window, time.Time{}), "api", "teams", team, "webhooks", id, "deliveries")
}

// DeadLetters lists the messages that no runner could take. Operators only.
func (c *Client) DeadLetters(ctx context.Context, window Window) (api.Page[api.DeadLetter], error) {
	return get[api.Page[api.DeadLetter]](ctx, c, values(window, time.Time{}), "api", "admin", "dlq")
}

// DeadLetter reads one of them with its message.
func (c *Client) DeadLetter(ctx context.Context, seq int64) (api.DeadLetter, error) {
	return get[api.DeadLetter](ctx, c, nil, "api", "admin", "dlq", strconv.FormatInt(seq, 10))
}

// ReplayDeadLetter brings its run back through the gate and removes it.
func (c *Client) ReplayDeadLetter(ctx context.Context, seq int64) (api.Run, error) {
	return post[api.Run](ctx, c, nil, "api", "admin", "dlq", strconv.FormatInt(seq, 10), "replay")
}

// DeleteDeadLetter removes one for good; its run stays as it is.
func (c *Client) DeleteDeadLetter(ctx context.Context, seq int64) error {
	return c.remove(ctx, "api", "admin", "dlq", strconv.FormatInt(seq, 10))
}

// change sends a patch and reads what it made.
func change[T any](ctx context.Context, c *Client, patch any, path ...string) (T, error) {
	var answer T
	_, err := c.do(ctx, request{method: http.MethodPatch, path: path, body: patch}, &answer)
	return answer, err
}
