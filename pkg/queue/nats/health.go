package nats

import (
	"context"
	"fmt"
)

// Connected says whether the connection stands.
func (b *Bus) Connected() bool { return b.nc.IsConnected() }

// Depth is how many run messages wait or are being worked on.
func (b *Bus) Depth(ctx context.Context) (int64, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	stream, err := b.js.Stream(ctx, runStream)
	if err != nil {
		return 0, fmt.Errorf("depth of the queue: %w", err)
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("depth of the queue: %w", err)
	}
	return int64(min(info.State.Msgs, 1<<62)), nil
}
