package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/surface"
)

// ErrInProgress: the same delivery is being worked on now, here or on another
// replica.
var ErrInProgress = errors.New("this delivery is being worked on")

// Options are a receiver's settings; a zero field has the stated default.
type Options struct {
	Clock clock.Clock   // nil: the machine's
	Every time.Duration // how often old deliveries are forgotten: 10 min
	Log   *slog.Logger  // nil: nothing is logged
	// Received is told what became of every delivery that was signed, with its forge and
	// one word: launched, duplicate, ignored, refused, invalid, failed. nil is not called.
	Received func(forge Forge, outcome string)
}

// Receiver takes deliveries. Any number of them may work over the same stores.
type Receiver struct {
	hooks   *Repository
	gate    surface.Gate
	runs    surface.Documents
	options Options
}

// NewReceiver is a receiver over its parts; all of them are required.
func NewReceiver(hooks *Repository, gate surface.Gate, documents surface.Documents, o Options) (*Receiver, error) {
	if hooks == nil || gate == nil || documents == nil {
		return nil, errors.New("webhook: a part is missing")
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Received == nil {
		o.Received = func(Forge, string) {}
	}
	o.Every = cmp.Or(o.Every, 10*time.Minute)
	return &Receiver{hooks, gate, documents, o}, nil
}

// Answer is what a forge is told. Exactly one of Run, Ignored and Denial is set.
type Answer struct {
	Run       holdfast.RunID
	Ignored   string
	Denial    holdfast.Denial
	Duplicate bool // it was answered before, and this is that answer
	Quiet     bool // the hook wants refusals answered as successes
	Team      holdfast.TeamID
}

// Receive takes one delivery to a hook. Errors: records.ErrNotFound when there is no
// such hook of that forge, [ErrSignature], an *holdfast.InvalidError for what cannot
// be read or launched, [ErrInProgress], and launch.ErrUnavailable or
// records.ErrUnavailable when nobody could tell: such a delivery, and a refused one,
// may be sent again and is then judged again.
func (r *Receiver) Receive(ctx context.Context, forge Forge, id string, header http.Header, body []byte) (Answer, error) {
	hook, err := r.hooks.get(ctx, id)
	if err == nil && (hook.Forge != forge || hook.Disabled) {
		err = fmt.Errorf("webhook %q of %s: %w", id, forge, records.ErrNotFound)
	}
	if err != nil {
		return Answer{}, err
	}
	secret, err := r.hooks.sealer.Open(about(hook.ID), hook.Sealed)
	if err != nil {
		return Answer{}, fmt.Errorf("open the secret of webhook %s: %w", hook.ID, err)
	}
	if err := verify(forge, header, body, secret); err != nil {
		return Answer{}, err
	}
	answer, outcome, err := r.judge(ctx, hook, header, body)
	r.options.Received(forge, outcome)
	answer.Quiet, answer.Team = hook.Quiet, hook.Team
	return answer, err
}

// judge reads a signed delivery and does what its rule says.
func (r *Receiver) judge(ctx context.Context, hook Hook, header http.Header, body []byte) (answer Answer, outcome string, err error) {
	event, ignored, err := read(hook.Forge, header, body)
	if err != nil {
		return Answer{}, "invalid", err
	}
	d := Delivery{
		ID: hook.ID + "/" + deliveryID(hook.Forge, header, body), Hook: hook.ID, Team: hook.Team, At: r.options.Clock.Now(), Count: 1,
		Event: words(event.Actions), Repo: event.Repo, PR: event.Number, Ignored: ignored,
	}
	var work surface.Work
	if ignored == "" {
		rule, found := hook.match(event)
		if !found {
			d.Ignored = fmt.Sprintf("no rule wants %s of %s#%d%s", d.Event, event.Repo, event.Number, hook.leftOut(event))
		}
		work, d.Bot = rule.work(event), rule.Bot
	}
	if d.Ignored != "" {
		r.note(ctx, d)
		return Answer{Ignored: d.Ignored}, "ignored", nil
	}
	return r.launch(ctx, d, work)
}

// match is the first rule that wants the event.
func (h Hook) match(e Event) (Rule, bool) {
	for _, rule := range h.Rules {
		if rule.matches(e) {
			return rule, true
		}
	}
	return Rule{}, false
}

// leftOut says that an event which no rule wants is a draft's or comes from a fork,
// where a rule would want it otherwise; else it is empty.
func (h Hook) leftOut(e Event) string {
	other := e
	other.Draft, other.Fork = false, false
	switch _, wanted := h.match(other); {
	case !wanted:
		return ""
	case e.Draft && e.Fork:
		return ": it is a draft from a fork"
	case e.Draft:
		return ": it is a draft"
	}
	return ": it comes from a fork"
}

func words(actions []Action) string {
	var list []string
	for _, action := range actions {
		list = append(list, string(action))
	}
	return strings.Join(list, ",")
}

// note keeps a delivery that launches nothing. It is for people to look at, so one
// that cannot be kept is no error.
func (r *Receiver) note(ctx context.Context, d Delivery) {
	if _, err := r.hooks.deliveries.Insert(ctx, d); err != nil && !errors.Is(err, records.ErrExists) {
		r.options.Log.WarnContext(ctx, "a delivery could not be noted", "delivery", d.ID, "error", err)
	}
}

// launch claims the delivery, launches, and writes down what came of it. Who finds it
// claimed or done takes nothing at all.
func (r *Receiver) launch(ctx context.Context, d Delivery, work surface.Work) (answer Answer, outcome string, err error) {
	claimed, done, err := r.claim(ctx, d)
	switch {
	case err != nil:
		return Answer{}, "failed", err
	case done:
		return Answer{Run: claimed.Run, Duplicate: true}, "duplicate", nil
	}
	// A forge hangs up after some seconds; the launch is brought to its end all the same.
	ctx = context.WithoutCancel(ctx)
	v := surface.Try(ctx, r.gate, r.runs, launch.Machine(launch.SurfaceWebhook, d.Team), claimed.Launch, work.Request(d.Team, launch.SurfaceWebhook))
	r.tried(ctx, claimed, v)
	switch {
	case v.Launched():
		return Answer{Run: v.Run}, "launched", nil
	case v.Denial.Denied():
		return Answer{Denial: v.Denial}, "refused", nil
	case v.Permanent():
		return Answer{}, "invalid", v.Err
	}
	return Answer{}, "failed", v.Err
}

// claim makes the delivery this call's own: a new one by its insertion, a known one
// by compare-and-set. done says that it launched before. One that was ignored, refused
// or failed is judged again: its sender may have changed a rule or a limit since.
func (r *Receiver) claim(ctx context.Context, d Delivery) (claimed Delivery, done bool, err error) {
	now := d.At
	d.Launch = d.Launch.Begin(r.runs.NewID(now), now)
	v, err := r.hooks.deliveries.Insert(ctx, d)
	if !errors.Is(err, records.ErrExists) {
		return v.Value, false, err
	}
	known, err := r.hooks.deliveries.Update(ctx, d.ID, func(k *Delivery) error {
		k.Count++
		switch {
		case k.Run != "":
			return nil
		case k.Launch.Claimed(now):
			return ErrInProgress
		}
		k.Launch = k.Launch.Begin(r.runs.NewID(now), now)
		k.Bot, k.Ignored = d.Bot, ""
		return nil
	})
	if errors.Is(err, records.ErrNotFound) { // forgotten a moment ago
		err = ErrInProgress
	}
	return known.Value, known.Value.Run != "", err
}

// tried writes down what came of a claimed delivery. Where that fails, the claim
// lapses, and the delivery sent again finds the run.
func (r *Receiver) tried(ctx context.Context, d Delivery, v surface.Verdict) {
	saving, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := r.hooks.deliveries.Update(saving, d.ID, func(k *Delivery) error {
		if k.Launch.Claim != d.Launch.Claim {
			return records.ErrRevision
		}
		now := r.options.Clock.Now()
		k.Refused = v.Refusal(now)
		if v.Launched() {
			k.Run, k.Launch = v.Run, surface.Attempt{}
			return nil
		}
		k.Launch = k.Launch.Again(v, now, 0)
		return nil
	})
	if err != nil {
		r.options.Log.WarnContext(ctx, "what came of a delivery could not be written down", "delivery", d.ID, "error", err)
	}
}

// Run forgets old deliveries every period until ctx ends, and then returns nil.
func (r *Receiver) Run(ctx context.Context) error {
	tick := time.NewTicker(r.options.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := r.Forget(ctx); err != nil && ctx.Err() == nil {
				r.options.Log.WarnContext(ctx, "old deliveries could not be removed", "error", err)
			}
		}
	}
}

// Forget removes the deliveries that are older than they are kept.
func (r *Receiver) Forget(ctx context.Context) error {
	q := records.Query{Index: indexAt, AtMost: surface.Stamp(r.options.Clock.Now().Add(-KeepDeliveries)), Limit: records.DefaultPage}
	return r.hooks.deliveries.Walk(ctx, q, func(v records.Versioned[Delivery]) error {
		err := r.hooks.deliveries.Delete(ctx, v.Value.ID)
		if errors.Is(err, records.ErrNotFound) {
			return nil
		}
		return err
	})
}
