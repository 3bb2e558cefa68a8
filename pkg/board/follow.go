package board

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/surface"
)

// follow looks at the run of every card in doing.
func (d *Dispatcher) follow(ctx context.Context) error {
	var all error
	q := records.Query{Index: indexColumn, Equal: string(Doing), Limit: records.DefaultPage}
	err := d.cards.table.Walk(ctx, q, func(v records.Versioned[Card]) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err := d.look(ctx, v)
		if err != nil && !errors.Is(err, records.ErrRevision) && !errors.Is(err, records.ErrNotFound) {
			all = errors.Join(all, err)
		}
		return nil
	})
	return errors.Join(all, err)
}

// look moves a card whose run has ended. A run that will come back, because it is
// paused, parked or to be retried, leaves its card where it is.
func (d *Dispatcher) look(ctx context.Context, v records.Versioned[Card]) error {
	card := v.Value
	run, err := d.runs.Get(ctx, card.Run)
	missing := errors.Is(err, records.ErrNotFound)
	switch {
	case err != nil && !missing:
		return fmt.Errorf("look for the run of card %s: %w", card.ID, err)
	case !missing && (!run.Status.Ended() || run.RetryOpen()):
		return nil
	}
	now := d.options.Clock.Now()
	n := Note{At: now, By: string(launch.SurfaceBoard), Run: card.Run, Reason: string(run.StatusReason), Detail: run.Detail}
	card.UpdatedAt = now
	switch {
	case missing:
		card.Column, n.What, n.Detail = Blocked, WhatFailed, "its run is not there any more"
	case run.Status == runs.Finished:
		card.Column, n.What = Done, WhatFinished
	case run.Status != runs.Cancelled && card.attemptsLeft():
		card.Column, n.What = Todo, WhatAgain
		card.Launch = surface.Attempt{NotBefore: now.Add(d.options.AgainAfter)}
	default:
		card.Column, n.What = Blocked, WhatFailed
		if n.Reason == "" {
			n.Reason = string(run.Status)
		}
	}
	card.note(n)
	v.Value = card
	if _, err := d.cards.table.Replace(ctx, v); err != nil {
		return err
	}
	d.moved(Doing, card)
	return nil
}
