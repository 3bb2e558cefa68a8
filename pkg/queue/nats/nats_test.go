package nats_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/queue/nats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start opens an embedded queue and a connection to it.
func start(t *testing.T, o nats.Options) *nats.Bus {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	server, err := nats.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return connect(t, server)
}

func connect(t *testing.T, server *nats.Server) *nats.Bus {
	t.Helper()
	bus, err := server.Connect("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	return bus
}

// background runs a loop until the test ends and fails the test when it returns an error.
func background(t *testing.T, loop func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- loop(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("loop: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("loop: did not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

// next is the next value, which must come.
func next[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// eventually waits until holds; what it waits for is the server's own bookkeeping.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("never: %s", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func message(run string, publication int) queue.RunMessage {
	return queue.RunMessage{
		Run: holdfast.RunID(run), Team: "acme", Identity: holdfast.PlatformBot("review-pr"), Publication: publication, Generation: 1,
		Bot:    holdfast.Bot{Name: "review-pr", Lane: holdfast.LaneCommand, Command: []string{"true"}},
		Inputs: map[string]string{"pr": "7"}, Budget: 2 * holdfast.OneUSD, PublishedAt: time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC),
	}
}

func publish(t *testing.T, bus *nats.Bus, m queue.RunMessage) {
	t.Helper()
	if err := bus.Publish(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func queued(t *testing.T, bus *nats.Bus, run string) bool {
	t.Helper()
	there, err := bus.Queued(t.Context(), "", holdfast.RunID(run))
	if err != nil {
		t.Fatal(err)
	}
	return there
}

func TestARunMessageArrivesAsItWasPublished(t *testing.T) {
	bus := start(t, nats.Options{})
	want := message("R1", 1)
	publish(t, bus, want)
	want.Version = queue.MessageVersion
	got := make(chan queue.Delivery, 1)
	background(t, func(ctx context.Context) error {
		return bus.Work(ctx, 1, func(_ context.Context, d queue.Delivery) queue.Disposition { got <- d; return queue.Done })
	})
	d := next(t, got)
	if diff := cmp.Diff(want, d.Message, cmp.Comparer(func(a, b holdfast.Identity) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if d.Count != 1 {
		t.Errorf("delivery %d, want the first", d.Count)
	}
	eventually(t, "a finished run's message is gone", func() bool { return !queued(t, bus, "R1") })
}

func TestThePublicationIsTheMessageAndALaterOneTakesItsPlace(t *testing.T) {
	bus := start(t, nats.Options{})
	publish(t, bus, message("R1", 1))
	publish(t, bus, message("R1", 1))
	publish(t, bus, message("R2", 1))
	if n := bus.RunsLeft(t); n != 2 {
		t.Fatalf("%d messages after a repeated publication, want 2", n)
	}
	publish(t, bus, message("R1", 2))
	if n := bus.RunsLeft(t); n != 2 {
		t.Fatalf("%d messages after a second publication, want 2", n)
	}
	got := make(chan queue.Delivery, 4)
	background(t, func(ctx context.Context) error {
		return bus.Work(ctx, 4, func(_ context.Context, d queue.Delivery) queue.Disposition { got <- d; return queue.Done })
	})
	seen := map[holdfast.RunID]int{}
	for range 2 {
		d := next(t, got)
		seen[d.Message.Run] = d.Message.Publication
	}
	if diff := cmp.Diff(map[holdfast.RunID]int{"R1": 2, "R2": 1}, seen); diff != "" {
		t.Error(diff)
	}
}

func TestEveryDispositionHasItsEnding(t *testing.T) {
	want := map[queue.Disposition]string{
		queue.Done: "double_ack", queue.Drop: "ack", queue.Later: "nak_delay", queue.Return: "nak",
		queue.Leave: "leave", queue.Unreadable: "term", queue.Newer: "nak_delay", queue.Exhausted: "term",
	}
	if diff := cmp.Diff(want, nats.Endings()); diff != "" {
		t.Error(diff)
	}
	if len(queue.Dispositions()) != len(want) {
		t.Errorf("%d dispositions are listed, %d have an ending", len(queue.Dispositions()), len(want))
	}
}

func TestWhatBecomesOfAMessageFollowsItsDisposition(t *testing.T) {
	for _, row := range []struct {
		disposition queue.Disposition
		again       bool // delivered again
	}{
		{queue.Done, false},
		{queue.Drop, false},
		{queue.Later, true},
		{queue.Return, true},
		{"", true},
	} {
		t.Run("disposition "+string(row.disposition), func(t *testing.T) {
			bus := start(t, nats.Options{LaterDelay: 10 * time.Millisecond})
			publish(t, bus, message("R1", 1))
			counts := make(chan int, 2)
			background(t, func(ctx context.Context) error {
				return bus.Work(ctx, 1, func(_ context.Context, d queue.Delivery) queue.Disposition {
					counts <- d.Count
					if d.Count == 2 {
						return queue.Done
					}
					return row.disposition
				})
			})
			next(t, counts)
			if row.again {
				if n := next(t, counts); n != 2 {
					t.Errorf("delivery %d, want the second", n)
				}
			}
			eventually(t, "the message is gone", func() bool { return bus.RunsLeft(t) == 0 })
		})
	}
}

func TestNoMessageLeavesTheQueueWithoutAFreeSlot(t *testing.T) {
	bus := start(t, nats.Options{})
	for _, run := range []string{"R1", "R2", "R3", "R4", "R5"} {
		publish(t, bus, message(run, 1))
	}
	began, finish := make(chan holdfast.RunID, 5), make(chan struct{})
	background(t, func(ctx context.Context) error {
		return bus.Work(ctx, 2, func(_ context.Context, d queue.Delivery) queue.Disposition {
			began <- d.Message.Run
			<-finish
			return queue.Done
		})
	})
	next(t, began)
	next(t, began)
	if info := bus.Consumer(t); info.NumAckPending != 2 || info.NumPending != 3 {
		t.Errorf("%d in hands and %d waiting, want 2 and 3", info.NumAckPending, info.NumPending)
	}
	for range 3 {
		finish <- struct{}{}
		next(t, began)
	}
	close(finish)
	eventually(t, "everything is done", func() bool { return bus.RunsLeft(t) == 0 })
}

func TestTheCeilingHoldsOverAllRunners(t *testing.T) {
	bus := start(t, nats.Options{MaxAckPending: 3})
	for _, run := range []string{"R1", "R2", "R3", "R4", "R5"} {
		publish(t, bus, message(run, 1))
	}
	began, finish := make(chan holdfast.RunID, 5), make(chan struct{})
	for range 2 {
		background(t, func(ctx context.Context) error {
			return bus.Work(ctx, 4, func(_ context.Context, d queue.Delivery) queue.Disposition {
				began <- d.Message.Run
				<-finish
				return queue.Done
			})
		})
	}
	for range 3 {
		next(t, began)
	}
	if info := bus.Consumer(t); info.NumAckPending != 3 || info.Config.MaxAckPending != 3 {
		t.Errorf("%d in hands under a ceiling of %d, want 3 and 3", info.NumAckPending, info.Config.MaxAckPending)
	}
	close(finish)
	eventually(t, "everything is done", func() bool { return bus.RunsLeft(t) == 0 })
}

func TestAnExtendedMessageIsNotDeliveredAgainAndAnUnextendedOneIs(t *testing.T) {
	bus := start(t, nats.Options{Lease: 600 * time.Millisecond}) // ack wait 300 ms
	publish(t, bus, message("EXTENDED", 1))
	publish(t, bus, message("SILENT", 1))
	type delivery struct {
		run   holdfast.RunID
		count int
	}
	got, over := make(chan delivery, 16), make(chan struct{})
	background(t, func(ctx context.Context) error {
		return bus.Work(ctx, 8, func(_ context.Context, d queue.Delivery) queue.Disposition {
			got <- delivery{d.Message.Run, d.Count}
			beat := time.NewTicker(30 * time.Millisecond)
			defer beat.Stop()
			for {
				select {
				case <-over:
					return queue.Done
				case <-beat.C:
					if d.Message.Run == "EXTENDED" {
						if err := d.Extend(); err != nil {
							t.Error(err)
						}
					}
				}
			}
		})
	})
	deliveries := map[holdfast.RunID]int{}
	for deliveries["SILENT"] < 3 { // twice the ack wait has passed for the other one too
		d := next(t, got)
		deliveries[d.run] = max(deliveries[d.run], d.count)
	}
	close(over)
	if deliveries["EXTENDED"] != 1 {
		t.Errorf("the extended message was delivered %d times", deliveries["EXTENDED"])
	}
}

func TestAMessageDeliveredTooOftenIsRemovedAndItsRunIsNotQueued(t *testing.T) {
	ended := make(chan string, 16)
	bus := start(t, nats.Options{MaxDeliver: 3, LaterDelay: time.Millisecond, LaterMost: time.Millisecond, Events: nats.Events{Ended: func(d string) { ended <- d }}})
	publish(t, bus, message("R1", 1))
	handled := make(chan int, 16)
	background(t, func(ctx context.Context) error {
		return bus.Work(ctx, 1, func(_ context.Context, d queue.Delivery) queue.Disposition { handled <- d.Count; return queue.Later })
	})
	var dispositions []string
	for range 4 {
		dispositions = append(dispositions, next(t, ended))
	}
	if diff := cmp.Diff([]string{"later", "later", "later", "exhausted"}, dispositions); diff != "" {
		t.Error(diff)
	}
	eventually(t, "the run is not queued any more", func() bool { return !queued(t, bus, "R1") })
	if len(handled) != 3 {
		t.Errorf("the runner saw %d deliveries, want 3", len(handled))
	}
	publish(t, bus, message("R1", 2))
	next(t, handled)
}

func TestAMessageThatCanNeverBeReadIsRemovedAndStopsNobody(t *testing.T) {
	ended := make(chan string, 16)
	bus := start(t, nats.Options{Events: nats.Events{Ended: func(d string) { ended <- d }}})
	for i, body := range []string{"", "{", `[]`, `{"v":0}`, `{"v":1}`, `{"v":1,"run":"OTHER"}`, `{"v":1,"run":7}`} {
		bus.PublishRaw(t, nats.RunSubjects+string(rune('A'+i)), []byte(body))
		background(t, func(ctx context.Context) error {
			return bus.Work(ctx, 1, func(context.Context, queue.Delivery) queue.Disposition {
				t.Errorf("%q was handed to a runner", body)
				return queue.Done
			})
		})
		if d := next(t, ended); d != "unreadable" {
			t.Errorf("%q ended as %s", body, d)
		}
	}
	eventually(t, "all of it is gone", func() bool { return bus.RunsLeft(t) == 0 })
}

func TestAMessageOfANewerVersionWaitsForARunnerThatReadsIt(t *testing.T) {
	ended := make(chan string, 16)
	bus := start(t, nats.Options{LaterDelay: time.Millisecond, LaterMost: time.Millisecond, Events: nats.Events{Ended: func(d string) { ended <- d }}})
	bus.PublishRaw(t, nats.RunSubjects+"R1", []byte(`{"v":2,"run":"R1"}`))
	background(t, func(ctx context.Context) error {
		return bus.Work(ctx, 1, func(context.Context, queue.Delivery) queue.Disposition {
			t.Error("it was handed to a runner")
			return queue.Done
		})
	})
	if first, second := next(t, ended), next(t, ended); first != "newer" || second != "newer" {
		t.Errorf("it ended as %s, then %s", first, second)
	}
}

func TestWhatAShutDownRunnerHeldGoesToAnotherAtOnce(t *testing.T) {
	bus := start(t, nats.Options{LaterDelay: time.Hour, LaterMost: time.Hour})
	publish(t, bus, message("R1", 1))
	began := make(chan struct{})
	stop := background(t, func(ctx context.Context) error {
		return bus.Work(ctx, 1, func(ctx context.Context, _ queue.Delivery) queue.Disposition {
			close(began)
			<-ctx.Done()
			return queue.Later
		})
	})
	next(t, began)
	stop()
	got := make(chan int, 1)
	background(t, func(ctx context.Context) error {
		return bus.Work(ctx, 1, func(_ context.Context, d queue.Delivery) queue.Disposition { got <- d.Count; return queue.Done })
	})
	if n := next(t, got); n != 2 {
		t.Errorf("delivery %d, want the second", n)
	}
}

func TestARestartedServerDeliversAtOnceWhatTheDeadHeld(t *testing.T) {
	dir := t.TempDir()
	server, err := nats.Start(nats.Options{Dir: dir, Sync: true}) // ack wait one minute
	if err != nil {
		t.Fatal(err)
	}
	bus := connect(t, server)
	publish(t, bus, message("R1", 1))
	if err := bus.PublishReport(t.Context(), queue.Report{Run: "R1", Attempt: 1, Sequence: 1}); err != nil {
		t.Fatal(err)
	}
	began := make(chan struct{})
	stop := background(t, func(ctx context.Context) error {
		return bus.Work(ctx, 1, func(ctx context.Context, _ queue.Delivery) queue.Disposition {
			close(began)
			<-ctx.Done()
			return queue.Leave
		})
	})
	next(t, began)
	stop()
	bus.Close()
	server.Close()

	bus = start(t, nats.Options{Dir: dir, Sync: true})
	if !queued(t, bus, "R1") {
		t.Fatal("the message did not survive")
	}
	got, reports := make(chan holdfast.RunID, 1), make(chan queue.Report, 1)
	background(t, func(ctx context.Context) error {
		return bus.Work(ctx, 1, func(_ context.Context, d queue.Delivery) queue.Disposition { got <- d.Message.Run; return queue.Done })
	})
	background(t, func(ctx context.Context) error {
		return bus.Reports(ctx, func(_ context.Context, r queue.Report) error { reports <- r; return nil })
	})
	next(t, got)
	next(t, reports)
}

// A power cut may tear what NATS keeps of a consumer. The consumers are made anew at
// every start, so nothing of that file is needed.
func TestATornConsumerFileStopsNoStart(t *testing.T) {
	dir := t.TempDir()
	server, err := nats.Start(nats.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	bus := connect(t, server)
	publish(t, bus, message("R1", 1))
	bus.Close()
	server.Close()
	files, err := filepath.Glob(filepath.Join(dir, "queue", "jetstream", "*", "streams", "*", "obs", "*", "o.dat"))
	if err != nil || len(files) != 3 {
		t.Fatalf("the consumers' files are %q, %v", files, err)
	}
	for _, file := range files {
		if err := os.WriteFile(file, []byte("torn in the middle of"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bus = start(t, nats.Options{Dir: dir})
	got := make(chan holdfast.RunID, 1)
	background(t, func(ctx context.Context) error {
		return bus.Work(ctx, 1, func(_ context.Context, d queue.Delivery) queue.Disposition { got <- d.Message.Run; return queue.Done })
	})
	if run := next(t, got); run != "R1" {
		t.Errorf("run %s came", run)
	}
}

func TestALostQueueFolderBeginsEmptyAndNothingIsQueued(t *testing.T) {
	dir := t.TempDir()
	server, err := nats.Start(nats.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	bus := connect(t, server)
	publish(t, bus, message("R1", 1))
	bus.Close()
	server.Close()
	if err := os.RemoveAll(filepath.Join(dir, "queue")); err != nil {
		t.Fatal(err)
	}
	bus = start(t, nats.Options{Dir: dir})
	if queued(t, bus, "R1") {
		t.Fatal("a message came back from nowhere")
	}
	publish(t, bus, message("R1", 2))
	if !queued(t, bus, "R1") {
		t.Fatal("the run could not be published again")
	}
}

func TestAClosedConnectionIsAnErrorAndNoAnswer(t *testing.T) {
	bus := start(t, nats.Options{})
	publish(t, bus, message("R1", 1))
	bus.Close()
	if there, err := bus.Queued(t.Context(), "", "R1"); err == nil {
		t.Errorf("Queued says %v without a connection", there)
	}
	if err := bus.Publish(t.Context(), message("R2", 1)); err == nil {
		t.Error("Publish succeeded without a connection")
	}
	if err := bus.Cancel(t.Context(), "R1"); err == nil {
		t.Error("Cancel succeeded without a connection")
	}
	if grant, err := bus.RequestClaim(t.Context(), queue.Claim{Run: "R1"}); err == nil {
		t.Errorf("RequestClaim got %v without a connection", grant)
	}
	if err := bus.Work(t.Context(), 1, func(context.Context, queue.Delivery) queue.Disposition { return queue.Done }); err == nil {
		t.Error("Work returned nil without a connection")
	}
	if err := bus.Reports(t.Context(), func(context.Context, queue.Report) error { return nil }); err == nil {
		t.Error("Reports returned nil without a connection")
	}
}

func TestARunIDThatWouldChangeTheSubjectIsRefused(t *testing.T) {
	bus := start(t, nats.Options{})
	for _, run := range []string{"", "a.b", "*", ">", "a b", "a\n", strings.Repeat("x", 65)} {
		var invalid *holdfast.InvalidError
		if err := bus.Publish(t.Context(), message(run, 1)); !errors.As(err, &invalid) || invalid.Field != "run" {
			t.Errorf("Publish of run %q: %v", run, err)
		}
		if _, err := bus.Queued(t.Context(), "", holdfast.RunID(run)); !errors.As(err, &invalid) {
			t.Errorf("Queued of run %q: %v", run, err)
		}
		if err := bus.Cancel(t.Context(), holdfast.RunID(run)); !errors.As(err, &invalid) {
			t.Errorf("Cancel of run %q: %v", run, err)
		}
	}
}

func TestAMessageThatIsTooLongIsRefusedAsBadInput(t *testing.T) {
	bus := start(t, nats.Options{})
	m := message("R1", 1)
	m.Inputs["text"] = strings.Repeat("x", 2<<20)
	var invalid *holdfast.InvalidError
	if err := bus.Publish(t.Context(), m); !errors.As(err, &invalid) {
		t.Errorf("Publish: %v", err)
	}
}

func TestOptionsOutOfRangeAreRefused(t *testing.T) {
	var invalid *holdfast.InvalidError
	if _, err := nats.Start(nats.Options{}); !errors.As(err, &invalid) || invalid.Field != "dir" {
		t.Errorf("without a folder: %v", err)
	}
	if _, err := nats.Start(nats.Options{Dir: t.TempDir(), MaxAckPending: -1}); !errors.As(err, &invalid) || invalid.Field != "max_ack_pending" {
		t.Errorf("with a negative ceiling: %v", err)
	}
	bus := start(t, nats.Options{})
	if err := bus.Work(t.Context(), 0, nil); !errors.As(err, &invalid) || invalid.Field != "slots" {
		t.Errorf("work without slots: %v", err)
	}
	if info := bus.Consumer(t); info.Config.MaxAckPending != 256 || info.Config.AckWait != time.Minute {
		t.Errorf("the defaults are a ceiling of %d and an ack wait of %s", info.Config.MaxAckPending, info.Config.AckWait)
	}
}

func TestACancelNoticeReachesThoseWhoListen(t *testing.T) {
	bus := start(t, nats.Options{})
	got := make(chan holdfast.RunID, 1)
	stop, err := bus.CancelNotices(func(run holdfast.RunID) { got <- run })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := bus.Cancel(t.Context(), "R1"); err != nil {
		t.Fatal(err)
	}
	if run := next(t, got); run != "R1" {
		t.Errorf("the notice names %q", run)
	}
}
