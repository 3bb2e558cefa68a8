package server

import (
	"context"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
)

// RouteRow is a row of the table of routes, for tests.
type RouteRow struct {
	Method, Path, ID, Who string
	Stream                bool
}

// Routes lists the table of routes.
func (s *Server) Routes() []RouteRow {
	var rows []RouteRow
	for _, rt := range s.routes {
		rows = append(rows, RouteRow{rt.method, rt.path, rt.id, rt.who.String(), rt.stream})
	}
	return rows
}

// RefusalStatus is the status of a reason, for tests.
var RefusalStatus = refusalStatus

// DecodeBody is decodeBody, for tests.
var DecodeBody = decodeBody

// ForgetKeys runs the housekeeping of the idempotency keys.
func ForgetKeys(ctx context.Context, s *Server) error { return s.keys.forget(ctx) }

// Flush publishes what changed.
func (f *CapacityFeed) Flush(ctx context.Context) { f.flush(ctx) }

// CountKeys counts the idempotency keys that are kept.
func CountKeys(ctx context.Context, s *Server) (int64, error) { return s.keys.table.Count(ctx, "", "") }

// Subscription is a stream without its connection.
type Subscription struct{ s *subscriber }

// Subscribe begins one.
func (b *Broker) Subscribe(token, team string) (Subscription, bool) {
	s, ok := b.subscribe(token, holdfast.TeamID(team), "")
	return Subscription{s}, ok
}

// Leave ends it.
func (b *Broker) Leave(s Subscription) { b.leave(s.s) }

// Events is what it was handed.
func (s Subscription) Events() chan api.Event { return s.s.events }

// Last says why it was ended.
func (s Subscription) Last() string { return s.s.last }
