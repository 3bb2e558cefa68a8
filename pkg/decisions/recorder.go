package decisions

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// Options of a [Recorder]. The zero value is the defaults.
type Options struct {
	Buffer      int           // decisions that wait to be written: 10,000
	FlushEvery  time.Duration // 200 ms
	PruneEvery  time.Duration // 1 min
	Keep        time.Duration // 8 days
	KeepPerTeam int           // 100,000

	// Recorded is told of each decision, a repeat with its count so far included; it
	// must not block. Nil tells nobody.
	Recorded func(Decision)
	// Dropped counts decisions that are lost: the buffer was full, or a team had too
	// many. Nil tells nobody.
	Dropped func(n int)
	// Failed is told of a write or a pruning that failed; it is tried again. Nil tells
	// nobody.
	Failed func(error)
}

func (o Options) withDefaults() Options {
	o.Buffer = cmp.Or(o.Buffer, 10_000)
	o.FlushEvery = cmp.Or(o.FlushEvery, 200*time.Millisecond)
	o.PruneEvery = cmp.Or(o.PruneEvery, time.Minute)
	o.Keep = cmp.Or(o.Keep, 8*24*time.Hour)
	o.KeepPerTeam = cmp.Or(o.KeepPerTeam, 100_000)
	if o.Recorded == nil {
		o.Recorded = func(Decision) {}
	}
	if o.Dropped == nil {
		o.Dropped = func(int) {}
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	return o
}

// maxLabel is how much of a name in a request is kept.
const maxLabel = 100

// fold is how long repeats of a refusal are one row.
const fold = time.Second

// Recorder takes decisions without blocking and writes them in batches. What is
// recorded and not yet written is lost with the process; a decision is an
// explanation, and nothing rests on it.
type Recorder struct {
	table   *records.Table[Decision]
	clock   clock.Clock
	options Options
	ids     records.IDs

	flushing sync.Mutex // held by the flush under way

	mu      sync.Mutex
	waiting []*entry          // to be written, oldest first
	byID    map[string]*entry // those, and the rows that still fold
	folding map[repeat]*entry
	asked   map[holdfast.TeamID]bool // since the last pruning
}

// entry is a decision on its way to the store.
type entry struct {
	decision Decision
	waits    bool // it is in Recorder.waiting
	stored   bool // it was inserted
}

// repeat is what two refusals have in common when they are one row.
type repeat struct {
	team    holdfast.TeamID
	bot     string
	reason  holdfast.DenyReason
	subject holdfast.Subject
}

func repeatOf(d Decision) repeat { return repeat{d.Team, d.Bot, d.Reason, d.Subject} }

const (
	indexTeam       = "team"
	indexReason     = "reason"
	indexTeamReason = "team_reason"
)

// New opens the collection "decisions".
func New(ctx context.Context, db records.DB, clock clock.Clock, options Options) (*Recorder, error) {
	schema := records.Schema{Name: "decisions", Indexes: []records.Index{{Name: indexTeam}, {Name: indexReason}, {Name: indexTeamReason}}}
	table, err := records.NewTable(ctx, db, schema, func(d Decision) string { return d.ID }, keys)
	if err != nil {
		return nil, err
	}
	return &Recorder{
		table: table, clock: clock, options: options.withDefaults(),
		byID: map[string]*entry{}, folding: map[repeat]*entry{}, asked: map[holdfast.TeamID]bool{},
	}, nil
}

// keys leaves admissions out of the indexes by reason: they are looked for by team.
func keys(d Decision) map[string]string {
	k := map[string]string{indexTeam: string(d.Team)}
	if d.Reason != "" {
		k[indexReason] = string(d.Reason)
		k[indexTeamReason] = teamReason(d.Team, d.Reason)
	}
	return k
}

func teamReason(team holdfast.TeamID, reason holdfast.DenyReason) string {
	return string(team) + "|" + string(reason)
}

// Record takes a decision and returns the id of its row; id, time and count are
// given here. A refusal that repeats one of the last second joins its row. When too
// many wait to be written the decision is dropped and counted; its id then leads
// nowhere.
func (r *Recorder) Record(d Decision) string {
	now := r.clock.Now()
	d.At, d.LastAt, d.Count = now, now, 1
	// Both are as the request wrote them.
	d.Team, d.Bot = holdfast.TeamID(holdfast.Clip(string(d.Team), maxLabel)), holdfast.Clip(d.Bot, maxLabel)
	row, dropped := r.take(d, now)
	if dropped {
		r.options.Dropped(1)
	}
	r.options.Recorded(row)
	return row.ID
}

func (r *Recorder) take(d Decision, now time.Time) (row Decision, dropped bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[d.Team] = true
	// Only refusals are in there: two admissions are two runs.
	if e, ok := r.folding[repeatOf(d)]; ok && now.Sub(e.decision.At) < fold && !now.Before(e.decision.At) {
		e.decision.Count++
		e.decision.LastAt = now
		return e.decision, !r.queue(e)
	}
	d.ID = r.ids.Next(now)
	e := &entry{decision: d}
	if !r.queue(e) {
		return d, true
	}
	r.byID[d.ID] = e
	if !d.Admitted {
		r.folding[repeatOf(d)] = e
	}
	return d, false
}

// queue has the entry written by the next flush; false when the buffer is full.
func (r *Recorder) queue(e *entry) bool {
	if e.waits {
		return true
	}
	if len(r.waiting) >= r.options.Buffer {
		return false
	}
	e.waits = true
	r.waiting = append(r.waiting, e)
	return true
}

// Run writes and prunes until ctx ends, then writes what is left, for at most five
// seconds. It returns nil.
func (r *Recorder) Run(ctx context.Context) error {
	flush, prune := time.NewTicker(r.options.FlushEvery), time.NewTicker(r.options.PruneEvery)
	defer flush.Stop()
	defer prune.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			if err := r.Flush(last); err != nil {
				r.options.Failed(err)
			}
			return nil
		case <-flush.C:
			err = r.Flush(ctx)
		case <-prune.C:
			_, err = r.Prune(ctx)
		}
		if err != nil && ctx.Err() == nil {
			r.options.Failed(err)
		}
	}
}

