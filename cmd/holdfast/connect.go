package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/holdfast-io/holdfast/pkg/client"
)

// connect is a client of the server that the flags and the environment name.
// Nothing is contacted yet.
func (c *cli) connect() (*client.Client, error) {
	settings, err := c.settings()
	if err != nil {
		return nil, err
	}
	return client.New(settings.URL, settings.Token, client.Options{UserAgent: "holdfast/" + thisVersion().Version})
}

// clock is the present; a test moves it.
func (c *cli) clock() time.Time {
	if c.now != nil {
		return c.now()
	}
	return time.Now()
}

// sleep pauses, or ends early with the context's error.
func (c *cli) sleep(ctx context.Context, d time.Duration) error {
	if c.pause != nil {
		return c.pause(ctx, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// random is a number from 0 up to 1, for jitter.
func (c *cli) random() float64 {
	if c.jitter != nil {
		return c.jitter()
	}
	return mathrand.Float64() //nolint:gosec // jitter is no secret
}

// newKey makes an Idempotency-Key, so that a launch whose answer was lost is not
// launched twice.
func newKey() string {
	var key [16]byte
	if _, err := rand.Read(key[:]); err != nil {
		panic(fmt.Sprintf("holdfast: no randomness: %v", err)) // crypto/rand never fails on supported systems
	}
	return hex.EncodeToString(key[:])
}
