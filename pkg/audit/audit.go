// Package audit keeps who did what to the platform and its teams: every write, and
// every refusal of one. What changes the rules is recorded before it is answered
// ([Log.Record]); what comes by the thousand, launches and refusals, is written soon
// after, in batches, repeats as one row ([Log.Note]).
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
	// Outcome is [Done], or [Refused] for what was not done. Empty is done.
	Outcome Outcome `json:"outcome,omitempty"`
	// Account and Token say exactly who the actor is: a token's name is its maker's own
	// text. Token is a session's id for somebody who logged in.
	Account string `json:"account,omitempty"`
	Token   string `json:"token,omitempty"`
	// Decision leads to the gate's arithmetic, for a launch and for its refusal.
	Decision string `json:"decision,omitempty"`
	// Request is the answer's X-Request-Id, IP the peer's address: a proxy's where one
	// stands in front.
	Request string `json:"request,omitempty"`
	IP      string `json:"ip,omitempty"`
	// Count is how many refusals the row stands for, LastAt when the last one was. Zero
	// is one.
	Count  int       `json:"count,omitempty"`
	LastAt time.Time `json:"last_at,omitzero"`
	// Detail says more, for people and for a diff: never a secret.
	Detail map[string]string `json:"detail,omitempty"`
}

// Outcome says whether what was asked was done.
type Outcome string

// The outcomes.
const (
	Done    Outcome = "done"
	Refused Outcome = "refused"
)

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
	notes notes
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
	return &Log{table: table, clock: clock, notes: notes{folding: map[repeat]*note{}}}, nil
}

// Record adds an entry; its id and time are given here. The act has happened
// already, so an error means that its trace is missing: say so, do not undo it.
func (l *Log) Record(ctx context.Context, entry Entry) (Entry, error) {
	entry, err := l.complete(entry)
	if err != nil {
		return Entry{}, err
	}
	v, err := l.table.Insert(ctx, entry)
	if err != nil {
		return Entry{}, err
	}
	return v.Value, nil
}

// complete gives an entry its id and time, and cuts what is too long.
func (l *Log) complete(entry Entry) (Entry, error) {
	if entry.Actor == "" || entry.Action == "" || entry.Target == "" {
		return Entry{}, fmt.Errorf("audit %q of %q on %q: an entry names who, what and to what", entry.Action, entry.Actor, entry.Target)
	}
	entry.At = l.clock.Now()
	entry.ID = l.ids.Next(entry.At)
	if entry.Outcome == "" {
		entry.Outcome = Done
	}
	for _, word := range []*string{&entry.Actor, &entry.Action, &entry.Target, &entry.Account, &entry.Token, &entry.Decision, &entry.Request, &entry.IP} {
		*word = holdfast.Clip(*word, maxWord)
	}
	detail := make(map[string]string, len(entry.Detail))
	for key, value := range entry.Detail {
		if len(detail) == maxKeys {
			break
		}
		detail[holdfast.Clip(key, maxWord)] = holdfast.Clip(value, maxDetail)
	}
	entry.Detail = detail
	return entry, nil
}

// Filter selects entries; what is empty selects all.
type Filter struct {
	Team                  holdfast.TeamID
	Actor, Action, Target string // each exactly
	Outcome               Outcome
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
			(f.Action == "" || e.Action == f.Action) && (f.Outcome == "" || e.Outcome == f.Outcome) && (f.Target == "" || e.Target == f.Target)
	})
}
