package server

import (
	"crypto/rand"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/clock"
)

// The types of events.
const (
	EventRun          = "run"
	EventDecision     = "decision"
	EventCapacity     = "capacity"
	EventCapacityNear = "capacity_near"
	EventPolicy       = "policy"
	// eventDropped says that events were missed: of a subscriber that was too slow it
	// is the last one, of one that comes back too late the first.
	eventDropped = "dropped"
	// eventClosing is the last event of a server that ends.
	eventClosing = "closing"
)

const (
	// ringSize is how many events a subscriber may come back for.
	ringSize = 2048
	// backlog is how many events a subscriber may be behind.
	backlog = 256
	// maxSubscribers bounds the streams of one process, maxTokenSubscribers those of
	// one token.
	maxSubscribers      = 1000
	maxTokenSubscribers = 20
)

// Broker hands events to the streams of this process. Publishing never blocks: a
// subscriber that is too slow is dropped and told so. Events are a convenience; the
// lists are the truth.
type Broker struct {
	clock clock.Clock
	boot  string // event ids of another process are not ours
	tell  func(api.Event)

	mu          sync.Mutex
	next        int64
	ring        []api.Event // the newest ringSize events, oldest first
	subscribers map[*subscriber]struct{}
	byToken     map[string]int
	closed      bool
}

// NewBroker is a broker without subscribers. A nil clock is the machine's.
func NewBroker(c clock.Clock) *Broker {
	if c == nil {
		c = clock.System{}
	}
	return &Broker{clock: c, boot: rand.Text()[:8], subscribers: map[*subscriber]struct{}{}, byToken: map[string]int{}}
}

// subscriber is one stream. Its channel is closed when it ends; last then says why.
type subscriber struct {
	team   holdfast.TeamID // empty: all teams, and what belongs to none
	token  string
	events chan api.Event
	last   string // eventDropped or eventClosing
}

func (s *subscriber) sees(e api.Event) bool { return s.team == "" || string(s.team) == e.Team }

// Elsewhere has every event that is published here told to tell too, which takes it
// to the brokers of other replicas. tell must not block. It is set before anything is
// published.
func (b *Broker) Elsewhere(tell func(api.Event)) { b.tell = tell }

// Publish hands an event to everybody who may see it, at every replica. Its id and,
// when it has none, its time are filled in. An event without a team is seen by
// operators only.
func (b *Broker) Publish(e api.Event) {
	if e.At.IsZero() {
		e.At = b.clock.Now()
	}
	b.Deliver(e)
	if b.tell != nil {
		b.tell(e)
	}
}

// Deliver is Publish for this process's own streams alone: for an event that another
// replica published, or that each replica makes for itself. It has an id of this
// process.
func (b *Broker) Deliver(e api.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.next++
	e.ID = b.boot + "-" + strconv.FormatInt(b.next, 10)
	if e.At.IsZero() {
		e.At = b.clock.Now()
	}
	if len(b.ring) == ringSize {
		b.ring = append(b.ring[:0], b.ring[1:]...)
	}
	b.ring = append(b.ring, e)
	for s := range b.subscribers {
		if !s.sees(e) {
			continue
		}
		select {
		case s.events <- e:
		default:
			b.end(s, eventDropped)
		}
	}
}

// subscribe begins a stream behind the event `after`, or now when that is empty. ok
// is false when there are too many streams or the server ends.
func (b *Broker) subscribe(token string, team holdfast.TeamID, after string) (s *subscriber, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || len(b.subscribers) >= maxSubscribers || b.byToken[token] >= maxTokenSubscribers {
		return nil, false
	}
	s = &subscriber{team: team, token: token}
	missed, complete := b.since(s, after)
	s.events = make(chan api.Event, backlog+len(missed)+1)
	if !complete {
		s.events <- api.Event{ID: b.latest(), Type: eventDropped, At: b.clock.Now(), Detail: "events were missed; read the lists again"}
	}
	for _, e := range missed {
		s.events <- e
	}
	b.subscribers[s] = struct{}{}
	b.byToken[token]++
	return s, true
}

// since lists the ring's events behind an id that the subscriber may see; complete
// is false when the ring does not reach back that far.
func (b *Broker) since(s *subscriber, after string) (missed []api.Event, complete bool) {
	if after == "" {
		return nil, true
	}
	boot, number, _ := strings.Cut(after, "-")
	n, err := strconv.ParseInt(number, 10, 64)
	oldest := b.next - int64(len(b.ring)) + 1
	if boot != b.boot || err != nil || n < oldest-1 || n > b.next {
		return nil, false
	}
	for _, e := range b.ring[n-oldest+1:] {
		if s.sees(e) {
			missed = append(missed, e)
		}
	}
	return missed, true
}

func (b *Broker) latest() string { return b.boot + "-" + strconv.FormatInt(b.next, 10) }

// end closes a stream; the lock is held.
func (b *Broker) end(s *subscriber, last string) {
	if _, open := b.subscribers[s]; !open {
		return
	}
	delete(b.subscribers, s)
	if b.byToken[s.token]--; b.byToken[s.token] == 0 {
		delete(b.byToken, s.token)
	}
	s.last = last
	close(s.events)
}

// leave ends a stream that its reader gave up.
func (b *Broker) leave(s *subscriber) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.end(s, "")
}

// Close ends every stream with a final event and takes no more.
func (b *Broker) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for s := range b.subscribers {
		b.end(s, eventClosing)
	}
}

// Missed tells every stream that events of other replicas may have been missed.
func (b *Broker) Missed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.subscribers {
		select {
		case s.events <- api.Event{ID: b.latest(), Type: eventDropped, At: b.clock.Now(), Detail: "events were missed; read the lists again"}:
		default:
			b.end(s, eventDropped)
		}
	}
}

// Subscribers is how many streams are open.
func (b *Broker) Subscribers() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.subscribers)
}
