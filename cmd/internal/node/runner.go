package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/queue/nats"
	"github.com/holdfast-io/holdfast/pkg/runner"
)

// Runner executes runs for the servers of a deployment. It knows NATS and its own
// folder, and nothing of the stores.
type Runner struct {
	options Options
	folder  *folder
	bus     *nats.Bus
	runner  *runner.Runner
}

// OpenRunner locks the folder, kills what a former runner on it left alive, connects
// to NATS, waits until a server has made the queue, and reports what became of the
// former runner's work.
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
	leftovers, err := r.leftovers(ctx)
	if err != nil {
		return r, fmt.Errorf("end what a former runner left running: %w", err)
	}
	reach, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	remote, options := queueOf(o, nats.Events{})
	if r.bus, err = nats.Dial(reach, remote, options); err != nil {
		return r, err
	}
	if err = r.bus.Attach(reach); err != nil {
		return r, err
	}
	if err = r.report(reach, leftovers); err != nil {
		return r, err
	}
	r.runner, err = runner.New(r.bus, runner.Options{
		Name: processName(s), DataDir: r.folder.path, Slots: s.Runners, Lease: s.Lease, Heartbeat: s.Heartbeat,
		LogLimit: maxShipped, Logs: r.bus, Log: o.Log, Secrets: r.bus, CloneWithin: s.CloneWithin, CloneLimit: int64(s.CloneMiB) << 20,
	})
	return r, err
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
func (r *Runner) Run(taking, last context.Context) error { return r.runner.Drain(taking, last) }

// Name is what the runner is called.
func (r *Runner) Name() string { return processName(r.options.Settings) }

// Close gives back the connection and the folder.
func (r *Runner) Close() error {
	if r.bus != nil {
		r.bus.Close()
	}
	if r.folder != nil {
		return r.folder.close()
	}
	return nil
}
