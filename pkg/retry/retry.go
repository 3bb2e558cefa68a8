// Package retry brings back by itself what can come back: a run that waits for
// capacity (parked as waiting_capacity at its claim), and one that was lost to no
// fault of its own (its machine, its lease, the queue) and whose bot has retries left.
// It holds nothing while it waits, and it comes back through the gate like every
// other launch, as the identity in its document and with what is left of its budget.
// What the gate refuses for now is asked again, with growing waits; what it refuses
// for good is given up, with the reason in the run's document. Every replica runs the
// sweep; a run is claimed by compare-and-set, so it is resumed once.
package retry

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/surface"
)

// Gate is the launch gate as the sweep uses it.
type Gate interface {
	// ResumeFrom brings a run back, see [launch.Service.ResumeFrom].
	ResumeFrom(ctx context.Context, who auth.Principal, id holdfast.RunID, from launch.Surface) (runs.Run, holdfast.Denial, error)
}

// Outcome is what became of one look at a run.
type Outcome string

// The outcomes, which are metric labels.
const (
	Resumed   Outcome = "resumed"
	Refused   Outcome = "refused"   // for now: asked again later
	Failed    Outcome = "failed"    // nobody could tell: asked again later
	Abandoned Outcome = "abandoned" // given up for good
)

// Outcomes lists every outcome.
func Outcomes() []Outcome { return []Outcome{Resumed, Refused, Failed, Abandoned} }

// Options are a sweep's settings; a zero field has the stated default.
type Options struct {
	Clock clock.Clock   // nil: the machine's
	Every time.Duration // how often it looks for due runs: 15 s
	Batch int           // how many it looks at in one pass: 50
	// Backoff is the wait before the first try and between refusals: 20 s, doubled up to
	// 10 min.
	Backoff surface.Backoff
	// MaxRefusals is how many refusals in a row a run takes before it is given up:
	// 1000, which with the longest wait is about a week.
	MaxRefusals int
	Log         *slog.Logger // nil: nothing is logged
	// Done is told every outcome; nil is not called.
	Done func(run runs.Run, outcome Outcome)
}

// Sweeper resumes what is due. Any number of them may run over the same stores.
type Sweeper struct {
	runs    *runs.Repository
	gate    Gate
	options Options
	name    string // of this sweeper's claims
}

// New is a sweeper over its parts; both are required.
func New(documents *runs.Repository, gate Gate, o Options) (*Sweeper, error) {
	if documents == nil || gate == nil {
		return nil, errors.New("retry: a part is missing")
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Every, o.Batch, o.MaxRefusals = cmp.Or(o.Every, 15*time.Second), cmp.Or(o.Batch, 50), cmp.Or(o.MaxRefusals, 1000)
	o.Backoff.First, o.Backoff.Most = cmp.Or(o.Backoff.First, 20*time.Second), cmp.Or(o.Backoff.Most, 10*time.Minute)
	return &Sweeper{documents, gate, o, rand.Text()}, nil
}

// Run makes a pass every period until ctx ends, and then returns nil.
func (s *Sweeper) Run(ctx context.Context) error {
	tick := time.NewTicker(s.options.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := s.Pass(ctx); err != nil && ctx.Err() == nil {
				s.options.Log.WarnContext(ctx, "due retries could not be looked at; the next pass tries again", "error", err)
			}
		}
	}
}

// Pass looks at the runs that are due, those that wait longest first. What is looked
// at and refused moves behind the others, so that a batch of it never hides the rest.
func (s *Sweeper) Pass(ctx context.Context) error {
	due, err := s.runs.RetryDue(ctx, s.options.Clock.Now(), s.options.Batch)
	if err != nil {
		return err
	}
	var all error
	for _, run := range due {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		all = errors.Join(all, s.look(ctx, run))
	}
	return all
}

// errNotMine ends a claim that another sweeper has, or that is not due any more.
var errNotMine = errors.New("the run is not to be resumed here")

