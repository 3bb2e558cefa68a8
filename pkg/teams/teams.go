// Package teams keeps the teams and the organisations that they belong to: who can
// launch, and the limits that were written on each. What a limit defaults to is the platform's `limits` setting, not this
// package's business.
package teams

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// Team is one team. Its id is the key of everything that it owns.
type Team struct {
	ID   holdfast.TeamID `json:"id"`
	Name string          `json:"name,omitempty"` // for people; empty: the id
	// Organisation is empty for a team that belongs to none.
	Organisation holdfast.OrgID `json:"organisation,omitempty"`
	// Suspended refuses every launch until it is lifted; what runs goes on.
	Suspended       bool      `json:"suspended,omitempty"`
	SuspendedReason string    `json:"suspended_reason,omitempty"`
	Limits          Limits    `json:"limits,omitzero"`
	CreatedAt       time.Time `json:"created_at"`
	UpdatedAt       time.Time `json:"updated_at"`
}

// Limits are the limits as they were written on a team: absent inherits the
// platform's default, null is unlimited, 0 lets nothing launch.
type Limits struct {
	MaxConcurrentRuns holdfast.CountLimit `json:"max_concurrent_runs,omitzero"`
	MonthlyUSD        holdfast.USDLimit   `json:"monthly_usd,omitzero"`
	MonthlyRuns       holdfast.CountLimit `json:"monthly_runs,omitzero"`
	LaunchesPerMinute holdfast.CountLimit `json:"launches_per_minute,omitzero"`
}

// Lengths of the texts that people write.
const (
	maxName   = 200
	maxReason = 500
)

// Check refuses a team that cannot be stored, with an *holdfast.InvalidError.
func (t Team) Check() error {
	switch {
	case !holdfast.ValidName(string(t.ID)):
		return &holdfast.InvalidError{Field: "id", Problem: fmt.Sprintf("%q is not a team's id", holdfast.Clip(string(t.ID), 80)), Allowed: "1 to 63 lower case letters, digits and single dashes"}
	case len(t.Name) > maxName || holdfast.Clip(t.Name, maxName) != t.Name:
		return &holdfast.InvalidError{Field: "name", Problem: "it is too long or holds control characters", Allowed: fmt.Sprintf("at most %d bytes of text", maxName)}
	case t.Organisation != "" && !holdfast.ValidName(string(t.Organisation)):
		return &holdfast.InvalidError{Field: "organisation", Problem: fmt.Sprintf("%q is not an organisation's id", holdfast.Clip(string(t.Organisation), 80)), Allowed: "1 to 63 lower case letters, digits and single dashes"}
	case len(t.SuspendedReason) > maxReason || holdfast.Clip(t.SuspendedReason, maxReason) != t.SuspendedReason:
		return &holdfast.InvalidError{Field: "suspended_reason", Problem: "it is too long or holds control characters", Allowed: fmt.Sprintf("at most %d bytes of text", maxReason)}
	}
	return t.Limits.check()
}

func (l Limits) check() error {
	for _, limit := range []struct {
		field   string
		setting holdfast.LimitSetting
		most    int64
	}{
		{"limits.max_concurrent_runs", l.MaxConcurrentRuns.LimitSetting, int64(holdfast.MaxSlots)},
		{"limits.monthly_usd", l.MonthlyUSD.LimitSetting, int64(holdfast.MaxUSD)},
		{"limits.monthly_runs", l.MonthlyRuns.LimitSetting, int64(holdfast.MaxSlots)},
		{"limits.launches_per_minute", l.LaunchesPerMinute.LimitSetting, int64(holdfast.MaxSlots)},
	} {
		if n, ok := limit.setting.Value(); ok && (n < 0 || n > limit.most) {
			return &holdfast.InvalidError{Field: limit.field, Problem: fmt.Sprintf("%d is not a limit", n), Allowed: "0 to a billion, null for unlimited, or absent for the platform's default"}
		}
	}
	return nil
}

// Repository keeps teams and organisations. It has no clock: callers stamp CreatedAt
// and UpdatedAt.
type Repository struct {
	table         *records.Table[Team]
	organisations *records.Table[Organisation]
}

// New opens the collections "teams" and "organisations".
func New(ctx context.Context, db records.DB) (*Repository, error) {
	schema := records.Schema{Name: "teams", Indexes: []records.Index{{Name: indexOrganisation}}, Hot: true}
	table, err := records.NewTable(ctx, db, schema, func(t Team) string { return string(t.ID) }, func(t Team) map[string]string {
		if t.Organisation == "" {
			return nil
		}
		return map[string]string{indexOrganisation: string(t.Organisation)}
	})
	if err != nil {
		return nil, err
	}
	organisations, err := records.NewTable(ctx, db, records.Schema{Name: "organisations", Hot: true}, func(o Organisation) string { return string(o.ID) }, nil)
	if err != nil {
		return nil, err
	}
	return &Repository{table, organisations}, nil
}

// Get reads one team; the error matches [records.ErrNotFound] when there is none.
func (r *Repository) Get(ctx context.Context, id holdfast.TeamID) (Team, error) {
	if !holdfast.ValidName(string(id)) { // nothing is stored under such an id
		return Team{}, fmt.Errorf("get team %q: %w", holdfast.Clip(string(id), 80), records.ErrNotFound)
	}
	v, err := r.table.Get(ctx, string(id))
	return v.Value, err
}

// Create stores a new team; the error matches [records.ErrExists] when the id is
// taken and is an *holdfast.InvalidError when the team cannot be meant.
func (r *Repository) Create(ctx context.Context, team Team) (Team, error) {
	if err := team.Check(); err != nil {
		return Team{}, err
	}
	v, err := r.table.Insert(ctx, team)
	return v.Value, err
}

// Update edits a team; change may run more than once when others write at the same
// time, and its error is returned as it is. The id and the time of creation stay.
func (r *Repository) Update(ctx context.Context, id holdfast.TeamID, change func(*Team) error) (Team, error) {
	if !holdfast.ValidName(string(id)) {
		return Team{}, fmt.Errorf("update team %q: %w", holdfast.Clip(string(id), 80), records.ErrNotFound)
	}
	v, err := r.table.Update(ctx, string(id), func(team *Team) error {
		created := team.CreatedAt
		if err := change(team); err != nil {
			return err
		}
		team.ID, team.CreatedAt = id, created
		return team.Check()
	})
	if err != nil {
		return Team{}, err
	}
	return v.Value, nil
}

// List lists teams by id. limit is 1 to [records.MaxPage], 0 is
// [records.DefaultPage]; next is the cursor of the following page, empty at the end.
func (r *Repository) List(ctx context.Context, limit int, cursor string) (list []Team, next string, err error) {
	if limit, err = records.PageSize(limit); err != nil {
		return nil, "", err
	}
	values, next, err := r.table.List(ctx, records.Query{Limit: limit, After: cursor})
	if err != nil {
		return nil, "", err
	}
	for _, v := range values {
		list = append(list, v.Value)
	}
	return list, next, nil
}

// All lists every team. It is for views over all teams; their number is an
// operator's, not a caller's.
func (r *Repository) All(ctx context.Context) ([]Team, error) {
	var all []Team
	err := r.table.Walk(ctx, records.Query{Limit: records.MaxPage}, func(v records.Versioned[Team]) error {
		all = append(all, v.Value)
		return nil
	})
	return all, err
}
