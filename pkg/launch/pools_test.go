package launch_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/surface/surfacetest"
)

func (w *world) pools(pools ...platformcfg.RunnerPool) {
	w.t.Helper()
	surfacetest.Write(w.t, w.settings.RunnerPools, platformcfg.RunnerPools{Pools: pools}, func(p *platformcfg.RunnerPools, at time.Time) { p.UpdatedAt = at })
}

func TestALaunchNamesAPoolThatTakesRuns(t *testing.T) {
	w := newWorld(t)
	into := func(pool string) launch.Request { r := ask("probe"); r.Pool = pool; return r }
	says := func(pool, problem, allowed string) {
		t.Helper()
		_, _, err := w.Launch(w.ctx, operator, into(pool))
		var bad *holdfast.InvalidError
		if !errors.As(err, &bad) || bad.Field != "pool" || bad.Problem != problem || bad.Allowed != allowed {
			t.Errorf("pool %q is answered %v", pool, err)
		}
		if _, err := w.Preview(w.ctx, operator, into(pool)); !errors.As(err, &bad) || bad.Problem != problem {
			t.Errorf("a preview of pool %q is answered %v", pool, err)
		}
	}
	says("big-iron", `there is no pool "big-iron"`, "default")
	if run := w.admitted(into("")); run.Pool != launch.DefaultPool {
		t.Errorf("a run without a pool is in %q", run.Pool)
	}
	w.pools(platformcfg.RunnerPool{Name: "big-iron"}, platformcfg.RunnerPool{Name: "old", State: platformcfg.PoolDraining})
	if run := w.admitted(into("big-iron")); run.Pool != "big-iron" {
		t.Errorf("the run is in %q", run.Pool)
	}
	says("old", "the pool old is draining and takes no runs", "big-iron, default")
	says("nowhere", `there is no pool "nowhere"`, "big-iron, default")
	w.pools(platformcfg.RunnerPool{Name: "default", State: platformcfg.PoolDisabled})
	says("", "the pool default is disabled and takes no runs", "none takes runs at the moment")
}

func TestAPoolThatNobodyCouldReadAboutIsAnOutageAndTheDefaultOneIsThere(t *testing.T) {
	w := newWorld(t)
	w.db.set(func(_, op, id string) error {
		if op == "get" && id == "runner-pools" {
			return records.ErrUnavailable
		}
		return nil
	})
	r := ask("probe")
	r.Pool = "big-iron"
	if _, _, err := w.Launch(w.ctx, operator, r); !errors.Is(err, launch.ErrUnavailable) {
		t.Errorf("answered %v", err)
	}
	w.admitted(ask("probe"))
}
