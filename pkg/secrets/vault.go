package secrets

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// ForgeToken is the name of the secret with which a team's repositories are cloned.
const ForgeToken = "forge-token"

// Bounds of what a team may keep.
const (
	MaxValue   = 64 << 10 // bytes of one value
	MaxPerTeam = 100
)

// Entry is what may be known of a secret: everything but its value.
type Entry struct {
	Team      holdfast.TeamID `json:"team"`
	Name      string          `json:"name"`
	CreatedAt time.Time       `json:"created_at"`
	UpdatedAt time.Time       `json:"updated_at"`
	UpdatedBy string          `json:"updated_by,omitempty"` // as the token is named
}

// row is the stored form.
type row struct {
	Entry
	Sealed string `json:"sealed"`
}

// Vault keeps the secrets of teams, sealed. Values go in and come out for runners
// only; nobody can list them.
type Vault struct {
	table *records.Table[row]
	keys  *Keyring
	clock clock.Clock
}

const indexTeam = "team"

// NewVault opens the collection "secrets". keys may be nil: then names can be listed
// and removed, and everything that needs a value is [ErrNoKey].
func NewVault(ctx context.Context, db records.DB, clock clock.Clock, keys *Keyring) (*Vault, error) {
	schema := records.Schema{Name: "secrets", Indexes: []records.Index{{Name: indexTeam}}}
	table, err := records.NewTable(ctx, db, schema, func(r row) string { return idOf(r.Team, r.Name) }, func(r row) map[string]string {
		return map[string]string{indexTeam: string(r.Team)}
	})
	if err != nil {
		return nil, err
	}
	return &Vault{table: table, keys: keys, clock: clock}, nil
}

func idOf(team holdfast.TeamID, name string) string { return string(team) + "/" + name }

// about is what a team's secret is sealed about: it opens under its own team and name
// only.
func about(team holdfast.TeamID, name string) string { return "secret " + idOf(team, name) }

// CheckName refuses what no secret can be called.
func CheckName(name string) error {
	if holdfast.ValidName(name) {
		return nil
	}
	return &holdfast.InvalidError{Field: "name", Problem: fmt.Sprintf("%q is not a secret's name", holdfast.Clip(name, 80)), Allowed: "1 to 63 lower case letters, digits and single dashes, such as " + ForgeToken}
}

// Put seals a value under the first key and keeps it, over the former one if there is
// one; created says that there was none. Only the entry is returned.
func (v *Vault) Put(ctx context.Context, team holdfast.TeamID, name string, value []byte, by string) (e Entry, created bool, err error) {
	if err := CheckName(name); err != nil {
		return Entry{}, false, err
	}
	if len(value) == 0 || len(value) > MaxValue {
		return Entry{}, false, &holdfast.InvalidError{Field: "value", Problem: fmt.Sprintf("it has %d bytes", len(value)), Allowed: fmt.Sprintf("1 to %d bytes", MaxValue)}
	}
	sealed, err := v.keys.Seal(about(team, name), value)
	if err != nil {
		return Entry{}, false, err
	}
	now := v.clock.Now()
	for range putTries {
		stored, err := v.table.Update(ctx, idOf(team, name), func(r *row) error {
			r.Sealed, r.UpdatedAt, r.UpdatedBy = sealed, now, by
			return nil
		})
		if err == nil || !errors.Is(err, records.ErrNotFound) {
			return stored.Value.Entry, false, err
		}
		if err := v.roomFor(ctx, team); err != nil {
			return Entry{}, false, err
		}
		stored, err = v.table.Insert(ctx, row{Entry{team, name, now, now, by}, sealed})
		if err == nil || !errors.Is(err, records.ErrExists) {
			return stored.Value.Entry, err == nil, err
		}
	}
	return Entry{}, false, fmt.Errorf("keep secret %s: %w, %d times", idOf(team, name), records.ErrRevision, putTries)
}

// putTries bounds how often a put begins again when others write and remove the same
// secret meanwhile.
const putTries = 8

func (v *Vault) roomFor(ctx context.Context, team holdfast.TeamID) error {
	n, err := v.table.Count(ctx, indexTeam, string(team))
	if err == nil && n >= MaxPerTeam {
		err = &holdfast.InvalidError{Field: "name", Problem: fmt.Sprintf("the team has %d secrets", n), Allowed: fmt.Sprintf("at most %d; remove one first", MaxPerTeam)}
	}
	return err
}

// List lists a team's secrets by name, without their values. next is the cursor of
// the following page, empty at the end.
func (v *Vault) List(ctx context.Context, team holdfast.TeamID, limit int, cursor string) (list []Entry, next string, err error) {
	q := records.Query{Index: indexTeam, Equal: string(team), After: cursor}
	if q.Limit, err = records.PageSize(limit); err != nil {
		return nil, "", err
	}
	rows, next, err := v.table.List(ctx, q)
	for _, r := range rows {
		list = append(list, r.Value.Entry)
	}
	return list, next, err
}

// Delete removes a secret; the error matches [records.ErrNotFound] when there is none.
// A run that has it keeps it.
func (v *Vault) Delete(ctx context.Context, team holdfast.TeamID, name string) error {
	return v.table.Delete(ctx, idOf(team, name))
}

// Reveal opens those of a team's secrets that are named and exist; a name that has none
// is left out. Nothing of another team is ever opened.
func (v *Vault) Reveal(ctx context.Context, team holdfast.TeamID, names []string) (map[string][]byte, error) {
	values := map[string][]byte{}
	for _, name := range names {
		if err := CheckName(name); err != nil {
			return nil, err
		}
		r, err := v.table.Get(ctx, idOf(team, name))
		if errors.Is(err, records.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if values[name], err = v.keys.Open(about(team, name), r.Value.Sealed); err != nil {
			return nil, fmt.Errorf("secret %s of team %s: %w", name, team, err)
		}
	}
	return values, nil
}
