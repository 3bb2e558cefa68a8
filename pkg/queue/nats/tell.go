package nats

import (
	"fmt"
	"strings"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast"
)

// Tell sends a notice to every connection that listens to its topic at the moment,
// this one included. It does not wait, and notices may be lost: what must not be lost
// is stored.
func (b *Bus) Tell(topic string, body []byte) error {
	if err := checkTopic(topic); err != nil {
		return err
	}
	if err := b.nc.Publish(tellSubjects+topic, body); err != nil {
		return fmt.Errorf("tell %s: %w", topic, err)
	}
	return nil
}

// Hear calls notice for every notice of the topic that is sent after it returned,
// until stop is called. Calls come one at a time and must not block; a listener that
// is far behind loses notices.
func (b *Bus) Hear(topic string, notice func(body []byte)) (stop func(), err error) {
	if err := checkTopic(topic); err != nil {
		return nil, err
	}
	subscription, err := b.nc.Subscribe(tellSubjects+topic, func(m *natsgo.Msg) { notice(m.Data) })
	if err != nil {
		return nil, fmt.Errorf("hear %s: %w", topic, err)
	}
	if err := subscription.SetPendingLimits(maxUnheard, maxUnheard*1024); err != nil {
		return nil, fmt.Errorf("hear %s: %w", topic, err)
	}
	if err := b.nc.FlushTimeout(answerWithin); err != nil {
		_ = subscription.Unsubscribe()
		return nil, fmt.Errorf("hear %s: %w", topic, err)
	}
	return func() { _ = subscription.Unsubscribe() }, nil // fails only when the connection is gone
}

// maxUnheard is how many notices a listener may be behind.
const maxUnheard = 4096

func checkTopic(topic string) error {
	if topic == "" || len(topic) > 40 || strings.Trim(topic, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return &holdfast.InvalidError{Field: "topic", Problem: fmt.Sprintf("%q is not a topic", holdfast.Clip(topic, 60)), Allowed: "small letters and _"}
	}
	return nil
}
