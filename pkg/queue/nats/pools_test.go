package nats_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/queue/nats"
)

func in(pool string, m queue.RunMessage) queue.RunMessage { m.Pool = pool; return m }

// working takes runs until the test ends and tells which.
func working(t *testing.T, bus *nats.Bus) <-chan queue.RunMessage {
	t.Helper()
	got := make(chan queue.RunMessage, 16)
	stop := background(t, func(ctx context.Context) error {
		return bus.Work(ctx, 4, func(_ context.Context, d queue.Delivery) queue.Disposition {
			got <- d.Message
			return queue.Done
		})
	})
	t.Cleanup(stop)
	return got
}

func TestARunnerTakesTheRunsOfItsOwnPoolOnly(t *testing.T) {
	s := elsewhere(t, nil)
	r := nats.Remote{URL: s.ClientURL()}
	server := dial(t, r, nats.Options{})
	if err := server.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := server.SetPools(t.Context(), []nats.Pool{{Name: "big-iron"}, {Name: "idle"}}); err != nil {
		t.Fatal(err)
	}
	for _, m := range []queue.RunMessage{in("big-iron", message("B1", 1)), in("default", message("D1", 1)), in("", message("D2", 1)), in("idle", message("I1", 1))} {
		publish(t, server, m)
	}
	if n, err := server.Depth(t.Context()); err != nil || n != 4 {
		t.Errorf("the depth is %d, %v", n, err)
	}
	ours := dial(t, r, nats.Options{Pool: "big-iron"})
	if err := ours.Attach(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m := next(t, working(t, ours)); m.Run != "B1" || m.Pool != "big-iron" {
		t.Errorf("the pool's runner took %+v", m)
	}
	others := working(t, dial(t, r, nats.Options{}))
	if a, b := next(t, others).Run, next(t, others).Run; min(a, b) != "D1" || max(a, b) != "D2" {
		t.Errorf("the default pool's runner took %s and %s", a, b)
	}
	for pool, run := range map[string]holdfast.RunID{"big-iron": "B1", "": "D1", "default": "D2"} {
		eventually(t, "the message is gone", func() bool {
			there, err := server.Queued(t.Context(), pool, run)
			return err == nil && !there
		})
	}
	if there, err := server.Queued(t.Context(), "idle", "I1"); err != nil || !there {
		t.Errorf("what waits for a pool without a runner is there: %v, %v", there, err)
	}
	if there, err := server.Queued(t.Context(), "big-iron", "I1"); err != nil || there {
		t.Errorf("it is in another pool: %v, %v", there, err)
	}
}

func TestTheCeilingOfAPoolOnTheWireIsAlwaysTheResolvedOne(t *testing.T) {
	s := elsewhere(t, nil)
	bus := dial(t, nats.Remote{URL: s.ClientURL()}, nats.Options{MaxAckPending: 7})
	if err := bus.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	is := func(when, pool string, want int) {
		t.Helper()
		if got := bus.PoolConsumer(t, pool).Config.MaxAckPending; got != want {
			t.Errorf("%s: the ceiling of %q is %d, want %d", when, pool, got, want)
		}
	}
	is("at first", "", 7)
	set := func(pools ...nats.Pool) {
		t.Helper()
		if err := bus.SetPools(t.Context(), pools); err != nil {
			t.Fatal(err)
		}
	}
	set(nats.Pool{Name: "a"}, nats.Pool{Name: "b", MaxAckPending: 3})
	is("without its own", "a", 7)
	is("with its own", "b", 3)
	set(nats.Pool{Name: "a", MaxAckPending: 5}, nats.Pool{Name: "b"}, nats.Pool{Name: "default", MaxAckPending: 2})
	is("changed", "a", 5)
	is("taken away", "b", 7)
	is("of the default pool", "", 2)
	if err := bus.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	is("after the queue was made again", "a", 5)
	is("after the queue was made again", "", 2)
}

func TestARunOfAPoolThatNobodyMadeYetIsQueuedAndKeepsAnotherServersCeiling(t *testing.T) {
	s := elsewhere(t, nil)
	first, second := dial(t, nats.Remote{URL: s.ClientURL()}, nats.Options{}), dial(t, nats.Remote{URL: s.ClientURL()}, nats.Options{})
	if err := first.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	publish(t, second, in("fresh", message("F1", 1)))
	if there, err := first.Queued(t.Context(), "fresh", "F1"); err != nil || !there {
		t.Errorf("it is queued: %v, %v", there, err)
	}
	if there, err := first.Queued(t.Context(), "never", "F1"); err != nil || there {
		t.Errorf("a pool that was never made has it: %v, %v", there, err)
	}
	if err := first.SetPools(t.Context(), []nats.Pool{{Name: "fresh", MaxAckPending: 2}}); err != nil {
		t.Fatal(err)
	}
	publish(t, second, in("fresh", message("F2", 1)))
	if got := first.PoolConsumer(t, "fresh").Config.MaxAckPending; got != 2 {
		t.Errorf("a server that does not know the ceiling made it %d", got)
	}
}

func TestAPoolThatNATSLostIsMissingUntilItIsMadeAgain(t *testing.T) {
	s := elsewhere(t, nil)
	bus := dial(t, nats.Remote{URL: s.ClientURL()}, nats.Options{})
	if err := bus.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := bus.SetPools(t.Context(), []nats.Pool{{Name: "big-iron", MaxAckPending: 2}}); err != nil {
		t.Fatal(err)
	}
	bus.LosePool(t, "big-iron")
	if _, err := bus.Check(t.Context(), shifted(0)); !errors.Is(err, nats.ErrMissing) {
		t.Fatalf("a lost pool is %v", err)
	}
	if err := bus.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := bus.Check(t.Context(), shifted(0)); err != nil {
		t.Error(err)
	}
	if got := bus.PoolConsumer(t, "big-iron").Config.MaxAckPending; got != 2 {
		t.Errorf("it was made with a ceiling of %d", got)
	}
}

func TestOneRunnerOfOneMachineTakesTheRunsOfEveryPool(t *testing.T) {
	bus := start(t, nats.Options{OnePool: true})
	publish(t, bus, in("big-iron", message("B1", 1)))
	publish(t, bus, message("D1", 1))
	got := working(t, bus)
	if a, b := next(t, got).Run, next(t, got).Run; min(a, b) != "B1" || max(a, b) != "D1" {
		t.Errorf("it took %s and %s", a, b)
	}
}

func TestAPoolsNameThatWouldChangeTheSubjectIsRefused(t *testing.T) {
	bus := start(t, nats.Options{})
	for _, pool := range []string{"a.b", "*", ">", "a b", "A", "-a", "a/b"} {
		var bad *holdfast.InvalidError
		if err := bus.Publish(t.Context(), in(pool, message("R1", 1))); !errors.As(err, &bad) || bad.Field != "pool" {
			t.Errorf("%q: %v", pool, err)
		}
		if err := bus.SetPools(t.Context(), []nats.Pool{{Name: pool}}); !errors.As(err, &bad) {
			t.Errorf("%q: %v", pool, err)
		}
	}
}
