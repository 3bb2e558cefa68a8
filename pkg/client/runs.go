package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
)

// Window selects a page of a list. The zero value is the first page of the server's
// default size.
type Window struct {
	Limit  int    // 0 is the server's default
	Cursor string // of the page before
}

// RunFilter selects runs. Empty fields select all that the caller may see.
type RunFilter struct {
	Team, Bot, Status string
	Since             time.Time
	Window
}

// DecisionFilter selects decisions. Empty fields select all that the caller may see.
type DecisionFilter struct {
	Team, Bot, Reason, Cause string
	Since                    time.Time
	Window
}

// Launch asks for a run. A refusal is a *[Refused]. key, unless it is empty, makes
// the call repeatable: the same key and request again is answered with the run that
// the first one made.
func (c *Client) Launch(ctx context.Context, launch api.LaunchRequest, key string) (api.Run, error) {
	var run api.Run
	_, err := c.do(ctx, request{method: http.MethodPost, path: []string{"api", "runs"}, body: launch, key: key}, &run)
	return run, err
}

// Preview says what a launch would get now; it takes nothing.
func (c *Client) Preview(ctx context.Context, launch api.LaunchRequest) (api.Preview, error) {
	var preview api.Preview
	_, err := c.do(ctx, request{method: http.MethodPost, path: []string{"api", "launch", "preview"}, body: launch}, &preview)
	return preview, err
}

// Runs lists runs, newest first.
func (c *Client) Runs(ctx context.Context, filter RunFilter) (api.Page[api.Run], error) {
	query := values(filter.Window, filter.Since, "team", filter.Team, "bot", filter.Bot, "status", filter.Status)
	return get[api.Page[api.Run]](ctx, c, query, "api", "runs")
}

// Run reads one run.
func (c *Client) Run(ctx context.Context, id string) (api.Run, error) {
	return get[api.Run](ctx, c, nil, "api", "runs", id)
}

// Explain says how a run came to stand as it does.
func (c *Client) Explain(ctx context.Context, id string) (api.Explanation, error) {
	return get[api.Explanation](ctx, c, nil, "api", "runs", id, "explain")
}

// Logs opens the output of a run's newest attempt: the last tail lines of it, or all
// when tail is 0. follow keeps the stream open until the run has ended. The caller
// closes it; the context bounds it.
func (c *Client) Logs(ctx context.Context, id string, tail int, follow bool) (io.ReadCloser, error) {
	query := url.Values{}
	if tail > 0 {
		query.Set("tail", strconv.Itoa(tail))
	}
	if follow {
		query.Set("follow", "true")
	}
	response, err := c.send(ctx, request{method: http.MethodGet, path: []string{"api", "runs", id, "logs"}, query: query})
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// Cancel ends a run.
func (c *Client) Cancel(ctx context.Context, id string) (api.Run, error) {
	return post[api.Run](ctx, c, nil, "api", "runs", id, "cancel")
}

// Resume brings a run back through the gate. A refusal is a *[Refused].
func (c *Client) Resume(ctx context.Context, id string) (api.Run, error) {
	return post[api.Run](ctx, c, nil, "api", "runs", id, "resume")
}

// Heartbeat renews an external run and reports what it has spent so far. A
// *[Conflict] with the code allocation_closed says that the run must stop.
func (c *Client) Heartbeat(ctx context.Context, id string, beat api.Heartbeat) (api.HeartbeatAnswer, error) {
	return post[api.HeartbeatAnswer](ctx, c, beat, "api", "runs", id, "heartbeat")
}

// Settle ends an external run with what it used. It may be called again.
func (c *Client) Settle(ctx context.Context, id string, settle api.Settle) (api.SettleAnswer, error) {
	return post[api.SettleAnswer](ctx, c, settle, "api", "runs", id, "settle")
}

// Decisions lists decisions of the gate, newest first.
func (c *Client) Decisions(ctx context.Context, filter DecisionFilter) (api.Page[api.Decision], error) {
	query := values(filter.Window, filter.Since, "team", filter.Team, "bot", filter.Bot, "reason", filter.Reason, "cause", filter.Cause)
	return get[api.Page[api.Decision]](ctx, c, query, "api", "decisions")
}

// Decision reads one decision.
func (c *Client) Decision(ctx context.Context, id string) (api.Decision, error) {
	return get[api.Decision](ctx, c, nil, "api", "decisions", id)
}

// Capacity lists the subjects of a team, or all that the caller may see when team is
// empty.
func (c *Client) Capacity(ctx context.Context, team string) (api.Capacity, error) {
	return get[api.Capacity](ctx, c, values(Window{}, time.Time{}, "team", team), "api", "capacity")
}

// CapacitySubject reads one subject with its open allocations.
func (c *Client) CapacitySubject(ctx context.Context, subject string) (api.SubjectCapacity, error) {
	return get[api.SubjectCapacity](ctx, c, url.Values{"subject": {subject}}, "api", "capacity", "subject")
}

// ReleaseAllocation takes an allocation away and fences its run. Operators only.
func (c *Client) ReleaseAllocation(ctx context.Context, id, reason string) (api.ReleaseAnswer, error) {
	return post[api.ReleaseAnswer](ctx, c, api.ReleaseRequest{Reason: reason}, "api", "admin", "allocations", id, "release")
}

// get reads one document.
func get[T any](ctx context.Context, c *Client, query url.Values, path ...string) (T, error) {
	var answer T
	_, err := c.do(ctx, request{method: http.MethodGet, path: path, query: query}, &answer)
	return answer, err
}

// post sends one document and reads another.
func post[T any](ctx context.Context, c *Client, body any, path ...string) (T, error) {
	var answer T
	_, err := c.do(ctx, request{method: http.MethodPost, path: path, body: body}, &answer)
	return answer, err
}

// values are the query of a list; pairs are names and values, empty ones left out.
func values(window Window, since time.Time, pairs ...string) url.Values {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	if !since.IsZero() {
		query.Set("since", since.UTC().Format(time.RFC3339Nano))
	}
	if window.Limit > 0 {
		query.Set("limit", strconv.Itoa(window.Limit))
	}
	if window.Cursor != "" {
		query.Set("cursor", window.Cursor)
	}
	return query
}

// ExplainDecision says why the gate decided so, and what would have changed it.
func (c *Client) ExplainDecision(ctx context.Context, id string) (api.Explanation, error) {
	return get[api.Explanation](ctx, c, nil, "api", "decisions", id, "explain")
}
