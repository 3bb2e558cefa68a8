package node

import (
	"context"
	"log/slog"

	"github.com/holdfast-io/holdfast/pkg/board"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/retry"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/schedule"
	"github.com/holdfast-io/holdfast/pkg/secrets"
	"github.com/holdfast-io/holdfast/pkg/server"
	"github.com/holdfast-io/holdfast/pkg/surface"
	"github.com/holdfast-io/holdfast/pkg/webhook"
)

// surfaces is what launches by itself: every replica runs all of it, and what it
// works on is claimed in the stores.
type surfaces struct {
	server.Surfaces
	ticker     *schedule.Ticker
	dispatcher *board.Dispatcher
	retries    *retry.Sweeper
}

// openSurfaces builds the surfaces over the gate.
func (c *core) openSurfaces(ctx context.Context, db records.DB, keys *secrets.Keyring, log *slog.Logger) (err error) {
	s := &c.surfaces
	s.Dead = c.bus
	count := c.watcher.metrics.Surface
	if s.Schedules, err = schedule.New(ctx, db, c.clock); err != nil {
		return err
	}
	s.ticker, err = schedule.NewTicker(s.Schedules, c.launch, c.runs, schedule.Options{Clock: c.clock, Log: log, Events: schedule.Events{
		Ticked: func(_ schedule.Schedule, v surface.Verdict) { count("schedule", outcome(v)) },
		Missed: func(k schedule.Schedule, ticks int64) {
			c.watcher.metrics.Missed(ticks)
			log.Warn("a schedule missed ticks", "schedule", k.ID, "ticks", ticks, "since", k.MissedSince)
		},
	}})
	if err != nil {
		return err
	}
	if s.Cards, err = board.New(ctx, db, c.clock); err != nil {
		return err
	}
	s.dispatcher, err = board.NewDispatcher(s.Cards, c.launch, c.runs, board.Options{Clock: c.clock, Log: log, Events: board.Events{
		Tried: func(_ board.Card, v surface.Verdict) { count("board", outcome(v)) },
	}})
	if err != nil {
		return err
	}
	s.retries, err = retry.New(c.runs, c.launch, retry.Options{Clock: c.clock, Log: log, Done: func(_ runs.Run, o retry.Outcome) { count("retry", string(o)) }})
	if err != nil {
		return err
	}
	if s.Webhooks, err = webhook.New(ctx, db, c.clock, keys); err != nil {
		return err
	}
	s.Receiver, err = webhook.NewReceiver(s.Webhooks, c.launch, c.runs, webhook.Options{Clock: c.clock, Log: log, Received: func(_ webhook.Forge, outcome string) { count("webhook", outcome) }})
	return err
}

// outcome is the word that a try is counted under.
func outcome(v surface.Verdict) string {
	switch {
	case v.Launched():
		return "launched"
	case v.Unknown():
		return "failed"
	case v.Transient():
		return "refused"
	}
	return "given_up"
}

// loops are the surfaces' own work.
func (s *surfaces) loops() []loop {
	return []loop{s.ticker.Run, s.dispatcher.Run, s.retries.Run, s.Receiver.Run}
}
