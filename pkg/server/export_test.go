package server

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
)

// RouteRow is a row of the table of routes, for tests.
type RouteRow struct {
	Method, Path, ID, Who string
	Group, Summary        string
	Stream                bool
}

// Routes lists the table of routes.
func (s *Server) Routes() []RouteRow {
	var rows []RouteRow
	for _, rt := range s.routes {
		rows = append(rows, RouteRow{rt.method, rt.path, rt.id, rt.who.String(), rt.group, rt.summary, rt.stream})
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

// Conforms says how an answer differs from what the document promises.
func (s *Server) Conforms(id string, status int, mediaType string, body []byte) []error {
	if _, err := s.pages(); err != nil {
		return []error{err}
	}
	for _, rt := range s.routes {
		if rt.id != id {
			continue
		}
		response := operationOf(s.document.OpenAPI(), rt).Responses[strconv.Itoa(status)]
		if response == nil || response.Content[mediaType] == nil {
			return []error{fail(status, "undocumented", id+" is not documented to answer "+strconv.Itoa(status)+" as "+mediaType)}
		}
		var value any
		if err := json.Unmarshal(body, &value); err != nil {
			return []error{err}
		}
		result := &huma.ValidateResult{}
		huma.Validate(s.document.OpenAPI().Components.Schemas, response.Content[mediaType].Schema, huma.NewPathBuffer(nil, 0), huma.ModeReadFromServer, value, result)
		return result.Errors
	}
	return []error{fail(404, "unknown", "no route "+id)}
}
