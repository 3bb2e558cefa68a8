package board_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/board"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/surface"
	"github.com/holdfast-io/holdfast/pkg/surface/surfacetest"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// world is the gate with a board and one replica's dispatcher.
type world struct {
	*surfacetest.World
	cards      *board.Repository
	dispatcher *board.Dispatcher
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: surfacetest.New(t)}
	w.cards = surfacetest.Must(board.New(t.Context(), w.DB, w.Clock))(t)
	w.dispatcher = w.replica(board.Options{})
	return w
}

func (w *world) replica(o board.Options) *board.Dispatcher {
	w.T.Helper()
	o.Clock = w.Clock
	return surfacetest.Must(board.NewDispatcher(w.cards, w.Gate, w.Runs, o))(w.T)
}

func (w *world) card(title string, change func(*board.Card)) board.Card {
	w.T.Helper()
	c := board.Card{Team: "acme", Title: title, Work: surface.Work{Bot: "probe"}, CreatedBy: "dev"}
	if change != nil {
		change(&c)
	}
	return surfacetest.Must(w.cards.Create(w.T.Context(), c))(w.T)
}

func (w *world) get(c board.Card) board.Card {
	w.T.Helper()
	return surfacetest.Must(w.cards.Get(w.T.Context(), c.ID))(w.T)
}

func (w *world) pass() {
	w.T.Helper()
	if err := w.dispatcher.Pass(w.T.Context()); err != nil {
		w.T.Fatal(err)
	}
}

// column demands where a card stands and what its log ends with.
func (w *world) column(c board.Card, column board.Column, what, reason string) board.Card {
	w.T.Helper()
	c = w.get(c)
	last := c.Log[len(c.Log)-1]
	if c.Column != column || last.What != what || last.Reason != reason {
		w.T.Fatalf("%s is in %s, and its log ends with %+v; want %s, %s %s", c.Title, c.Column, last, column, what, reason)
	}
	return c
}

func TestACardGoesThroughTheGateToDoingAndWithItsRunsEndToDone(t *testing.T) {
	w := newWorld(t)
	c := w.card("docs", func(c *board.Card) { c.Repo = "acme/widgets" })
	w.pass()
	c = w.column(c, board.Doing, board.WhatLaunched, "")
	run := surfacetest.Must(w.Runs.Get(t.Context(), c.Run))(t)
	if run.Caller != "board" || run.Team != "acme" || run.Repo != "acme/widgets" || c.Attempts != 1 {
		t.Errorf("%+v of %+v", run, c)
	}
	w.pass()
	w.column(c, board.Doing, board.WhatLaunched, "")
	w.Finish(c.Run, queue.EndFinished)
	w.pass()
	w.column(c, board.Done, board.WhatFinished, "")
	w.pass()
	if n := len(w.All()); n != 1 {
		t.Errorf("%d runs of one card", n)
	}
}

func TestCardsAreTakenByPriorityAndThenByAge(t *testing.T) {
	w := newWorld(t)
	var want []string
	for i, priority := range []int{0, 9, 5, 9, 0} {
		w.card(fmt.Sprintf("card %d", i), func(c *board.Card) { c.Priority = priority })
	}
	var order []string
	d := w.replica(board.Options{Events: board.Events{Tried: func(c board.Card, _ surface.Verdict) { order = append(order, c.Title) }}})
	if err := d.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	want = []string{"card 1", "card 3", "card 2", "card 0", "card 4"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Error(diff)
	}
}

func TestARefusedCardGoesBackWithTheReasonTakesNothingAndBacksOff(t *testing.T) {
	w := newWorld(t)
	w.Team("acme", surfacetest.Slots(1))
	first := w.card("first", nil)
	w.pass()
	second, third := w.card("second", nil), w.card("third", nil)
	before := w.Footprint()
	w.pass()
	c := w.column(second, board.Todo, board.WhatRefused, "concurrency_cap_exceeded")
	if c.Attempts != 0 || c.Refusals != 1 || !c.Refused.Transient || c.Refused.DecisionID == "" {
		t.Errorf("%+v", c)
	}
	// The one behind it was not asked for: it waits for its turn, unrefused.
	w.column(third, board.Todo, board.WhatCreated, "")
	if diff := cmp.Diff(before, w.Footprint()); diff != "" {
		t.Errorf("a refused card took something: %s", diff)
	}
	var waits []time.Duration
	for range 6 {
		c = w.get(second)
		waits = append(waits, c.Launch.NotBefore.Sub(w.Clock.Now()))
		w.Clock.Set(c.Launch.NotBefore.Add(-time.Second))
		w.pass()
		if again := w.get(second); again.Refusals != c.Refusals {
			t.Error("it was asked for before its time")
		}
		w.Clock.Advance(time.Second)
		w.pass()
	}
	// The first one is the gate's own Retry-After, which is longer.
	if !slices.IsSorted(waits[1:]) || min(waits[0], waits[1]) < 30*time.Second || waits[5] > 20*time.Minute || waits[5] < 8*waits[1] {
		t.Errorf("it waited %v", waits)
	}
	if c = w.get(second); len(c.Log) != 2 || c.Log[1].Count != c.Refusals {
		t.Errorf("the log of a card that was refused %d times: %+v", c.Refusals, c.Log)
	}
	w.Finish(w.get(first).Run, queue.EndFinished)
	w.Clock.Set(c.Launch.NotBefore)
	w.pass()
	w.column(first, board.Done, board.WhatFinished, "")
	c = w.column(second, board.Doing, board.WhatLaunched, "")
	if c.Refusals != 0 || c.Refused.Reason != "" || c.Attempts != 1 {
		t.Errorf("%+v", c)
	}
}

