// Package board launches work that people put on cards. A card waits in `todo`; the
// dispatcher, which every replica runs, takes the cards in their order, launches each
// through the gate, moves it to `doing` with its run, and from there to `done`, or to
// `blocked` with the reason, when the run has ended. A card that the gate refuses goes
// back with the reason and waits; one that can never be launched is blocked.
//
// Reading order: card.go (the record and what people may do to it), dispatcher.go (the
// way out of todo), follow.go (the way out of doing).
package board

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/surface"
)

// Column is where a card stands.
type Column string

// The columns.
const (
	Todo    Column = "todo"
	Doing   Column = "doing"
	Done    Column = "done"
	Blocked Column = "blocked"
)

// Columns lists the columns from the left to the right.
func Columns() []Column { return []Column{Todo, Doing, Done, Blocked} }

// Known says whether it is one of [Columns].
func (c Column) Known() bool { return c == Todo || c == Doing || c == Done || c == Blocked }

// The ways of a card, as its log names them.
const (
	WhatCreated  = "created"
	WhatMoved    = "moved"  // by a person
	WhatEdited   = "edited" // by a person
	WhatLaunched = "launched"
	WhatRefused  = "launch_refused"  // and waits
	WhatGivenUp  = "launch_given_up" // blocked: refused for good, or too often
	WhatFinished = "run_finished"
	WhatAgain    = "run_failed_again" // and is launched once more
	WhatFailed   = "run_failed"       // blocked
)

// Note is one thing that happened to a card.
type Note struct {
	At     time.Time      `json:"at"`
	By     string         `json:"by"` // a token's name, or "board"
	What   string         `json:"what"`
	Reason string         `json:"reason,omitempty"` // a reason of the gate or of the run
	Detail string         `json:"detail,omitempty"`
	Run    holdfast.RunID `json:"run,omitempty"`
	Count  int            `json:"count,omitempty"` // how often in a row, when more than once
}

// maxLog is how many notes a card keeps, the newest.
const maxLog = 50

// Card is one card. What people write comes first, what the dispatcher writes after
// it.
type Card struct {
	ID    string          `json:"id"` // time-ordered
	Team  holdfast.TeamID `json:"team"`
	Title string          `json:"title"`
	surface.Work
	Priority int `json:"priority,omitempty"` // 0 to 9; the highest is taken first
	// MaxAttempts is how many runs the card may have before it is blocked; 0 is 1. A
	// run that failed is followed by another one until then.
	MaxAttempts int    `json:"max_attempts,omitempty"`
	Column      Column `json:"column"`

	Attempts int            `json:"attempts,omitempty"` // runs so far
	Run      holdfast.RunID `json:"run,omitempty"`      // the newest
	// Refusals counts the refusals since the last run. They consume no attempt; after
	// [Options.MaxRefusals] the card is blocked.
	Refusals int             `json:"refusals,omitempty"`
	Refused  surface.Refusal `json:"refused,omitzero"` // the last one, until a launch succeeds
	Launch   surface.Attempt `json:"launch,omitzero"`
	Log      []Note          `json:"log,omitempty"` // the oldest first

	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	CreatedBy string    `json:"created_by,omitempty"`
}

// Bounds of a card.
const (
	maxTitle    = 300
	maxPriority = 9
	maxAttempts = 10
	// MaxOpen is how many cards of a team may stand in todo and doing.
	MaxOpen = 1000
)

