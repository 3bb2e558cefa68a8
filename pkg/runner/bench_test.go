package runner_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runner"
)

// BenchmarkARun is what a runner adds to a command that does nothing: wrapper,
// journal, workspace, log and reports.
func BenchmarkARun(b *testing.B) {
	q := newFake()
	r, err := runner.New(q, runner.Options{DataDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	n := 0
	for b.Loop() {
		n++
		q.deliver(queue.RunMessage{
			Run: holdfast.RunID("R" + strconv.Itoa(n)), Bot: holdfast.Bot{Name: "b", Lane: holdfast.LaneCommand, Command: []string{"true"}},
		})
		if d := <-q.ended; d != queue.Done {
			b.Fatal(d)
		}
		<-q.reports
		<-q.reports
	}
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}
