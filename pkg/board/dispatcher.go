package board

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/surface"
)

// ErrBusy: the card is being launched, or its run lives; cancel the run first.
var ErrBusy = errors.New("the card's run lives or is being launched; cancel the run first")

// Options are a dispatcher's settings; a zero field has the stated default.
type Options struct {
	Clock clock.Clock   // nil: the machine's
	Every time.Duration // how often it looks at the board: 5 s
	// MaxRefusals is how many refusals in a row a card takes before it is blocked: 500,
	// which with the longest wait is about five days.
	MaxRefusals int
	Backoff     surface.Backoff // between refusals: 15 s, doubled up to 15 min
	// AgainAfter is how long a card whose run failed waits for its next one: 1 minute.
	AgainAfter time.Duration
	Log        *slog.Logger // nil: nothing is logged
	Events     Events
}

// Events are told what happened; nil fields are no-ops.
type Events struct {
	// Tried is told what became of a card's launch.
	Tried func(c Card, v surface.Verdict)
	// Moved is told every card that the dispatcher moved, in its new column.
	Moved func(c Card)
}

// Dispatcher moves cards. Any number of them may run over the same stores.
type Dispatcher struct {
	cards   *Repository
	gate    surface.Gate
	runs    surface.Documents
	options Options
}

// NewDispatcher is a dispatcher over its parts; all of them are required.
func NewDispatcher(cards *Repository, gate surface.Gate, documents surface.Documents, o Options) (*Dispatcher, error) {
	if cards == nil || gate == nil || documents == nil {
		return nil, errors.New("board: a part is missing")
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Every, o.MaxRefusals, o.AgainAfter = cmp.Or(o.Every, 5*time.Second), cmp.Or(o.MaxRefusals, 500), cmp.Or(o.AgainAfter, time.Minute)
	o.Backoff.First, o.Backoff.Most = cmp.Or(o.Backoff.First, 15*time.Second), cmp.Or(o.Backoff.Most, 15*time.Minute)
	return &Dispatcher{cards, gate, documents, o}, nil
}

// Run makes a pass every period until ctx ends, and then returns nil.
func (d *Dispatcher) Run(ctx context.Context) error {
	tick := time.NewTicker(d.options.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := d.Pass(ctx); err != nil && ctx.Err() == nil {
				d.options.Log.WarnContext(ctx, "the board could not be looked at; the next pass tries again", "error", err)
			}
		}
	}
}

// Pass follows every card in doing, which may give capacity back, and then takes the
// cards of todo in their order: the highest priority first, and in one priority the
// oldest. Once the gate has refused a card of a team's bot for now, the cards of that
// bot behind it wait with it: asking for them too would only refuse them, or let a
// later one overtake. What can never fit holds up nobody.
func (d *Dispatcher) Pass(ctx context.Context) error {
	all := d.follow(ctx)
	full := map[queue]bool{}
	q := records.Query{Index: indexOrder, Limit: records.DefaultPage}
	err := d.cards.table.Walk(ctx, q, func(v records.Versioned[Card]) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if full[queueOf(v.Value)] {
			return nil
		}
		waits, err := d.take(ctx, v)
		full[queueOf(v.Value)] = waits
		if err != nil && !errors.Is(err, records.ErrRevision) && !errors.Is(err, records.ErrNotFound) {
			all = errors.Join(all, err)
		}
		return nil
	})
	return errors.Join(all, err)
}

// queue is what waits one behind the other: the cards of one bot in one team.
type queue struct {
	team holdfast.TeamID
	bot  string
}

func queueOf(c Card) queue {
	bot, err := holdfast.FoldName(c.Bot)
	if err != nil {
		bot = c.Bot
	}
	return queue{c.Team, bot}
}

// take launches one card, if it is its time. waits says that the cards behind it in
// its queue must wait, too.
func (d *Dispatcher) take(ctx context.Context, v records.Versioned[Card]) (waits bool, err error) {
	now := d.options.Clock.Now()
	if !v.Value.Launch.Open(now) {
		return holdsUp(v.Value.Refused), nil
	}
	v.Value.Launch = v.Value.Launch.Begin(d.runs.NewID(now), now)
	stored, err := d.cards.table.Replace(ctx, v)
	if err != nil {
		return false, err // records.ErrRevision: another replica has it
	}
	card := stored.Value
	verdict := surface.Try(ctx, d.gate, d.runs, launch.Machine(launch.SurfaceBoard, card.Team), card.Launch, card.Work.Request(card.Team, launch.SurfaceBoard))
	if verdict.Err != nil {
		d.options.Log.WarnContext(ctx, "a card could not be launched", "card", card.ID, "error", verdict.Err)
	}
	err = d.tried(ctx, card, verdict)
	return holdsUp(verdict.Refusal(now)), err
}

func holdsUp(r surface.Refusal) bool { return r.Transient && !r.NeverFits }

// tried writes down what became of a card's launch.
func (d *Dispatcher) tried(ctx context.Context, card Card, v surface.Verdict) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	stored, err := d.cards.table.Update(ctx, card.ID, func(c *Card) error {
		if c.Launch.Claim != card.Launch.Claim {
			return records.ErrRevision // somebody took the claim over
		}
		now := d.options.Clock.Now()
		n := Note{At: now, By: string(launch.SurfaceBoard)}
		c.UpdatedAt = now
		if v.Launched() {
			c.Column, c.Run, c.Refusals, c.Refused, c.Launch = Doing, v.Run, 0, surface.Refusal{}, surface.Attempt{}
			c.Attempts++
			n.What, n.Run = WhatLaunched, v.Run
			c.note(n)
			return nil
		}
		c.Refused = v.Refusal(now)
		c.Refusals++
		n.What, n.Reason, n.Detail = WhatRefused, c.Refused.Reason, c.Refused.Detail
		c.Launch = c.Launch.Again(v, now, d.options.Backoff.Wait(c.Refusals, v.Denial.RetryAfter, c.ID))
		if v.Permanent() || c.Refusals >= d.options.MaxRefusals {
			c.Column, n.What, c.Launch = Blocked, WhatGivenUp, surface.Attempt{}
			if !v.Permanent() {
				n.Detail = fmt.Sprintf("refused %d times; the last time: %s", c.Refusals, n.Detail)
			}
		}
		c.note(n)
		return nil
	})
	if err != nil {
		return err
	}
	if f := d.options.Events.Tried; f != nil {
		f(stored.Value, v)
	}
	d.moved(card.Column, stored.Value)
	return nil
}

func (d *Dispatcher) moved(from Column, c Card) {
	if f := d.options.Events.Moved; f != nil && c.Column != from {
		f(c)
	}
}
