package main

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

func TestALaunchThatWaitsIsToldOfTheEndAndNeedNotLook(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	operator, err := client.New(d.url, d.token, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operator.CreateTeam(t.Context(), api.TeamCreate{ID: "web"}); err != nil {
		t.Fatal(err)
	}
	body := api.BotBody{Lane: "command", Command: []string{"sh", "-c", "sleep 2"}}
	if _, _, err := operator.PutBot(t.Context(), "", "slow", body); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr strings.Builder
	var looks atomic.Int32
	c := &cli{
		stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, environ: []string{"HOLDFAST_URL=" + d.url, "HOLDFAST_TOKEN=" + d.token},
		pause: func(ctx context.Context, span time.Duration) error {
			if looks.Add(1) > 4 { // from here on only news can wake it
				<-ctx.Done()
				return ctx.Err()
			}
			time.Sleep(span)
			return nil
		},
	}
	if code := c.run([]string{"launch", "slow", "--team", "web", "--wait"}); code != 0 || !strings.Contains(stdout.String(), "finished") {
		t.Errorf("it ended with %d: %s%s", code, stdout.String(), stderr.String())
	}
	if looks.Load() <= 4 {
		t.Errorf("it ended after %d looks, before it could be told", looks.Load())
	}
}
