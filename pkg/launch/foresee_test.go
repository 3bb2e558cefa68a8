package launch_test

import (
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/records"
)

func TestWhatWouldBeRefusedForGoodIsForeseen(t *testing.T) {
	w := newWorld(t)
	w.pools(platformcfg.RunnerPool{Name: "old", State: platformcfg.PoolDraining})
	for _, bot := range []holdfast.Bot{
		{Name: "needs-pr", Lane: holdfast.LaneCommand, Command: []string{"true"}, Inputs: map[string]holdfast.BotInput{"pr": {Required: true}}},
		{Name: "clawed", Lane: holdfast.LaneClaw, Prompt: "think"},
	} {
		if _, _, err := w.bots.Put(w.ctx, clocktest.T0, "acme", bot, "op"); err != nil {
			t.Fatal(err)
		}
	}
	pr := map[string]string{"pr": "{{number}}"}
	for _, row := range []struct {
		bot    string
		inputs map[string]string
		pool   string
		want   []string
	}{
		{"probe", nil, "", nil},
		{"Needs PR", pr, "default", nil},
		{"revew-pr", nil, "", []string{"the team acme has no bot revew-pr"}},
		{"needs-pr", nil, "", []string{"inputs.pr: the bot requires it"}},
		{"probe", pr, "", []string{"inputs.pr: the bot declares no such input"}},
		{"clawed", nil, "", []string{"bots of the lane claw"}},
		{"probe", nil, "old", []string{"the pool old is draining"}},
		{"nobody", nil, "nowhere", []string{"has no bot nobody", `there is no pool "nowhere"`}},
	} {
		got := w.Foresight().Warnings(w.ctx, "acme", row.bot, row.inputs, row.pool)
		if len(got) != len(row.want) {
			t.Errorf("%s %v in %q: %q", row.bot, row.inputs, row.pool, got)
			continue
		}
		for i, want := range row.want {
			if !strings.Contains(got[i], want) {
				t.Errorf("%s: %q does not say %q", row.bot, got[i], want)
			}
		}
	}
}

func TestAForesightLooksAtABotOnceAndSaysWhenItCannot(t *testing.T) {
	w := newWorld(t)
	before := w.resolved
	f := w.Foresight()
	for range 5 {
		f.Warnings(w.ctx, "acme", "nobody", nil, "")
	}
	if n := w.resolved - before; n != 2 { // the team's and the platform's
		t.Errorf("%d reads", n)
	}
	w.db.set(func(collection, op, _ string) error {
		if collection == "bots" && op == "get" {
			return records.ErrUnavailable
		}
		return nil
	})
	if got := f.Warnings(w.ctx, "acme", "other", nil, ""); len(got) != 1 || !strings.Contains(got[0], "could not be looked up") {
		t.Errorf("%q", got)
	}
}
