package node_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/pkg/api"
)

func TestAServerSaysThatAnotherOneIsSetOtherwise(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.server("a")
	alike := c.server("b")
	other := c.settings(config.Server, "c")
	other.Settings.Lease, other.Settings.KeepAudit = 4*time.Second, 7
	member := c.serverWith(other)
	health := member.health(t)
	want := []string{
		"the server a runs with HOLDFAST_KEEP_AUDIT=400 and this one, c, with 7: give all servers the same",
		"the server a runs with HOLDFAST_LEASE=3s and this one, c, with 4s: give all servers the same",
		"the server b runs with HOLDFAST_KEEP_AUDIT=400 and this one, c, with 7: give all servers the same",
		"the server b runs with HOLDFAST_LEASE=3s and this one, c, with 4s: give all servers the same",
	}
	if !slices.Equal(health.Warnings, want) {
		t.Errorf("it says\n%s\nwant\n%s", strings.Join(health.Warnings, "\n"), strings.Join(want, "\n"))
	}
	if got := alike.health(t).Warnings; len(got) != 0 {
		t.Errorf("of a server that is set like the one before it: %q", got)
	}
}

// health is what the server says of itself to anybody.
func (m *member) health(t *testing.T) api.Health {
	t.Helper()
	answer, err := http.Get(m.url + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var health api.Health
	if err := json.NewDecoder(answer.Body).Decode(&health); err != nil {
		t.Fatal(err)
	}
	return health
}
