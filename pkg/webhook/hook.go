// Package webhook launches bots for pull and merge requests of GitHub, GitLab and
// Forgejo (and Gitea). A forge's delivery is checked against the hook's secret over
// the bytes as they came, is known by the forge's own id for a week, so that it
// launches once however often it comes, and is matched against the hook's rules in
// their order; the first that wants it launches its bot, through the gate, for the
// hook's team. Nothing in a delivery says for whom it launches.
//
// Reading order: hook.go (the record), event.go and gitlab.go (what forges send),
// verify.go (who sent it), rule.go (what it launches), receive.go (the way of a
// delivery).
package webhook

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/surface"
)

// Forge is who sends deliveries.
type Forge string

// The forges. Gitea's deliveries are read as Forgejo's.
const (
	GitHub  Forge = "github"
	GitLab  Forge = "gitlab"
	Forgejo Forge = "forgejo"
)

// Forges lists every forge.
func Forges() []Forge { return []Forge{GitHub, GitLab, Forgejo} }

// Sealer keeps secrets at rest: what it seals is opened under the same name only.
type Sealer interface {
	Seal(about string, plain []byte) (string, error)
	Open(about, sealed string) ([]byte, error)
}

// Hook is one webhook of a team.
type Hook struct {
	ID    string          `json:"id"` // a part of its URL
	Team  holdfast.TeamID `json:"team"`
	Name  string          `json:"name"`
	Forge Forge           `json:"forge"`
	// Sealed is the secret that deliveries are signed with, sealed.
	Sealed string `json:"sealed"`
	Rules  []Rule `json:"rules"` // the first that matches launches
	// Quiet answers a refusal of the gate with 200 instead of the problem, for a forge
	// that switches webhooks off which fail too often. The refusal is in the list of
	// deliveries either way.
	Quiet     bool      `json:"quiet,omitempty"`
	Disabled  bool      `json:"disabled,omitempty"` // it answers as if it did not exist
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	CreatedBy string    `json:"created_by,omitempty"`
}

// Bounds of a hook.
const (
	MaxPerTeam = 100
	maxName    = 100
	minSecret  = 16
	maxSecret  = 200
)

