package nats_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/queue/nats"
)

// dead waits until there are so many dead letters.
func dead(t *testing.T, b *nats.Bus, n int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		depth, err := b.DeadDepth(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if depth == n {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d dead letters, want %d", depth, n)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestWhatNoRunnerCanTakeIsKeptByteForByteAndCanBeRemoved(t *testing.T) {
	t.Parallel()
	b := start(t, nats.Options{MaxDeliver: 2, LaterDelay: time.Millisecond, LaterMost: time.Millisecond})
	garbage := []byte("\x00 not a message")
	b.PublishRaw(t, nats.RunSubjects+"R1", garbage)
	for i, publication := range []int{1, 1 + queue.Republished} {
		run := holdfast.RunID(fmt.Sprintf("E%d", i+1))
		if err := b.Publish(t.Context(), queue.RunMessage{Run: run, Publication: publication}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() {
		_ = b.Work(ctx, 4, func(context.Context, queue.Delivery) queue.Disposition { return queue.Later })
	})
	dead(t, b, 2) // E1 is removed only: a sweep queues it again
	stop()
	working.Wait()
	if left := b.RunsLeft(t); left != 0 {
		t.Errorf("%d messages are left", left)
	}
	list, err := b.DeadLetters(t.Context(), 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	found := map[holdfast.RunID]queue.DeadLetter{}
	for _, d := range list {
		found[d.Run] = d
	}
	if d := found["R1"]; d.Reason != queue.Unreadable || string(d.Body) != string(garbage) || d.Deliveries != 1 || d.At.IsZero() {
		t.Errorf("%+v", d)
	}
	if d := found["E2"]; d.Reason != queue.Exhausted || d.Deliveries != 3 {
		t.Errorf("%+v", d)
	}
	one, err := b.DeadLetters(t.Context(), list[0].Seq, 1)
	if err != nil || len(one) != 1 || one[0].Seq != list[1].Seq {
		t.Errorf("%+v, %v", one, err)
	}
	if err := b.DropDeadLetter(t.Context(), list[0].Seq); err != nil {
		t.Fatal(err)
	}
	for _, seq := range []uint64{0, list[0].Seq, 99} {
		if _, err := b.DeadLetter(t.Context(), seq); !errors.Is(err, queue.ErrNoDeadLetter) {
			t.Errorf("%d: %v", seq, err)
		}
		if err := b.DropDeadLetter(t.Context(), seq); !errors.Is(err, queue.ErrNoDeadLetter) {
			t.Errorf("%d: %v", seq, err)
		}
	}
}

func TestEveryDeadLetterIsNotedAtOneServerAndAgainAfterAnError(t *testing.T) {
	t.Parallel()
	b := start(t, nats.Options{LaterDelay: time.Millisecond, LaterMost: time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	noted := make(chan queue.DeadLetter, 16)
	tries := 0
	var working sync.WaitGroup
	working.Go(func() {
		_ = b.Buried(ctx, func(_ context.Context, d queue.DeadLetter) error {
			if tries++; tries == 1 {
				return errors.New("a store is away")
			}
			noted <- d
			return nil
		})
	})
	working.Go(func() {
		_ = b.Work(ctx, 4, func(context.Context, queue.Delivery) queue.Disposition { return queue.Done })
	})
	b.PublishRaw(t, nats.RunSubjects+"R7", []byte("{"))
	select {
	case d := <-noted:
		if d.Run != "R7" || d.Reason != queue.Unreadable || d.Seq == 0 {
			t.Errorf("%+v", d)
		}
	case <-time.After(20 * time.Second):
		t.Error("it was not noted")
	}
	stop()
	working.Wait()
	dead(t, b, 1) // noting takes nothing away
}
