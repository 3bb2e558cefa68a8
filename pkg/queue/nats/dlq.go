package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
)

const (
	deadStream  = "HOLDFAST_RUNS_DLQ"
	deadSubject = "holdfast.dead.runs"
	deadAge     = 7 * 24 * time.Hour

	headerReason     = "Holdfast-Reason"
	headerSubject    = "Holdfast-Subject"
	headerDeliveries = "Holdfast-Deliveries"
)

// deadStreamConfig is the stream of the messages that no runner could take.
func deadStreamConfig(o Options) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: deadStream, Description: "run messages that no runner could take", Subjects: []string{deadSubject},
		Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Duplicates: dedupWindow, MaxAge: deadAge,
		MaxMsgs: 100_000, Discard: jetstream.DiscardOld, Replicas: o.Replicas,
	}
}

// deadConsumerConfig is how servers learn of dead letters.
func deadConsumerConfig(o Options) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: serverGroup, AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverAllPolicy,
		AckWait: reportAckWait(o), MaxAckPending: 64, MaxDeliver: -1,
	}
}

// dies says whether a message that is removed from the queue is kept as a dead letter.
// One that was delivered too often is, once its run was queued again a few times in
// vain; until then the sweep makes it anew from the run's document.
func dies(m jetstream.Msg, d queue.Disposition) bool {
	var message queue.RunMessage
	if d != queue.Exhausted || json.Unmarshal(m.Data(), &message) != nil {
		return true
	}
	return message.Publication-message.Generation-1 >= queue.Republished
}

// bury keeps a copy of a message, byte for byte. It must succeed before the message is
// removed.
func (b *Bus) bury(ctx context.Context, m jetstream.Msg, d queue.Disposition) error {
	letter := natsgo.NewMsg(deadSubject)
	letter.Data = m.Data()
	letter.Header.Set(headerReason, string(d))
	letter.Header.Set(headerSubject, m.Subject())
	id := m.Subject()
	if about, err := m.Metadata(); err == nil {
		letter.Header.Set(headerDeliveries, strconv.FormatUint(about.NumDelivered, 10))
		id = about.Stream + "." + strconv.FormatUint(about.Sequence.Stream, 10)
	}
	if _, err := b.js.PublishMsg(ctx, letter, jetstream.WithMsgID(id), jetstream.WithExpectStream(deadStream)); err != nil {
		return fmt.Errorf("keep a dead letter of %s: %w", m.Subject(), err)
	}
	return nil
}

// letterOf reads a stored dead letter.
func letterOf(seq uint64, at time.Time, header natsgo.Header, body []byte) queue.DeadLetter {
	d := queue.DeadLetter{Seq: seq, At: at.UTC(), Reason: queue.Disposition(header.Get(headerReason)), Body: body}
	d.Deliveries, _ = strconv.Atoi(header.Get(headerDeliveries)) // 0 when nobody knows
	if rest, ok := strings.CutPrefix(header.Get(headerSubject), runSubjects); ok {
		if pooled, ok := strings.CutPrefix(rest, "pool."); ok {
			d.Pool, rest, _ = strings.Cut(pooled, ".")
		}
		if run := holdfast.RunID(rest); checkRun(run) == nil {
			d.Run = run
		}
	}
	return d
}

// DeadLetters lists up to limit dead letters behind a number, the oldest first.
func (b *Bus) DeadLetters(ctx context.Context, after uint64, limit int) (list []queue.DeadLetter, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	stream, err := b.js.Stream(ctx, deadStream)
	if err != nil {
		return nil, fmt.Errorf("dead letters: %w", err)
	}
	for len(list) < limit {
		m, err := stream.GetMsg(ctx, after+1, jetstream.WithGetMsgSubject(deadSubject)) // that one, or the next
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return list, nil
		case err != nil:
			return nil, fmt.Errorf("dead letters: %w", err)
		}
		list = append(list, letterOf(m.Sequence, m.Time, m.Header, m.Data))
		after = m.Sequence
	}
	return list, nil
}

// DeadLetter reads one; the error matches [queue.ErrNoDeadLetter].
func (b *Bus) DeadLetter(ctx context.Context, seq uint64) (queue.DeadLetter, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	stream, err := b.js.Stream(ctx, deadStream)
	if err != nil {
		return queue.DeadLetter{}, fmt.Errorf("dead letter %d: %w", seq, err)
	}
	m, err := stream.GetMsg(ctx, seq)
	switch {
	case seq == 0, errors.Is(err, jetstream.ErrMsgNotFound):
		return queue.DeadLetter{}, fmt.Errorf("dead letter %d: %w", seq, queue.ErrNoDeadLetter)
	case err != nil:
		return queue.DeadLetter{}, fmt.Errorf("dead letter %d: %w", seq, err)
	}
	return letterOf(m.Sequence, m.Time, m.Header, m.Data), nil
}

// DropDeadLetter removes one for good; the error matches [queue.ErrNoDeadLetter].
func (b *Bus) DropDeadLetter(ctx context.Context, seq uint64) error {
	if _, err := b.DeadLetter(ctx, seq); err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	stream, err := b.js.Stream(ctx, deadStream)
	if err == nil {
		err = stream.DeleteMsg(ctx, seq)
	}
	if err != nil {
		return fmt.Errorf("remove dead letter %d: %w", seq, err)
	}
	return nil
}

// DeadDepth is how many dead letters there are.
func (b *Bus) DeadDepth(ctx context.Context) (int64, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	stream, err := b.js.Stream(ctx, deadStream)
	if err != nil {
		return 0, fmt.Errorf("depth of the dead letters: %w", err)
	}
	return int64(min(stream.CachedInfo().State.Msgs, 1<<62)), nil
}

// Buried hands every new dead letter to note until ctx ends, at one of the servers; the
// letter stays where it is. After an error of note it comes again.
func (b *Bus) Buried(ctx context.Context, note func(context.Context, queue.DeadLetter) error) error {
	p := b.puller(deadStream, serverGroup)
	for {
		_, err := p.pull(ctx, 16, func(m jetstream.Msg) { b.noteLetter(ctx, m, note) })
		if again, err := p.goOn(ctx, err); !again {
			return err
		}
	}
}

func (b *Bus) noteLetter(ctx context.Context, m jetstream.Msg, note func(context.Context, queue.DeadLetter) error) {
	about, err := m.Metadata()
	if err == nil {
		noting, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyWithin(b.options))
		defer cancel()
		err = guarded(func() error {
			return note(noting, letterOf(about.Sequence.Stream, about.Timestamp, m.Headers(), m.Data()))
		})
	}
	if err != nil {
		b.options.Log.Warn("a dead letter could not be noted and comes again", "err", err)
		_ = m.NakWithDelay(b.delay(m)) // a lost nak is delivered again after the ack wait
		return
	}
	_ = m.Ack() // a lost ack is noted again
}
