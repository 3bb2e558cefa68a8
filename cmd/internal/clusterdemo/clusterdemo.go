// Package clusterdemo plays a deployment of many machines on one: two servers, two
// runners and a NATS as processes, over a MongoDB. It shows the last slot being raced
// for at both servers, a server and a runner killed with -9, and the capacity coming
// back, and it checks what it prints as promised.
//
// Reading order: clusterdemo.go (the play), acts.go, processes.go.
package clusterdemo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/auth"
)

// Options are what the play needs; all are required.
type Options struct {
	Binary   string // this program
	MongoURI string
	Database string // one of its own; what is in it stays there
	Dir      string // an empty folder
	Out      io.Writer
	// Bars draws subjects.
	Bars func(io.Writer, []api.SubjectCapacity) error
}

// ErrBroken: a printed promise was not kept.
var ErrBroken = errBroken

// The settings of the play, a twentieth of the defaults.
const (
	lease       = 6 * time.Second
	launchLease = 3 * time.Second
	skew        = 1 * time.Second
	sweepEvery  = 500 * time.Millisecond
	// slack is what the machine may take beside the settings, loaded as it may be.
	slack = 3 * time.Second
)

// The stage: a team with few slots that are fought for, and one with many.
const (
	smallTeam, smallSlots = "acme", 4
	wideTeam, wideSlots   = "web", 64
	racers                = 8
	bot                   = "feature-dev"
)

// demo is one performance.
type demo struct {
	o       Options
	token   string
	nats    string
	a, b    *server
	x, y    *process // the runners
	holders []api.Run
	began   time.Time

	mu        sync.Mutex
	processes []*process
	promises  []promise
}

type promise struct {
	kept bool
	text string
}

// Run plays. The error matches [ErrBroken] when a promise was not kept.
func Run(ctx context.Context, o Options) error {
	d := &demo{o: o, token: auth.NewBearer(), began: time.Now()}
	defer d.end()
	for _, act := range []func(context.Context) error{d.open, d.race, d.serverDies, d.runnerDies, d.resume, d.close} {
		if err := act(ctx); err != nil {
			return errors.Join(err, d.outputs(err))
		}
	}
	return d.verdict()
}

// outputs is what the processes said, for an error that they may explain.
func (d *demo) outputs(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []error
	for _, p := range d.processes {
		if text := p.output.String(); text != "" {
			all = append(all, fmt.Errorf("%s said:\n%s", p.name, text))
		}
	}
	return errors.Join(all...)
}

// say prints a line with the time since the beginning.
func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.o.Out, "%5.1f s  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

// act prints the heading of an act.
func (d *demo) act(format string, args ...any) {
	fmt.Fprintln(d.o.Out)
	d.say(format, args...)
}

// promised notes whether something that was promised held.
func (d *demo) promised(kept bool, format string, args ...any) {
	d.promises = append(d.promises, promise{kept, fmt.Sprintf(format, args...)})
}

// bars draws the small team's slots as a server has them.
func (d *demo) bars(ctx context.Context, s *server) error {
	subject, err := s.CapacitySubject(ctx, "team/"+smallTeam+"/slots")
	if err != nil {
		return err
	}
	return d.o.Bars(d.o.Out, []api.SubjectCapacity{subject})
}

// open starts everything and makes the two teams.
func (d *demo) open(ctx context.Context) error {
	fmt.Fprintf(d.o.Out, `Two servers (a, b) and two runners (x, y), each a process of its own, over one MongoDB and one NATS.
Leases are short here: %v for a run (default 2m), %v for a launch (default 30s).

`, lease, launchLease)
	natsProcess, err := d.start(ctx, "nats", nil, "__nats", "--data", filepath.Join(d.o.Dir, "nats"))
	if err != nil {
		return err
	}
	d.nats = natsProcess.ready
	for _, s := range []struct {
		name string
		at   **server
	}{{"a", &d.a}, {"b", &d.b}} {
		addr, err := freePort()
		if err != nil {
			return err
		}
		if *s.at, err = d.startServer(ctx, s.name, addr); err != nil {
			return err
		}
	}
	if d.x, err = d.startRunner(ctx, "x"); err != nil {
		return err
	}
	if d.y, err = d.startRunner(ctx, "y"); err != nil {
		return err
	}
	for team, slots := range map[string]int64{smallTeam: smallSlots, wideTeam: wideSlots} {
		limits := api.TeamLimits{MaxConcurrentRuns: holdfast.CountLimit{LimitSetting: holdfast.LimitTo(slots)}}
		if _, err := d.a.CreateTeam(ctx, api.TeamCreate{ID: team, Limits: limits}); err != nil {
			return err
		}
	}
	d.say("everything runs; team %s may run %d at a time, team %s %d", smallTeam, smallSlots, wideTeam, wideSlots)
	return nil
}

// verdict prints every promise and whether it was kept.
func (d *demo) verdict() error {
	fmt.Fprintln(d.o.Out, "\nPromised, and checked:")
	broken := 0
	for _, p := range d.promises {
		word := "kept  "
		if !p.kept {
			word = "BROKEN"
			broken++
		}
		fmt.Fprintf(d.o.Out, "  %s  %s\n", word, p.text)
	}
	if broken > 0 {
		return fmt.Errorf("%w: %d of %d", ErrBroken, broken, len(d.promises))
	}
	fmt.Fprintf(d.o.Out, "\nevery promise was kept, in %.0f s\n", time.Since(d.began).Seconds())
	return nil
}

// eventually asks until ok, for at most so long, and says how long it took.
func eventually(ctx context.Context, most time.Duration, ok func(context.Context) (bool, error)) (took time.Duration, done bool, err error) {
	began := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if done, err := ok(ctx); done || err != nil {
			return time.Since(began), done, err
		}
		if time.Since(began) > most {
			return most, false, nil
		}
		select {
		case <-ctx.Done():
			return 0, false, ctx.Err()
		case <-tick.C:
		}
	}
}
