package e2e_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

// Servers and runners are killed with -9 at any moment, under load, and started again.
// Every launch that was answered ends in an honest status, no command begins twice,
// nothing stays held, and what the runs spent is what the month has.
func TestServersAndRunnersKilledAtAnyMomentLoseNothingThatWasAnswered(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 1))
	c := newCluster(t)
	witness := c.server("witness") // asked in the end, and killed never
	c.stage(witness, 16)
	servers := []*clusterServer{c.server("a"), c.server("b")}
	runners := []*proc{c.runner("x"), c.runner("y")}
	var answered []string
	killed := map[string]int{}
	for round := range rounds(t, "HOLDFAST_TEST_CLUSTER_KILLS", 6) {
		ctx, cancel := context.WithCancel(t.Context())
		o := &outages{}
		loaded := make(chan struct{})
		go func() {
			defer close(loaded)
			loadOnce(ctx, o, servers)
		}()
		time.Sleep(time.Duration(50+dice.IntN(700)) * time.Millisecond)
		i := dice.IntN(2)
		if dice.IntN(2) == 0 {
			servers[i].kill()
			killed["server"]++
			cancel()
			<-loaded
			servers[i] = c.server([]string{"a", "b"}[i])
		} else {
			runners[i].kill()
			killed["runner"]++
			cancel()
			<-loaded
			runners[i] = c.runner([]string{"x", "y"}[i])
		}
		for _, err := range o.surprise {
			t.Errorf("round %d: an answer that no crash explains: %v", round, err)
		}
		answered = append(answered, o.answered...)
		if t.Failed() {
			t.FailNow()
		}
	}
	c.accounts(t, witness, answered)
	t.Logf("%d launches were answered; killed: %v", len(answered), killed)
}

// loadOnce launches through both servers until ctx ends; a server that is dead is no
// surprise.
func loadOnce(ctx context.Context, o *outages, servers []*clusterServer) {
	done := make(chan struct{}, 4)
	for i := range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				run, err := servers[i%2].Launch(ctx, worker("0.1"), "")
				if !unreachable(err) {
					o.note(ctx, run, err)
				}
				sleep(ctx, 20*time.Millisecond)
			}
		}()
	}
	for range 4 {
		<-done
	}
}

// unreachable says that nobody answered: the server is dead.
func unreachable(err error) bool { return errors.Is(err, client.ErrUnreachable) }

// atRest waits until nothing happens to the run by itself any more: it is over, or what
// it held was given away when its runner died before it began, and it waits for room.
func atRest(t *testing.T, s *clusterServer, id string, within time.Duration) (run api.Run) {
	t.Helper()
	deadline := time.Now().Add(within)
	for time.Now().Before(deadline) {
		var err error
		if run, err = s.Run(t.Context(), id); err == nil && (run.Ended() || run.Status == "parked") {
			return run
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("after %v run %s is still %s (%s), attempt %d", within, id, run.Status, run.StatusReason, run.Attempt)
	return run
}

// accounts holds what callers were told against what is there in the end.
func (c *cluster) accounts(t *testing.T, s *clusterServer, answered []string) {
	t.Helper()
	statuses := map[string]int{}
	for _, id := range answered {
		run := atRest(t, s, id, 90*time.Second)
		statuses[strings.TrimSpace(run.Status+" "+run.StatusReason)]++
		honest := run.Status == "finished" || run.Status == "parked" && run.StatusReason == "waiting_capacity" ||
			run.Status == "failed_resumable" && (run.StatusReason == "lease_lost" || run.StatusReason == "interrupted")
		if !honest {
			t.Errorf("%s was answered and is %s (%s): %s", id, run.Status, run.StatusReason, run.Detail)
		}
	}
	eventually(t, clusterReturn+machineSlack, "nothing is held", func() bool { return slotsHeld(t, s) == 0 })
	c.runOnce()
	var spent holdfast.MicroUSD
	unheld := 0
	for cursor := ""; ; {
		page, err := s.Runs(t.Context(), client.RunFilter{Team: "acme", Window: client.Window{Limit: 500, Cursor: cursor}})
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range page.Items {
			if !run.Ended() && run.Status != "parked" {
				t.Errorf("run %s is %s and holds nothing", run.ID, run.Status)
			}
			switch {
			case holdsDollars(run):
				spent += run.SpentUSD
			case run.Unheld != "": // admitted and over while the ledger was away: only its document has it
				unheld++
			default:
				t.Errorf("run %s spent $%s, has no allocation of dollars and does not say why", run.ID, run.SpentUSD)
			}
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	var month api.SubjectCapacity
	eventually(t, 20*time.Second, "the month has what the runs spent", func() bool {
		var err error
		month, err = s.CapacitySubject(t.Context(), "team/acme/usd@"+holdfast.MonthPeriod(time.Now()))
		return err == nil && month.Settled.Value == spent.String() && len(month.Entries) == 0
	})
	t.Logf("%v, $%s spent and settled, %d runs that only their documents have", statuses, spent, unheld)
}

// holdsDollars says whether what the run spends is in the month of the ledger.
func holdsDollars(run api.Run) bool {
	return slices.ContainsFunc(run.Allocations, func(a api.Allocation) bool { return strings.Contains(a.Subject, "/usd@") })
}
