package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/pkg/records"
)

const (
	// agreeEvery is how often a server looks whether the others are set as it is.
	agreeEvery = 15 * time.Second
	// replicaLives is how long after its last look a server is taken to run.
	replicaLives = time.Minute
)

// agreed are the settings that all servers of one database must share, by the name of
// their variable. A server with a shorter lease expires whom the others hold to a
// longer one.
func agreed(o config.Options) map[string]string {
	return map[string]string{
		"HOLDFAST_LEASE": o.Lease.String(), "HOLDFAST_HEARTBEAT": o.Heartbeat.String(), "HOLDFAST_LAUNCH_LEASE": o.LaunchLease.String(),
		"HOLDFAST_CLOCK_SKEW": o.ClockSkew.String(), "HOLDFAST_KEEP_AUDIT": fmt.Sprint(o.KeepAudit),
	}
}

// agree looks for servers that run beside this one with other settings; what it finds
// is a warning, because each of them alone is right. A server of a build that did
// not say how it is set is left out.
func (h *health) agree(ctx context.Context) {
	h.mu.Lock()
	now, mine := h.clock.Now(), agreed(h.options.Settings)
	due := now.Sub(h.compared) >= agreeEvery
	h.mu.Unlock()
	if !due {
		return
	}
	all, _, err := h.replicas.List(ctx, records.Query{Limit: 1000})
	if err != nil {
		return // the next look says it
	}
	var differ []string
	for _, r := range all {
		if r.Value.Agreed == nil || now.Sub(r.Value.Seen) > replicaLives {
			continue
		}
		for name, value := range mine {
			if other := r.Value.Agreed[name]; other != value {
				differ = append(differ, fmt.Sprintf("the server %s runs with %s=%s and this one, %s, with %s: give all servers the same", r.Value.Name, name, other, processName(h.options.Settings), value))
			}
		}
	}
	slices.Sort(differ)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(differ, h.differ) && len(differ) > 0 {
		h.options.Log.Warn("servers of one database are set differently", "differences", strings.Join(differ, "; "))
	}
	h.differ, h.compared = differ, now
}

// warned is what does not keep a server from its work and should be put right.
func (h *health) warned() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.differ)
}
