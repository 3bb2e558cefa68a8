package node

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"crypto/rand"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/queue/nats"
	"github.com/holdfast-io/holdfast/pkg/server"
)

const (
	// relayTopic is what servers tell each other on.
	relayTopic = "servers"
	// relayEvery is how long an event waits for others to travel with it.
	relayEvery = 50 * time.Millisecond
	// relayMost is how many events and subjects may wait; more are lost, which every
	// stream is told.
	relayMost = 1024
	// relayPart is how many travel in one notice.
	relayPart = 64
)

// relayed is one notice of a server to all others.
type relayed struct {
	From     string             `json:"from"`
	Events   []api.Event        `json:"events,omitempty"`
	Subjects []holdfast.Subject `json:"subjects,omitempty"` // whose balance changed
	Missed   bool               `json:"missed,omitempty"`   // some were lost
}

// relay takes what happens at this server to the event streams of the others, and
// the other way round. It is a convenience, as events are: notices may be lost, the
// lists are the truth.
type relay struct {
	bus  *nats.Bus
	core *core
	log  *slog.Logger
	from string
	stop func()

	mu       sync.Mutex
	events   []api.Event
	subjects map[holdfast.Subject]struct{}
	missed   bool
}

// newRelay begins to listen, and to collect what is to be told. It is called before
// anything happens at this server.
func newRelay(bus *nats.Bus, c *core, log *slog.Logger) (r *relay, err error) {
	r = &relay{bus: bus, core: c, log: log, from: rand.Text(), subjects: map[holdfast.Subject]struct{}{}}
	c.broker.Elsewhere(r.event)
	feed := c.watcher.changed
	c.watcher.changed = func(s holdfast.Subject) {
		feed(s)
		r.changed(s)
	}
	r.stop, err = bus.Hear(relayTopic, r.hear)
	return r, err
}

func (r *relay) close() {
	if r.stop != nil {
		r.stop()
	}
}

// event notes an event of this server.
func (r *relay) event(e api.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) >= relayMost {
		r.missed = true
		return
	}
	r.events = append(r.events, e)
}

// changed notes a subject whose balance this server changed.
func (r *relay) changed(s holdfast.Subject) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.subjects) >= relayMost {
		r.missed = true
		return
	}
	r.subjects[s] = struct{}{}
}

// run tells the others what was noted.
func (r *relay) run(ctx context.Context) error {
	tick := time.NewTicker(relayEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			r.flush()
			return nil
		case <-tick.C:
			r.flush()
		}
	}
}

func (r *relay) flush() {
	r.mu.Lock()
	events, subjects, missed := r.events, r.subjects, r.missed
	r.events, r.subjects, r.missed = nil, map[holdfast.Subject]struct{}{}, false
	r.mu.Unlock()
	var changed []holdfast.Subject
	for s := range subjects {
		changed = append(changed, s)
	}
	for len(events) > 0 || len(changed) > 0 || missed {
		notice := relayed{From: r.from, Missed: missed}
		notice.Events, events = cut(events)
		notice.Subjects, changed = cut(changed)
		missed = false
		r.send(notice)
	}
}

// cut takes the first part of a list.
func cut[T any](list []T) (first, rest []T) {
	n := min(relayPart, len(list))
	return list[:n], list[n:]
}

func (r *relay) send(notice relayed) {
	body, err := json.Marshal(notice)
	if err == nil {
		err = r.bus.Tell(relayTopic, body)
	}
	if err != nil {
		r.log.Debug("other servers were not told of events", "error", err)
	}
}

// hear takes a notice of another server to the streams of this one.
func (r *relay) hear(body []byte) {
	var notice relayed
	if err := json.Unmarshal(body, &notice); err != nil || notice.From == r.from {
		return // of a newer build, or this server's own
	}
	if notice.Missed {
		r.core.broker.Missed()
	}
	for _, e := range notice.Events {
		if e.Type == server.EventPolicy {
			r.core.settings.Invalidate()
		}
		r.core.broker.Deliver(e)
	}
	for _, s := range notice.Subjects {
		r.core.feed.Changed(s)
	}
}
