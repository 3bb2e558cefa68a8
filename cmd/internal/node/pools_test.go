package node_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/cmd/internal/node"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

// pooled is a runner of one pool, until the test ends.
func (c *cluster) pooled(name, pool string) {
	c.t.Helper()
	o := c.settings(config.Runner, name)
	o.Settings.Data, o.Settings.Pool = c.t.TempDir(), pool
	r, err := node.OpenRunner(c.t.Context(), o)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx, ctx) }()
	c.t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, r.Close()); err != nil {
			c.t.Errorf("runner %s ended with %v", name, err)
		}
	})
}

func TestARunOfAPoolIsExecutedByARunnerOfThePool(t *testing.T) {
	c := newCluster(t)
	a := c.server("a")
	c.team(a, "acme", 8)
	in := func(pool string) api.LaunchRequest {
		return api.LaunchRequest{Team: "acme", Bot: "probe", Pool: pool}
	}
	var invalid *client.InvalidRequest
	if _, err := a.Launch(t.Context(), in("big-iron"), ""); !errors.As(err, &invalid) || invalid.Problem.Status != http.StatusBadRequest || invalid.Problem.Errors[0].Allowed != "default" {
		t.Errorf("a pool that is not there is answered %v", err)
	}
	if _, err := a.PutRunnerPools(t.Context(), api.RunnerPools{Pools: []api.RunnerPool{{Name: "big-iron", MaxAckPending: 2}}}); err != nil {
		t.Fatal(err)
	}
	c.pooled("plain", config.DefaultPool)
	waits, err := a.Launch(t.Context(), in("big-iron"), "")
	if err != nil {
		t.Fatal(err)
	}
	runs, err := a.Launch(t.Context(), in(""), "")
	if err != nil {
		t.Fatal(err)
	}
	if run := until(t, a, runs.ID, "finished"); run.Runner != "plain" {
		t.Errorf("a run without a pool was executed by %q", run.Runner)
	}
	if run, err := a.Run(t.Context(), waits.ID); err != nil || run.Status != "queued" || run.Pool != "big-iron" {
		t.Errorf("a run whose pool has no runner is %+v, %v", run, err)
	}
	c.pooled("iron", "big-iron")
	if run := until(t, a, waits.ID, "finished"); run.Runner != "iron" {
		t.Errorf("the pool's run was executed by %q", run.Runner)
	}
	eventually(t, "the slots are back", func() bool { return held(t, a, "acme") == 0 })
}
