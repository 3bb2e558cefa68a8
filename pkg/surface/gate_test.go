package surface_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/board"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/retry"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/schedule"
	"github.com/holdfast-io/holdfast/pkg/surface"
	"github.com/holdfast-io/holdfast/pkg/surface/surfacetest"
	"github.com/holdfast-io/holdfast/pkg/webhook"
)

var (
	member   = auth.Principal{Name: "dev", Team: "acme", Role: auth.Member}
	operator = auth.Principal{Name: "op", Operator: true}
)

// open keeps secrets as they are: what seals them is not what is tested here.
type open struct{}

func (open) Seal(_ string, plain []byte) (string, error) { return string(plain), nil }
func (open) Open(_, sealed string) ([]byte, error)       { return []byte(sealed), nil }

// ok fails the test on an error: a refusal is none.
func ok(w *surfacetest.World, err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

// entrance is one way to a run. arrange makes everything ready for a bot of acme, at a
// time when nothing refuses it, and returns what then tries to start a run.
type entrance struct {
	surface launch.Surface
	// continues says that it goes on with a run, as the identity in its document.
	continues bool
	arrange   func(w *surfacetest.World, bot string) (try func())
}

// lost is a run of the bot whose machine died.
func lost(w *surfacetest.World, bot string) runs.Run {
	w.T.Helper()
	run, denial, err := w.Gate.Launch(w.T.Context(), member, launch.Request{Team: "acme", Bot: bot})
	if err != nil || denial.Denied() {
		w.T.Fatal(denial, err)
	}
	return w.Finish(run.ID, queue.EndInterrupted)
}

func entrances() []entrance {
	direct := func(external bool) func(*surfacetest.World, string) func() {
		return func(w *surfacetest.World, bot string) func() {
			from := launch.SurfaceREST
			if external {
				from = launch.SurfaceExec
			}
			return func() {
				_, _, err := w.Gate.Launch(w.T.Context(), member, launch.Request{Team: "acme", Bot: bot, External: external, Surface: from})
				ok(w, err)
			}
		}
	}
	return []entrance{
		{launch.SurfaceREST, false, direct(false)},
		{launch.SurfaceExec, false, direct(true)},
		{launch.SurfaceResume, true, func(w *surfacetest.World, bot string) func() {
			run := lost(w, bot)
			return func() {
				_, _, err := w.Gate.Resume(w.T.Context(), member, run.ID)
				ok(w, err)
			}
		}},
		{launch.SurfaceRetry, true, func(w *surfacetest.World, bot string) func() {
			run := lost(w, bot)
			ok(w, func() error {
				_, err := w.Runs.Update(w.T.Context(), run.ID, func(r *runs.Run) error { r.Bot.Retries = 1; return nil })
				return err
			}())
			s := surfacetest.Must(retry.New(w.Runs, w.Gate, retry.Options{Clock: w.Clock}))(w.T)
			ok(w, s.Pass(w.T.Context()))
			w.Clock.Advance(time.Minute)
			return func() { ok(w, s.Pass(w.T.Context())) }
		}},
		{launch.SurfaceDLQReplay, true, func(w *surfacetest.World, bot string) func() {
			run := lost(w, bot)
			return func() {
				_, _, err := w.Gate.Replay(w.T.Context(), operator, queue.DeadLetter{Seq: 1, Run: run.ID})
				ok(w, err)
			}
		}},
		{launch.SurfaceWebhook, false, func(w *surfacetest.World, bot string) func() {
			hooks := surfacetest.Must(webhook.New(w.T.Context(), w.DB, w.Clock, open{}))(w.T)
			hook := surfacetest.Must(hooks.Create(w.T.Context(), webhook.Hook{Team: "acme", Name: "n", Forge: webhook.GitLab, Rules: []webhook.Rule{{Bot: bot}}}, "a secret of the team"))(w.T)
			receiver := surfacetest.Must(webhook.NewReceiver(hooks, w.Gate, w.Runs, webhook.Options{Clock: w.Clock}))(w.T)
			body := surfacetest.Must(json.Marshal(map[string]any{"project": map[string]any{"path_with_namespace": "acme/widgets"}, "object_attributes": map[string]any{"action": "open", "iid": 1}}))(w.T)
			header := http.Header{"X-Gitlab-Event": {"Merge Request Hook"}, "X-Gitlab-Token": {"a secret of the team"}}
			return func() {
				_, err := receiver.Receive(w.T.Context(), webhook.GitLab, hook.ID, header, body)
				ok(w, err)
			}
		}},
		{launch.SurfaceSchedule, false, func(w *surfacetest.World, bot string) func() {
			schedules := surfacetest.Must(schedule.New(w.T.Context(), w.DB, w.Clock))(w.T)
			_, err := schedules.Create(w.T.Context(), schedule.Schedule{Team: "acme", Name: "n", Cron: "* * * * *", Work: surface.Work{Bot: bot}, Enabled: true})
			ok(w, err)
			ticker := surfacetest.Must(schedule.NewTicker(schedules, w.Gate, w.Runs, schedule.Options{Clock: w.Clock}))(w.T)
			w.Clock.Advance(time.Minute)
			return func() { ok(w, ticker.Pass(w.T.Context())) }
		}},
		{launch.SurfaceBoard, false, func(w *surfacetest.World, bot string) func() {
			cards := surfacetest.Must(board.New(w.T.Context(), w.DB, w.Clock))(w.T)
			_, err := cards.Create(w.T.Context(), board.Card{Team: "acme", Title: "t", Work: surface.Work{Bot: bot}})
			ok(w, err)
			dispatcher := surfacetest.Must(board.NewDispatcher(cards, w.Gate, w.Runs, board.Options{Clock: w.Clock}))(w.T)
			return func() { ok(w, dispatcher.Pass(w.T.Context())) }
		}},
	}
}

// last is the newest decision that a surface's try was recorded with.
func last(w *surfacetest.World, from launch.Surface) decisions.Decision {
	w.T.Helper()
	ok(w, w.Decisions.Flush(context.WithoutCancel(w.T.Context())))
	list, _, err := w.Decisions.List(w.T.Context(), decisions.Filter{Limit: 100})
	ok(w, err)
	for _, d := range list {
		if d.Surface == string(from) {
			return d
		}
	}
	w.T.Fatalf("%s left no decision: it did not ask the gate", from)
	return decisions.Decision{}
}

func TestEverySurfacePassesTheSameGateAndARefusalTakesNothing(t *testing.T) {
	spoils := []struct {
		name, reason, cause string
		spoil               func(w *surfacetest.World)
	}{
		{"maintenance", "maintenance", "", func(w *surfacetest.World) { w.Maintenance(true) }},
		{"a suspended team", "team_suspended", "", func(w *surfacetest.World) { w.Suspend("acme", true) }},
		{"a full cap", "concurrency_cap_exceeded", "", func(w *surfacetest.World) {
			w.Team("acme", surfacetest.Slots(1))
			_, denial, err := w.Gate.Launch(w.T.Context(), member, launch.Request{Team: "acme", Bot: "probe"})
			if err != nil || denial.Denied() {
				w.T.Fatal(denial, err)
			}
			w.Clock.Advance(time.Second) // its rate token is back, so that the try's own is seen
		}},
		{"a reserve", "concurrency_cap_exceeded", "capacity_reserved", func(w *surfacetest.World) {
			w.Team("acme", surfacetest.Slots(1))
			w.Reserve("review-pr", 1)
		}},
	}
	for _, e := range entrances() {
		for _, s := range spoils {
			t.Run(string(e.surface)+" under "+s.name, func(t *testing.T) {
				w := surfacetest.New(t)
				try := e.arrange(w, "probe")
				s.spoil(w)
				before := w.Footprint()
				try()
				if d := last(w, e.surface); d.Admitted || string(d.Reason) != s.reason || string(d.Cause) != s.cause {
					t.Errorf("it was judged %+v", d)
				}
				if diff := cmp.Diff(before, w.Footprint()); diff != "" {
					t.Errorf("the refusal took something: %s", diff)
				}
			})
		}
		t.Run(string(e.surface)+" when nothing refuses", func(t *testing.T) {
			w := surfacetest.New(t)
			try := e.arrange(w, "probe")
			w.Team("acme", surfacetest.Slots(1))
			w.Reserve("review-pr", 1)
			w.Reserve("review-pr", 0)
			before := len(w.Queue.All())
			try()
			if d := last(w, e.surface); !d.Admitted || d.Run == "" {
				t.Errorf("it was judged %+v", d)
			}
			if all := w.All(); len(all) != 1 || e.surface != launch.SurfaceExec && all[0].Status != runs.Queued || e.surface != launch.SurfaceExec && !e.continues && len(w.Queue.All()) != before+1 {
				t.Errorf("%d runs, %v", len(all), w.Queue.All())
			}
		})
	}
}

func TestTheTableOfSurfacesIsWhole(t *testing.T) {
	tested := map[launch.Surface]bool{launch.SurfaceSimulate: true} // a replay of a trace asks the same gate in pkg/simulate
	for _, e := range entrances() {
		tested[e.surface] = true
	}
	for _, s := range launch.Surfaces() {
		if !tested[s] {
			t.Errorf("the surface %s is not in the table", s)
		}
	}
}

func TestEverySurfaceIsJudgedAsWhoItResolvesToAndAContinuationAsWhoItWas(t *testing.T) {
	for _, e := range entrances() {
		t.Run(string(e.surface), func(t *testing.T) {
			w := surfacetest.New(t)
			try := e.arrange(w, "Review_PR") // the platform's, until the team writes its own
			bot := holdfast.Bot{Name: "review-pr", Lane: holdfast.LaneCommand, Command: []string{"true"}}
			_, _, err := w.Bots.Put(t.Context(), w.Clock.Now(), "acme", bot, "dev")
			ok(w, err)
			w.Team("acme", surfacetest.Slots(1))
			w.Reserve("review-pr", 1) // the platform's holds the only slot
			try()
			d := last(w, e.surface)
			want := holdfast.TeamBot("acme", "review-pr")
			if e.continues {
				want = holdfast.PlatformBot("review-pr")
			}
			if d.Identity != want || d.Admitted != e.continues || !e.continues && d.Cause != holdfast.CauseReserved {
				t.Errorf("judged as %s: admitted %t, %s %s", d.Identity, d.Admitted, d.Reason, d.Cause)
			}
		})
	}
}
