package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
)

// ending is what becomes of a message.
type ending string

// The ways for a message to end. Every one but leave says something to the server.
const (
	doubleAck ending = "double_ack" // removed, and the removal confirmed
	ack       ending = "ack"        // removed
	nak       ending = "nak"        // delivered again at once
	nakLater  ending = "nak_delay"  // delivered again after a delay that grows
	term      ending = "term"       // removed, with a reason in the server's advisory
	leave     ending = "leave"      // nothing: another delivery of it is being worked on
)

// endings is the table of how work ends and what becomes of the message.
func endings() map[queue.Disposition]ending {
	return map[queue.Disposition]ending{
		queue.Done:       doubleAck, // a second delivery would only be dropped, but why have it
		queue.Drop:       ack,
		queue.Later:      nakLater,
		queue.Return:     nak,
		queue.Leave:      leave,
		queue.Unreadable: term,
		queue.Newer:      nakLater,
		queue.Exhausted:  term,
	}
}

// Work hands out run messages to at most slots handlers at a time. It takes no
// message from the queue that it has no handler for. When ctx ends it takes no more
// and returns nil once the last handler has returned; the handlers' context ends
// with ctx. It returns an error only when the connection was closed under it.
func (b *Bus) Work(ctx context.Context, slots int, handle func(context.Context, queue.Delivery) queue.Disposition) error {
	if slots < 1 {
		return &holdfast.InvalidError{Field: "slots", Problem: "is less than one", Allowed: "1 or more"}
	}
	free := make(chan struct{}, slots)
	for range slots {
		free <- struct{}{}
	}
	var handlers sync.WaitGroup
	defer handlers.Wait()
	table := endings()
	p := b.puller(b.options.runStream(b.options.Pool), b.options.runnerGroup(b.options.Pool))
	for {
		n := take(ctx, free)
		if n == 0 {
			return nil
		}
		got, err := p.pull(ctx, n, func(m jetstream.Msg) {
			handlers.Go(func() {
				defer func() { free <- struct{}{} }()
				b.end(ctx, m, b.workOn(ctx, m, handle), table)
			})
		})
		for range n - got {
			free <- struct{}{}
		}
		if again, err := p.goOn(ctx, err); !again {
			return err
		}
	}
}

// take waits for one free slot and takes all others that are free with it; 0 when
// ctx ended first.
func take(ctx context.Context, free chan struct{}) int {
	select {
	case <-ctx.Done():
		return 0
	case <-free:
	}
	n := 1
	for {
		select {
		case <-free:
			n++
		default:
			return n
		}
	}
}

// puller pulls from one consumer, again and again.
type puller struct {
	bus           *Bus
	stream, group string
	consumer      jetstream.Consumer // nil: to be looked up
	failures      uint64             // in a row
}

func (b *Bus) puller(stream, group string) *puller {
	return &puller{bus: b, stream: stream, group: group}
}

// pull takes up to n messages and gives each to use as it comes. It returns when
// there were n, and after a while in any case, with how many there were.
func (p *puller) pull(ctx context.Context, n int, use func(jetstream.Msg)) (got int, err error) {
	if p.consumer == nil {
		if p.consumer, err = p.bus.js.Consumer(ctx, p.stream, p.group); err != nil {
			p.consumer = nil
			return 0, err
		}
	}
	within, cancel := context.WithTimeout(ctx, min(pullMost, max(time.Second, p.bus.options.Lease/2)))
	defer cancel()
	batch, err := p.consumer.Fetch(n, jetstream.FetchContext(within))
	if err != nil {
		p.consumer = nil
		return 0, err
	}
	for m := range batch.Messages() {
		got++
		use(m)
	}
	if err = batch.Error(); errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = nil // there was nothing more
	}
	return got, err
}

// pullMost is how long one pull waits. A pull that NATS forgot, because it was started
// anew, is not answered; it is made again after that, and after half a lease.
const pullMost = 30 * time.Second

