// Package surface has what the surfaces that start runs by themselves share
// (pkg/webhook, pkg/schedule, pkg/board): how one of several processes launches for
// a record exactly once, what the gate's answer means for it, and how long it waits
// before it asks again. It judges nothing: every launch goes through the gate.
//
// A launch for a record is an [Attempt] that is stored in the record. Whoever wins
// the compare-and-set of its claim has written down, before it asks, the id of the
// run that it will start; so when it dies on the way, the next one can tell whether
// that run exists.
package surface

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// Gate is the launch gate as a surface uses it.
type Gate interface {
	// Launch answers with a run, a denial or an error, see [launch.Service.Launch].
	Launch(ctx context.Context, who auth.Principal, r launch.Request) (runs.Run, holdfast.Denial, error)
}

// Documents are the run documents as a surface reads them.
type Documents interface {
	// NewID names a run that does not exist yet.
	NewID(now time.Time) holdfast.RunID
	// Get reads a run; the error matches [records.ErrNotFound] when there is none.
	Get(ctx context.Context, id holdfast.RunID) (runs.Run, error)
}

// A claim is believed for [ClaimFor]; a launch under it is cut off after [TryFor], so
// that a process which was only slow cannot launch beside the one that took over.
const (
	ClaimFor = 2 * time.Minute
	TryFor   = 30 * time.Second
)

// Attempt is a launch on its way, as it is kept in the record that it is for. The
// zero value may be begun at once.
type Attempt struct {
	// Claim is the run that a process is starting now; empty when nobody is.
	Claim     holdfast.RunID `json:"claim,omitempty"`
	ClaimedAt time.Time      `json:"claimed_at,omitzero"`
	// Before are the runs of earlier claims of which nobody knows how they ended, the
	// newest last.
	Before []holdfast.RunID `json:"before,omitempty"`
	// Tries counts the answers so far that were not a run.
	Tries int `json:"tries,omitempty"`
	// NotBefore is when it may be tried again.
	NotBefore time.Time `json:"not_before,omitzero"`
}

// Claimed says whether somebody is launching at an instant. A claim that lies in the
// future, because a clock stepped back, is believed as long as any other.
func (a Attempt) Claimed(now time.Time) bool {
	return a.Claim != "" && now.Before(a.ClaimedAt.Add(ClaimFor)) && now.After(a.ClaimedAt.Add(-ClaimFor))
}

// Open says whether the launch may be tried now.
func (a Attempt) Open(now time.Time) bool { return !a.Claimed(now) && !now.Before(a.NotBefore) }

// Wake is when the attempt is to be looked at again: at the end of its claim, or when
// it may be tried.
func (a Attempt) Wake() time.Time {
	if a.Claim != "" {
		return a.ClaimedAt.Add(ClaimFor)
	}
	return a.NotBefore
}

// Begin is the attempt with a claim on it. It counts once it is stored over the
// revision that it was read at; who loses that launches nothing.
func (a Attempt) Begin(run holdfast.RunID, now time.Time) Attempt {
	if a.Claim != "" {
		a = a.unsure()
	}
	a.Claim, a.ClaimedAt = run, now
	return a
}

// maxBefore bounds how many runs are looked for; an older one was looked for already.
const maxBefore = 8

func (a Attempt) unsure() Attempt {
	before := append(slices.Clone(a.Before), a.Claim)
	a.Before = before[max(0, len(before)-maxBefore):]
	return a
}

// Again is the attempt after an answer that was not a run: the claim is given up, and
// the next try waits. Where nobody could tell how the launch ended, its run is looked
// for first.
func (a Attempt) Again(v Verdict, now time.Time, wait time.Duration) Attempt {
	if v.Unknown() {
		a = a.unsure()
	}
	a.Claim, a.ClaimedAt = "", time.Time{}
	a.Tries++
	a.NotBefore = now.Add(wait)
	return a
}

// Verdict is what became of one try. Exactly one of Run, Denial and Err is set.
type Verdict struct {
	Run    holdfast.RunID
	Denial holdfast.Denial
	Err    error
}

// Launched says whether there is a run.
func (v Verdict) Launched() bool { return v.Run != "" }

