package mongo

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

const (
	// mostTogether is how many asks or changes travel in one write.
	mostTogether = 256
	// mostInARow is how often one kind is taken while the other waits.
	mostInARow = 3
	// manyCallers and gatherFor: so many callers are worth waiting for, so long.
	manyCallers = 8
	gatherFor   = 300 * time.Microsecond
	// mostLanes is how many subjects are remembered; a lane beyond it is forgotten as
	// soon as it is empty and has vouched for what it granted. That costs its next caller a
	// round trip; what became of a write that was lost is then known by its lease only.
	mostLanes = 20_000
)

// errStopped is what a closed store answers.
var errStopped = errors.New("the store is closed")

// lane is where the calls of this process on one subject meet. While a write is in
// flight the next calls queue up, and then travel together: one write for all asks,
// one for all refusals, one for all changes. One goroutine at a time works a lane,
// for as long as there is work; a write that carries the calls of several runs under no
// caller's context.
type lane struct {
	ledger *Ledger
	key    holdfast.Subject

	mu       sync.Mutex
	asks     []*askJob
	changes  []*changeJob
	row      int // how often asks were taken one after the other; changes, below zero
	running  bool
	armed    bool          // a timer runs until the lane shall vouch
	vouching bool          // and it has rung
	expected int           // how many calls are waited for; 0 when nobody waits
	enough   chan struct{} // has a token when they came

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
	// granting has what was granted here lately and ripening what was before that and is
	// vouched for next.
	granting, ripening []*entry
	// unvouched is how many of them nobody has touched or closed, as far as is known here;
	// who rings to vouch reads it too.
	unvouched atomic.Int64
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
	now   time.Time
	judge capacityledger.JudgeFunc
	asks  []capacityledger.Ask
	again bool // it was refused before, because of asks in flight
	last  bool // there is no time to ask again
	// stayed has, for each ask, the stamp of the undecided entry of its id that has
	// been there for longer than its own asker takes to decide it.
	stayed  []string
	answers []answer
}

// answer is the answer to one ask. open says that another try may find otherwise,
// atOnce that it need not wait for anybody, behind which entry of its own id it waits.
type answer struct {
	capacityledger.Admission
	open, atOnce bool
	behind       string
}

// changeJob is what one call of Move or Close has for one subject.
type changeJob struct {
	*waiter
	now     time.Time
	changes []*change
}

// send queues a job and waits for its answer. Who finds the lane at rest works it
// himself, under his own context, which costs nobody anything when he is alone.
func (l *Ledger) send(ctx context.Context, key holdfast.Subject, w *waiter, queue func(*lane)) error {
	n, first, err := l.enqueue(ctx, key, queue)
	if err != nil {
		return err
	}
	if first {
		n.lead(ctx, w)
	}
	return w.wait(ctx)
}

// enqueue puts a job into the subject's lane. It is first when nobody works the lane:
// the caller must see that it is worked then.
func (l *Ledger) enqueue(ctx context.Context, key holdfast.Subject, queue func(*lane)) (n *lane, first bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, unavailable(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return nil, false, unavailable(errStopped)
	}
	n = l.lanes[key]
	if n == nil {
		n = &lane{ledger: l, key: key, reader: newReader(key), known: map[holdfast.AllocationID]*entry{}, seen: map[string]time.Time{}, lost: map[string]bool{}, enough: make(chan struct{}, 1)}
		l.lanes[key] = n
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	queue(n)
	if n.expected > 0 && len(n.asks)+len(n.changes) >= n.expected {
		n.expected = 0
		n.enough <- struct{}{}
	}
	first = !n.running
	if first {
		n.running = true
		l.working.Add(1)
	}
	return n, first, nil
}

// lead does what is queued first, which is the caller's own job unless others came at
// the same moment, and leaves what came meanwhile to a goroutine.
func (n *lane) lead(ctx context.Context, w *waiter) {
	asks, changes, ok := n.take()
	base := context.Background()
	if len(asks) == 1 && asks[0].waiter == w || len(changes) == 1 && changes[0].waiter == w {
		base = ctx
	}
	n.do(base, asks, changes)
	if ok && n.busy() {
		go n.work() //nolint:gosec // it carries the calls of others
		return
	}
	n.rest()
}

// busy says whether something is queued; the lane is at rest when nothing is.
func (n *lane) busy() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running = len(n.asks)+len(n.changes) > 0 || n.vouching
	return n.running
}

