package capacityledger

import "github.com/holdfast-io/holdfast"

// Room is what the smallest ask of a holder would be judged at on a balance: its
// Remaining is what is left for that holder, its Withheld what others' reservations
// take away. The zero identity is a caller without a reservation. It is for views;
// nothing is granted by it.
func Room(b Balance, terms Terms, holder holdfast.Identity) Verdict {
	ask := Ask{Terms: terms, Holder: holder, Requested: holdfast.AmountOf(b.Subject.Axis.Unit(), 1), subject: b.Subject}
	return Judge(Excluding{b}.Plus(holder, ask.Requested), ask)
}
