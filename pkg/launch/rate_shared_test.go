package launch_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast/pkg/botsource"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

func sharedBuckets(t *testing.T, db records.DB) *launch.SharedBuckets {
	t.Helper()
	return must(launch.NewSharedBuckets(t.Context(), db))(t)
}

func TestReplicasTogetherGiveOutWhatOneBucketHolds(t *testing.T) {
	db, now := memory.NewRecords(), clocktest.New().Now()
	var taken atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		replica := sharedBuckets(t, db)
		for range 16 {
			all.Go(func() {
				for range 3 {
					ok, wait, err := replica.Take(context.Background(), "acme", 50, now)
					switch {
					case err != nil:
						t.Error(err)
					case ok:
						taken.Add(1)
					case wait != 1200*time.Millisecond:
						t.Errorf("the next launch is %v away, want 1.2s", wait)
					}
				}
			})
		}
	}
	all.Wait()
	if taken.Load() != 50 {
		t.Errorf("192 tries at 4 replicas took %d launches of 50", taken.Load())
	}
}

func TestASharedBucketAnswersAsOneOfAProcessDoes(t *testing.T) {
	clock := clocktest.New()
	shared, own := sharedBuckets(t, memory.NewRecords()), &launch.Buckets{}
	steps := []struct {
		pass time.Duration
		do   string
	}{{0, "take"}, {0, "take"}, {0, "take"}, {0, "take"}, {19 * time.Second, "take"}, {time.Second, "take"}, {0, "give"}, {0, "take"}, {-time.Minute, "take"}, {time.Hour, "give"}, {0, "take"}}
	for i, step := range steps {
		clock.Advance(step.pass)
		for _, limiter := range []launch.RateLimiter{shared, own} {
			if step.do == "give" {
				if err := limiter.Give(t.Context(), "acme", 3, clock.Now()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if step.do == "take" {
			a, waitA, errA := shared.Take(t.Context(), "acme", 3, clock.Now())
			b, waitB, errB := own.Take(t.Context(), "acme", 3, clock.Now())
			if a != b || waitA != waitB || errA != nil || errB != nil {
				t.Errorf("step %d: shared %v %v %v, own %v %v %v", i, a, waitA, errA, b, waitB, errB)
			}
		}
		a, _ := shared.Left(t.Context(), "acme", 3, clock.Now())
		b, _ := own.Left(t.Context(), "acme", 3, clock.Now())
		if a != b {
			t.Errorf("step %d: shared has %d left, own %d", i, a, b)
		}
	}
}

// awayRates are buckets that cannot be asked.
type awayRates struct{ err error }

func (a awayRates) Take(context.Context, launch.RateKey, int64, time.Time) (bool, time.Duration, error) {
	return false, 0, a.err
}
func (a awayRates) Left(context.Context, launch.RateKey, int64, time.Time) (int64, error) {
	return 0, a.err
}
func (a awayRates) Give(context.Context, launch.RateKey, int64, time.Time) error {
	return errors.New("a token that was never taken was given back")
}

func TestALaunchWhoseRateCannotBeJudgedPassesAndIsCounted(t *testing.T) {
	w := newWorld(t)
	w.team("web", teams.Limits{LaunchesPerMinute: slots(1)})
	var open []string
	service := must(launch.New(launch.Deps{
		Ledger: w.ledger, Runs: w.runs, Teams: w.teams, Bots: botsource.NewResolver(w.bots, botsource.Options{}), Settings: w.settings,
		Decisions: w.decisions, Audit: w.audit, Queue: w.queue,
	}, launch.Options{Clock: w.clock, Rates: awayRates{records.ErrUnavailable}, Events: launch.Events{FailedOpen: func(check string) { open = append(open, check) }}}))(t)
	for range 2 {
		run, denial, err := service.Launch(w.ctx, operator, launch.Request{Team: "web", Bot: "probe"})
		if err != nil || denial.Denied() || len(run.Holds) == 0 {
			t.Errorf("run %s, denial %+v, error %v; what can run out is held all the same", run.ID, denial, err)
		}
	}
	if diff := cmp.Diff([]string{"launch-rate", "launch-rate"}, open); diff != "" {
		t.Error(diff)
	}
	gone, cancel := context.WithCancel(w.ctx)
	cancel()
	if _, _, err := service.Launch(gone, operator, launch.Request{Team: "web", Bot: "probe"}); !errors.Is(err, launch.ErrUnavailable) {
		t.Errorf("a caller that hung up says nothing about the buckets: %v", err)
	}
}
