package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// OpenWatched is Open with a monitor of every command that the server has answered.
func OpenWatched(ctx context.Context, uri string, o Options, watch func(command string, took time.Duration)) (*Store, error) {
	return open(ctx, uri, o, func(settings *options.ClientOptions) {
		settings.SetMonitor(&event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) { watch(e.CommandName, e.Duration) }})
	})
}

// DatabaseOf is the database of an opened store.
func DatabaseOf(s *Store) *driver.Database { return s.ledger.subjects.Database() }
