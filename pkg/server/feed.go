package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
)

// The marks of a capacity_near event, in percent of the cap, the highest first.
var nearMarks = [...]int{95, 80}

// maxPending bounds the subjects that wait to be read, and those whose mark is
// remembered.
const maxPending = 10_000

// CapacityFeed turns "something changed on this subject" into capacity events for the
// streams of this process; every replica is told what changed and has its own. A
// burst of changes of one subject is one event: it is read once per period, with
// what is then true. When a subject's balance passes 80 or 95 percent of its cap,
// upwards, a capacity_near event follows.
type CapacityFeed struct {
	// Near is told of every mark that is passed, in percent of the cap, before its event
	// is sent; nil hears nothing. It is set before Run.
	Near func(subject holdfast.Subject, percent int)

	broker *Broker
	read   func(context.Context, holdfast.Subject) (api.SubjectCapacity, error)
	every  time.Duration
	log    *slog.Logger

	mu      sync.Mutex
	changed map[holdfast.Subject]struct{}
	marks   map[holdfast.Subject]int
}

// NewCapacityFeed is a feed that reads subjects with read, at most once per period
// (zero: half a second). A nil log is silent.
func NewCapacityFeed(broker *Broker, read func(context.Context, holdfast.Subject) (api.SubjectCapacity, error), every time.Duration, log *slog.Logger) *CapacityFeed {
	if every <= 0 {
		every = 500 * time.Millisecond
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &CapacityFeed{broker: broker, read: read, every: every, log: log, changed: map[holdfast.Subject]struct{}{}, marks: map[holdfast.Subject]int{}}
}

// Changed notes that a subject's balance changed. It never blocks.
func (f *CapacityFeed) Changed(s holdfast.Subject) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.changed) < maxPending {
		f.changed[s] = struct{}{}
	}
}

// Run publishes until the context ends.
func (f *CapacityFeed) Run(ctx context.Context) error {
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			f.flush(ctx)
		}
	}
}

func (f *CapacityFeed) flush(ctx context.Context) {
	f.mu.Lock()
	changed := f.changed
	f.changed = map[holdfast.Subject]struct{}{}
	f.mu.Unlock()
	if len(changed) == 0 {
		return
	}
	watched := f.broker.Subscribers() > 0
	for subject := range changed {
		if !watched {
			break // nobody would see it; the next change is read again
		}
		capacity, err := f.read(ctx, subject)
		if err != nil {
			if ctx.Err() == nil {
				f.log.Debug("a subject that changed could not be read", "subject", subject.String(), "error", err)
			}
			continue
		}
		f.publish(subject, capacity)
	}
}

func (f *CapacityFeed) publish(subject holdfast.Subject, capacity api.SubjectCapacity) {
	team := ""
	if subject.Kind == holdfast.KindTeam {
		team = subject.ID
	}
	f.broker.Deliver(api.Event{Type: EventCapacity, Team: team, Capacity: &capacity})
	mark := nearMark(capacity)
	f.mu.Lock()
	before := f.marks[subject]
	switch {
	case mark == 0:
		delete(f.marks, subject)
	case len(f.marks) < maxPending:
		f.marks[subject] = mark
	}
	f.mu.Unlock()
	if mark > before {
		if f.Near != nil {
			f.Near(subject, mark)
		}
		f.broker.Deliver(api.Event{Type: EventCapacityNear, Team: team, Capacity: &capacity, Percent: mark})
	}
}

// nearMark is the highest mark that the balance has reached; 0 below all of them or
// without a cap.
func nearMark(c api.SubjectCapacity) int {
	if c.Cap == nil {
		return 0
	}
	limit, okCap := grain(*c.Cap)
	settled, okSettled := grain(c.Settled)
	outstanding, okOutstanding := grain(c.Outstanding)
	if !okCap || !okSettled || !okOutstanding || limit <= 0 {
		return 0
	}
	for _, mark := range nearMarks {
		if settled+outstanding >= limit/100*int64(mark)+limit%100*int64(mark)/100 {
			return mark
		}
	}
	return 0
}

// grain is an amount in millionths, whatever its unit.
func grain(a api.Amount) (int64, bool) {
	n, err := holdfast.ParseUSD(a.Value)
	return int64(n), err == nil
}
