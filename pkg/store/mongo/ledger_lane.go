package mongo

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

const (
	// mostTogether is how many asks or changes travel in one write.
	mostTogether = 256
	// mostLanes is how many subjects are remembered; a lane beyond it is forgotten as
	// soon as it is empty, which costs its next caller a round trip.
	mostLanes = 20_000
)

// errStopped is what a closed store answers.
var errStopped = errors.New("the store is closed")

// lane is where the calls of this process on one subject meet. While a write is in
// flight the next calls queue up, and then travel together: one write for all asks,
// one for all refusals, one for all changes. One goroutine at a time works a lane,
// for as long as there is work.
type lane struct {
	ledger *Ledger
	key    holdfast.Subject

	mu      sync.Mutex
	asks    []*askJob
	changes []*changeJob
	asked   int // how often asks were taken since changes were
	running bool

	// What follows belongs to the one that works the lane. All of it is memory only:
	// without it the answers are the same, later.

	reader  *reader
	created bool // the document was there
	counted tally
	closes  int64 // how many closes the document has, about
	shutBy  shutting
	// known has the open entries that this process granted or changed last, as it left
	// them. A change of one of these needs no reading first.
	known map[holdfast.AllocationID]*entry
	// seen has the undecided entries of others, by stamp, and when they were first
	// seen: one that stays is not in flight.
	seen map[string]time.Time
	// lost has the stamps of tries whose fate is unknown: their write failed. Nobody
	// was told that one of them was granted.
	lost map[string]bool
}

// waiter is a call that waits for its answer.
type waiter struct {
	ctx  context.Context //nolint:containedctx // it ends with the call
	done chan struct{}
	err  error
}

func newWaiter(ctx context.Context) *waiter { return &waiter{ctx: ctx, done: make(chan struct{})} }

// finish answers; the answer's parts are written before.
func (w *waiter) finish(err error) {
	w.err = err
	close(w.done)
}

// wait waits for the answer, or until the caller has gone.
func (w *waiter) wait(ctx context.Context) error {
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return unavailable(ctx.Err())
	}
}

// askJob is one call of Admit, or what of it is asked again.
type askJob struct {
	*waiter
	now     time.Time
	judge   capacityledger.JudgeFunc
	asks    []capacityledger.Ask
	again   bool // it was refused before, because of asks in flight
	last    bool // there is no time to ask again
	answers []answer
}

// answer is the answer to one ask. open says that another try may find otherwise,
// atOnce that it need not wait for anybody.
type answer struct {
	capacityledger.Admission
	open, atOnce bool
}

// changeJob is what one call of Move or Close has for one subject.
type changeJob struct {
	*waiter
	now     time.Time
	changes []*change
}

// send queues a job and waits for its answer.
func (l *Ledger) send(ctx context.Context, key holdfast.Subject, w *waiter, queue func(*lane)) error {
	if err := l.enqueue(ctx, key, queue); err != nil {
		return err
	}
	return w.wait(ctx)
}

// enqueue puts a job into the subject's lane and sees that somebody works it.
func (l *Ledger) enqueue(ctx context.Context, key holdfast.Subject, queue func(*lane)) error {
	if err := ctx.Err(); err != nil {
		return unavailable(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return unavailable(errStopped)
	}
	n := l.lanes[key]
	if n == nil {
		n = &lane{ledger: l, key: key, reader: newReader(key), known: map[holdfast.AllocationID]*entry{}, seen: map[string]time.Time{}, lost: map[string]bool{}}
		l.lanes[key] = n
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	queue(n)
	if !n.running {
		n.running = true
		l.working.Go(n.work)
	}
	return nil
}

// work does what is queued until nothing is.
func (n *lane) work() {
	for {
		// Who was just answered comes back with the next call: these travel together
		// if they are let in first.
		runtime.Gosched()
		asks, changes, ok := n.take()
		if !ok {
			n.ledger.forget(n)
			return
		}
		if len(asks) > 0 {
			n.admit(asks)
		}
		if len(changes) > 0 {
			n.change(changes)
		}
	}
}

// forget lets go of a lane when there are too many.
func (l *Ledger) forget(n *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(l.lanes) > mostLanes && !n.running && l.lanes[n.key] == n {
		delete(l.lanes, n.key)
	}
}

// take takes what travels together next: asks and changes in turn, because who was
// answered about the one comes back with the other. It is false when the lane is
// empty, and then nobody works it any more.
func (n *lane) take() (asks []*askJob, changes []*changeJob, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case len(n.asks) > 0 && (len(n.changes) == 0 || n.asked == 0):
		n.asked++
		asks = taken(&n.asks, func(j *askJob) (*waiter, int) { return j.waiter, len(j.asks) })
	case len(n.changes) > 0:
		n.asked = 0
		changes = taken(&n.changes, func(j *changeJob) (*waiter, int) { return j.waiter, len(j.changes) })
	default:
		n.running = false
		return nil, nil, false
	}
	return asks, changes, true
}

// taken takes jobs from a queue, up to so many asks or changes, and answers those
// whose callers have gone.
func taken[J any](queue *[]J, of func(J) (*waiter, int)) []J {
	var out []J
	size, at := 0, 0
	for ; at < len(*queue); at++ {
		w, n := of((*queue)[at])
		if len(out) > 0 && size+n > mostTogether {
			break
		}
		if err := w.ctx.Err(); err != nil {
			w.finish(unavailable(err))
			continue
		}
		size += n
		out = append(out, (*queue)[at])
	}
	rest := copy(*queue, (*queue)[at:])
	clear((*queue)[rest:])
	*queue = (*queue)[:rest]
	return out
}

// context is what a write of the lane runs under: it outlives the callers, because
// others travel in the same write.
func (n *lane) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), n.ledger.options.Timeout)
}

// granted says whether this process knows the entry as granted.
func (n *lane) granted(e *entry) bool {
	known := n.known[e.ID]
	return known != nil && known.stamp == e.stamp
}

// remember takes over what an image shows, and forgets what is gone.
func (n *lane) remember(i *image) {
	n.counted, n.closes = i.tally, i.closes
	n.shutBy.seen(i.generation)
	if len(n.known) > 2*len(i.open)+64 {
		kept := make(map[holdfast.AllocationID]*entry, len(i.open))
		for at := range i.open {
			if known := n.known[i.open[at].ID]; known != nil {
				kept[known.ID] = known
			}
		}
		n.known = kept
	}
	if len(n.seen) > 2*len(i.open)+64 {
		there := make(map[string]bool, len(i.open))
		for at := range i.open {
			there[i.open[at].stamp] = true
		}
		maps.DeleteFunc(n.seen, func(stamp string, _ time.Time) bool { return !there[stamp] })
	}
}

// lose notes that nobody knows what became of a write with these stamps. When there
// are very many, the server has been away for long and the oldest do not matter.
func (n *lane) lose(tries []*try) {
	if len(n.lost) > 4*mostTogether {
		clear(n.lost)
	}
	for _, t := range tries {
		n.lost[t.stamp] = true
	}
}
