package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/pkg/queue"
)

const (
	reportSlots = 64
	reportTries = 4
)

// reportAckWait is how long a server has a report before another one gets it: a
// quarter of a lease, so that the end of a run which a killed server had in hand is
// known before the run's silence ends it. 30 s by default.
func reportAckWait(o Options) time.Duration { return max(time.Second, o.Lease/4) }

// applyWithin bounds one call of the handler, well inside the ack wait.
func applyWithin(o Options) time.Duration { return reportAckWait(o) / 3 }

// Reports hands every report to apply until ctx ends, and returns nil when the last
// call has returned. A report is removed only after apply returned nil. After an
// error it is tried again, with growing delays, and what the same run reported later
// waits behind it; after the fourth error it is handed back and its run's later
// reports may come first. So apply must tolerate repetition and, after errors,
// another order. Those of different runs come at the same time. What can never be
// read is removed and counted.
func (b *Bus) Reports(ctx context.Context, apply func(context.Context, queue.Report) error) error {
	free := make(chan struct{}, reportSlots)
	for range reportSlots {
		free <- struct{}{}
	}
	l := &lanes{waiting: map[string][]jetstream.Msg{}}
	defer l.running.Wait()
	one := func(m jetstream.Msg) {
		defer func() { free <- struct{}{} }()
		b.applyAndRetry(ctx, m, apply)
	}
	p := b.puller(reportStream, serverGroup)
	for {
		n := take(ctx, free)
		if n == 0 {
			return nil
		}
		got, err := p.pull(ctx, n, func(m jetstream.Msg) { l.add(m, one) })
		for range n - got {
			free <- struct{}{}
		}
		if again, err := p.goOn(ctx, err); !again {
			return err
		}
	}
}

// applyAndRetry applies one report or hands it back.
func (b *Bus) applyAndRetry(ctx context.Context, m jetstream.Msg, apply func(context.Context, queue.Report) error) {
	finish := context.WithoutCancel(ctx) // a report that was begun is applied and acknowledged
	for try := range uint64(reportTries) {
		if b.applyOne(finish, m, apply) == nil {
			return
		}
		if try+1 == reportTries || !pause(ctx, grow(b.options.LaterDelay, b.options.LaterMost, try)) {
			break
		}
		_ = m.InProgress() // when it is lost, the report may come a second time
	}
	_ = m.NakWithDelay(b.delay(m)) // a lost nak is delivered again after the ack wait
}

// lanes keep the messages of one subject in order and let those of different
// subjects run side by side.
type lanes struct {
	running sync.WaitGroup

	mu      sync.Mutex
	waiting map[string][]jetstream.Msg // by subject; a lane without a goroutine is absent
}

// add puts m behind the messages of its subject.
func (l *lanes) add(m jetstream.Msg, one func(jetstream.Msg)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting, open := l.waiting[m.Subject()]
	if open {
		l.waiting[m.Subject()] = append(waiting, m)
		return
	}
	l.waiting[m.Subject()] = nil
	l.running.Go(func() {
		for next, more := m, true; more; next, more = l.next(m.Subject()) {
			one(next)
		}
	})
}

// next is the next message of a lane; false closes the lane.
func (l *lanes) next(subject string) (jetstream.Msg, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := l.waiting[subject]
	if len(waiting) == 0 {
		delete(l.waiting, subject)
		return nil, false
	}
	l.waiting[subject] = waiting[1:]
	return waiting[0], true
}

// DrainReports applies every report that is there now and returns; an error of
// apply ends it at once, and the report stays. It is for a server that starts: what
// runners said before the former process ended is known before anything is decided
// about their runs.
func (b *Bus) DrainReports(ctx context.Context, apply func(context.Context, queue.Report) error) error {
	stream, err := b.js.Stream(ctx, reportStream)
	if err != nil {
		return fmt.Errorf("drain reports: %w", err)
	}
	consumer, err := stream.Consumer(ctx, serverGroup)
	if err != nil {
		return fmt.Errorf("drain reports: %w", err)
	}
	// What the consumer counts as pending may lag behind the stream, and the stream
	// behind the acknowledgements; so the two are compared until nothing is left.
	for empty := 0; empty < drainPulls; {
		left, err := waiting(ctx, stream, consumer)
		if err != nil {
			return fmt.Errorf("drain reports: %w", err)
		}
		if left == 0 {
			return nil
		}
		batch, err := consumer.Fetch(min(left, reportSlots), jetstream.FetchMaxWait(drainWait))
		if err != nil {
			return fmt.Errorf("drain reports: %w", err)
		}
		empty++
		for m := range batch.Messages() {
			empty = 0
			if err := b.applyOne(ctx, m, apply); err != nil {
				return fmt.Errorf("drain reports: %w", err)
			}
		}
		if err := batch.Error(); err != nil {
			return fmt.Errorf("drain reports: %w", err)
		}
	}
	return nil
}

// drainWait is how long one pull of a drain waits, and drainPulls how many in a row
// may bring nothing.
const drainWait, drainPulls = 100 * time.Millisecond, 20

// waiting is how many reports are in nobody's hands.
func waiting(ctx context.Context, stream jetstream.Stream, consumer jetstream.Consumer) (int, error) {
	there, err := stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	about, err := consumer.Info(ctx)
	if err != nil {
		return 0, err
	}
	return max(0, int(there.State.Msgs)-about.NumAckPending), nil
}

// applyOne applies one report and removes it when that succeeded; the error is of
// apply.
func (b *Bus) applyOne(ctx context.Context, m jetstream.Msg, apply func(context.Context, queue.Report) error) error {
	var report queue.Report
	if json.Unmarshal(m.Data(), &report) != nil || report.Version != queue.MessageVersion ||
		checkRun(report.Run) != nil || m.Subject() != reportSubjects+string(report.Run) {
		b.options.Log.Error("a report cannot be read and was removed", "subject", m.Subject(), "bytes", len(m.Data()))
		if b.options.Events.PoisonReport != nil {
			b.options.Events.PoisonReport()
		}
		_ = m.TermWithReason("unreadable") // a lost term is delivered and removed again
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, applyWithin(b.options))
	defer cancel()
	if err := guarded(func() error { return apply(ctx, report) }); err != nil {
		b.options.Log.Error("a report could not be applied and is tried again", "run", report.Run, "kind", report.Kind, "err", err)
		if b.options.Events.ReportFailed != nil {
			b.options.Events.ReportFailed()
		}
		return err
	}
	if err := m.Ack(); err != nil && !errors.Is(err, natsgo.ErrConnectionClosed) {
		b.options.Log.Warn("cannot acknowledge a report", "run", report.Run, "err", err)
	}
	return nil
}

// guarded is the edge at which a panic of a handler becomes an error: one bad
// message must not end the process that everything else runs in.
func guarded(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return call()
}
