package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/api"
)

// maxEvent is the longest line of an event stream, in bytes.
const maxEvent = 4 << 20

// Events reads the event stream of a team, or of everything that the caller may see
// when team is empty, and gives each event to handle, in order. after is the id of
// the last event that was seen, empty to begin now. It returns when the context
// ends, when handle returns an error (that error), or when the stream breaks (an
// error that matches [ErrUnreachable]); the caller begins again with the last id.
func (c *Client) Events(ctx context.Context, team, after string, handle func(api.Event) error) error {
	query := url.Values{}
	if team != "" {
		query.Set("team", team)
	}
	if after != "" {
		query.Set("after", after)
	}
	response, err := c.send(ctx, request{method: http.MethodGet, path: []string{"api", "events"}, query: query})
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxEvent)
	var data strings.Builder
	for lines.Scan() {
		line := lines.Text()
		if text, ok := strings.CutPrefix(line, "data:"); ok {
			data.WriteString(strings.TrimPrefix(text, " "))
			continue
		}
		if line != "" || data.Len() == 0 {
			continue
		}
		var event api.Event
		if err := json.Unmarshal([]byte(data.String()), &event); err != nil {
			return fmt.Errorf("read an event: %w", err)
		}
		data.Reset()
		if err := handle(event); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := lines.Err(); err != nil {
		return c.unreachable(ctx, err)
	}
	return fmt.Errorf("%w: the event stream ended", ErrUnreachable)
}
