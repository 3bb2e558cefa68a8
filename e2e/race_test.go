package e2e_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

// callers is how many ask at once.
const callers = 64

func TestSixtyFourCallersThroughHTTPGetExactlyTheCap(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 2))
	ctx := t.Context()
	d := start(t, t.TempDir())
	unlimited := holdfast.CountLimit{LimitSetting: holdfast.Unlimited}
	if _, err := d.CreateTeam(ctx, api.TeamCreate{ID: "race", Limits: api.TeamLimits{LaunchesPerMinute: unlimited}}); err != nil {
		t.Fatal(err)
	}
	issued, err := d.CreateToken(ctx, "race", api.TokenCreate{Name: "racer", Role: "member"})
	if err != nil {
		t.Fatal(err)
	}
	member := d.as(t, issued.Secret)
	for round := range rounds(t, "HOLDFAST_TEST_HTTP_ROUNDS", 100) {
		limit := 1 + dice.IntN(callers-1)
		slots := holdfast.CountLimit{LimitSetting: holdfast.LimitTo(int64(limit))}
		if _, err := d.PatchTeam(ctx, "race", api.TeamPatch{Limits: &api.TeamLimits{MaxConcurrentRuns: slots}}); err != nil {
			t.Fatal(err)
		}
		admitted, refused := ask(t, member)
		if len(admitted) != limit || refused != callers-limit {
			t.Fatalf("round %d: a cap of %d admitted %d and refused %d of %d", round, limit, len(admitted), refused, callers)
		}
		settleAll(t, member, admitted)
		s, err := d.CapacitySubject(ctx, "team/race/slots")
		if err != nil || s.Outstanding.Value != "0" || len(s.Entries) > 0 {
			t.Fatalf("round %d: after all have settled %+v, %v", round, s, err)
		}
	}
}

// ask lets all callers launch an external run at once.
func ask(t *testing.T, c *client.Client) (admitted []string, refused int) {
	t.Helper()
	var mu sync.Mutex
	var failed []error
	begin := make(chan struct{})
	var asking sync.WaitGroup
	for range callers {
		asking.Go(func() {
			<-begin
			run, err := c.Launch(t.Context(), api.LaunchRequest{Team: "race", Bot: "probe", External: true}, "")
			mu.Lock()
			defer mu.Unlock()
			var no *client.Refused
			switch {
			case err == nil:
				admitted = append(admitted, run.ID)
			case errors.As(err, &no) && no.Problem.Reason == string(holdfast.DenyConcurrency) && no.Problem.Retryable != nil && *no.Problem.Retryable:
				refused++
			default:
				failed = append(failed, err)
			}
		})
	}
	close(begin)
	asking.Wait()
	if len(failed) > 0 {
		t.Fatalf("%d callers got neither a run nor a refusal for slots, the first: %v", len(failed), failed[0])
	}
	return admitted, refused
}

func settleAll(t *testing.T, c *client.Client, ids []string) {
	t.Helper()
	var settling sync.WaitGroup
	failed := make(chan error, len(ids))
	for _, id := range ids {
		settling.Go(func() {
			answer, err := c.Settle(t.Context(), id, api.Settle{Outcome: "finished"})
			if err == nil && !answer.Closed {
				err = fmt.Errorf("the first settle of %s closed nothing", id)
			}
			if err != nil {
				failed <- err
			}
		})
	}
	settling.Wait()
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
}