func TestACardOfAReservedBotIsTakenPastThoseThatTheReserveHoldsOut(t *testing.T) {
	w := newWorld(t)
	w.Team("acme", surfacetest.Slots(1))
	w.Reserve("review-pr", 1)
	held := w.card("ordinary", func(c *board.Card) { c.Priority = 9 })
	review := w.card("review", func(c *board.Card) { c.Bot = "Review PR" })
	w.pass()
	c := w.column(held, board.Todo, board.WhatRefused, "concurrency_cap_exceeded")
	if c.Refused.Cause != string(holdfast.CauseReserved) {
		t.Errorf("%+v", c.Refused)
	}
	w.column(review, board.Doing, board.WhatLaunched, "")
}

func TestAPermanentRefusalBlocksTheCardWithItsReason(t *testing.T) {
	w := newWorld(t)
	c := w.card("typo", func(c *board.Card) { c.Bot = "nobody-wrote-it" })
	bad := w.card("bad input", func(c *board.Card) { c.Inputs = map[string]string{"no-such-input": "x"} })
	w.pass()
	w.column(c, board.Blocked, board.WhatGivenUp, "unknown_bot")
	w.column(bad, board.Blocked, board.WhatGivenUp, surface.ReasonInvalid)
}

func TestACardIsGivenUpAfterTheCapOfRefusals(t *testing.T) {
	w := newWorld(t)
	w.Team("acme", surfacetest.Slots(0))
	c := w.card("never", nil)
	w.dispatcher = w.replica(board.Options{MaxRefusals: 3})
	for range 4 {
		w.pass()
		w.Clock.Advance(time.Hour)
	}
	c = w.column(c, board.Blocked, board.WhatGivenUp, "concurrency_cap_exceeded")
	if c.Refusals != 3 || c.Attempts != 0 || !strings.Contains(c.Log[len(c.Log)-1].Detail, "refused 3 times") {
		t.Errorf("%+v", c)
	}
	// A person may try it again, from the beginning.
	w.Team("acme", teams.Limits{})
	surfacetest.Must(w.cards.Edit(t.Context(), c.ID, "dev", func(c *board.Card) error { c.Column = board.Todo; return nil }))(t)
	w.pass()
	w.column(c, board.Doing, board.WhatLaunched, "")
}

func TestWhatNeverFitsHoldsUpNobodyBehindIt(t *testing.T) {
	w := newWorld(t)
	w.Team("acme", teams.Limits{MonthlyUSD: holdfast.USDLimit{LimitSetting: holdfast.LimitTo(100_000)}})
	ten := 10 * holdfast.OneUSD
	if _, _, err := w.Bots.Put(t.Context(), w.Clock.Now(), "acme", holdfast.Bot{Name: "greedy", Lane: holdfast.LaneCommand, Command: []string{"true"}}, "dev"); err != nil {
		t.Fatal(err)
	}
	five := holdfast.MicroUSD(50_000)
	big := w.card("big", func(c *board.Card) { c.Bot, c.BudgetUSD = "greedy", &ten })
	small := w.card("small", func(c *board.Card) { c.Bot, c.BudgetUSD = "greedy", &five })
	w.pass()
	c := w.column(big, board.Todo, board.WhatRefused, "monthly_cost_cap_exceeded")
	if !c.Refused.NeverFits {
		t.Errorf("%+v", c.Refused)
	}
	w.column(small, board.Doing, board.WhatLaunched, "")
}

