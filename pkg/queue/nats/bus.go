package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
)

// Bus is one connection to the queue, with both sides' verbs: a server publishes
// runs and cancels, and serves claims and reports; a runner works, claims and
// reports. It is safe for concurrent use. Every error means that the fate of what
// was asked is unknown; none is an answer.
type Bus struct {
	nc      *natsgo.Conn
	js      jetstream.JetStream
	options Options

	pooling sync.Mutex
	pools   map[string]Pool // as they were made, by [Options.poolOf]
}

// answerWithin bounds a request to NATS or to the other side.
const answerWithin = 10 * time.Second

// Close ends the connection; what is buffered is sent first.
func (b *Bus) Close() {
	_ = b.nc.FlushTimeout(time.Second) // a connection that is gone has nothing to flush
	b.nc.Close()
}

// Publish puts a run in the queue and returns when the message is durable. The same
// publication of a run again is the same message. A later publication takes the
// place of the former.
func (b *Bus) Publish(ctx context.Context, m queue.RunMessage) error {
	if err := checkRun(m.Run); err != nil {
		return err
	}
	if err := checkPool(m.Pool); err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := b.ensurePool(ctx, m.Pool); err != nil {
		return fmt.Errorf("publish run %s: %w", m.Run, err)
	}
	m.Version = queue.MessageVersion
	id := string(m.Run) + "." + strconv.Itoa(m.Publication)
	return b.publish(ctx, b.options.runStream(m.Pool), b.options.runSubject(m.Pool, m.Run), id, m)
}

// PublishReport returns when the report is durable. The same report again is the
// same message.
func (b *Bus) PublishReport(ctx context.Context, r queue.Report) error {
	if err := checkRun(r.Run); err != nil {
		return err
	}
	r.Version = queue.MessageVersion
	id := fmt.Sprintf("%s.%d.%d", r.Run, r.Attempt, r.Sequence)
	return b.publish(ctx, reportStream, reportSubjects+string(r.Run), id, r)
}

func (b *Bus) publish(ctx context.Context, stream, subject, id string, message any) error {
	body, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("publish %s: %w", subject, err)
	}
	if most := b.nc.MaxPayload(); int64(len(body)) > most {
		return &holdfast.InvalidError{Problem: fmt.Sprintf("the message is %d bytes long", len(body)), Allowed: fmt.Sprintf("at most %d bytes", most)}
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := b.standing(ctx); err != nil {
		return fmt.Errorf("publish %s: %w", subject, err)
	}
	if _, err := b.js.Publish(ctx, subject, body, jetstream.WithMsgID(id), jetstream.WithExpectStream(stream)); err != nil {
		return fmt.Errorf("publish %s: %w", subject, err)
	}
	return nil
}

// Queued says whether a message of the run is in its pool's queue, waiting or in the
// hands of a runner.
func (b *Bus) Queued(ctx context.Context, pool string, run holdfast.RunID) (bool, error) {
	if err := errors.Join(checkRun(run), checkPool(pool)); err != nil {
		return false, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	stream, err := b.js.Stream(ctx, b.options.runStream(pool))
	if errors.Is(err, jetstream.ErrStreamNotFound) && b.options.poolOf(pool) != "" {
		return false, nil // no run of the pool was ever published, or NATS lost them all
	}
	if err != nil {
		return false, fmt.Errorf("look for the message of %s: %w", run, err)
	}
	_, err = stream.GetLastMsgForSubject(ctx, b.options.runSubject(pool, run))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return false, nil
	}
	return false, fmt.Errorf("look for the message of %s: %w", run, err)
}

// Cancel tells the runner that executes the run, if one does, to stop it. It is a
// notice: it may be lost, and the run's next heartbeat is told as well.
func (b *Bus) Cancel(ctx context.Context, run holdfast.RunID) error {
	if err := checkRun(run); err != nil {
		return err
	}
	if err := b.nc.Publish(cancelSubjects+string(run), nil); err != nil {
		return fmt.Errorf("cancel notice of %s: %w", run, err)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := b.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("cancel notice of %s: %w", run, err)
	}
	return nil
}

// CancelNotices calls notice for every run whose cancel notice arrives after it
// returned, until stop is called. Calls come one at a time.
func (b *Bus) CancelNotices(notice func(holdfast.RunID)) (stop func(), err error) {
	subscription, err := b.nc.Subscribe(cancelSubjects+"*", func(m *natsgo.Msg) {
		notice(holdfast.RunID(strings.TrimPrefix(m.Subject, cancelSubjects)))
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to cancel notices: %w", err)
	}
	if err := b.nc.FlushTimeout(answerWithin); err != nil {
		_ = subscription.Unsubscribe()
		return nil, fmt.Errorf("subscribe to cancel notices: %w", err)
	}
	return func() { _ = subscription.Unsubscribe() }, nil // fails only when the connection is gone
}

// checkRun keeps out ids that would change the subject they become a part of.
func checkRun(run holdfast.RunID) error {
	ok := run != "" && len(run) <= 64
	for _, c := range []byte(run) {
		ok = ok && (c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '_')
	}
	if !ok {
		return &holdfast.InvalidError{Field: "run", Problem: fmt.Sprintf("%q is not a run id", holdfast.Clip(string(run), 80)), Allowed: "letters, digits, - and _"}
	}
	return nil
}

// bounded is a context that ends in time whatever the caller's says.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, answerWithin)
}

// backWithin is how long a publication waits for a connection that is lost. A caller of
// a launch shall not wait for an answer that is known to be no.
const backWithin = 2 * time.Second

// standing waits for the connection, if it is lost; ErrAway when it does not come back.
func (b *Bus) standing(ctx context.Context) error {
	if b.nc.IsConnected() {
		return nil
	}
	back := b.nc.StatusChanged(natsgo.CONNECTED, natsgo.CLOSED)
	defer b.nc.RemoveStatusListener(back)
	timer := time.NewTimer(backWithin)
	defer timer.Stop()
	if b.nc.IsConnected() {
		return nil
	}
	select {
	case <-back:
	case <-timer.C:
	case <-ctx.Done():
	}
	switch {
	case b.nc.IsClosed():
		return natsgo.ErrConnectionClosed
	case b.nc.IsConnected():
		return nil
	}
	return ErrAway
}
