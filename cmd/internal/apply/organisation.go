package apply

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

func (p *planner) organisation(ctx context.Context, wanted Organisation) error {
	current, err := p.server.Organisation(ctx, wanted.ID)
	var missing *client.NotFound
	switch {
	case errors.As(err, &missing):
		return p.add("organisation "+wanted.ID, ActionCreate, nil, wanted, func(ctx context.Context) error { return p.createOrganisation(ctx, wanted) })
	case err != nil:
		return err
	}
	before := Organisation{ID: current.ID}
	patch := api.OrganisationPatch{Name: wanted.Name, Suspended: wanted.Suspended}
	if wanted.Name != nil {
		before.Name = &current.Name
	}
	if wanted.Suspended != nil {
		before.Suspended = &current.Suspended
	}
	if wanted.Limits != nil {
		whole, now := allLimits(*wanted.Limits), allLimits(current.Limits)
		wanted.Limits, before.Limits, patch.Limits = &whole, &now, &whole
	}
	return p.add("organisation "+wanted.ID, ActionChange, before, wanted, func(ctx context.Context) error {
		_, err := p.server.PatchOrganisation(ctx, wanted.ID, patch)
		return err
	})
}

// allLimits writes what is left out as what it means: an organisation inherits
// nothing.
func allLimits(l api.TeamLimits) api.TeamLimits {
	for _, limit := range []*holdfast.LimitSetting{
		&l.MaxConcurrentRuns.LimitSetting, &l.MonthlyUSD.LimitSetting, &l.MonthlyRuns.LimitSetting, &l.LaunchesPerMinute.LimitSetting,
	} {
		*limit = limit.Or(holdfast.Unlimited)
	}
	return l
}

func (p *planner) createOrganisation(ctx context.Context, wanted Organisation) error {
	create := api.OrganisationCreate{ID: wanted.ID}
	if wanted.Name != nil {
		create.Name = *wanted.Name
	}
	if wanted.Limits != nil {
		create.Limits = *wanted.Limits
	}
	if _, err := p.server.CreateOrganisation(ctx, create); err != nil {
		return err
	}
	if wanted.Suspended == nil || !*wanted.Suspended {
		return nil
	}
	_, err := p.server.PatchOrganisation(ctx, wanted.ID, api.OrganisationPatch{Suspended: wanted.Suspended})
	return err
}
