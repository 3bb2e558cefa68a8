package incident

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/client"
)

// Options say where the play is shown.
type Options struct {
	Out io.Writer
	// Bars draws subjects; required.
	Bars func(io.Writer, []api.SubjectCapacity) error
	// TwoSides prints the simulation of the same kind of day, without and with the
	// policy, and returns what the holder gained and what the others lost; required.
	TwoSides func(context.Context, io.Writer) (gained, lost int, err error)
}

// The cast: eight clients. Feature clients launch and go on whatever the answer is;
// review clients launch a review, wait for its end, and launch the next.
const (
	featureClients, featuresEach = 6, 5
	reviewClients, reviewsEach   = 2, 5
	featurePause                 = 900 * time.Millisecond
)

// attempt is one launch and its answer.
type attempt struct {
	number  int
	client  int
	team    string
	bot     string
	run     api.Run
	refused *client.Refused
}

// play is one performance.
type play struct {
	c   *client.Client
	out io.Writer
	o   Options

	mu       sync.Mutex
	attempts []attempt
	peak     peak
}

// peak is the most that was seen at once in the samples taken while runs ran.
type peak struct{ samples, all, ordinary int64 }

// Run plays the incident and returns an error that matches [ErrBroken] when
// something that it printed as promised did not hold.
func Run(ctx context.Context, c *client.Client, o Options) error {
	p := &play{c: c, out: o.Out, o: o}
	fmt.Fprintf(p.out, `The incident, with a reservation in place.
  Three teams (payments, search, web) share %d slots and %s dollars a month.
  Of these, %d slots and %s dollars are reserved for %s.
  %d launches of %s and %d of %s arrive from %d clients at once; each run is a real process.

`, sharedSlots, dollars(sharedUSD), reservedSlots, dollars(reservedUSD), reviewBot,
		featureClients*featuresEach, featureBot, reviewClients*reviewsEach, reviewBot, featureClients+reviewClients)

	before, err := p.shared(ctx)
	if err != nil {
		return err
	}
	if err := p.storm(ctx); err != nil {
		return err
	}
	if err := p.table(); err != nil {
		return err
	}
	ended, err := p.ends(ctx)
	if err != nil {
		return err
	}
	after, err := p.returned(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(p.out, "\nAfter the last run:")
	if err := o.Bars(p.out, after); err != nil {
		return err
	}
	fmt.Fprintln(p.out, "\nThe same kind of day, simulated without and with the reservation (examples/):")
	gained, lost, err := o.TwoSides(ctx, p.out)
	if err != nil {
		return err
	}
	return p.promises(before, after, ended, gained, lost)
}

// storm lets all clients loose and shows the capacity while they run.
func (p *play) storm(ctx context.Context) error {
	watch, stop := context.WithCancel(ctx)
	defer stop()
	clients, running := errgroup.WithContext(ctx)
	for i := range featureClients {
		clients.Go(func() error { return p.featureClient(running, i+1) })
	}
	for i := range reviewClients {
		clients.Go(func() error { return p.reviewClient(running, featureClients+i+1) })
	}
	var watching errgroup.Group
	watching.Go(func() error { return p.watch(watch) })
	err := clients.Wait()
	stop()
	return errors.Join(err, watching.Wait())
}

func (p *play) featureClient(ctx context.Context, number int) error {
	for i := range featuresEach {
		request := api.LaunchRequest{Team: teams[(number+i)%len(teams)], Bot: featureBot, Inputs: map[string]string{"seconds": "2", "spend": "0.90"}}
		if _, err := p.launch(ctx, number, request); err != nil {
			return err
		}
		if err := pause(ctx, featurePause); err != nil {
			return err
		}
	}
	return nil
}

func (p *play) reviewClient(ctx context.Context, number int) error {
	for i := range reviewsEach {
		request := api.LaunchRequest{Team: teams[(number+i)%len(teams)], Bot: reviewBot, Inputs: map[string]string{"seconds": "0.8", "spend": "0.25"}}
		a, err := p.launch(ctx, number, request)
		if err != nil {
			return err
		}
		if a.refused != nil {
			continue
		}
		if _, err := p.end(ctx, a.run.ID); err != nil {
			return err
		}
	}
	return nil
}

// launch asks once and records the answer. A refusal is an answer, not an error.
func (p *play) launch(ctx context.Context, number int, request api.LaunchRequest) (attempt, error) {
	run, err := p.c.Launch(ctx, request, "")
	a := attempt{client: number, team: request.Team, bot: request.Bot, run: run}
	if err != nil && !errors.As(err, &a.refused) {
		return a, fmt.Errorf("launch %s for %s: %w", request.Bot, request.Team, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a.number = len(p.attempts) + 1
	p.attempts = append(p.attempts, a)
	return a, nil
}

// patience bounds every wait of the play for what must happen by itself.
const patience = 30 * time.Second

// end waits for a run's end.
func (p *play) end(ctx context.Context, id string) (api.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		run, err := p.c.Run(ctx, id)
		if err != nil || run.Ended() {
			return run, err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return run, fmt.Errorf("run %s is still %s: %w", id, run.Status, err)
		}
	}
}

// ends waits for the end of every run that was admitted.
func (p *play) ends(ctx context.Context) ([]api.Run, error) {
	var ended []api.Run
	for _, a := range p.attempts {
		if a.refused != nil {
			continue
		}
		run, err := p.end(ctx, a.run.ID)
		if err != nil {
			return nil, err
		}
		ended = append(ended, run)
	}
	return ended, nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
