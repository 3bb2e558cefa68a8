package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/audit"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/secrets"
	"github.com/holdfast-io/holdfast/pkg/webhook"
)

func (s *Server) webhookRoutes() {
	sealed := []int{http.StatusConflict}
	register(s, route{method: "GET", path: "/api/teams/{team}/webhooks", id: "list-webhooks", group: "webhooks", who: admins, summary: "List a team's webhooks, without their secrets"}, s.listWebhooks)
	register(s, route{method: "POST", path: "/api/teams/{team}/webhooks", id: "create-webhook", group: "webhooks", who: admins, status: http.StatusCreated, problems: sealed, secret: true, summary: "Launch bots for the pull requests of a forge"}, s.createWebhook)
	register(s, route{method: "GET", path: "/api/teams/{team}/webhooks/{webhook}", id: "get-webhook", group: "webhooks", who: admins, summary: "Show a webhook"}, s.getWebhook)
	register(s, route{method: "PATCH", path: "/api/teams/{team}/webhooks/{webhook}", id: "patch-webhook", group: "webhooks", who: admins, problems: sealed, summary: "Change a webhook's rules or its secret, or switch it off"}, s.patchWebhook)
	register(s, route{method: "DELETE", path: "/api/teams/{team}/webhooks/{webhook}", id: "delete-webhook", group: "webhooks", who: admins, summary: "Remove a webhook"}, s.deleteWebhook)
	register(s, route{method: "GET", path: "/api/teams/{team}/webhooks/{webhook}/deliveries", id: "list-deliveries", group: "webhooks", who: admins, summary: "List what came to a webhook in the last week, the newest first"}, s.listDeliveries)
}

type webhooksInput struct {
	teamInput
	pageInput
}

func (s *Server) listWebhooks(ctx context.Context, c call, in webhooksInput) (answer[api.Page[api.Webhook]], error) {
	var out answer[api.Page[api.Webhook]]
	if _, err := s.team(ctx, c.team); err != nil {
		return out, err
	}
	list, next, err := s.deps.Surfaces.Webhooks.List(ctx, c.team, in.Limit, in.Cursor)
	if err != nil {
		return out, err
	}
	out.Body = page(list, next, s.webhooksShown(ctx))
	return out, nil
}

func webhookOnWire(h webhook.Hook) api.Webhook {
	out := api.Webhook{
		ID: h.ID, Team: string(h.Team), Name: h.Name, Forge: string(h.Forge), Path: "/api/webhooks/" + string(h.Forge) + "/" + h.ID,
		Rules: make([]api.WebhookRule, 0, len(h.Rules)), Quiet: h.Quiet, Enabled: !h.Disabled, CreatedAt: utc(h.CreatedAt), UpdatedAt: utc(h.UpdatedAt), CreatedBy: h.CreatedBy,
	}
	for _, r := range h.Rules {
		out.Rules = append(out.Rules, api.WebhookRule{
			Repo: r.Repo, Actions: texts[string](r.Actions), Labels: r.Labels, Base: r.Base, Draft: string(r.Draft), Forks: string(r.Forks),
			Bot: r.Bot, Inputs: r.Inputs, BudgetUSD: r.BudgetUSD,
		})
	}
	return out
}

func rulesFromWire(list []api.WebhookRule) []webhook.Rule {
	rules := make([]webhook.Rule, 0, len(list))
	for _, r := range list {
		rules = append(rules, webhook.Rule{
			Repo: r.Repo, Actions: texts[webhook.Action](r.Actions), Labels: r.Labels, Base: r.Base, Draft: webhook.Choice(r.Draft), Forks: webhook.Choice(r.Forks),
			Bot: r.Bot, Inputs: r.Inputs, BudgetUSD: r.BudgetUSD,
		})
	}
	return rules
}

type webhookCreateInput struct {
	teamInput
	Body api.WebhookCreate
}