// Check refuses a hook that cannot be stored, with an *holdfast.InvalidError.
func (h Hook) Check() error {
	switch {
	case !holdfast.ValidName(string(h.Team)):
		return &holdfast.InvalidError{Field: "team", Problem: fmt.Sprintf("%q is not a team's id", holdfast.Clip(string(h.Team), 80)), Allowed: "the id of a team"}
	case h.Name == "" || len(h.Name) > maxName || holdfast.Clip(h.Name, maxName) != h.Name:
		return &holdfast.InvalidError{Field: "name", Problem: "it is missing, too long or holds control characters", Allowed: fmt.Sprintf("1 to %d bytes of text", maxName)}
	case h.Forge != GitHub && h.Forge != GitLab && h.Forge != Forgejo:
		return &holdfast.InvalidError{Field: "forge", Problem: fmt.Sprintf("%q is not a forge", holdfast.Clip(string(h.Forge), 40)), Allowed: "github, gitlab, forgejo"}
	case len(h.Rules) == 0 || len(h.Rules) > MaxRules:
		return &holdfast.InvalidError{Field: "rules", Problem: fmt.Sprintf("there are %d", len(h.Rules)), Allowed: fmt.Sprintf("1 to %d; the first that matches launches", MaxRules)}
	}
	for i, rule := range h.Rules {
		if err := rule.check(fmt.Sprintf("rules[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

// Repository keeps hooks and their deliveries.
type Repository struct {
	hooks      *records.Table[Hook]
	deliveries *records.Table[Delivery]
	sealer     Sealer
	clock      clock.Clock
	ids        records.IDs
}

const (
	indexTeam = "team"
	indexHook = "hook" // the hook and the time of a delivery
	indexAt   = "at"
)

// New opens the collections "webhooks" and "webhook_deliveries".
func New(ctx context.Context, db records.DB, clock clock.Clock, sealer Sealer) (*Repository, error) {
	hooks, err := records.NewTable(ctx, db, records.Schema{Name: "webhooks", Indexes: []records.Index{{Name: indexTeam}}},
		func(h Hook) string { return h.ID }, func(h Hook) map[string]string { return map[string]string{indexTeam: string(h.Team)} })
	if err != nil {
		return nil, err
	}
	deliveries, err := records.NewTable(ctx, db, records.Schema{Name: "webhook_deliveries", Indexes: []records.Index{{Name: indexHook}, {Name: indexAt}}},
		func(d Delivery) string { return d.ID }, func(d Delivery) map[string]string {
			return map[string]string{indexHook: d.Hook + "|" + surface.Stamp(d.At), indexAt: surface.Stamp(d.At)}
		})
	if err != nil {
		return nil, err
	}
	return &Repository{hooks: hooks, deliveries: deliveries, sealer: sealer, clock: clock}, nil
}

func about(id string) string { return "webhook " + id }

// seal keeps a secret for a hook.
func (r *Repository) seal(id, secret string) (string, error) {
	if len(secret) < minSecret || len(secret) > maxSecret || holdfast.Clip(secret, maxSecret) != secret {
		return "", &holdfast.InvalidError{Field: "secret", Problem: "it is too short, too long or holds control characters", Allowed: fmt.Sprintf("%d to %d bytes, or absent for a new one", minSecret, maxSecret)}
	}
	sealed, err := r.sealer.Seal(about(id), []byte(secret))
	if err != nil {
		return "", fmt.Errorf("seal the secret of webhook %s: %w", id, err)
	}
	return sealed, nil
}

// Create stores a new hook with its secret, which is not kept in the clear anywhere.
func (r *Repository) Create(ctx context.Context, h Hook, secret string) (Hook, error) {
	if err := h.Check(); err != nil {
		return Hook{}, err
	}
	n, err := r.hooks.Count(ctx, indexTeam, string(h.Team))
	if err != nil {
		return Hook{}, err
	}
	if n >= MaxPerTeam {
		return Hook{}, &holdfast.InvalidError{Field: "team", Problem: fmt.Sprintf("it has %d webhooks already", n), Allowed: fmt.Sprintf("at most %d", MaxPerTeam)}
	}
	now := r.clock.Now()
	h.ID, h.CreatedAt, h.UpdatedAt = r.ids.Next(now), now, now
	if h.Sealed, err = r.seal(h.ID, secret); err != nil {
		return Hook{}, err
	}
	v, err := r.hooks.Insert(ctx, h)
	return v.Value, err
}

// Get reads a hook of a team; another team's does not exist. The error matches
// [records.ErrNotFound].
func (r *Repository) Get(ctx context.Context, team holdfast.TeamID, id string) (Hook, error) {
	h, err := r.get(ctx, id)
	if err == nil && h.Team != team {
		return Hook{}, fmt.Errorf("get webhook %q: %w", id, records.ErrNotFound)
	}
	return h, err
}

func (r *Repository) get(ctx context.Context, id string) (Hook, error) {
	if !plainID(id) {
		return Hook{}, fmt.Errorf("get webhook %q: %w", holdfast.Clip(id, 80), records.ErrNotFound)
	}
	v, err := r.hooks.Get(ctx, id)
	return v.Value, err
}

// Update edits a hook of a team; secret is a new secret, empty keeps the old one. The
// forge stays.
func (r *Repository) Update(ctx context.Context, team holdfast.TeamID, id, secret string, change func(*Hook) error) (Hook, error) {
	if _, err := r.Get(ctx, team, id); err != nil {
		return Hook{}, err
	}
	sealed := ""
	if secret != "" {
		var err error
		if sealed, err = r.seal(id, secret); err != nil {
			return Hook{}, err
		}
	}
	v, err := r.hooks.Update(ctx, id, func(h *Hook) error {
		was := *h
		if err := change(h); err != nil {
			return err
		}
		h.ID, h.Team, h.Forge, h.CreatedAt, h.Sealed = was.ID, was.Team, was.Forge, was.CreatedAt, was.Sealed
		if sealed != "" {
			h.Sealed = sealed
		}
		h.UpdatedAt = r.clock.Now()
		return h.Check()
	})
	return v.Value, err
}

// Delete removes a hook of a team. Its deliveries go with their age.
func (r *Repository) Delete(ctx context.Context, team holdfast.TeamID, id string) error {
	if _, err := r.Get(ctx, team, id); err != nil {
		return err
	}
	return r.hooks.Delete(ctx, id)
}

// List lists a team's hooks, the oldest first.
func (r *Repository) List(ctx context.Context, team holdfast.TeamID, limit int, cursor string) (list []Hook, next string, err error) {
	if limit, err = records.PageSize(limit); err != nil {
		return nil, "", err
	}
	values, next, err := r.hooks.List(ctx, records.Query{Index: indexTeam, Equal: string(team), Limit: limit, After: cursor})
	for _, v := range values {
		list = append(list, v.Value)
	}
	return list, next, err
}

// Delivery is what came of one delivery. It is kept for [KeepDeliveries].
type Delivery struct {
	ID    string          `json:"id"` // the hook, and the forge's own id
	Hook  string          `json:"hook"`
	Team  holdfast.TeamID `json:"team"`
	At    time.Time       `json:"at"`               // when it came first
	Count int             `json:"count"`            // how often it came
	Event string          `json:"event,omitempty"`  // the actions
	Repo  string          `json:"repo,omitempty"`   //
	PR    int64           `json:"number,omitempty"` //
	Bot   string          `json:"bot,omitempty"`    // of the rule that matched

	Run     holdfast.RunID  `json:"run,omitempty"`
	Ignored string          `json:"ignored,omitempty"` // why it launches nothing
	Refused surface.Refusal `json:"refused,omitzero"`
	Launch  surface.Attempt `json:"launch,omitzero"`
}

// KeepDeliveries is how long a delivery is known.
const KeepDeliveries = 7 * 24 * time.Hour

// Deliveries lists what came to a hook of a team, the newest first.
func (r *Repository) Deliveries(ctx context.Context, team holdfast.TeamID, hook string, limit int, cursor string) (list []Delivery, next string, err error) {
	if _, err = r.Get(ctx, team, hook); err != nil {
		return nil, "", err
	}
	if limit, err = records.PageSize(limit); err != nil {
		return nil, "", err
	}
	values, next, err := r.deliveries.List(ctx, records.Query{Index: indexHook, Prefix: hook + "|", Descending: true, Limit: limit, After: cursor})
	for _, v := range values {
		list = append(list, v.Value)
	}
	return list, next, err
}