func TestAFailedRunBlocksItsCardOrIsTriedAgainWhileAttemptsAreLeft(t *testing.T) {
	for name, row := range map[string]struct {
		attempts int
		ending   queue.Ending
		column   board.Column
		what     string
		reason   string
	}{
		"failed":               {0, queue.EndFailed, board.Blocked, board.WhatFailed, "exit_code"},
		"failed with attempts": {2, queue.EndFailed, board.Todo, board.WhatAgain, "exit_code"},
		"interrupted":          {0, queue.EndInterrupted, board.Blocked, board.WhatFailed, "interrupted"},
		"cancelled":            {3, queue.EndCancelled, board.Blocked, board.WhatFailed, "cancelled_by_caller"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.card("c", func(c *board.Card) { c.MaxAttempts = row.attempts })
			w.pass()
			w.Finish(w.get(c).Run, row.ending)
			w.pass()
			c = w.column(c, row.column, row.what, row.reason)
			if row.column != board.Todo {
				return
			}
			w.pass()
			w.column(c, board.Todo, board.WhatAgain, row.reason) // it waits
			w.Clock.Advance(time.Minute)
			w.pass()
			c = w.column(c, board.Doing, board.WhatLaunched, "")
			w.Finish(c.Run, row.ending)
			w.pass()
			if c = w.column(c, board.Blocked, board.WhatFailed, row.reason); c.Attempts != 2 {
				t.Errorf("%+v", c)
			}
		})
	}
}

func TestACardWaitsForARunThatComesBackByItself(t *testing.T) {
	w := newWorld(t)
	bot := holdfast.Bot{Name: "retried", Lane: holdfast.LaneCommand, Command: []string{"true"}, Retries: 1}
	if _, _, err := w.Bots.Put(t.Context(), w.Clock.Now(), "acme", bot, "dev"); err != nil {
		t.Fatal(err)
	}
	c := w.card("c", func(c *board.Card) { c.Bot = "retried" })
	w.pass()
	run := w.Finish(w.get(c).Run, queue.EndInterrupted)
	if run.Status != runs.FailedResumable || !run.RetryOpen() {
		t.Fatalf("%+v", run)
	}
	w.pass()
	w.column(c, board.Doing, board.WhatLaunched, "")
}

func TestTwoReplicasLaunchACardOnce(t *testing.T) {
	w := newWorld(t)
	for i := range 12 {
		w.card(fmt.Sprint(i), nil)
	}
	var all sync.WaitGroup
	for range 4 {
		replica := w.replica(board.Options{})
		all.Go(func() {
			for range 3 {
				if err := replica.Pass(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := len(w.All()); n != 12 {
		t.Errorf("%d runs of 12 cards", n)
	}
}

func TestAnOutageIsNoRefusalForGoodAndTheCardHasOneRun(t *testing.T) {
	w := newWorld(t)
	c := w.card("c", nil)
	w.Queue.Fail(errors.New("cut"))
	w.pass()
	w.column(c, board.Todo, board.WhatRefused, surface.ReasonUnavailable)
	w.Queue.Fail(nil)
	w.Clock.Advance(time.Minute)
	w.pass()
	w.column(c, board.Doing, board.WhatLaunched, "")
	if n := len(w.Queue.All()); n != 1 {
		t.Errorf("%d messages", n)
	}
}

func TestABusyCardIsNotMovedOrDeletedUnderItsRun(t *testing.T) {
	w := newWorld(t)
	c := w.card("c", nil)
	w.pass()
	for _, column := range []board.Column{board.Todo, board.Done, board.Blocked} {
		_, err := w.cards.Edit(t.Context(), c.ID, "dev", func(c *board.Card) error { c.Column = column; return nil })
		if !errors.Is(err, board.ErrBusy) {
			t.Errorf("moved to %s: %v", column, err)
		}
	}
	if err := w.cards.Delete(t.Context(), c.ID); !errors.Is(err, board.ErrBusy) {
		t.Errorf("deleted: %v", err)
	}
	w.Finish(w.get(c).Run, queue.EndFinished)
	w.pass()
	if err := w.cards.Delete(t.Context(), c.ID); err != nil {
		t.Error(err)
	}
	if _, err := w.cards.Get(t.Context(), c.ID); !errors.Is(err, records.ErrNotFound) {
		t.Error(err)
	}
}

func TestCardsThatCannotBeMeantAreRefusedAndOnlyALaunchMovesToDoing(t *testing.T) {
	w := newWorld(t)
	for field, change := range map[string]func(*board.Card){
		"team":         func(c *board.Card) { c.Team = "" },
		"title":        func(c *board.Card) { c.Title = "" },
		"priority":     func(c *board.Card) { c.Priority = 10 },
		"max_attempts": func(c *board.Card) { c.MaxAttempts = 11 },
		"bot":          func(c *board.Card) { c.Bot = "/" },
		"budget_usd":   func(c *board.Card) { c.BudgetUSD = new(holdfast.MicroUSD) },
	} {
		c := board.Card{Team: "acme", Title: "t", Work: surface.Work{Bot: "probe"}}
		change(&c)
		_, err := w.cards.Create(t.Context(), c)
		var bad *holdfast.InvalidError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%v, want the field %s", err, field)
		}
	}
	c := w.card("c", nil)
	_, err := w.cards.Edit(t.Context(), c.ID, "dev", func(c *board.Card) error { c.Column = board.Doing; return nil })
	var bad *holdfast.InvalidError
	if !errors.As(err, &bad) || bad.Field != "column" {
		t.Errorf("%v", err)
	}
}
