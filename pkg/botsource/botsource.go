// Package botsource keeps the bots and resolves a name to the bot that a launch
// runs: a team's own bot, then the platform's override, then the catalog baked into
// the binary. Its [Resolver] is the only maker of launch identities (ADR-155 §11).
package botsource

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// Origin says where a bot came from. The first names the tier "team" of an
// identity, the other two the tier "platform".
type Origin string

// The origins, in the order in which they are tried.
const (
	OriginTeam     Origin = "team"
	OriginPlatform Origin = "platform"
	OriginBaked    Origin = "baked"
)

// Row is one stored bot: a team's own, or the platform's.
type Row struct {
	Identity  holdfast.Identity `json:"identity"`
	Bot       holdfast.Bot      `json:"bot"`
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
	UpdatedBy string            `json:"updated_by,omitempty"`
}

// Repository keeps the stored bots. The baked ones are in no store, see [Baked].
type Repository struct {
	table *records.Table[Row]
}

// indexOwner has "platform", or "team:" and the team's id.
const indexOwner = "owner"

// New opens the collection "bots".
func New(ctx context.Context, db records.DB) (*Repository, error) {
	schema := records.Schema{Name: "bots", Indexes: []records.Index{{Name: indexOwner}}, Hot: true}
	table, err := records.NewTable(ctx, db, schema, func(r Row) string { return r.Identity.String() }, func(r Row) map[string]string {
		return map[string]string{indexOwner: owner(r.Identity.Team())}
	})
	if err != nil {
		return nil, err
	}
	return &Repository{table.Remember(func(r Row) Row { r.Bot = clone(r.Bot); return r })}, nil
}

// owner is the index value of a team's bots; the platform's when team is empty.
func owner(team holdfast.TeamID) string {
	if team == "" {
		return string(holdfast.TierPlatform)
	}
	return "team:" + string(team)
}

// identityOf is the identity that a bot stored for the team has; the platform's
// when team is empty.
func identityOf(team holdfast.TeamID, bot holdfast.BotID) holdfast.Identity {
	if team == "" {
		return holdfast.PlatformBot(bot)
	}
	return holdfast.TeamBot(team, bot)
}

// Put stores a bot for a team, or for the platform when team is empty, over the one
// of that name if there is one; created says that there was none. The bot's name is
// folded; a bot that cannot be meant is an *holdfast.InvalidError. Runs that were
// admitted keep the bot that they were admitted with.
func (r *Repository) Put(ctx context.Context, now time.Time, team holdfast.TeamID, bot holdfast.Bot, by string) (row Row, created bool, err error) {
	name, err := holdfast.FoldName(string(bot.Name))
	if err != nil {
		return Row{}, false, holdfast.InField("bot", err)
	}
	bot.Name = holdfast.BotID(name)
	if err := Check(bot); err != nil {
		return Row{}, false, err
	}
	identity := identityOf(team, bot.Name)
	for range putTries {
		v, err := r.table.Update(ctx, identity.String(), func(row *Row) error {
			row.Bot, row.UpdatedAt, row.UpdatedBy = bot, now, by
			return nil
		})
		if err == nil || !errors.Is(err, records.ErrNotFound) {
			return v.Value, false, err
		}
		v, err = r.table.Insert(ctx, Row{Identity: identity, Bot: bot, CreatedAt: now, UpdatedAt: now, UpdatedBy: by})
		if err == nil || !errors.Is(err, records.ErrExists) {
			return v.Value, err == nil, err
		}
	}
	return Row{}, false, fmt.Errorf("put bot %s: %w, %d times", identity, records.ErrRevision, putTries)
}

// putTries bounds how often a put begins again when others create and delete the
// same bot meanwhile.
const putTries = 8

// Get reads one stored bot of a team, or of the platform when team is empty; the
// error matches [records.ErrNotFound] when there is none.
func (r *Repository) Get(ctx context.Context, team holdfast.TeamID, bot holdfast.BotID) (Row, error) {
	v, err := r.table.Get(ctx, identityOf(team, bot).String())
	return v.Value, err
}

// Delete removes one; the error matches [records.ErrNotFound] when there is none.
func (r *Repository) Delete(ctx context.Context, team holdfast.TeamID, bot holdfast.BotID) error {
	return r.table.Delete(ctx, identityOf(team, bot).String())
}

// List lists the stored bots of a team, or of the platform when team is empty, by
// name.
func (r *Repository) List(ctx context.Context, team holdfast.TeamID) ([]Row, error) {
	var rows []Row
	q := records.Query{Index: indexOwner, Equal: owner(team), Limit: records.MaxPage}
	err := r.table.Walk(ctx, q, func(v records.Versioned[Row]) error {
		rows = append(rows, v.Value)
		return nil
	})
	return rows, err
}
