package teams

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// Organisation is a group of teams with limits over all of them together. A launch
// of a member takes from the team's limits and from the organisation's, and both
// must admit.
type Organisation struct {
	ID   holdfast.OrgID `json:"id"`
	Name string         `json:"name,omitempty"` // for people; empty: the id
	// Suspended refuses every launch of every member until it is lifted; what runs
	// goes on.
	Suspended       bool   `json:"suspended,omitempty"`
	SuspendedReason string `json:"suspended_reason,omitempty"`
	// Limits are over all members together. The platform's defaults are a team's and
	// not an organisation's: absent is unlimited here, like null.
	Limits    Limits    `json:"limits,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Check refuses an organisation that cannot be stored, with an
// *holdfast.InvalidError.
func (o Organisation) Check() error {
	switch {
	case !holdfast.ValidName(string(o.ID)):
		return &holdfast.InvalidError{Field: "id", Problem: fmt.Sprintf("%q is not an organisation's id", holdfast.Clip(string(o.ID), 80)), Allowed: "1 to 63 lower case letters, digits and single dashes"}
	case len(o.Name) > maxName || holdfast.Clip(o.Name, maxName) != o.Name:
		return &holdfast.InvalidError{Field: "name", Problem: "it is too long or holds control characters", Allowed: fmt.Sprintf("at most %d bytes of text", maxName)}
	case len(o.SuspendedReason) > maxReason || holdfast.Clip(o.SuspendedReason, maxReason) != o.SuspendedReason:
		return &holdfast.InvalidError{Field: "suspended_reason", Problem: "it is too long or holds control characters", Allowed: fmt.Sprintf("at most %d bytes of text", maxReason)}
	}
	return o.Limits.check()
}

// Organisation reads one; the error matches [records.ErrNotFound] when there is none.
func (r *Repository) Organisation(ctx context.Context, id holdfast.OrgID) (Organisation, error) {
	if !holdfast.ValidName(string(id)) { // nothing is stored under such an id
		return Organisation{}, fmt.Errorf("get organisation %q: %w", holdfast.Clip(string(id), 80), records.ErrNotFound)
	}
	v, err := r.organisations.Get(ctx, string(id))
	return v.Value, err
}

// CreateOrganisation stores a new one; the error matches [records.ErrExists] when
// the id is taken and is an *holdfast.InvalidError when it cannot be meant.
func (r *Repository) CreateOrganisation(ctx context.Context, org Organisation) (Organisation, error) {
	if err := org.Check(); err != nil {
		return Organisation{}, err
	}
	v, err := r.organisations.Insert(ctx, org)
	return v.Value, err
}

// UpdateOrganisation edits one, as [Repository.Update] edits a team.
func (r *Repository) UpdateOrganisation(ctx context.Context, id holdfast.OrgID, change func(*Organisation) error) (Organisation, error) {
	if !holdfast.ValidName(string(id)) {
		return Organisation{}, fmt.Errorf("update organisation %q: %w", holdfast.Clip(string(id), 80), records.ErrNotFound)
	}
	v, err := r.organisations.Update(ctx, string(id), func(org *Organisation) error {
		created := org.CreatedAt
		if err := change(org); err != nil {
			return err
		}
		org.ID, org.CreatedAt = id, created
		return org.Check()
	})
	if err != nil {
		return Organisation{}, err
	}
	return v.Value, nil
}

// Organisations lists them by id, as [Repository.List] lists teams.
func (r *Repository) Organisations(ctx context.Context, limit int, cursor string) (list []Organisation, next string, err error) {
	if limit, err = records.PageSize(limit); err != nil {
		return nil, "", err
	}
	values, next, err := r.organisations.List(ctx, records.Query{Limit: limit, After: cursor})
	if err != nil {
		return nil, "", err
	}
	for _, v := range values {
		list = append(list, v.Value)
	}
	return list, next, nil
}

// Members are the teams of an organisation, by id; none when nobody belongs to it.
func (r *Repository) Members(ctx context.Context, org holdfast.OrgID) ([]Team, error) {
	var members []Team
	q := records.Query{Index: indexOrganisation, Equal: string(org), Limit: records.MaxPage}
	err := r.table.Walk(ctx, q, func(v records.Versioned[Team]) error {
		members = append(members, v.Value)
		return nil
	})
	return members, err
}

// indexOrganisation has the organisation of a team; a team without one is not in it.
const indexOrganisation = "organisation"
