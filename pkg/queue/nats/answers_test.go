package nats_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/queue/nats"
)

func report(run string, sequence int64) queue.Report {
	return queue.Report{Run: holdfast.RunID(run), Attempt: 1, Sequence: sequence, Kind: queue.ReportEnded, Ending: queue.EndFinished}
}

func tell(t *testing.T, bus *nats.Bus, reports ...queue.Report) {
	t.Helper()
	for _, r := range reports {
		if err := bus.PublishReport(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAReportIsRemovedOnlyAfterItWasApplied(t *testing.T) {
	failed := make(chan struct{}, 4)
	bus := start(t, nats.Options{LaterDelay: time.Millisecond, LaterMost: time.Millisecond, Events: nats.Events{ReportFailed: func() { failed <- struct{}{} }}})
	tell(t, bus, report("R1", 1), report("R1", 1))
	if n := bus.ReportsLeft(t); n != 1 {
		t.Fatalf("%d reports after a repeated one, want 1", n)
	}
	tries, answer := make(chan queue.Report), make(chan error)
	background(t, func(ctx context.Context) error {
		return bus.Reports(ctx, func(_ context.Context, r queue.Report) error { tries <- r; return <-answer })
	})
	next(t, tries)
	answer <- errors.New("the store is unreachable")
	next(t, failed)
	if n := bus.ReportsLeft(t); n != 1 {
		t.Fatalf("%d reports after a failure, want 1", n)
	}
	r := next(t, tries)
	answer <- nil
	want := report("R1", 1)
	want.Version = queue.MessageVersion
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
	eventually(t, "the applied report is gone", func() bool { return bus.ReportsLeft(t) == 0 })
}

func TestTheReportsOfARunComeInOrderAndDoNotWaitForOtherRuns(t *testing.T) {
	bus := start(t, nats.Options{})
	tell(t, bus, report("SLOW", 1), report("SLOW", 2), report("QUICK", 1), report("QUICK", 2), report("QUICK", 3))
	slow, quick := make(chan struct{}), make(chan int64, 3)
	order := make(chan int64, 2)
	background(t, func(ctx context.Context) error {
		return bus.Reports(ctx, func(_ context.Context, r queue.Report) error {
			if r.Run == "SLOW" {
				<-slow
				order <- r.Sequence
			} else {
				quick <- r.Sequence
			}
			return nil
		})
	})
	for want := int64(1); want <= 3; want++ { // while the other run's first still waits
		if got := next(t, quick); got != want {
			t.Errorf("report %d came, want %d", got, want)
		}
	}
	close(slow)
	if first, second := next(t, order), next(t, order); first != 1 || second != 2 {
		t.Errorf("reports %d, %d came, want 1, 2", first, second)
	}
}

func TestAReportThatCanNeverBeReadIsRemovedCountedAndStopsNobody(t *testing.T) {
	poison := make(chan struct{}, 8)
	bus := start(t, nats.Options{Events: nats.Events{PoisonReport: func() { poison <- struct{}{} }}})
	bodies := []string{"", "{", `{"v":9,"run":"R1"}`, `{"v":1}`, `{"v":1,"run":"OTHER"}`}
	for _, body := range bodies {
		bus.PublishRaw(t, nats.ReportSubjects+"R1", []byte(body))
	}
	tell(t, bus, report("R1", 1))
	got := make(chan queue.Report, 8)
	background(t, func(ctx context.Context) error {
		return bus.Reports(ctx, func(_ context.Context, r queue.Report) error { got <- r; return nil })
	})
	for range bodies {
		next(t, poison)
	}
	if r := next(t, got); r.Sequence != 1 {
		t.Errorf("report %v came", r)
	}
	eventually(t, "all reports are gone", func() bool { return bus.ReportsLeft(t) == 0 })
	if len(got) != 0 {
		t.Errorf("%d poisoned reports were applied", len(got))
	}
}

func TestAPanicOfTheHandlerIsAFailedReport(t *testing.T) {
	bus := start(t, nats.Options{LaterDelay: time.Millisecond, LaterMost: time.Millisecond})
	tell(t, bus, report("R1", 1))
	tries := make(chan int, 4)
	n := 0
	background(t, func(ctx context.Context) error {
		return bus.Reports(ctx, func(context.Context, queue.Report) error {
			n++
			tries <- n
			if n == 1 {
				panic("a bug")
			}
			return nil
		})
	})
	next(t, tries)
	next(t, tries)
	eventually(t, "the report is applied", func() bool { return bus.ReportsLeft(t) == 0 })
}

func TestDrainAppliesEverythingThatIsThereAndThenReturns(t *testing.T) {
	bus := start(t, nats.Options{})
	apply := func(seen *[]int64) func(context.Context, queue.Report) error {
		return func(_ context.Context, r queue.Report) error { *seen = append(*seen, r.Sequence); return nil }
	}
	var none []int64
	if err := bus.DrainReports(t.Context(), apply(&none)); err != nil || none != nil {
		t.Fatalf("draining nothing: %v, %v", none, err)
	}
	var want, got []int64
	for i := int64(1); i <= 150; i++ {
		tell(t, bus, report("R1", i))
		want = append(want, i)
	}
	if err := bus.DrainReports(t.Context(), apply(&got)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDrainEndsWithTheErrorOfApplyAndTheReportStays(t *testing.T) {
	bus := start(t, nats.Options{})
	tell(t, bus, report("R1", 1))
	down := errors.New("the store is unreachable")
	if err := bus.DrainReports(t.Context(), func(context.Context, queue.Report) error { return down }); !errors.Is(err, down) {
		t.Errorf("drain: %v", err)
	}
	if n := bus.ReportsLeft(t); n != 1 {
		t.Errorf("%d reports are left, want 1", n)
	}
}

func TestAClaimIsAnsweredWithTheGrantAndAnErrorIsNoVerdict(t *testing.T) {
	bus := start(t, nats.Options{})
	if grant, err := bus.RequestClaim(t.Context(), queue.Claim{Run: "R1"}); err == nil {
		t.Fatalf("without a server: %v", grant)
	}
	want := queue.Grant{Verdict: queue.GrantGo, Attempt: 3, Budget: 1_500_001, Expires: time.Date(2026, 3, 10, 12, 2, 0, 0, time.UTC)}
	claim := queue.Claim{Run: "R1", Publication: 2, Generation: 1, Runner: "r", Attempt: 3, Sequence: 9, Spent: 1}
	serving := make(chan struct{}, 1)
	background(t, func(ctx context.Context) error {
		return bus.ServeClaims(ctx, func(_ context.Context, c queue.Claim) (queue.Grant, error) {
			select {
			case serving <- struct{}{}:
			default:
			}
			switch c.Run {
			case "BROKEN":
				return queue.Grant{Verdict: queue.GrantGo}, errors.New("the store is unreachable")
			case "BUG":
				panic("a bug")
			case "EMPTY":
				return queue.Grant{}, nil
			}
			if diff := cmp.Diff(claim, c); diff != "" && c.Run == "R1" {
				t.Error(diff)
			}
			return want, nil
		})
	})
	eventually(t, "a server answers", func() bool {
		_, err := bus.RequestClaim(t.Context(), queue.Claim{Run: "WARM"})
		return err == nil
	})
	next(t, serving)
	got, err := bus.RequestClaim(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, run := range []holdfast.RunID{"BROKEN", "BUG", "EMPTY"} {
		if grant, err := bus.RequestClaim(t.Context(), queue.Claim{Run: run}); err == nil || grant.Verdict != "" {
			t.Errorf("%s: %v, %v", run, grant, err)
		}
	}
	if answer := bus.RequestRaw(t, []byte("{")); !strings.Contains(answer, `"error"`) {
		t.Errorf("a claim that is no JSON is answered with %s", answer)
	}
}

func TestAServerThatEndsAnswersTheClaimsThatItBegan(t *testing.T) {
	bus := start(t, nats.Options{})
	began := make(chan struct{}, 1)
	stop := background(t, func(serving context.Context) error {
		return bus.ServeClaims(serving, func(ctx context.Context, c queue.Claim) (queue.Grant, error) {
			if c.Run == "R1" {
				began <- struct{}{}
				<-serving.Done()
			}
			return queue.Grant{Verdict: queue.GrantGo}, ctx.Err()
		})
	})
	eventually(t, "a server answers", func() bool {
		_, err := bus.RequestClaim(t.Context(), queue.Claim{Run: "WARM"})
		return err == nil
	})
	answered := make(chan error, 1)
	go func() {
		_, err := bus.RequestClaim(context.WithoutCancel(t.Context()), queue.Claim{Run: "R1"})
		answered <- err
	}()
	next(t, began)
	stop()
	if err := next(t, answered); err != nil {
		t.Error(err)
	}
}

func TestAFailedReportKeepsItsPlaceBeforeTheNextOfItsRun(t *testing.T) {
	bus := start(t, nats.Options{LaterDelay: 5 * time.Millisecond, LaterMost: 5 * time.Millisecond})
	tell(t, bus, report("R1", 1), report("R1", 2), report("R1", 3))
	applied := make(chan int64, 3)
	first := true
	background(t, func(ctx context.Context) error {
		return bus.Reports(ctx, func(_ context.Context, r queue.Report) error {
			if first {
				first = false
				return errors.New("the store is unreachable")
			}
			applied <- r.Sequence
			return nil
		})
	})
	got := []int64{next(t, applied), next(t, applied), next(t, applied)}
	if diff := cmp.Diff([]int64{1, 2, 3}, got); diff != "" {
		t.Error(diff)
	}
}
