package capacityledger

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
)

// denialOf words a refusal with everything that it was judged by. before is the
// state without the ask.
func denialOf(ask Ask, v Verdict, before Balance) holdfast.Denial {
	subject := ask.Subject()
	unit := subject.Axis.Unit()
	d := holdfast.Denial{
		Reason:      subject.Axis.DenyReason(),
		Subject:     subject,
		Cap:         ask.Terms.Cap,
		Requested:   ask.Requested,
		Minimum:     ask.Minimum,
		Settled:     holdfast.AmountOf(unit, before.Settled),
		Outstanding: holdfast.AmountOf(unit, before.Outstanding),
		Withheld:    holdfast.AmountOf(unit, v.Withheld),
		Remaining:   holdfast.AmountOf(unit, v.Remaining),
		Holders:     Holdings(ask.Terms, before),
		Retryable:   !v.Hopeless,
	}
	if v.Held {
		d.Cause = holdfast.CauseReserved
	}
	if subject.Axis == holdfast.AxisSlots {
		d.RetryAfter = 30 * time.Second
	}
	if month, err := time.Parse("2006-01", subject.Period); err == nil {
		d.ResetAt = holdfast.MonthEnd(month)
	}
	d.Public = sentence(d)
	return d
}

// sentence says the arithmetic in words.
func sentence(d holdfast.Denial) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is full for this bot: the cap is %s", d.Subject, d.Cap)
	if !d.Settled.IsZero() {
		fmt.Fprintf(&b, ", %s used", d.Settled)
	}
	fmt.Fprintf(&b, ", %s promised", d.Outstanding)
	if !d.Withheld.IsZero() {
		fmt.Fprintf(&b, ", %s reserved for others", d.Withheld)
	}
	fmt.Fprintf(&b, "; %s asked", d.Requested)
	switch {
	case !d.Retryable:
		b.WriteString("; this ask can never fit, ask for less or raise the cap")
	case !d.ResetAt.IsZero():
		fmt.Fprintf(&b, "; it fits when runs settle below their budget, or from %s on", d.ResetAt.Format(time.RFC3339))
	case d.Cause == holdfast.CauseReserved:
		b.WriteString("; what is free is reserved")
	default:
		b.WriteString("; it fits when a run ends")
	}
	return b.String()
}

// Holdings lists who holds how much and what is reserved for whom, reservations
// first in the policy's order, each as cut to what the cap leaves it.
func Holdings(terms Terms, b Balance) []holdfast.Holding {
	unit := b.Subject.Axis.Unit()
	out := make([]holdfast.Holding, 0, len(terms.Reserved)+len(b.Holders))
	at := map[holdfast.Identity]int{}
	left := max(0, terms.Cap.Max().Int())
	for _, r := range terms.Reserved {
		amount := max(0, r.Amount.Int())
		if !terms.Cap.None() {
			amount = min(amount, left)
			left -= amount
		}
		if i, again := at[r.Holder]; again {
			out[i].Reserved = out[i].Reserved.Plus(holdfast.AmountOf(unit, amount))
			continue
		}
		at[r.Holder] = len(out)
		out = append(out, holdfast.Holding{Holder: r.Holder, Reserved: holdfast.AmountOf(unit, amount), Settled: holdfast.AmountOf(unit, 0), Outstanding: holdfast.AmountOf(unit, 0)})
	}
	for _, h := range b.Holders {
		if h.Settled == 0 && h.Outstanding == 0 {
			continue
		}
		i, ok := at[h.Holder]
		if !ok {
			i = len(out)
			out = append(out, holdfast.Holding{Holder: h.Holder, Reserved: holdfast.AmountOf(unit, 0)})
		}
		out[i].Settled = holdfast.AmountOf(unit, h.Settled)
		out[i].Outstanding = holdfast.AmountOf(unit, h.Outstanding)
	}
	return out
}