func (s *Server) createWebhook(ctx context.Context, c call, in webhookCreateInput) (answer[api.WebhookIssued], error) {
	if _, err := s.team(ctx, c.team); err != nil {
		return answer[api.WebhookIssued]{}, err
	}
	b := in.Body
	secret := cmp.Or(b.Secret, rand.Text())
	hook, err := s.deps.Surfaces.Webhooks.Create(ctx, webhook.Hook{
		Team: c.team, Name: b.Name, Forge: webhook.Forge(b.Forge), Rules: rulesFromWire(b.Rules), Quiet: b.Quiet, CreatedBy: c.Name,
	}, secret)
	if err != nil {
		return answer[api.WebhookIssued]{}, sealFailure(err)
	}
	s.noteAudit(ctx, c, c.team, "webhook.created", hook.ID, map[string]string{"name": hook.Name, "forge": string(hook.Forge), "rules": strconv.Itoa(len(hook.Rules))})
	return answer[api.WebhookIssued]{Body: api.WebhookIssued{Webhook: s.webhooksShown(ctx)(hook), Secret: secret}}, nil
}

func sealFailure(err error) error {
	if errors.Is(err, secrets.ErrNoKey) {
		return because(fail(http.StatusConflict, "secrets_off", "this server was given no key to seal secrets with; its operator sets HOLDFAST_SECRETS_KEY"), err)
	}
	return found("webhook", err)
}

type webhookInput struct {
	teamInput
	Webhook string `path:"webhook" doc:"the webhook's id"`
}

func (s *Server) getWebhook(ctx context.Context, c call, in webhookInput) (answer[api.Webhook], error) {
	hook, err := s.deps.Surfaces.Webhooks.Get(ctx, c.team, in.Webhook)
	if err != nil {
		return answer[api.Webhook]{}, found("webhook", err)
	}
	return answer[api.Webhook]{Body: s.webhooksShown(ctx)(hook)}, nil
}

type webhookPatchInput struct {
	webhookInput
	Body api.WebhookPatch
}

func (s *Server) patchWebhook(ctx context.Context, c call, in webhookPatchInput) (answer[api.Webhook], error) {
	b, secret := in.Body, ""
	if b.Secret != nil {
		if secret = *b.Secret; secret == "" {
			return answer[api.Webhook]{}, invalid("secret", "it is empty", "16 bytes or more, or absent to keep the secret")
		}
	}
	hook, err := s.deps.Surfaces.Webhooks.Update(ctx, c.team, in.Webhook, secret, func(h *webhook.Hook) error {
		set(&h.Name, b.Name)
		set(&h.Quiet, b.Quiet)
		if b.Rules != nil {
			h.Rules = rulesFromWire(b.Rules)
		}
		if b.Enabled != nil {
			h.Disabled = !*b.Enabled
		}
		return nil
	})
	if err != nil {
		return answer[api.Webhook]{}, sealFailure(err)
	}
	s.noteAudit(ctx, c, c.team, "webhook.changed", hook.ID, map[string]string{"name": hook.Name, "secret": map[bool]string{true: "new", false: "kept"}[secret != ""], "rules": strconv.Itoa(len(hook.Rules))})
	return answer[api.Webhook]{Body: s.webhooksShown(ctx)(hook)}, nil
}

func (s *Server) deleteWebhook(ctx context.Context, c call, in webhookInput) (answer[done], error) {
	if err := s.deps.Surfaces.Webhooks.Delete(ctx, c.team, in.Webhook); err != nil {
		return answer[done]{}, found("webhook", err)
	}
	s.noteAudit(ctx, c, c.team, "webhook.removed", in.Webhook, nil)
	return answer[done]{}, nil
}

type deliveriesInput struct {
	webhookInput
	pageInput
}

func (s *Server) listDeliveries(ctx context.Context, c call, in deliveriesInput) (answer[api.Page[api.WebhookDelivery]], error) {
	var out answer[api.Page[api.WebhookDelivery]]
	list, next, err := s.deps.Surfaces.Webhooks.Deliveries(ctx, c.team, in.Webhook, in.Limit, in.Cursor)
	if err != nil {
		return out, found("webhook", err)
	}
	out.Body = page(list, next, deliveryOnWire)
	return out, nil
}

