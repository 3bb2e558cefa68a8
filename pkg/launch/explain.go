package launch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/records"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// Explain tells the story of a run or of a decision, by its id: how the gate judged
// it, check for check, who holds what now on the subjects that matter, and for a
// refusal the smallest change that would have admitted it and when it can fit.
func (s *Service) Explain(ctx context.Context, who auth.Principal, id string) (Explanation, error) {
	run, err := s.owned(ctx, who, holdfast.RunID(id), auth.Viewer)
	switch {
	case err == nil:
		return s.explainRun(ctx, who, run)
	case !errors.Is(err, ErrNotFound):
		return Explanation{}, err
	}
	decision, err := s.Decisions.Get(ctx, id)
	switch {
	case errors.Is(err, records.ErrNotFound), err == nil && !who.May(decision.Team, auth.Viewer):
		return Explanation{}, fmt.Errorf("%s is no run and no decision: %w", holdfast.Clip(id, 64), ErrNotFound)
	case err != nil:
		return Explanation{}, unavailable(err)
	}
	e := Explanation{Decision: &decision, Summary: judgement(decision)}
	if decision.Run != "" {
		if run, err := s.Runs.Get(ctx, decision.Run); err == nil {
			e.Run = &run
			e.Summary = append(append(past(run), e.Summary...), life(run)...)
		}
	}
	if !decision.Subject.IsZero() {
		if view, err := s.CapacitySubject(ctx, who, decision.Subject); err == nil { // else it is told without
			e.Capacity = append(e.Capacity, view)
		}
	}
	if !decision.Admitted {
		e.Change = change(decision)
		e.Earliest, e.Until = s.earliest(decision, e.Capacity)
	}
	return e, nil
}

func (s *Service) explainRun(ctx context.Context, who auth.Principal, run runs.Run) (Explanation, error) {
	e := Explanation{Run: &run, Summary: past(run)}
	decision, err := s.Decisions.Get(ctx, run.DecisionID)
	switch {
	case err == nil:
		e.Decision = &decision
		e.Summary = append(e.Summary, judgement(decision)...)
	case !errors.Is(err, records.ErrNotFound):
		return Explanation{}, unavailable(err)
	}
	e.Summary = append(e.Summary, life(run)...)
	rules, err := s.readRules(ctx)
	if err != nil {
		return Explanation{}, err
	}
	for _, hold := range run.Holds {
		view, err := s.viewOf(ctx, who, rules, hold.Subject)
		if err != nil {
			return Explanation{}, err
		}
		e.Capacity = append(e.Capacity, view)
	}
	return e, nil
}

// judgement says in sentences who asked, who held what at that instant, and how it
// was judged. The arithmetic is in the decision's checks, once.
func judgement(d decisions.Decision) []string {
	who := d.Bot
	if !d.Identity.IsZero() {
		who = d.Identity.String()
	}
	asked, again := "launch", true
	switch Surface(d.Surface) {
	case SurfaceResume, SurfaceRetry:
		asked = "resume"
	case SurfaceDLQReplay:
		asked = "replay"
	default:
		again = false
	}
	lines := []string{fmt.Sprintf("%s: %s asked to %s %s in team %s.", stamp(d.At), d.Caller, asked, who, d.Team)}
	if d.Count > 1 {
		lines = append(lines, fmt.Sprintf("The same refusal came %d times until %s.", d.Count, stamp(d.LastAt)))
	}
	if held := holders(d); held != "" {
		lines = append(lines, fmt.Sprintf("Then %s on %s.", held, d.Subject))
	}
	switch {
	case d.Admitted && again:
		return append(lines, fmt.Sprintf("It was admitted again, with %s to spend.", d.Budget.Dollars()))
	case d.Admitted:
		return append(lines, fmt.Sprintf("It was admitted as run %s with a budget of %s.", d.Run, d.Budget.Dollars()))
	case d.Subject.IsZero():
		return append(lines, fmt.Sprintf("It was refused: %s.", d.Detail))
	case d.Cause != "":
		lines = append(lines, fmt.Sprintf("It was refused on %s: %s, because the rest is reserved (%s).", d.Subject, d.Reason, d.Cause))
	default:
		lines = append(lines, fmt.Sprintf("It was refused on %s: %s.", d.Subject, d.Reason))
	}
	return append(lines, "What comes behind that check was not judged; a preview judges all of it.")
}

