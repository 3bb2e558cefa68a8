package server

import "context"

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
