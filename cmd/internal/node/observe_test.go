package node

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/server"
)

func TestACallerWhoWentAwayIsNoFailureOfTheLedger(t *testing.T) {
	for _, c := range []struct {
		name  string
		cause error
		warns bool
	}{
		{"the caller went", context.Canceled, false},
		{"the store took too long", context.DeadlineExceeded, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var said bytes.Buffer
			w := newWatcher(server.NewBroker(clock.System{}), slog.New(slog.NewTextHandler(&said, nil)))
			w.ledger().Failed("renew x", fmt.Errorf("%w: %w", capacityledger.ErrUnavailable, c.cause))
			if got := strings.Contains(said.String(), "could not renew x"); got != c.warns {
				t.Errorf("the log says %q", said.String())
			}
		})
	}
}
