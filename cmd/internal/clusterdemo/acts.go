package clusterdemo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

// launch asks a server for a run that works for some seconds.
func launch(ctx context.Context, s *server, team, seconds string) (api.Run, error) {
	return s.Launch(ctx, api.LaunchRequest{Team: team, Bot: bot, Inputs: map[string]string{"seconds": seconds, "spend": "0.05"}}, "")
}

// answer is what a racer was told.
type answer struct {
	server  string
	run     api.Run
	refused *client.Refused
	err     error
}

// together has callers ask alternately at both servers, all at once.
func (d *demo) together(ctx context.Context, callers int, ask func(context.Context, int, *server) (api.Run, error)) []answer {
	answers := make([]answer, callers)
	gate := make(chan struct{})
	var all sync.WaitGroup
	for i := range callers {
		s, name := d.a, "a"
		if i%2 == 1 {
			s, name = d.b, "b"
		}
		all.Go(func() {
			<-gate
			run, err := ask(ctx, i, s)
			answers[i] = answer{server: name, run: run, err: err}
			if errors.As(err, &answers[i].refused) {
				answers[i].err = nil
			}
		})
	}
	close(gate)
	all.Wait()
	return answers
}

// race fills all slots but one and lets everybody ask for the last.
func (d *demo) race(ctx context.Context) error {
	d.act("ACT 1: the last slot. %d runs of team %s take %d of %d slots.", smallSlots-1, smallTeam, smallSlots-1, smallSlots)
	for i := range smallSlots - 1 {
		run, err := launch(ctx, []*server{d.a, d.b}[i%2], smallTeam, "60")
		if err != nil {
			return err
		}
		d.holders = append(d.holders, run)
	}
	if err := d.bars(ctx, d.a); err != nil {
		return err
	}
	d.say("%d callers ask for it at the same moment, at both servers:", racers)
	admitted, refused := 0, 0
	for i, got := range d.together(ctx, racers, func(ctx context.Context, _ int, s *server) (api.Run, error) {
		return launch(ctx, s, smallTeam, "60")
	}) {
		switch {
		case got.err != nil:
			return got.err
		case got.refused != nil:
			refused++
			d.say("caller %d at server %s: refused, %s: %s", i+1, got.server, got.refused.Problem.Reason, got.refused.Problem.Detail)
		default:
			admitted++
			d.holders = append(d.holders, got.run)
			d.say("caller %d at server %s: ADMITTED, run %s", i+1, got.server, got.run.ID)
		}
	}
	d.promised(admitted == 1 && refused == racers-1, "of %d callers at two servers exactly one got the last slot (%d admitted, %d refused)", racers, admitted, refused)
	return d.bars(ctx, d.b)
}

// serverDies kills a server while it launches.
func (d *demo) serverDies(ctx context.Context) error {
	d.act("ACT 2: a server dies. %d callers launch runs of team %s at server a, and in the middle of it: kill -9.", racers, wideTeam)
	var mu sync.Mutex
	answered := map[string]bool{}
	lost := 0
	var callers sync.WaitGroup
	for range racers {
		callers.Go(func() {
			for ctx.Err() == nil {
				run, err := launch(ctx, d.a, wideTeam, "0.3")
				mu.Lock()
				if err != nil {
					lost++
					mu.Unlock()
					return // a is gone, or has no slot
				}
				answered[run.ID] = true
				mu.Unlock()
			}
		})
	}
	_, some, err := eventually(ctx, 10*time.Second, func(context.Context) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		return len(answered) >= 2*racers, nil
	})
	if err != nil {
		return err
	}
	d.a.kill()
	callers.Wait()
	d.say("server a is dead: %d launches were answered, %d were not", len(answered), lost)
	d.promised(some, "server a was launching when it was killed (%d answered)", len(answered))

	took, over, err := eventually(ctx, launchLease+skew+sweepEvery+20*time.Second, func(ctx context.Context) (bool, error) {
		c, err := d.b.CapacitySubject(ctx, "team/"+wideTeam+"/slots")
		return err == nil && len(c.Entries) == 0, err
	})
	if err != nil {
		return err
	}
	missing, twice := 0, 0
	for id := range answered {
		run, err := d.b.Run(ctx, id)
		var gone *client.NotFound
		switch {
		case errors.As(err, &gone):
			missing++
		case err != nil:
			return err
		case run.Attempt != 1 || run.Status != "finished":
			twice++
			d.say("run %s is %s (%s) after %d attempts", id, run.Status, run.StatusReason, run.Attempt)
		}
	}
	d.say("server b: every launch that was answered has finished, and what was not answered holds nothing, %.1f s after the kill", took.Seconds())
	d.promised(missing == 0 && twice == 0, "each of the %d launches that a answered before it died was executed exactly once", len(answered))
	d.promised(over, "nothing of team %s is held any more: what a was about to launch came back", wideTeam)

	small, err := d.b.CapacitySubject(ctx, "team/"+smallTeam+"/slots")
	if err != nil {
		return err
	}
	d.promised(len(small.Entries) == smallSlots, "the %d runs of team %s went on as if nothing had happened", smallSlots, smallTeam)
	if d.a, err = d.startServer(ctx, "a", d.a.addr); err != nil {
		return err
	}
	d.say("server a is started again")
	return d.bars(ctx, d.a)
}

