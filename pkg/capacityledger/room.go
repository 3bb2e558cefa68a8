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

// Consider judges an ask on a balance that somebody else vouches for, which need
// not be the ledger's: the same judgement where the ledger cannot be asked. A
// balance without holders counts every reservation of others whole.
func Consider(b Balance, ask Ask) (Verdict, holdfast.Denial, error) {
	ask, err := ask.Checked()
	if err != nil {
		return Verdict{}, holdfast.Denial{}, err
	}
	b.Subject = ask.subject
	verdict := Judge(Excluding{b}.Plus(ask.Holder, ask.Requested), ask)
	if verdict.Refused {
		return verdict, denialOf(ask, verdict, b), nil
	}
	return verdict, holdfast.Denial{}, nil
}
