package launch

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
)

// checkPool refuses a launch to a runner pool that the runner-pools setting does not
// name, or that takes no work. The default pool is there without being named. A
// setting that nobody could read yet knows no other one: that is an outage.
func (s *Service) checkPool(ctx context.Context, name string) error {
	pools, state := s.Settings.RunnerPools.Lookup(ctx)
	pool, named := pools.Pool(name)
	switch {
	case named && pool.State != platformcfg.PoolActive && pool.State != "":
		return invalid("pool", fmt.Sprintf("the pool %s is %s and takes no runs", name, pool.State), activePools(pools))
	case named || name == DefaultPool:
		return nil
	case state == platformcfg.Never:
		return fmt.Errorf("%w: the runner pools", ErrUnavailable)
	}
	return invalid("pool", fmt.Sprintf("there is no pool %q", holdfast.Clip(name, 60)), activePools(pools))
}

// activePools names the pools that take work.
func activePools(pools platformcfg.RunnerPools) string {
	names := []string{DefaultPool}
	for _, pool := range pools.Pools {
		switch {
		case pool.State != platformcfg.PoolActive && pool.State != "":
			names = slices.DeleteFunc(names, func(name string) bool { return name == pool.Name })
		case pool.Name != DefaultPool:
			names = append(names, pool.Name)
		}
	}
	if len(names) == 0 {
		return "none takes runs at the moment"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