func deliveryOnWire(d webhook.Delivery) api.WebhookDelivery {
	_, id, _ := strings.Cut(d.ID, "/")
	out := api.WebhookDelivery{
		ID: id, At: utc(d.At), Count: d.Count, Event: d.Event, Repo: d.Repo, Number: d.PR, Bot: d.Bot, Run: string(d.Run), Ignored: d.Ignored, Refused: refusalOnWire(d.Refused),
	}
	switch {
	case out.Run != "":
		out.Outcome = "launched"
	case out.Ignored != "":
		out.Outcome = "ignored"
	case out.Refused != nil:
		out.Outcome = "refused"
	default:
		out.Outcome = "in_progress"
	}
	return out
}

// maxDelivery is the largest delivery that is read, in bytes.
const maxDelivery = 5 << 20

// receive answers a forge. It needs no token: the delivery's signature is what counts,
// and what it may do is the webhook's rules. It is no part of the OpenAPI document,
// because the forge says what is sent.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), s.options.RequestTimeout)
	defer cancel()
	if err := s.deliver(w, r.WithContext(ctx)); err != nil {
		f := deliveryFailure(err)
		s.log.Debug("a delivery failed", "path", holdfast.Clip(r.URL.Path, 200), "status", f.problem.Status, "error", err)
		writeProblem(w, f)
	}
}

func (s *Server) deliver(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxDelivery))
	if err != nil {
		var tooLong *http.MaxBytesError
		if errors.As(err, &tooLong) {
			return tooLong
		}
		return invalid("body", "the body could not be read to its end", "a complete body")
	}
	id := r.PathValue("webhook")
	got, err := s.deps.Surfaces.Receiver.Receive(r.Context(), webhook.Forge(r.PathValue("forge")), id, r.Header, body)
	if err != nil {
		return err
	}
	entry := audit.Entry{Actor: string(launch.SurfaceWebhook), Action: "run.launched", Target: id, Request: w.Header().Get(requestID), IP: peer(r), Outcome: audit.Done}
	switch {
	case got.Denial.Denied():
		entry.Outcome, entry.Decision, entry.Detail = audit.Refused, got.Denial.DecisionID, map[string]string{"reason": string(got.Denial.Reason)}
		entry.Team = got.Team
		s.deps.Audit.Note(entry)
		if !got.Quiet {
			return refusal(got.Denial)
		}
		return writeJSON(w, http.StatusOK, api.WebhookAnswer{Refused: string(got.Denial.Reason), DecisionID: got.Denial.DecisionID})
	case got.Ignored != "":
		return writeJSON(w, http.StatusOK, api.WebhookAnswer{Ignored: got.Ignored, Duplicate: got.Duplicate})
	}
	if !got.Duplicate {
		entry.Target, entry.Team, entry.Detail = string(got.Run), got.Team, map[string]string{"webhook": id}
		s.deps.Audit.Note(entry)
	}
	return writeJSON(w, http.StatusAccepted, api.WebhookAnswer{Run: string(got.Run), Duplicate: got.Duplicate})
}

func deliveryFailure(err error) *failure {
	switch {
	case errors.Is(err, webhook.ErrSignature):
		return because(fail(http.StatusUnauthorized, "signature", "the delivery is not signed with this webhook's secret"), err)
	case errors.Is(err, webhook.ErrInProgress):
		f := because(fail(http.StatusConflict, "in_progress", "this delivery is being worked on; it need not be sent again"), err)
		f.header = http.Header{"Retry-After": {"5"}}
		f.problem.RetryAfterS = 5
		return f
	case errors.Is(err, records.ErrNotFound):
		return because(notFound("webhook"), err)
	}
	return failureOf(err)
}
