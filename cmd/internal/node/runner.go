package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/queue/nats"
	"github.com/holdfast-io/holdfast/pkg/runner"
)

// Runner executes runs for the servers of a deployment. It knows NATS and its own
// folder, and nothing of the stores.
type Runner struct {
	options Options
	lobby   *lobby // says how it is; nil without an address
	folder  *folder
	bus     *nats.Bus
	runner  *runner.Runner
	taking  atomic.Bool // it takes runs
}

// OpenRunner locks the folder, kills what a former runner on it left alive, connects
// to NATS, waits until a server has made the queue, and reports what became of the
// former runner's work. It waits for as long as [config.Options.StartWait] says.
func OpenRunner(ctx context.Context, o Options) (r *Runner, err error) {
	r = &Runner{options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
			r = nil
		}
	}()
	s := o.Settings
	if r.folder, err = openFolder(s.Data, config.Runner); err != nil {
		return r, err
	}
	if s.RunnerAddr != "" {
		if r.lobby, err = openLobby(ctx, s.RunnerAddr, o.Log, r.notReady); err != nil {
			return r, err
		}
	}
	leftovers, err := r.leftovers(ctx)
	if err != nil {
		return r, fmt.Errorf("end what a former runner left running: %w", err)
	}
	if err = r.reach(ctx, leftovers); err != nil {
		return r, err
	}
	r.runner, err = runner.New(r.bus, runner.Options{
		Name: processName(s), DataDir: r.folder.path, Slots: s.Runners, Lease: s.Lease, Heartbeat: s.Heartbeat,
		LogLimit: maxShipped, Logs: r.bus, Log: o.Log, Secrets: r.bus, CloneWithin: s.CloneWithin, CloneLimit: int64(s.CloneMiB) << 20,
	})
	return r, err
}

// reach connects to NATS, waits for the queue and tells what it has to tell.
func (r *Runner) reach(ctx context.Context, leftovers []runner.Leftover) error {
	ctx, cancel := patience(ctx, r.options.Settings.StartWait)
	defer cancel()
	remote, options := queueOf(r.options, nats.Events{}, nats.RunnerInbox)
	r.lobby.set("queue", "waiting for NATS")
	var err error
	if r.bus, err = nats.Dial(ctx, remote, options); err != nil {
		return err
	}
	r.lobby.set("queue", "waiting for a server to make the queue")
	if err := r.bus.Attach(ctx); err != nil {
		return err
	}
	r.lobby.set("queue", "")
	return r.lobby.await(ctx, r.options.Log, "reports", "NATS", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, reachWithin)
		defer cancel()
		return r.report(ctx, leftovers)
	})
}

// notReady says why the runner takes no runs; it is what its /readyz asks.
func (r *Runner) notReady() map[string]string {
	problems := map[string]string{}
	if !r.taking.Load() {
		problems["runner"] = "starting or ending"
	} else if !r.bus.Connected() {
		problems["queue"] = "NATS cannot be reached"
	}
	return problems
}

// leftoversFile keeps what is known of a former runner's work until it is reported,
// because the runner's own journal of it is gone once it was read.
const leftoversFile = "leftovers.json"

// leftovers kills what former runners left alive, and says of which attempts nobody
// was told yet.
func (r *Runner) leftovers(ctx context.Context) (all []runner.Leftover, err error) {
	path := filepath.Join(r.folder.path, leftoversFile)
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil && json.Unmarshal(text, &all) != nil {
		r.options.Log.Warn("the file cannot be read and is replaced", "file", path)
		all = nil
	}
	found, err := runner.KillLeftovers(ctx, r.folder.path)
	if err != nil {
		return nil, err
	}
	for _, l := range found {
		r.options.Log.Info("ended what a former runner left", "run", l.Run, "attempt", l.Attempt, "killed", l.Killed)
	}
	if len(found) == 0 {
		return all, nil
	}
	all = append(all, found...)
	if text, err = json.Marshal(all); err != nil {
		return nil, err
	}
	return all, writeWhole(path, text)
}

// report tells the servers how the attempts of former runners ended.
func (r *Runner) report(ctx context.Context, leftovers []runner.Leftover) error {
	for _, l := range leftovers {
		if err := r.bus.PublishReport(ctx, leftover(l, r.Name(), clock.System{}.Now())); err != nil {
			return fmt.Errorf("report run %s of a former runner: %w", l.Run, err)
		}
	}
	if err := os.Remove(filepath.Join(r.folder.path, leftoversFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// maxShipped is how much of a run's output is kept and shipped to the servers.
const maxShipped = 4 << 20

// Run takes and executes runs until taking ends. What runs then may go on until last
// ends; then it is interrupted and reported, and Run returns nil.
func (r *Runner) Run(taking, last context.Context) error {
	r.taking.Store(true)
	defer context.AfterFunc(taking, func() { r.taking.Store(false) })()
	defer r.taking.Store(false)
	return r.runner.Drain(taking, last)
}

// Name is what the runner is called.
func (r *Runner) Name() string { return processName(r.options.Settings) }

// Close gives back the port, the connection and the folder.
func (r *Runner) Close() error {
	var err error
	if r.lobby != nil {
		err = r.lobby.close()
	}
	if r.bus != nil {
		r.bus.Close()
	}
	if r.folder != nil {
		err = errors.Join(err, r.folder.close())
	}
	return err
}
