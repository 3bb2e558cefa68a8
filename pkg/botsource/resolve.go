package botsource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// Resolved is what a name resolved to.
type Resolved struct {
	Identity holdfast.Identity
	Origin   Origin
	Bot      holdfast.Bot
}

// Options of a [Resolver]. The zero value resolves against the baked catalog of
// this build.
type Options struct {
	// Baked replaces the catalog of this build; nil keeps it, empty has none.
	Baked []holdfast.Bot
	// OnRead is told of every read of the store; nil tells nobody. It shows that a
	// caller who is refused before resolution costs no read.
	OnRead func(holdfast.Identity)
}

// Resolver resolves names. It keeps nothing: each resolution reads the store, so an
// edit is in force for the next launch.
type Resolver struct {
	rows   *Repository
	baked  map[holdfast.BotID]holdfast.Bot
	onRead func(holdfast.Identity)
}

// NewResolver is a resolver over the stored bots.
func NewResolver(rows *Repository, options Options) *Resolver {
	if options.Baked == nil {
		options.Baked = Baked()
	}
	if options.OnRead == nil {
		options.OnRead = func(holdfast.Identity) {}
	}
	r := &Resolver{rows: rows, baked: map[holdfast.BotID]holdfast.Bot{}, onRead: options.OnRead}
	for _, bot := range options.Baked {
		r.baked[bot.Name] = bot
	}
	return r
}

// Resolve is the bot that a launch of the team runs under that name, as people
// spell it: the team's own bot, else the platform's, else the baked one. found is
// false when there is none. Only "there is none" falls to the next tier: an
// unreadable tier is an error, never an older bot. A name that cannot be one is an
// *holdfast.InvalidError. The team is a parameter and nothing else says whose tier
// is read; an empty team reads the platform's tiers only.
func (r *Resolver) Resolve(ctx context.Context, team holdfast.TeamID, name string) (resolved Resolved, found bool, err error) {
	folded, err := holdfast.FoldName(name)
	if err != nil {
		return Resolved{}, false, holdfast.InField("bot", err)
	}
	bot := holdfast.BotID(folded)
	tiers := []struct {
		origin Origin
		team   holdfast.TeamID
	}{{OriginTeam, team}, {OriginPlatform, ""}}
	for _, tier := range tiers {
		if tier.origin == OriginTeam && team == "" {
			continue
		}
		identity := identityOf(tier.team, bot)
		r.onRead(identity)
		row, err := r.rows.Get(ctx, tier.team, bot)
		switch {
		case err == nil:
			return Resolved{identity, tier.origin, row.Bot}, true, nil
		case !errors.Is(err, records.ErrNotFound):
			return Resolved{}, false, fmt.Errorf("resolve bot %s: %w", identity, err)
		}
	}
	baked, found := r.baked[bot]
	if !found {
		return Resolved{}, false, nil
	}
	return Resolved{holdfast.PlatformBot(bot), OriginBaked, clone(baked)}, true, nil
}

// List is every bot that a launch of the team can name, each as it would resolve,
// by name; of the platform's tiers when team is empty.
func (r *Resolver) List(ctx context.Context, team holdfast.TeamID) ([]Resolved, error) {
	byName := map[holdfast.BotID]Resolved{}
	for name, bot := range r.baked {
		byName[name] = Resolved{holdfast.PlatformBot(name), OriginBaked, clone(bot)}
	}
	tiers := []holdfast.TeamID{""}
	if team != "" {
		tiers = append(tiers, team)
	}
	for _, tier := range tiers {
		rows, err := r.rows.List(ctx, tier)
		if err != nil {
			return nil, err
		}
		origin := OriginPlatform
		if tier != "" {
			origin = OriginTeam
		}
		for _, row := range rows {
			byName[row.Bot.Name] = Resolved{row.Identity, origin, row.Bot}
		}
	}
	list := make([]Resolved, 0, len(byName))
	for _, resolved := range byName {
		list = append(list, resolved)
	}
	slices.SortFunc(list, func(a, b Resolved) int { return cmp.Compare(a.Bot.Name, b.Bot.Name) })
	return list, nil
}
