package audit

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// The bounds of what waits to be written.
const (
	// maxWaiting is how many entries wait at most; further ones are dropped and counted.
	maxWaiting = 10_000
	// fold is how long repeats of a refusal are one row.
	fold = time.Minute
	// maxStrangers is how many different refusals of callers without a name are told
	// apart within a fold: who has no token can write few rows, however hard he tries.
	maxStrangers = 100
	// flushEvery is how often what waits is written.
	flushEvery = 500 * time.Millisecond
	// writers is how many entries are written at once: the embedded store commits writes
	// that come together in one go.
	writers = 32
)

// Nobody is the actor of a refusal whose caller did not say who it is.
const Nobody = "nobody"

// notes are entries on their way to the store.
type notes struct {
	flushing sync.Mutex // held by the flush under way

	mu        sync.Mutex
	waiting   []*note
	folding   map[repeat]*note // refusals of the last minute
	strangers int              // of them, those of callers without a name
	cleaned   time.Time        // when what is older left folding
	dropped   int
}

type note struct {
	entry  Entry
	waits  bool // it is in notes.waiting
	stored bool // it was inserted
}

// repeat is what two refusals have in common when they are one row.
type repeat struct {
	actor, account, token, action, target, ip, code string
	team                                            holdfast.TeamID
}

func repeatOf(e Entry) repeat {
	return repeat{e.Actor, e.Account, e.Token, e.Action, e.Target, e.IP, e.Detail["code"] + e.Detail["reason"], e.Team}
}

// Note takes an entry without blocking; [Log.Run] writes it soon. A refusal that
// repeats one of the last minute joins its row, and callers without a name share few
// rows. What is noted and not yet written is lost with the process; what did not fit is
// counted in a row of its own.
func (l *Log) Note(entry Entry) {
	entry, err := l.complete(entry)
	if err != nil {
		return // an entry of nothing is a bug that [Log.Record] shows
	}
	n := &l.notes
	n.mu.Lock()
	defer n.mu.Unlock()
	if entry.Outcome != Refused {
		n.take(&note{entry: entry})
		return
	}
	n.forget(entry.At)
	if entry.Actor == Nobody && n.strangers >= maxStrangers {
		entry.IP, entry.Target = "", "many"
	}
	key := repeatOf(entry)
	if known, ok := n.folding[key]; ok && (known.waits || known.stored) {
		known.entry.Count++
		known.entry.LastAt = entry.At
		n.take(known)
		return
	}
	entry.Count, entry.LastAt = 1, entry.At
	fresh := &note{entry: entry}
	if !n.take(fresh) || len(n.folding) >= maxWaiting {
		return
	}
	if _, again := n.folding[key]; !again && entry.Actor == Nobody {
		n.strangers++
	}
	n.folding[key] = fresh
}

// take has a note written by the next flush; false when too many wait.
func (n *notes) take(fresh *note) bool {
	if fresh.waits {
		return true
	}
	if len(n.waiting) >= maxWaiting {
		n.dropped++
		return false
	}
	fresh.waits = true
	n.waiting = append(n.waiting, fresh)
	return true
}

// forget ends rows that no repeat joins any more.
func (n *notes) forget(now time.Time) {
	if age := now.Sub(n.cleaned); age >= 0 && age < time.Second && len(n.folding) < maxWaiting {
		return
	}
	n.cleaned = now
	for key, old := range n.folding {
		if age := now.Sub(old.entry.At); age >= fold || age < 0 {
			delete(n.folding, key)
			if key.actor == Nobody {
				n.strangers--
			}
		}
	}
}

// Run writes what is noted until ctx ends, then writes what is left, for at most five
// seconds. It returns nil; a write that failed is tried again.
func (l *Log) Run(ctx context.Context) error {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			_ = l.Flush(last) // what is lost here was told by the stores' own outage
			return nil
		case <-tick.C:
			_ = l.Flush(ctx) // it waits for the next one
		}
	}
}

// Flush writes what waits. What could not be written waits for the next flush; the
// error is the first one.
func (l *Log) Flush(ctx context.Context) error {
	n := &l.notes
	n.flushing.Lock()
	defer n.flushing.Unlock()
	n.mu.Lock()
	batch, dropped := n.waiting, n.dropped
	n.waiting, n.dropped = nil, 0
	for _, one := range batch {
		one.waits = false
	}
	n.mu.Unlock()
	if dropped > 0 {
		if lost, err := l.complete(Entry{Actor: "audit", Action: "audit.dropped", Target: "audit", Detail: map[string]string{"entries": strconv.Itoa(dropped)}}); err == nil {
			batch = append(batch, &note{entry: lost})
		}
	}
	return records.Each(batch, writers, func(one *note) error { return l.write(ctx, one) })
}

// write inserts a note, or the newer count of one that is stored.
func (l *Log) write(ctx context.Context, one *note) error {
	n := &l.notes
	n.mu.Lock()
	entry, stored := one.entry, one.stored
	n.mu.Unlock()
	var err error
	if stored {
		_, err = l.table.Update(ctx, entry.ID, func(e *Entry) error {
			e.Count, e.LastAt = max(e.Count, entry.Count), entry.LastAt
			return nil
		})
	} else {
		_, err = l.table.Insert(ctx, entry)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil || errors.Is(err, records.ErrExists) { // the answer of an earlier try was lost
		one.stored = true
		return nil
	}
	n.take(one)
	return err
}
