package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

// acknowledged is what a dev process said yes to before it was killed.
type acknowledged struct {
	mu       sync.Mutex
	launched map[string]bool              // runs that were answered, by id
	settled  map[string]holdfast.MicroUSD // external runs whose settle was answered, with their spend
	beats    map[string]holdfast.MicroUSD // the highest heartbeat that was answered
	surprise []error                      // answers that no crash explains
}

func newAcknowledged() *acknowledged {
	return &acknowledged{launched: map[string]bool{}, settled: map[string]holdfast.MicroUSD{}, beats: map[string]holdfast.MicroUSD{}}
}

// note keeps the errors that a killed server does not explain. It says whether the
// call was answered.
func (a *acknowledged) note(err error) bool {
	var refused *client.Refused
	switch {
	case err == nil:
		return true
	case errors.Is(err, client.ErrUnreachable), errors.Is(err, context.Canceled), errors.As(err, &refused):
	default:
		a.mu.Lock()
		defer a.mu.Unlock()
		a.surprise = append(a.surprise, err)
	}
	return false
}

const killTeam, killBot = "acme", "worker"

// stage writes the team and the bot that the kill loop uses. marker is in the
// arguments of every child.
func stage(t *testing.T, d *dev, marker string) {
	t.Helper()
	ctx := t.Context()
	slots := holdfast.CountLimit{LimitSetting: holdfast.LimitTo(12)}
	usd := holdfast.USDLimit{LimitSetting: holdfast.LimitTo(int64(100_000 * holdfast.OneUSD))}
	if _, err := d.CreateTeam(ctx, api.TeamCreate{ID: killTeam, Limits: api.TeamLimits{MaxConcurrentRuns: slots, MonthlyUSD: usd, LaunchesPerMinute: holdfast.CountLimit{LimitSetting: holdfast.Unlimited}}}); err != nil {
		t.Fatal(err)
	}
	one := holdfast.OneUSD
	body := api.BotBody{Lane: "command", BudgetUSD: &one, Command: []string{"holdfast", "sample-agent", "--name", marker, "--seconds", "0.3", "--spend", "0.05"}}
	if _, _, err := d.PutBot(ctx, "", killBot, body); err != nil {
		t.Fatal(err)
	}
}

// load launches until ctx ends: runs of the embedded runner, and external ones that
// renew and settle.
func load(ctx context.Context, d *dev, seed uint64, a *acknowledged) {
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				external := i >= 2
				run, err := d.Launch(ctx, api.LaunchRequest{Team: killTeam, Bot: killBot, External: external}, "")
				if !a.note(err) {
					sleep(ctx, 10*time.Millisecond)
					continue
				}
				a.mu.Lock()
				a.launched[run.ID] = true
				a.mu.Unlock()
				if external {
					drive(ctx, d, run.ID, rand.New(rand.NewPCG(seed, uint64(i*1_000_000+n))), a)
				}
			}
		})
	}
	clients.Wait()
}

// drive is the caller of one external run: some heartbeats, mostly a settle.
func drive(ctx context.Context, d *dev, id string, dice *rand.Rand, a *acknowledged) {
	var spent holdfast.MicroUSD
	for range dice.IntN(3) {
		spent += holdfast.MicroUSD(1 + dice.IntN(100_000))
		if _, err := d.Heartbeat(ctx, id, api.Heartbeat{SpentUSD: spent}); a.note(err) {
			a.mu.Lock()
			a.beats[id] = spent
			a.mu.Unlock()
		}
	}
	if dice.IntN(4) == 0 {
		return // this caller dies without a word
	}
	spent += holdfast.MicroUSD(dice.IntN(100_000))
	if _, err := d.Settle(ctx, id, api.Settle{SpentUSD: spent, Outcome: "finished"}); a.note(err) {
		a.mu.Lock()
		a.settled[id] = spent
		a.mu.Unlock()
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func TestKillingDevAtAnyMomentLosesNothingThatWasAcknowledged(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 1))
	data, marker := t.TempDir(), fmt.Sprintf("kill-%x", seed)
	a := newAcknowledged()

	d := start(t, data, short...)
	stage(t, d, marker)
	for round := range rounds(t, "HOLDFAST_TEST_KILL_ROUNDS", 20) {
		ctx, cancel := context.WithCancel(t.Context())
		loaded := make(chan struct{})
		go func() { defer close(loaded); load(ctx, d, seed+uint64(round), a) }()
		time.Sleep(time.Duration(30+dice.IntN(600)) * time.Millisecond)
		d.kill(t)
		cancel()
		<-loaded
		before := processes(t, marker)
		d = start(t, data, short...)
		nothingOfTheDeadLives(t, d, before)
		everythingAcknowledgedIsThere(t, d, a)
		if t.Failed() {
			t.Fatalf("in round %d\n%s", round, d.output)
		}
	}
	everythingComesBack(t, d, a)
	if code := d.stop(t, 15); code != 0 {
		t.Errorf("dev ended with %d on TERM\n%s", code, d.output)
	}
	if left := processes(t, marker); len(left) > 0 {
		t.Errorf("children outlive a polite stop: %v", left)
	}
}

