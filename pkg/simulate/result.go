package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
)

// Result is what a replay answers. Its JSON is the product's; [Result.Text] is the
// same for people.
type Result struct {
	Trace       TraceSummary `json:"trace"`
	Assumptions []string     `json:"assumptions"`
	Caps        CapsUsed     `json:"caps"`
	Scenarios   []Scenario   `json:"scenarios"` // without and with the policy, and against another one
	// Difference compares with to without; AgainstDifference against to with.
	Difference        []Difference `json:"difference"`
	AgainstDifference []Difference `json:"against_difference,omitempty"`
	Warnings          []string     `json:"warnings"`
	Summary           []string     `json:"summary"`
}

// TraceSummary says what was replayed.
type TraceSummary struct {
	Files       []string  `json:"files"`
	Rows        int       `json:"rows"`
	Skipped     int       `json:"skipped"`
	SkipReasons []string  `json:"skip_reasons,omitempty"`
	From        time.Time `json:"from"`
	To          time.Time `json:"to"`
	Teams       int       `json:"teams"`
}

// CapsUsed are the caps of the replay, and where they come from when the trace's own
// peaks made them.
type CapsUsed struct {
	Caps
	Derived bool     `json:"derived"`
	Said    []string `json:"said,omitempty"`
}

// Scenario is one replay of the whole trace.
type Scenario struct {
	Name     string      `json:"name"`
	Totals   Count       `json:"totals"`
	PeakRuns int         `json:"peak_runs"`
	ByTeam   []TeamCount `json:"by_team"`
	ByBot    []BotCount  `json:"by_bot"`
	Windows  []Window    `json:"windows"`
	Reserves []Reserve   `json:"reserves"`

	fates []fate
}

// TeamCount is what became of a team's launches.
type TeamCount struct {
	Team holdfast.TeamID `json:"team"`
	Count
}

// BotCount is what became of a bot's launches.
type BotCount struct {
	Identity holdfast.Identity `json:"identity"`
	Count
}

// Difference is both sides of a policy for one bot: the runs that only the later
// scenario admits, and those that only the earlier one does.
type Difference struct {
	Identity  holdfast.Identity `json:"identity"`
	Gained    int               `json:"gained"`
	Lost      int               `json:"lost"`
	GainedUSD holdfast.MicroUSD `json:"gained_usd"`
	LostUSD   holdfast.MicroUSD `json:"lost_usd"`
}

func newResult(in Input) Result {
	t := in.Trace
	return Result{
		Trace:       TraceSummary{Files: t.Files, Rows: len(t.Rows), Skipped: t.Skipped, SkipReasons: t.SkipReasons, From: t.From(), To: t.To(), Teams: len(t.Teams())},
		Assumptions: append(slices.Clone(t.Assumptions), modelSaid(in)...),
	}
}

// modelSaid says how a replay treats what production does not let a replay know.
func modelSaid(in Input) []string {
	said := []string{
		"a run that is granted less than it costs ends when that is spent",
		"a window is a dollar-equivalent of one account that all runs share: it opens with the first run after the one before has closed, a run asks for its whole cost and holds it until it ends, and what has ended no longer counts as held by its holder",
	}
	if in.Patience > 0 {
		return append(said, fmt.Sprintf("a refused run asks again when it is told it may, else every %s, for %s at most (--patience); who still asks when the trace ends is waiting", askAgain, in.Patience))
	}
	return append(said, "a refusal is final (--patience D lets a run ask again)")
}

// Scenario is the scenario of that name; the zero Scenario when there is none.
func (r Result) Scenario(name string) Scenario {
	for _, s := range r.Scenarios {
		if s.Name == name {
			return s
		}
	}
	return Scenario{}
}

// Both sums the two sides up: the runs that were gained, and those that were lost.
func (r Result) Both() (gained, lost int) {
	for _, d := range r.Difference {
		gained += d.Gained
		lost += d.Lost
	}
	return gained, lost
}

// compare fills in what the scenarios say together.
func (r *Result) compare(in Input) {
	without, with := r.Scenario(ScenarioWithout), r.Scenario(ScenarioWith)
	holders := in.Policy.Holders()
	r.Difference = differences(in.Trace.Rows, without, with, holders)
	r.Summary = append(r.Summary, sentences("the policy", with, without, r.Difference, holders)...)
	r.Warnings = []string{}
	r.warn(in.Policy.Holders(), with, "")
	if in.Against == nil {
		return
	}
	against := r.Scenario(ScenarioAgainst)
	holders = append(holders, in.Against.Holders()...)
	r.AgainstDifference = differences(in.Trace.Rows, with, against, holders)
	r.Summary = append(r.Summary, sentences("the other policy, compared with the first,", against, with, r.AgainstDifference, in.Against.Holders())...)
	r.warn(in.Against.Holders(), against, "the other policy: ")
}

