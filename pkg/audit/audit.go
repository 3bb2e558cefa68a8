// Package audit keeps who did what to the platform and its teams. Launches are not
// in it (they have decisions); what changes the rules is.
package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// Entry is one act. Entries are never changed.
type Entry struct {
	ID     string          `json:"id"`     // time-ordered
	At     time.Time       `json:"at"`     // when it was recorded
	Actor  string          `json:"actor"`  // who, as the token is named
	Action string          `json:"action"` // what, such as "settings.budget-floor.updated"
	Target string          `json:"target"` // to what: a team, a bot, a setting, an allocation
	Team   holdfast.TeamID `json:"team,omitempty"`
	// Detail says more, for people and for a diff: never a secret.
	Detail map[string]string `json:"detail,omitempty"`
}

// Bounds of an entry. What is longer is cut, because an act that happened must be
// recorded.
const (
	maxWord   = 300
	maxDetail = 4_000
	maxKeys   = 50
)

// Log keeps entries.
type Log struct {
	table *records.Table[Entry]
	clock clock.Clock
	ids   records.IDs
}

const (
	indexTeam   = "team"
	indexTarget = "target"
	indexActor  = "actor"
)

// New opens the collection "audit".
func New(ctx context.Context, db records.DB, clock clock.Clock) (*Log, error) {
	schema := records.Schema{Name: "audit", Indexes: []records.Index{{Name: indexTeam}, {Name: indexTarget}, {Name: indexActor}}}
	table, err := records.NewTable(ctx, db, schema, func(e Entry) string { return e.ID }, func(e Entry) map[string]string {
		k := map[string]string{indexTarget: e.Target, indexActor: e.Actor}
		if e.Team != "" {
			k[indexTeam] = string(e.Team)
		}
		return k
	})
	if err != nil {
		return nil, err
	}
	return &Log{table: table, clock: clock}, nil
}

// Record adds an entry; its id and time are given here. The act has happened
// already, so an error means that its trace is missing: say so, do not undo it.
func (l *Log) Record(ctx context.Context, entry Entry) (Entry, error) {
	if entry.Actor == "" || entry.Action == "" || entry.Target == "" {
		return Entry{}, fmt.Errorf("audit %q of %q on %q: an entry names who, what and to what", entry.Action, entry.Actor, entry.Target)
	}
	entry.At = l.clock.Now()
	entry.ID = l.ids.Next(entry.At)
	entry.Actor = holdfast.Clip(entry.Actor, maxWord)
	entry.Action = holdfast.Clip(entry.Action, maxWord)
	entry.Target = holdfast.Clip(entry.Target, maxWord)
	detail := make(map[string]string, len(entry.Detail))
	for key, value := range entry.Detail {
		if len(detail) == maxKeys {
			break
		}
		detail[holdfast.Clip(key, maxWord)] = holdfast.Clip(value, maxDetail)
	}
	entry.Detail = detail
	v, err := l.table.Insert(ctx, entry)
	if err != nil {
		return Entry{}, err
	}
	return v.Value, nil
}

// Filter selects entries; what is empty selects all.
type Filter struct {
	Team                  holdfast.TeamID
	Actor, Action, Target string // each exactly
	Since                 time.Time
	Limit                 int // 1 to [records.MaxPage]; 0 is [records.DefaultPage]
	Cursor                string
}

// List lists entries, the newest first. next is the cursor of the following page,
// empty at the end; a page may be short before it.
func (l *Log) List(ctx context.Context, f Filter) (list []Entry, next string, err error) {
	q := records.Query{Descending: true, After: f.Cursor}
	if q.Limit, err = records.PageSize(f.Limit); err != nil {
		return nil, "", err
	}
	if !f.Since.IsZero() {
		q.IDFrom = records.FirstID(f.Since)
	}
	switch {
	case f.Target != "":
		q.Index, q.Equal = indexTarget, f.Target
	case f.Actor != "":
		q.Index, q.Equal = indexActor, f.Actor
	case f.Team != "":
		q.Index, q.Equal = indexTeam, string(f.Team)
	}
	return l.table.Filter(ctx, q, func(e Entry) bool {
		return (f.Team == "" || e.Team == f.Team) && (f.Actor == "" || e.Actor == f.Actor) &&
			(f.Action == "" || e.Action == f.Action) && (f.Target == "" || e.Target == f.Target)
	})
}
