package incident

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
)

// ErrBroken: a printed promise was not kept.
var ErrBroken = errors.New("a promise was not kept")

// table prints every launch with its answer.
func (p *play) table() error {
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "#\tclient\tteam\tbot\tanswer\treason\tholders\tarithmetic")
	for _, a := range p.attempts {
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\n", a.number, a.client, a.team, a.bot, a.answer())
	}
	return w.Flush()
}

// answer is the table's cells of one answer.
func (a attempt) answer() string {
	if a.refused == nil {
		return fmt.Sprintf("admitted\t\t\t%s granted", a.run.BudgetUSD.Dollars())
	}
	problem := a.refused.Problem
	reason := problem.Reason
	if problem.Cause != "" {
		reason = problem.Cause
	}
	return fmt.Sprintf("refused\t%s\t%s\t%s", reason, holders(problem), arithmetic(problem))
}

func holders(problem api.Problem) string {
	var parts []string
	for _, h := range problem.Holders {
		if n := number(h.Outstanding); n > 0 {
			parts = append(parts, strings.TrimPrefix(h.Holder, "platform/")+" "+show(h.Outstanding))
		}
	}
	if len(parts) == 0 {
		return "nobody"
	}
	return strings.Join(parts, ", ")
}

// arithmetic is the refusal's sum: cap - used - promised - reserved = left, asked.
func arithmetic(problem api.Problem) string {
	if problem.Cap == nil || problem.Outstanding == nil || problem.Remaining == nil || problem.Requested == nil {
		return problem.Detail
	}
	text := show(*problem.Cap)
	for _, part := range []struct {
		amount *api.Amount
		word   string
	}{{problem.Settled, "used"}, {problem.Outstanding, "promised"}, {problem.Withheld, "reserved"}} {
		if part.amount != nil && number(*part.amount) != 0 {
			text += " - " + show(*part.amount) + " " + part.word
		}
	}
	return fmt.Sprintf("%s = %s, asked %s", text, show(*problem.Remaining), show(*problem.Requested))
}

// promise is one sentence that must hold.
type promise struct {
	kept bool
	text string
}

// promises prints what must hold and whether it did.
func (p *play) promises(before, after []api.SubjectCapacity, ended []api.Run, gained, lost int) error {
	tally := p.tally()
	var spent holdfast.MicroUSD
	finished := 0
	for _, run := range ended {
		spent += run.SpentUSD
		if run.Status == "finished" {
			finished++
		}
	}
	slots, usd := find(after, "platform/all/slots"), findPrefix(after, "platform/all/usd@")
	charged := number(usd.Settled) - number(findPrefix(before, "platform/all/usd@").Settled)
	list := []promise{
		{tally.reviewsRefused == 0 && tally.reviews == reviewClients*reviewsEach, fmt.Sprintf("every %s was admitted when it asked: %d of %d", reviewBot, tally.reviews, reviewClients*reviewsEach)},
		{tally.features > 0 && tally.heldOut > 0, fmt.Sprintf("%s was admitted %d times and refused %d times, %d of these only because the rest is reserved", featureBot, tally.features, tally.featuresRefused, tally.heldOut)},
		{p.peak.samples > 0 && p.peak.all <= sharedSlots && p.peak.ordinary <= sharedSlots-reservedSlots, fmt.Sprintf("in %d looks all runs held at most %d of %d slots, ordinary ones at most %d of %d", p.peak.samples, p.peak.all, sharedSlots, p.peak.ordinary, sharedSlots-reservedSlots)},
		{number(usd.Settled) <= int64(sharedUSD), fmt.Sprintf("%s of %s dollars are used, never more", show(usd.Settled), dollars(sharedUSD))},
		{finished == len(ended) && len(ended) == tally.reviews+tally.features, fmt.Sprintf("all %d admitted runs finished", len(ended))},
		{number(slots.Outstanding) == 0 && number(usd.Outstanding) == 0, fmt.Sprintf("everything promised came back: %s and %s are outstanding", show(slots.Outstanding), show(usd.Outstanding))},
		{charged == int64(spent), fmt.Sprintf("what the runs said they spent, %s, is what was charged, %s", spent.Dollars(), holdfast.MicroUSD(charged).Dollars())},
		{gained > 0 && lost > 0, fmt.Sprintf("the simulation shows both sides: the holder gained %d runs, the others lost %d", gained, lost)},
	}
	fmt.Fprintln(p.out)
	broken := 0
	for _, promised := range list {
		mark := "kept  "
		if !promised.kept {
			mark = "BROKEN"
			broken++
		}
		fmt.Fprintf(p.out, "%s  %s\n", mark, promised.text)
	}
	if broken > 0 {
		return fmt.Errorf("%w: %d of %d", ErrBroken, broken, len(list))
	}
	return nil
}

type tally struct{ reviews, reviewsRefused, features, featuresRefused, heldOut int }

func (p *play) tally() tally {
	var t tally
	for _, a := range p.attempts {
		switch {
		case a.bot == reviewBot && a.refused == nil:
			t.reviews++
		case a.bot == reviewBot:
			t.reviewsRefused++
		case a.refused == nil:
			t.features++
		default:
			t.featuresRefused++
			if a.refused.Problem.Cause == string(holdfast.CauseReserved) {
				t.heldOut++
			}
		}
	}
	return t
}

func find(subjects []api.SubjectCapacity, name string) api.SubjectCapacity {
	for _, s := range subjects {
		if s.Subject == name {
			return s
		}
	}
	return api.SubjectCapacity{}
}

func findPrefix(subjects []api.SubjectCapacity, prefix string) api.SubjectCapacity {
	for _, s := range subjects {
		if strings.HasPrefix(s.Subject, prefix) {
			return s
		}
	}
	return api.SubjectCapacity{}
}

// number is an amount in its unit's grain: micro-dollars for dollars, else as it is.
func number(a api.Amount) int64 {
	if a.Unit == holdfast.UnitUSD.String() {
		sign, text := int64(1), a.Value
		if rest, negative := strings.CutPrefix(text, "-"); negative {
			sign, text = -1, rest
		}
		m, err := holdfast.ParseUSD(text)
		if err != nil {
			return 0
		}
		return sign * int64(m)
	}
	n, _ := strconv.ParseInt(a.Value, 10, 64)
	return n
}

func show(a api.Amount) string {
	if a.Unit == holdfast.UnitUSD.String() {
		return holdfast.MicroUSD(number(a)).Dollars()
	}
	return a.Value
}

func dollars(m holdfast.MicroUSD) string {
	return strings.TrimSuffix(strings.TrimPrefix(m.Dollars(), "$"), ".00")
}