// differences compares the fates of the rows, bot by bot: who gained most first.
func differences(rows []Row, before, after Scenario, holders []holdfast.Identity) []Difference {
	at := map[holdfast.Identity]*Difference{}
	of := func(i holdfast.Identity) *Difference {
		if at[i] == nil {
			at[i] = &Difference{Identity: i}
		}
		return at[i]
	}
	for _, h := range holders {
		of(h)
	}
	for i, row := range rows {
		d := of(row.Identity)
		was, is := before.fates[i], after.fates[i]
		switch {
		case is.outcome == outAdmitted && was.outcome != outAdmitted:
			d.Gained++
			d.GainedUSD += is.spent
		case was.outcome == outAdmitted && is.outcome != outAdmitted:
			d.Lost++
			d.LostUSD += was.spent
		}
	}
	out := make([]Difference, 0, len(at))
	for _, d := range at {
		out = append(out, *d)
	}
	slices.SortFunc(out, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(b.Gained, a.Gained), cmp.Compare(b.Lost, a.Lost), cmp.Compare(a.Identity.String(), b.Identity.String()))
	})
	return out
}

// sentences say both sides in plain words.
func sentences(what string, after, before Scenario, differences []Difference, holders []holdfast.Identity) []string {
	if len(holders) == 0 {
		return []string{upper(what) + " reserves nothing: every launch fares as without it."}
	}
	var gains []string
	lost, lostUSD, losers := 0, holdfast.MicroUSD(0), 0
	for _, d := range differences {
		if slices.Contains(holders, d.Identity) {
			gains = append(gains, gain(d.Identity, after.bot(d.Identity), before.bot(d.Identity)))
			continue
		}
		if net := d.Lost - d.Gained; net > 0 {
			lost, losers = lost+net, losers+1
			lostUSD += d.LostUSD - d.GainedUSD
		}
	}
	out := []string{"With " + what + " " + strings.Join(gains, "; ") + "."}
	if lost == 0 {
		out = append(out, fmt.Sprintf("The others lost no run to it; %d of their launches were refused only because of a reserve.", after.Totals.HeldOut))
	} else {
		out = append(out, fmt.Sprintf("The others (%s) lost %s and %s of work to it; %d launches were refused only because of a reserve.", plural(losers, "bot"), plural(lost, "run"), cents(max(0, lostUSD)), after.Totals.HeldOut))
	}
	for _, r := range after.Reserves {
		if r.Subjects > 0 {
			out = append(out, fmt.Sprintf("Of what is held back for %s on %s, %s lay idle: %s of %s (%d%%).", r.Identity, r.Axis, idleWord(r), r.amount(r.Idle), r.amount(r.Reserved), r.IdlePercent))
		}
	}
	return out
}

// gain is the holder's side.
func gain(holder holdfast.Identity, now, was Count) string {
	if now.Asked == 0 {
		return fmt.Sprintf("%s gains nothing, for it has no launch in this trace", holder)
	}
	return fmt.Sprintf("%s gets %d of its %s through instead of %d", holder, now.Admitted, plural(now.Asked, "launch"), was.Admitted)
}

func plural(n int, word string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(word, "ch"):
		word += "es"
	default:
		word += "s"
	}
	return fmt.Sprintf("%d %s", n, word)
}

func idleWord(r Reserve) string {
	switch {
	case r.IdlePercent == 0:
		return "nothing"
	case r.IdlePercent < 50:
		return "a part"
	case r.IdlePercent < 100:
		return "most"
	}
	return "all"
}

// amount prints a measure of the reserve for people.
func (r Reserve) amount(value string) string {
	if r.Unit == "usd" {
		if m, err := holdfast.ParseUSD(value); err == nil {
			return cents(m)
		}
	}
	return value + " slot-hours"
}

// cents prints dollars rounded to the cent.
func cents(m holdfast.MicroUSD) string {
	return ((m + 5_000) / 10_000 * 10_000).Dollars()
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// bot is the count of an identity; the zero Count when it asked for nothing.
func (s Scenario) bot(identity holdfast.Identity) Count {
	for _, b := range s.ByBot {
		if b.Identity == identity {
			return b.Count
		}
	}
	return Count{}
}

// warn says what makes a reservation say nothing.
func (r *Result) warn(holders []holdfast.Identity, s Scenario, prefix string) {
	for _, h := range holders {
		if s.bot(h).Asked == 0 {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%sno row of the trace is %s: its reservation can only cost here (--map bot=COLUMN or --assign tenant=T,bot=B say who is who)", prefix, h))
		}
	}
	for _, reserve := range s.Reserves {
		if !reserve.Capped {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s%s reserves %s, and nothing caps that in this replay: it holds nothing back", prefix, reserve.Identity, axisWord(reserve.Axis)))
		}
	}
}

func axisWord(a holdfast.Axis) string {
	switch a {
	case holdfast.AxisSlots:
		return "slots"
	case holdfast.AxisUSD:
		return "dollars of the month"
	case holdfast.AxisFiveHour:
		return "a share of the five-hour window"
	case holdfast.AxisWeek:
		return "a share of the week"
	case holdfast.AxisRuns, holdfast.AxisInFlight:
	}
	return string(a)
}