// look claims one run and resumes it. The claim moves its due time, so that it leaves
// the front of the batch whatever happens.
func (s *Sweeper) look(ctx context.Context, was runs.Run) error {
	claim := s.name + "/" + rand.Text()
	run, err := s.runs.Update(ctx, was.ID, func(run *runs.Run) error {
		now := s.options.Clock.Now()
		r := &run.Retry
		switch {
		case !run.RetryOpen(), r.NotBefore.After(now), r.Claim != "" && now.Sub(r.ClaimedAt).Abs() < surface.ClaimFor:
			return errNotMine
		case r.Claim == "" && r.NotBefore.Before(run.EndedAt): // the first look since it ended
			r.NotBefore = run.EndedAt.Add(s.options.Backoff.Wait(r.Tries+1, 0, string(run.ID)))
			return nil
		}
		if run.Status == runs.FailedResumable && r.Claim == "" {
			r.Tries++ // counted before it is tried: a process that dies on it again and again must come to an end
		}
		r.Claim, r.ClaimedAt, r.NotBefore = claim, now, now.Add(surface.ClaimFor)
		return nil
	})
	switch {
	case errors.Is(err, errNotMine), errors.Is(err, records.ErrNotFound):
		return nil
	case err != nil:
		return err
	case run.Retry.Claim != claim:
		return nil // it was given its first wait
	}
	return s.resume(ctx, run)
}

// resume asks the gate and writes down what came of it.
func (s *Sweeper) resume(ctx context.Context, was runs.Run) error {
	trying, cancel := context.WithTimeout(ctx, surface.TryFor)
	_, denial, err := s.gate.ResumeFrom(trying, launch.Machine(launch.SurfaceRetry, was.Team), was.ID, launch.SurfaceRetry)
	cancel()
	outcome, reason := s.judge(was, denial, err)
	if err != nil {
		s.options.Log.WarnContext(ctx, "a run could not be resumed", "run", was.ID, "outcome", outcome, "error", err)
	}
	saving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	run, saved := s.runs.Update(saving, was.ID, func(run *runs.Run) error {
		r := &run.Retry
		if r.Claim != was.Retry.Claim {
			return errNotMine // somebody took the claim over
		}
		r.Claim, r.ClaimedAt = "", time.Time{}
		switch outcome {
		case Resumed:
			r.Refusals, r.NotBefore, r.Last = 0, time.Time{}, ""
			return nil
		case Abandoned:
			r.GivenUp = holdfast.Clip(reason, 300)
		case Refused, Failed:
			if run.Status == runs.FailedResumable {
				r.Tries-- // it did not run
			}
			r.NotBefore = s.options.Clock.Now().Add(s.options.Backoff.Wait(r.Refusals+1, denial.RetryAfter, string(run.ID)))
		}
		r.Refusals++
		r.Last = holdfast.Clip(reason, 300)
		return nil
	})
	if errors.Is(saved, errNotMine) || errors.Is(saved, records.ErrNotFound) {
		return nil
	}
	if saved == nil && s.options.Done != nil {
		s.options.Done(run, outcome)
	}
	return saved
}

// judge says what an answer of the gate means. A run that somebody else resumed, or
// that was changed meanwhile, is theirs: it is as good as resumed.
func (s *Sweeper) judge(run runs.Run, denial holdfast.Denial, err error) (outcome Outcome, reason string) {
	switch {
	case errors.Is(err, launch.ErrConflict):
		return Resumed, ""
	case errors.Is(err, launch.ErrNotFound), errors.Is(err, launch.ErrForbidden), isInvalid(err):
		return Abandoned, err.Error()
	case err != nil:
		return Failed, surface.ReasonUnavailable
	case !denial.Denied():
		return Resumed, ""
	}
	reason = string(denial.Reason)
	if denial.Cause != "" {
		reason += " (" + string(denial.Cause) + ")"
	}
	if launch.Transient(denial) && run.Retry.Refusals+1 < s.options.MaxRefusals {
		return Refused, reason
	}
	return Abandoned, reason + ": " + denial.Public
}

func isInvalid(err error) bool {
	var bad *holdfast.InvalidError
	return errors.As(err, &bad)
}
