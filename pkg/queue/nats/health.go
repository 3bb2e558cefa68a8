package nats

import (
	"context"
	"fmt"
)

// Connected says whether the connection stands.
func (b *Bus) Connected() bool { return b.nc.IsConnected() }

// Depth is how many run messages of all pools wait or are being worked on.
func (b *Bus) Depth(ctx context.Context) (int64, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var depth uint64
	for _, pool := range b.knownPools() {
		stream, err := b.js.Stream(ctx, b.options.runStream(pool.Name))
		if err != nil {
			return 0, fmt.Errorf("depth of the queue: %w", err)
		}
		depth += stream.CachedInfo().State.Msgs // as it was a moment ago
	}
	return int64(min(depth, 1<<62)), nil
}