// Check refuses a card that cannot be stored, with an *holdfast.InvalidError.
func (c Card) Check() error {
	switch {
	case !holdfast.ValidName(string(c.Team)):
		return &holdfast.InvalidError{Field: "team", Problem: fmt.Sprintf("%q is not a team's id", holdfast.Clip(string(c.Team), 80)), Allowed: "the id of a team"}
	case c.Title == "" || len(c.Title) > maxTitle || holdfast.Clip(c.Title, maxTitle) != c.Title:
		return &holdfast.InvalidError{Field: "title", Problem: "it is missing, too long or holds control characters", Allowed: fmt.Sprintf("1 to %d bytes of text", maxTitle)}
	case c.Priority < 0 || c.Priority > maxPriority:
		return &holdfast.InvalidError{Field: "priority", Problem: fmt.Sprintf("%d is not a priority", c.Priority), Allowed: fmt.Sprintf("0 to %d, the highest first", maxPriority)}
	case c.MaxAttempts < 0 || c.MaxAttempts > maxAttempts:
		return &holdfast.InvalidError{Field: "max_attempts", Problem: fmt.Sprintf("%d is not a number of attempts", c.MaxAttempts), Allowed: fmt.Sprintf("1 to %d", maxAttempts)}
	case !c.Column.Known():
		return &holdfast.InvalidError{Field: "column", Problem: fmt.Sprintf("%q is not a column", holdfast.Clip(string(c.Column), 40)), Allowed: "todo, doing, done, blocked"}
	}
	return c.Work.Check()
}

// attemptsLeft says whether the card may have another run.
func (c Card) attemptsLeft() bool { return c.Attempts < max(1, c.MaxAttempts) }

// note adds to the log; the same again in a row is counted.
func (c *Card) note(n Note) {
	if last := len(c.Log) - 1; last >= 0 && c.Log[last].What == n.What && c.Log[last].Reason == n.Reason && n.What == WhatRefused {
		n.Count = max(1, c.Log[last].Count) + 1
		c.Log[last] = n
		return
	}
	c.Log = append(c.Log, n)
	if over := len(c.Log) - maxLog; over > 0 {
		c.Log = c.Log[over:]
	}
}

// Repository keeps cards.
type Repository struct {
	table *records.Table[Card]
	clock clock.Clock
	ids   records.IDs
}

const (
	indexTeam   = "team"
	indexColumn = "column"
	indexOpen   = "open" // the team of a card in todo or doing
	// indexOrder has the cards in todo in the order in which they are taken, but for
	// those that were refused lately.
	indexOrder = "order"
)

// New opens the collection "cards".
func New(ctx context.Context, db records.DB, clock clock.Clock) (*Repository, error) {
	schema := records.Schema{Name: "cards", Indexes: []records.Index{{Name: indexTeam}, {Name: indexColumn}, {Name: indexOpen}, {Name: indexOrder}}}
	table, err := records.NewTable(ctx, db, schema, func(c Card) string { return c.ID }, keys)
	if err != nil {
		return nil, err
	}
	return &Repository{table: table, clock: clock}, nil
}

func keys(c Card) map[string]string {
	k := map[string]string{indexTeam: string(c.Team), indexColumn: string(c.Column)}
	if c.Column == Todo || c.Column == Doing {
		k[indexOpen] = string(c.Team)
	}
	if c.Column == Todo {
		k[indexOrder] = fmt.Sprintf("%d", maxPriority-c.Priority)
	}
	return k
}

// Create stores a new card in todo.
func (r *Repository) Create(ctx context.Context, c Card) (Card, error) {
	c.Column = Todo
	if err := c.Check(); err != nil {
		return Card{}, err
	}
	n, err := r.table.Count(ctx, indexOpen, string(c.Team))
	if err != nil {
		return Card{}, err
	}
	if n >= MaxOpen {
		return Card{}, &holdfast.InvalidError{Field: "team", Problem: fmt.Sprintf("it has %d open cards already", n), Allowed: fmt.Sprintf("at most %d in todo and doing", MaxOpen)}
	}
	now := r.clock.Now()
	c.ID, c.CreatedAt, c.UpdatedAt = r.ids.Next(now), now, now
	c.note(Note{At: now, By: c.CreatedBy, What: WhatCreated})
	v, err := r.table.Insert(ctx, c)
	return v.Value, err
}