// Unknown says that nobody could tell: a store or the queue was away.
func (v Verdict) Unknown() bool { return v.Err != nil && !invalid(v.Err) }

// Transient says whether asking again later can help without anybody changing the
// request.
func (v Verdict) Transient() bool { return v.Unknown() || launch.Transient(v.Denial) }

// Permanent says whether it cannot.
func (v Verdict) Permanent() bool { return !v.Launched() && !v.Transient() }

// The reasons of a verdict that is not the gate's denial.
const (
	ReasonInvalid     = "invalid_request"
	ReasonUnavailable = "store_unavailable"
)

// Refusal is what is kept and shown of a verdict that is no run. The zero value is
// none.
type Refusal struct {
	At         time.Time `json:"at"`
	Reason     string    `json:"reason"` // a reason of the gate, or one of this package
	Cause      string    `json:"cause,omitempty"`
	Detail     string    `json:"detail,omitempty"` // for people
	DecisionID string    `json:"decision_id,omitempty"`
	Transient  bool      `json:"transient,omitempty"`
	// NeverFits marks a refusal by capacity of what is more than all of it: it waits for
	// somebody to raise a limit.
	NeverFits bool `json:"never_fits,omitempty"`
}

// maxDetail is how much text of a refusal is kept.
const maxDetail = 500

// Refusal is the verdict as it is kept; the zero value when there is a run.
func (v Verdict) Refusal(now time.Time) Refusal {
	r := Refusal{At: now, Transient: v.Transient()}
	r.NeverFits = r.Transient && v.Denial.Denied() && !v.Denial.Retryable
	switch {
	case v.Denial.Denied():
		r.Reason, r.Cause, r.Detail, r.DecisionID = string(v.Denial.Reason), string(v.Denial.Cause), v.Denial.Public, v.Denial.DecisionID
	case v.Unknown():
		r.Reason, r.Detail = ReasonUnavailable, "a store or the queue could not be reached; it is tried again"
	case v.Err != nil:
		r.Reason, r.Detail = ReasonInvalid, v.Err.Error()
	default:
		return Refusal{}
	}
	r.Detail = holdfast.Clip(r.Detail, maxDetail)
	return r
}

func invalid(err error) bool {
	var bad *holdfast.InvalidError
	return errors.As(err, &bad)
}

// Try launches for a claimed attempt. Where an earlier claim of it may have started
// its run, that run is the answer, and nothing is launched. Nothing is held by a try
// that is not [Verdict.Launched].
func Try(ctx context.Context, gate Gate, documents Documents, who auth.Principal, a Attempt, r launch.Request) Verdict {
	ctx, cancel := context.WithTimeout(ctx, TryFor)
	defer cancel()
	for _, before := range a.Before {
		switch run, err := documents.Get(ctx, before); {
		case err == nil && run.StatusReason != runs.ReasonLaunchFailed:
			return Verdict{Run: run.ID}
		case err != nil && !errors.Is(err, records.ErrNotFound):
			return Verdict{Err: fmt.Errorf("look for run %s: %w", before, err)}
		}
	}
	r.Run = a.Claim
	run, denial, err := gate.Launch(ctx, who, r)
	switch {
	case err != nil:
		return Verdict{Err: err}
	case denial.Denied():
		return Verdict{Denial: denial}
	}
	return Verdict{Run: run.ID}
}

// Backoff is how waits grow: First, doubled with every try, up to Most.
type Backoff struct{ First, Most time.Duration }

// Wait is how long to wait after so many tries (1 or more). hint is what the gate
// says (its Retry-After), zero for nothing: the wait is not below it, but for Most,
// because a limit may be raised long before a month ends. Up to a quarter is added,
// by a hash of key, so that what was refused together does not come back together.
func (b Backoff) Wait(tries int, hint time.Duration, key string) time.Duration {
	wait := b.First
	for n := 1; n < tries && wait < b.Most; n++ {
		wait *= 2
	}
	wait = min(max(wait, hint), b.Most)
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%s/%d", key, tries)
	return wait + wait/4*time.Duration(h.Sum32()%1024)/1024
}

// Stamp is an instant as text that sorts, for an index; empty for the zero time.
func Stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("20060102150405.000")
}