// holders says who held what when a launch was refused.
func holders(d decisions.Decision) string {
	var held []string
	for _, h := range d.Holdings() {
		name := h.Holder.String()
		if h.Holder.IsZero() {
			name = "others"
		}
		text := fmt.Sprintf("%s held %s", name, h.Settled.Plus(h.Outstanding))
		if !h.Reserved.IsZero() {
			text += fmt.Sprintf(" of the %s reserved for it", h.Reserved)
		}
		held = append(held, text)
	}
	return strings.Join(held, ", ")
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// life says in sentences what became of a run.
func life(run runs.Run) []string {
	var lines []string
	tell := func(at time.Time, format string, args ...any) {
		if !at.IsZero() {
			lines = append(lines, stamp(at)+": "+fmt.Sprintf(format, args...)+".")
		}
	}
	if run.Asked > 0 {
		lines = append(lines, fmt.Sprintf("Its caller had asked for a budget of %s, and %s.", run.Asked.Dollars(), cutWords(run.CutBy)))
	}
	if run.Unheld != "" {
		tell(run.CreatedAt, "it was admitted without an allocation (%s); a sweep records what it uses", run.Unheld)
	}
	if run.Published > 0 {
		tell(run.QueuedAt, "it was queued (message %d)", run.Published)
	}
	tell(run.StartedAt, "attempt %d began", run.Attempt)
	if run.Status == runs.Running {
		tell(run.ReportedAt, "it was last heard of, having spent %s of %s", run.Spent.Dollars(), run.Budget.Dollars())
	}
	reason := ""
	if run.StatusReason != runs.ReasonNone {
		reason = " (" + string(run.StatusReason) + ")"
	}
	tell(run.EndedAt, "it is %s%s, having spent %s of %s", run.Status, reason, run.Spent.Dollars(), run.Budget.Dollars())
	switch {
	case run.Unsettled():
		lines = append(lines, "What it held is not closed yet; a sweep will.")
	case run.Settled:
		lines = append(lines, "What it did not use was given back.")
	}
	if text := comesBack(run); text != "" {
		lines = append(lines, text)
	}
	return lines
}

// comesBack says how a run stands with coming back by itself; empty when it neither
// does nor did.
func comesBack(run runs.Run) string {
	r := run.Retry
	switch {
	case r.GivenUp != "":
		return fmt.Sprintf("It does not come back by itself any more: %s.", r.GivenUp)
	case !run.RetryOpen():
		return ""
	}
	text := "It comes back by itself"
	if !r.NotBefore.IsZero() {
		text += ", at " + stamp(r.NotBefore) + " at the earliest"
	}
	if run.Status == runs.FailedResumable {
		text += fmt.Sprintf(" (retry %d of %d)", r.Tries+1, run.Bot.Retries)
	}
	if r.Last != "" {
		text += fmt.Sprintf("; it was last refused by %s, which consumes no retry", r.Last)
	}
	return text + "."
}

// change is the smallest change that would have admitted a refused launch.
func change(d decisions.Decision) string {
	denial := d.Denial()
	switch d.Reason {
	case holdfast.DenyMaintenance:
		return "lift the maintenance fence"
	case holdfast.DenyNoTeam, holdfast.DenyRole:
		return fmt.Sprintf("use a token of team %s with the role member", d.Team)
	case holdfast.DenyUnknownTeam:
		return fmt.Sprintf("create the team %s", d.Team)
	case holdfast.DenyTeamSuspended:
		return fmt.Sprintf("lift the suspension of team %s, or of its organisation", d.Team)
	case holdfast.DenyRepoQuota:
		return fmt.Sprintf("raise the quota of %s above what is used (holdfast policy quota)", d.Repo)
	case holdfast.DenyLaunchRate:
		return fmt.Sprintf("raise launches_per_minute of team %s, or of its organisation", d.Team)
	case holdfast.DenyUnknownBot:
		return fmt.Sprintf("create the bot %s for team %s or for the platform", d.Bot, d.Team)
	case holdfast.DenyLane:
		return "use a bot of a lane that this build runs"
	case holdfast.DenyConcurrency, holdfast.DenyMonthlyRuns, holdfast.DenyMonthlyUSD:
	case holdfast.DenyWindowExhausted, holdfast.DenyNoCredential, holdfast.DenyDonorLimit, holdfast.DenyRunnerPoolInUse, holdfast.DenyUnknownCapacity:
		return ""
	}
	if denial.Cap.None() || denial.Subject.IsZero() {
		return ""
	}
	least := denial.Requested
	if denial.Subject.Axis == holdfast.AxisUSD {
		least = denial.Minimum
		if least.IsZero() {
			least = holdfast.USDAmount(1)
		}
	}
	short := least.Minus(denial.Remaining)
	text := fmt.Sprintf("raise the cap of %s from %s to %s", denial.Subject, denial.Cap, denial.Cap.Max().Plus(short))
	if denial.Cause == holdfast.CauseReserved {
		text += fmt.Sprintf(", or reserve %s less for others (or lend it out: holdfast policy suspend)", short)
	}
	if denial.Subject.Axis == holdfast.AxisUSD && denial.Remaining.Int() > 0 {
		text += fmt.Sprintf(", or accept %s (min_budget_usd)", denial.Remaining)
	}
	return text
}

// earliest says when a refused launch can fit at the earliest, and what must happen;
// zero is that nobody can say. now are the subjects as they are now.
func (s *Service) earliest(d decisions.Decision, now []SubjectView) (time.Time, string) {
	switch {
	case !d.Retryable:
		return time.Time{}, "waiting does not help"
	case d.Reason == holdfast.DenyMaintenance && d.ResetAt.IsZero():
		return time.Time{}, "when the maintenance ends"
	case d.Reason == holdfast.DenyMaintenance:
		return d.ResetAt, "when the maintenance fence lifts itself"
	case d.Reason == holdfast.DenyLaunchRate:
		return d.LastAt.Add(d.RetryAfter), "when the rate has a launch again"
	case d.Reason == holdfast.DenyConcurrency:
		for _, view := range now {
			if !view.NextExpiry.IsZero() {
				return view.NextExpiry.Add(s.options.Skew), "when a run that holds a slot ends, or then, if the holder of the oldest lease is gone"
			}
		}
		return time.Time{}, "when a run that holds a slot ends"
	case !d.ResetAt.IsZero():
		return d.ResetAt, "when the next month begins, or before when runs settle below their budget"
	case d.RetryAfter > 0:
		return d.LastAt.Add(d.RetryAfter), "when asked again then"
	}
	return time.Time{}, ""
}
