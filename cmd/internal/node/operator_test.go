package node_test

import (
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/cmd/internal/node"
)

func TestAServerSaysWhenThereIsNoOperatorsTokenAtAll(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	start := func(token string) (warned bool) {
		t.Helper()
		o := c.settings(config.Server, "a")
		o.Settings.OperatorToken = token
		before := len(c.log.String())
		s, err := node.OpenServer(t.Context(), o, c.open)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		return strings.Contains(c.log.String()[before:], "HOLDFAST_OPERATOR_TOKEN")
	}
	if !start("") {
		t.Error("nobody can call, and nothing says so")
	}
	if start(operatorToken) || start("") {
		t.Error("it warns though there is a token")
	}
}