// placed says which runs of the small team each runner executes, once all have begun.
func (d *demo) placed(ctx context.Context) (on map[string][]string, err error) {
	_, begun, err := eventually(ctx, 10*time.Second, func(ctx context.Context) (bool, error) {
		on = map[string][]string{}
		for _, h := range d.holders {
			run, err := d.b.Run(ctx, h.ID)
			if err != nil || run.StartedAt.IsZero() {
				return false, err
			}
			on[run.Runner] = append(on[run.Runner], run.ID)
		}
		return true, nil
	})
	if err == nil && !begun {
		err = errors.New("the runs did not all start")
	}
	return on, err
}

// runnerDies kills the runner that executes the most of the small team's runs, waits
// until their slots are back, and starts it again.
func (d *demo) runnerDies(ctx context.Context) error {
	on, err := d.placed(ctx)
	if err != nil {
		return err
	}
	victim, name := &d.x, "x"
	if len(on["y"]) > len(on["x"]) {
		victim, name = &d.y, "y"
	}
	lost := on[name]
	d.act("ACT 3: a runner dies. Runner x executes %d runs of team %s, runner y %d. kill -9 of runner %s.", len(on["x"]), smallTeam, len(on["y"]), name)
	(*victim).kill()
	took, back, err := eventually(ctx, lease+skew+sweepEvery+slack, func(ctx context.Context) (bool, error) {
		c, err := d.a.CapacitySubject(ctx, "team/"+smallTeam+"/slots")
		return err == nil && len(c.Entries) == smallSlots-len(lost), err
	})
	if err != nil {
		return err
	}
	honest, err := d.became(ctx, lost, "lease_lost") // the same sweep ends them, after it gave their slots back
	if err != nil {
		return err
	}
	d.promised(back, "%d slots came back %.1f s after the runner's death; promised: lease + skew + sweep, %v, with %v for this machine", len(lost), took.Seconds(), lease+skew+sweepEvery, slack)
	d.promised(honest && len(lost) > 0, "the dead runner's runs say what happened: failed_resumable, lease_lost")
	if err := d.bars(ctx, d.b); err != nil {
		return err
	}
	*victim, err = d.startRunner(ctx, name)
	if err != nil {
		return err
	}
	d.holders = append(d.without(lost), api.Run{ID: lost[0]})
	d.say("runner %s is started again on its folder: it ended what its former self had left running, and says so", name)
	told, err := d.became(ctx, lost, "interrupted")
	d.promised(told, "started again, the runner ended the children of its former self and their runs are failed_resumable, interrupted")
	return err
}

// became waits until runs are failed_resumable for a reason, and prints them.
func (d *demo) became(ctx context.Context, ids []string, reason string) (all bool, err error) {
	said := make([]string, len(ids))
	_, all, err = eventually(ctx, sweepEvery+slack, func(ctx context.Context) (bool, error) {
		as := true
		for i, id := range ids {
			run, err := d.a.Run(ctx, id)
			if err != nil {
				return false, err
			}
			said[i] = fmt.Sprintf("run %s is %s: %s", id, run.Status, run.StatusReason)
			as = as && run.Status == "failed_resumable" && run.StatusReason == reason
		}
		return as, nil
	})
	for _, line := range said {
		d.say("%s", line)
	}
	return all, err
}

// without lists the holders that are not among some runs.
func (d *demo) without(ids []string) []api.Run {
	var rest []api.Run
	for _, h := range d.holders {
		if !strings.Contains(strings.Join(ids, " "), h.ID) {
			rest = append(rest, h)
		}
	}
	return rest
}

// resume brings one of the interrupted runs back through the gate.
func (d *demo) resume(ctx context.Context) error {
	id := d.holders[len(d.holders)-1].ID
	d.act("ACT 4: run %s is resumed: it passes the gate again, with what is left of its budget.", id)
	if _, err := d.b.Resume(ctx, id); err != nil {
		return err
	}
	var run api.Run
	_, running, err := eventually(ctx, 10*time.Second, func(ctx context.Context) (bool, error) {
		var err error
		run, err = d.a.Run(ctx, id)
		return err == nil && run.Status == "running" && !run.StartedAt.IsZero(), err
	})
	if err != nil {
		return err
	}
	d.promised(running && run.Attempt == 2, "a resumed run runs again, as attempt 2 (it is %s, attempt %d)", run.Status, run.Attempt)
	return d.bars(ctx, d.a)
}

// close cancels what still runs and looks at what is left.
func (d *demo) close(ctx context.Context) error {
	d.act("THE END: what still runs is cancelled, at server b.")
	for _, h := range d.holders {
		var conflict *client.Conflict
		if _, err := d.b.Cancel(ctx, h.ID); err != nil && !errors.As(err, &conflict) {
			return err
		}
	}
	_, empty, err := eventually(ctx, 15*time.Second, func(ctx context.Context) (bool, error) {
		c, err := d.a.CapacitySubject(ctx, "team/"+smallTeam+"/slots")
		return err == nil && len(c.Entries) == 0, err
	})
	if err != nil {
		return err
	}
	d.promised(empty, "after the last run nothing is held")
	if err := d.bars(ctx, d.a); err != nil {
		return err
	}
	for name, s := range map[string]*server{"a": d.a, "b": d.b} {
		health, err := s.Ready(ctx)
		if err != nil {
			return fmt.Errorf("server %s: %w", name, err)
		}
		d.promised(health.Status == "ok", "server %s is ready", name)
	}
	return nil
}