// writers is how many decisions are written at once: the embedded store commits
// writes that come together in one go.
const writers = 32

// Flush writes what waits. What could not be written waits for the next flush; the
// error is the first one.
func (r *Recorder) Flush(ctx context.Context) error {
	r.flushing.Lock()
	defer r.flushing.Unlock()
	r.mu.Lock()
	batch := r.waiting
	r.waiting = nil
	for _, e := range batch {
		e.waits = false
	}
	r.mu.Unlock()

	err := records.Each(batch, writers, func(e *entry) error { return r.write(ctx, e) })
	r.forget()
	return err
}

// write stores one entry as it is now, and has it wait again when that fails.
func (r *Recorder) write(ctx context.Context, e *entry) error {
	r.mu.Lock()
	d, stored := e.decision, e.stored
	r.mu.Unlock()
	var err error
	if !stored {
		_, err = r.table.Insert(ctx, d)
		stored = err == nil || errors.Is(err, records.ErrExists)
		if err == nil {
			r.written(e)
			return nil
		}
	}
	if stored { // a row that gained repeats, or whose first answer was lost
		r.written(e)
		_, err = r.table.Update(ctx, d.ID, func(row *Decision) error {
			row.Count, row.LastAt = d.Count, d.LastAt
			return nil
		})
		if errors.Is(err, records.ErrNotFound) {
			return nil // pruned meanwhile
		}
	}
	var bad *holdfast.InvalidError
	switch {
	case errors.As(err, &bad): // no store will ever take it: trying again would never end
		r.lose(e)
	case err != nil:
		r.again(e)
	}
	return err
}

func (r *Recorder) lose(e *entry) {
	r.mu.Lock()
	r.drop(e)
	r.mu.Unlock()
	r.options.Dropped(1)
}

// drop forgets an entry that is not going to be written.
func (r *Recorder) drop(e *entry) {
	delete(r.byID, e.decision.ID)
	if key := repeatOf(e.decision); r.folding[key] == e {
		delete(r.folding, key)
	}
}

func (r *Recorder) written(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.stored = true
}

// again has an entry whose write failed wait for the next flush, or drops it when
// too many others came meanwhile.
func (r *Recorder) again(e *entry) {
	r.mu.Lock()
	kept := r.queue(e)
	if !kept && !e.stored {
		r.drop(e)
	}
	r.mu.Unlock()
	if !kept {
		r.options.Dropped(1)
	}
}

// forget lets go of the rows that are written and no longer fold.
func (r *Recorder) forget() {
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.byID {
		age := now.Sub(e.decision.At)
		over := e.decision.Admitted || age >= fold || age < 0
		if e.waits || !e.stored || !over {
			continue
		}
		r.drop(e)
	}
}