// Get reads one card; the error matches [records.ErrNotFound].
func (r *Repository) Get(ctx context.Context, id string) (Card, error) {
	if !validID(id) {
		return Card{}, fmt.Errorf("get card %q: %w", holdfast.Clip(id, 80), records.ErrNotFound)
	}
	v, err := r.table.Get(ctx, id)
	return v.Value, err
}

func validID(id string) bool { return id != "" && len(id) <= 64 && holdfast.Clip(id, 64) == id }

// Edit changes what people write of a card, its column included; change may run more
// than once, and its error is returned as it is. Moving a card to todo makes it ready
// at once, with all its attempts; a card that is being launched now, or whose run
// lives, can be moved to todo by nobody, because its work would be done twice: the
// error matches [ErrBusy]. Only the dispatcher moves a card to doing.
func (r *Repository) Edit(ctx context.Context, id, by string, change func(*Card) error) (Card, error) {
	if !validID(id) {
		return Card{}, fmt.Errorf("edit card %q: %w", holdfast.Clip(id, 80), records.ErrNotFound)
	}
	v, err := r.table.Update(ctx, id, func(c *Card) error {
		was := *c
		if err := change(c); err != nil {
			return err
		}
		c.ID, c.Team, c.CreatedAt = was.ID, was.Team, was.CreatedAt
		if err := c.Check(); err != nil {
			return err
		}
		now := r.clock.Now()
		c.UpdatedAt = now
		if c.Column == was.Column {
			c.note(Note{At: now, By: by, What: WhatEdited})
			return nil
		}
		switch {
		case c.Column == Doing:
			return &holdfast.InvalidError{Field: "column", Problem: "a card is moved to doing by its launch", Allowed: "todo, done, blocked"}
		case was.Column == Doing || was.Launch.Claimed(now):
			return fmt.Errorf("card %s: %w", id, ErrBusy)
		}
		c.Attempts, c.Refusals, c.Refused, c.Launch = 0, 0, surface.Refusal{}, surface.Attempt{}
		c.note(Note{At: now, By: by, What: WhatMoved, Detail: string(was.Column) + " to " + string(c.Column)})
		return nil
	})
	return v.Value, err
}

// Delete removes a card that is not busy; the error matches [ErrBusy] or
// [records.ErrNotFound].
func (r *Repository) Delete(ctx context.Context, id string) error {
	card, err := r.Get(ctx, id)
	if err != nil {
		return err
	}
	if card.Column == Doing || card.Launch.Claimed(r.clock.Now()) {
		return fmt.Errorf("card %s: %w", id, ErrBusy)
	}
	return r.table.Delete(ctx, id)
}

// Filter selects cards; what is empty selects all.
type Filter struct {
	Team   holdfast.TeamID
	Column Column
	Limit  int // 1 to [records.MaxPage]; 0 is [records.DefaultPage]
	Cursor string
}

// List lists cards, the newest first. next is the cursor of the following page, empty
// at the end; a page may be short before it.
func (r *Repository) List(ctx context.Context, f Filter) (list []Card, next string, err error) {
	q := records.Query{Descending: true, After: f.Cursor}
	if q.Limit, err = records.PageSize(f.Limit); err != nil {
		return nil, "", err
	}
	switch {
	case f.Column != "" && !f.Column.Known():
		return nil, "", &holdfast.InvalidError{Field: "column", Problem: fmt.Sprintf("%q is not a column", holdfast.Clip(string(f.Column), 40)), Allowed: "todo, doing, done, blocked"}
	case f.Team != "":
		q.Index, q.Equal = indexTeam, string(f.Team)
	case f.Column != "":
		q.Index, q.Equal = indexColumn, string(f.Column)
	}
	return r.table.Filter(ctx, q, func(c Card) bool {
		return (f.Team == "" || c.Team == f.Team) && (f.Column == "" || c.Column == f.Column)
	})
}
