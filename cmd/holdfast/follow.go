package main

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

// streamAgain is how long after a broken event stream the next one is asked for.
const streamAgain = 2 * time.Second

// newsOf tells when the server says that something happened to a run. It is a hint and
// no more: a stream may break, or not be there at all, so whoever waits looks by itself
// now and then. stop ends it.
func (c *cli) newsOf(ctx context.Context, server *client.Client, run api.Run) (news <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	told, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			// Its error is no news: the run is looked at without it.
			_ = server.Events(ctx, run.Team, "", func(e api.Event) error {
				if e.Run != nil && e.Run.ID == run.ID {
					select {
					case told <- struct{}{}:
					default:
					}
				}
				return nil
			})
			timer := time.NewTimer(streamAgain)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
			}
		}
	}()
	return told, func() { cancel(); <-ended }
}

// sleepUnless sleeps, or returns early when there is news.
func (c *cli) sleepUnless(ctx context.Context, d time.Duration, news <-chan struct{}) error {
	sleeping, wake := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-news:
			wake()
		case <-sleeping.Done():
		}
	}()
	err := c.sleep(sleeping, d)
	wake()
	<-watched
	if ctx.Err() == nil {
		return nil // it slept enough, or there was news
	}
	return err
}
