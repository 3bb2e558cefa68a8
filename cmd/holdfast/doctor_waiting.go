package main

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

// maxLooked bounds how many things of a kind doctor looks at.
const maxLooked = 1000

// checkWaiting warns of what launches by itself and would be refused for good as things
// stand: enabled schedules, cards in todo, and the enabled webhooks of the teams that
// the caller is an admin of. What may not be read, or cannot, is said by other checks.
func checkWaiting(ctx context.Context, server *client.Client) []finding {
	var findings []finding
	warn := func(what string, warnings []string, wayOut string) {
		for _, warning := range warnings {
			findings = append(findings, finding{what, verdictWarn, oneLine(warning), wayOut})
		}
	}
	eachOf(ctx, func(ctx context.Context, w client.Window) (api.Page[api.Schedule], error) {
		return server.Schedules(ctx, "", w)
	}, func(s api.Schedule) {
		if s.Enabled {
			warn("schedule "+s.ID, s.Warnings, "holdfast schedules set --help, or holdfast schedules pause "+s.ID)
		}
	})
	eachOf(ctx, func(ctx context.Context, w client.Window) (api.Page[api.Card], error) {
		return server.Cards(ctx, "", "todo", w)
	}, func(k api.Card) {
		warn("card "+k.ID, k.Warnings, "holdfast board rm "+k.ID+", and add it anew")
	})
	for _, team := range teamsToLookAt(ctx, server) {
		eachOf(ctx, func(ctx context.Context, w client.Window) (api.Page[api.Webhook], error) {
			return server.Webhooks(ctx, team, w)
		}, func(h api.Webhook) {
			if h.Enabled {
				warn("webhook "+h.ID, h.Warnings, "holdfast webhooks set "+h.ID+" --team "+team+" --rules FILE")
			}
		})
	}
	return findings
}

// eachOf walks over the pages of a list, as far as it can be read.
func eachOf[T any](ctx context.Context, read func(context.Context, client.Window) (api.Page[T], error), do func(T)) {
	window := client.Window{Limit: 200}
	for seen := 0; seen < maxLooked; seen += window.Limit {
		page, err := read(ctx, window)
		if err != nil {
			return
		}
		for _, item := range page.Items {
			do(item)
		}
		if window.Cursor = page.NextCursor; window.Cursor == "" {
			return
		}
	}
}

// teamsToLookAt are the teams whose webhooks the caller may see.
func teamsToLookAt(ctx context.Context, server *client.Client) []string {
	me, err := server.Me(ctx)
	if err != nil {
		return nil
	}
	var teams []string
	for _, m := range me.Memberships {
		if m.Role == "admin" {
			teams = append(teams, m.Team)
		}
	}
	if me.Operator {
		eachOf(ctx, server.Teams, func(t api.Team) { teams = append(teams, t.ID) })
	}
	return teams
}