// rest ends the work of a lane that is at rest by now.
func (n *lane) rest() {
	n.ledger.forget(n)
	n.ledger.working.Done()
}

// work does what is queued until nothing is.
func (n *lane) work() {
	for callers := 1; ; {
		n.gather(callers)
		asks, changes, ok := n.take()
		if !ok {
			n.rest()
			return
		}
		callers = len(asks) + len(changes) + n.waiting()
		n.do(context.Background(), asks, changes)
		if n.due() {
			n.vouch(context.Background())
		}
	}
}

// due says whether it is time to vouch; once each time.
func (n *lane) due() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	due := n.vouching
	n.vouching = false
	return due
}

func (n *lane) do(base context.Context, asks []*askJob, changes []*changeJob) {
	if len(asks) > 0 {
		n.admit(base, asks)
	}
	if len(changes) > 0 {
		n.change(base, changes)
	}
}

// gather lets the callers who were just answered come back with their next call, so
// that all travel together: as many as there were the last time. It lets others run
// once; where many were there and few came back it waits for a fraction of what one
// write takes.
func (n *lane) gather(callers int) {
	runtime.Gosched()
	if n.waiting() >= callers || callers < manyCallers {
		return
	}
	timer := time.NewTimer(gatherFor)
	defer timer.Stop()
	if n.expect(callers) {
		return
	}
	select {
	case <-n.enough:
	case <-timer.C:
		n.expect(0)
	}
}

// waiting is how many calls are queued.
func (n *lane) waiting() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.asks) + len(n.changes)
}

// expect says whether so many calls are queued; when not, a token comes when they are.
func (n *lane) expect(callers int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.expected = callers
	if len(n.asks)+len(n.changes) < callers {
		return false
	}
	n.expected = 0
	select {
	case <-n.enough: // of an earlier time
	default:
	}
	return true
}

// forget lets go of a lane when there are too many.
func (l *Ledger) forget(n *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(l.lanes) > mostLanes && !n.running && !n.armed && l.lanes[n.key] == n {
		delete(l.lanes, n.key)
	}
}

// take takes what travels together next, asks or changes: of what more are waiting,
// because who was answered about the one comes back with the other and joins those who
// are left; but not the same kind for ever. It is false when the lane is empty, and
// then nobody works it any more.
func (n *lane) take() (asks []*askJob, changes []*changeJob, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case len(n.asks) > 0 && (len(n.changes) == 0 || n.row < -mostInARow || n.row < mostInARow && len(n.asks) >= len(n.changes)):
		n.row = max(0, n.row) + 1
		asks = taken(&n.asks, func(j *askJob) (*waiter, int) { return j.waiter, len(j.asks) })
	case len(n.changes) > 0:
		n.row = min(0, n.row) - 1
		changes = taken(&n.changes, func(j *changeJob) (*waiter, int) { return j.waiter, len(j.changes) })
	case n.vouching:
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

// context is what a write of the lane runs under.
func (n *lane) context(base context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(base, n.ledger.options.Timeout)
}

// granted says whether this process knows the entry as granted.
func (n *lane) granted(e *entry) bool {
	known := n.known[e.ID]
	return known != nil && known.stamp == e.stamp
}

// remember takes over what an image shows, and forgets what is gone.
func (n *lane) remember(i *image) {
	n.counted, n.closes = i.tally, i.closes
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
