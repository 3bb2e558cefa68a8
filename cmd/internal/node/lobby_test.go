package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/cmd/internal/node"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

// freeAddr is a loopback address that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// ask reads a page of a process that may not be there yet.
func ask(t *testing.T, addr, path string) (status int, health api.Health) {
	t.Helper()
	response, err := (&http.Client{Timeout: 5 * time.Second}).Get("http://" + addr + path)
	if err != nil {
		return 0, health
	}
	defer response.Body.Close()
	_ = json.NewDecoder(response.Body).Decode(&health) // another page has no such document
	return response.StatusCode, health
}

func TestAServerWaitsForItsDatabaseAndForNATSAndSaysSoOnItsPort(t *testing.T) {
	c := newCluster(t)
	c.stopNATS()
	o := c.settings(config.Server, "a")
	o.Settings.Addr = freeAddr(t)
	var up atomic.Bool
	var closed atomic.Int32
	open := func(context.Context) (node.Stores, func() error, error) {
		if !up.Load() {
			return node.Stores{}, nil, fmt.Errorf("no MongoDB answers: %w", capacityledger.ErrUnavailable)
		}
		return c.stores, func() error { closed.Add(1); return nil }, nil
	}
	opened := make(chan *node.Server, 1)
	go func() {
		s, err := node.OpenServer(c.t.Context(), o, open)
		if err != nil {
			t.Error(err)
		}
		opened <- s
	}()
	waits := func(check, text string) {
		t.Helper()
		eventually(t, check+" is waited for", func() bool {
			status, health := ask(t, o.Settings.Addr, "/readyz")
			return status == http.StatusServiceUnavailable && health.Status == "not_ready" && strings.Contains(health.Checks[check], text)
		})
		if status, _ := ask(t, o.Settings.Addr, "/healthz"); status != http.StatusOK {
			t.Errorf("a server that waits does not live: %d", status)
		}
		if status, _ := ask(t, o.Settings.Addr, "/api/teams"); status != http.StatusServiceUnavailable {
			t.Errorf("a server that waits answers %d", status)
		}
	}
	waits("records", "waiting for the database")
	up.Store(true)
	waits("queue", "waiting for NATS")
	c.startNATS()
	s := <-opened
	if s == nil {
		t.FailNow()
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, func() {}) }()
	eventually(t, "the server is ready on the port that it waited on", func() bool {
		status, _ := ask(t, o.Settings.Addr, "/readyz")
		return status == http.StatusOK
	})
	cancel()
	if err := errors.Join(<-ended, s.Close()); err != nil || closed.Load() != 1 {
		t.Errorf("it ended with %v, and closed its stores %d times", err, closed.Load())
	}
	if !strings.Contains(c.log.String(), "waiting for the database") {
		t.Error("the log does not say what is waited for")
	}
}

func TestAStartDoesNotWaitForWhatWillNotCome(t *testing.T) {
	c := newCluster(t)
	o := c.settings(config.Server, "a")
	bad := &holdfast.InvalidError{Field: "uri", Problem: "it is not the address of a MongoDB"}
	_, err := node.OpenServer(t.Context(), o, func(context.Context) (node.Stores, func() error, error) { return node.Stores{}, nil, bad })
	if !errors.Is(err, bad) {
		t.Errorf("a wrong setting is %v", err)
	}
	o.Settings.StartWait = 300 * time.Millisecond
	_, err = node.OpenServer(t.Context(), o, func(context.Context) (node.Stores, func() error, error) {
		return node.Stores{}, nil, capacityledger.ErrUnavailable
	})
	if !errors.Is(err, capacityledger.ErrUnavailable) {
		t.Errorf("a bounded wait ends with %v", err)
	}
	c.stopNATS()
	defer c.startNATS()
	if _, err = node.OpenServer(t.Context(), o, c.open); err == nil || !strings.Contains(err.Error(), "NATS") {
		t.Errorf("a bounded wait for NATS ends with %v", err)
	}
	r := c.settings(config.Runner, "r")
	r.Settings.Data, r.Settings.StartWait = t.TempDir(), 300*time.Millisecond
	if _, err = node.OpenRunner(t.Context(), r); err == nil || !strings.Contains(err.Error(), "NATS") {
		t.Errorf("a runner's bounded wait ends with %v", err)
	}
}

func TestARunnerSaysHowItIsOnItsPort(t *testing.T) {
	c := newCluster(t)
	o := c.settings(config.Runner, "r")
	o.Settings.Data, o.Settings.RunnerAddr = t.TempDir(), freeAddr(t)
	is := func(what string, status int, check, text string) {
		t.Helper()
		eventually(t, what, func() bool {
			got, health := ask(t, o.Settings.RunnerAddr, "/readyz")
			return got == status && strings.Contains(health.Checks[check], text)
		})
	}
	type opening struct {
		runner *node.Runner
		err    error
	}
	opened := make(chan opening, 1)
	go func() {
		r, err := node.OpenRunner(context.Background(), o)
		opened <- opening{r, err}
	}()
	is("it waits for a server", http.StatusServiceUnavailable, "queue", "waiting for a server")
	c.server("a")
	got := <-opened
	if got.err != nil {
		t.Fatal(got.err)
	}
	taking, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- got.runner.Run(taking, taking) }()
	is("it is ready", http.StatusOK, "", "")
	c.stopNATS()
	is("it has lost NATS", http.StatusServiceUnavailable, "queue", "NATS cannot be reached")
	c.startNATS()
	is("it is ready again", http.StatusOK, "", "")
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	is("it ends", http.StatusServiceUnavailable, "runner", "ending")
	if status, _ := ask(t, o.Settings.RunnerAddr, "/healthz"); status != http.StatusOK {
		t.Errorf("a runner that ends does not live: %d", status)
	}
	if err := got.runner.Close(); err != nil {
		t.Error(err)
	}
}