const pullRetry, pullRetryMost = 50 * time.Millisecond, 5 * time.Second

// goOn says whether to pull again after a pull that ended with err, having waited
// where it failed. The error is what the loop returns when it does not go on.
func (p *puller) goOn(ctx context.Context, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, nil //nolint:nilerr // the loop was asked to end; what its last pull met says nothing
	}
	switch {
	case err == nil:
		p.failures = 0
		return true, nil
	case errors.Is(err, natsgo.ErrConnectionClosed):
		return false, fmt.Errorf("pull from %s: %w", p.stream, err)
	}
	p.bus.options.Log.Warn("cannot pull from the queue", "stream", p.stream, "err", err)
	p.failures++
	return pause(ctx, grow(pullRetry, pullRetryMost, p.failures-1)), nil
}

// pause waits; false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// workOn decides about a delivery what can be decided without the runner, and hands
// it the rest.
func (b *Bus) workOn(ctx context.Context, m jetstream.Msg, handle func(context.Context, queue.Delivery) queue.Disposition) queue.Disposition {
	if ctx.Err() != nil {
		return queue.Return
	}
	about, err := m.Metadata()
	if err != nil {
		return queue.Unreadable
	}
	var version struct {
		Version int `json:"v"`
	}
	var message queue.RunMessage
	switch {
	case json.Unmarshal(m.Data(), &version) != nil || version.Version < 1:
		return queue.Unreadable
	case about.NumDelivered > uint64(b.options.MaxDeliver):
		return queue.Exhausted
	case version.Version > queue.MessageVersion:
		return queue.Newer
	case json.Unmarshal(m.Data(), &message) != nil || checkRun(message.Run) != nil || checkPool(message.Pool) != nil || m.Subject() != b.options.runSubject(message.Pool, message.Run):
		return queue.Unreadable
	}
	return handle(ctx, queue.Delivery{Message: message, Count: int(about.NumDelivered), Extend: m.InProgress})
}

// end says to the server what becomes of the message. A failure is logged only: the
// message is delivered again and its claim is answered from the run document.
func (b *Bus) end(ctx context.Context, m jetstream.Msg, d queue.Disposition, table map[queue.Disposition]ending) {
	if ctx.Err() != nil && d == queue.Later {
		d = queue.Return
	}
	how, known := table[d]
	if !known {
		how = nakLater
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin/2)
	defer cancel()
	var err error
	if how == term && dies(m, d) {
		if err = b.bury(ctx, m, d); err != nil { // what cannot be kept is not removed
			b.options.Log.Warn("a message that no runner can take stays in the queue", "subject", m.Subject(), "err", err)
			how = nakLater
		}
	}
	switch how {
	case doubleAck:
		err = m.DoubleAck(ctx)
	case ack:
		err = m.Ack()
	case nak:
		err = m.Nak()
	case nakLater:
		err = m.NakWithDelay(b.delay(m))
	case term:
		err = m.TermWithReason(string(d))
	case leave:
	}
	if err != nil {
		b.options.Log.Warn("cannot end a delivery", "subject", m.Subject(), "disposition", d, "err", err)
	} else if how == term {
		b.options.Log.Warn("a message was removed from the queue", "subject", m.Subject(), "reason", d)
	}
	if b.options.Events.Ended != nil {
		b.options.Events.Ended(string(d))
	}
}

// delay doubles with every delivery up to LaterMost.
func (b *Bus) delay(m jetstream.Msg) time.Duration {
	about, err := m.Metadata()
	if err != nil {
		return b.options.LaterMost
	}
	return grow(b.options.LaterDelay, b.options.LaterMost, about.NumDelivered-1)
}

// grow doubles first n times, to at most most.
func grow(first, most time.Duration, n uint64) time.Duration {
	for ; n > 0 && first < most; n-- {
		first *= 2
	}
	return min(first, most)
}
