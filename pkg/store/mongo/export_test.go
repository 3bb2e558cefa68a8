package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// OpenWatched is Open with a monitor of every command that goes to the server.
func OpenWatched(ctx context.Context, uri string, o Options, watch func(command string)) (*Store, error) {
	return open(ctx, uri, o, func(settings *options.ClientOptions) {
		settings.SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) { watch(e.CommandName) }})
	})
}

// DatabaseOf is the database of an opened store.
func DatabaseOf(s *Store) *driver.Database { return s.ledger.subjects.Database() }