// nothingOfTheDeadLives: no child of the former process runs, and no allocation is
// held by a run that is over.
func nothingOfTheDeadLives(t *testing.T, d *dev, before []process) {
	t.Helper()
	for _, child := range processes(t, "kill-") {
		if slices.ContainsFunc(before, func(p process) bool { return p.pid == child.pid && p.args == child.args }) {
			t.Errorf("dev is ready and a child of its former self lives: %+v", child)
		}
	}
	slots, err := d.CapacitySubject(t.Context(), "team/"+killTeam+"/slots")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range slots.Entries {
		run, err := d.Run(t.Context(), entry.Run)
		var missing *client.NotFound
		if errors.As(err, &missing) {
			t.Errorf("%s is held by a run that has no document", entry.Allocation)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if run.Ended() {
			// It may have ended since the list was read.
			again, err := d.CapacitySubject(t.Context(), "team/"+killTeam+"/slots")
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(again.Entries, func(e api.Entry) bool { return e.Allocation == entry.Allocation }) {
				t.Errorf("%s is held by a run that is %s (%s)", entry.Allocation, run.Status, run.StatusReason)
			}
		}
	}
}

// everythingAcknowledgedIsThere: every launch that was answered has a document with
// an honest status, every settle that was answered is in it.
func everythingAcknowledgedIsThere(t *testing.T, d *dev, a *acknowledged) {
	t.Helper()
	for _, err := range a.surprise {
		t.Errorf("an answer that no crash explains: %v", err)
	}
	for id := range a.launched {
		run, err := d.Run(t.Context(), id)
		if err != nil {
			t.Errorf("the acknowledged run %s: %v", id, err)
			continue
		}
		if run.Status == "failed_resumable" && run.StatusReason != "interrupted" {
			t.Errorf("run %s is failed_resumable because of %q", id, run.StatusReason)
		}
		if spent, ok := a.settled[id]; ok && (run.Status != "finished" || run.SpentUSD != spent) {
			t.Errorf("run %s was settled with %v and is %s with %v", id, spent, run.Status, run.SpentUSD)
		}
		if run.SpentUSD < a.beats[id] {
			t.Errorf("run %s reported %v, which was acknowledged, and shows %v", id, a.beats[id], run.SpentUSD)
		}
		delete(a.launched, id) // what is checked once stays: the next round looks at new ones
		if !run.Ended() {
			a.launched[id] = true
		}
	}
}

// everythingComesBack: when all runs are over nothing is outstanding, and what is
// settled is what the runs say they spent.
func everythingComesBack(t *testing.T, d *dev, a *acknowledged) {
	t.Helper()
	ctx := t.Context()
	month := holdfast.MonthPeriod(time.Now())
	eventually(t, 30*time.Second, "every run is over and nothing is outstanding", func() bool {
		for _, subject := range []string{"slots", "usd@" + month, "runs@" + month} {
			s, err := d.CapacitySubject(ctx, "team/"+killTeam+"/"+subject)
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Entries) > 0 {
				return false
			}
		}
		return true
	})
	everythingAcknowledgedIsThere(t, d, a)
	var spent holdfast.MicroUSD
	var count int64
	for cursor := ""; ; {
		page, err := d.Runs(ctx, client.RunFilter{Team: killTeam, Window: client.Window{Limit: 500, Cursor: cursor}})
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range page.Items {
			if !run.Ended() {
				t.Errorf("run %s is %s and holds nothing", run.ID, run.Status)
			}
			spent += run.SpentUSD
			count++
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	usd, err := d.CapacitySubject(ctx, "team/"+killTeam+"/usd@"+month)
	if err != nil {
		t.Fatal(err)
	}
	if usd.Settled.Value != spent.String() {
		t.Errorf("the month has %s settled, its %d runs say %s", usd.Settled.Value, count, spent)
	}
	t.Logf("%d runs, %s spent, all of it settled", count, spent)
}
