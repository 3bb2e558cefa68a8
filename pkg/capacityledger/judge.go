package capacityledger

import "github.com/holdfast-io/holdfast"

// PostAdmit is a subject's state that already contains the ask: its requested
// amount is in Outstanding and in its holder's. There are two roads to one and no
// third, so nobody adds the ask again (ADR-155 §1): a twin moves first and shows
// what it then sees, or [Excluding.Plus] adds the ask to a reading without it.
type PostAdmit struct {
	Settled     int64
	Outstanding int64
	// Holders has every holder with something on the subject. The judge reads it
	// only during the call; a twin may show its own memory.
	Holders []Holding
}

// Excluding is a subject's state that leaves the asker out.
type Excluding struct{ Balance Balance }

// Plus is the state after the ask: what a twin would have shown.
func (e Excluding) Plus(holder holdfast.Identity, requested holdfast.Amount) PostAdmit {
	post := PostAdmit{
		Settled:     e.Balance.Settled,
		Outstanding: e.Balance.Outstanding + requested.Int(),
		Holders:     make([]Holding, 0, len(e.Balance.Holders)+1),
	}
	found := false
	for _, h := range e.Balance.Holders {
		if h.Holder == holder {
			h.Outstanding += requested.Int()
			found = true
		}
		post.Holders = append(post.Holders, h)
	}
	if !found {
		post.Holders = append(post.Holders, Holding{Holder: holder, Outstanding: requested.Int()})
	}
	return post
}

// Verdict is the judge's answer: an allowance, or a refusal with its arithmetic.
type Verdict struct {
	Refused   bool
	Allowance int64
	// Withheld, Remaining and PlainRemaining are the arithmetic: what the others'
	// unused reservations take away, what is left for this asker, and what would be
	// left were nothing reserved.
	Withheld, Remaining, PlainRemaining int64
	// Settled and Outstanding are the totals without the ask.
	Settled, Outstanding int64
	// Replayed says that the ask was granted before: the allocation was found, and there is
	// no arithmetic. The judge never sets it.
	Replayed bool
	// Held says that only a reservation stood in the way.
	Held bool
	// Hopeless says that no return of capacity can ever admit the ask.
	Hopeless bool
}

// Judge decides one ask over the post-admit state. It is the only place where
// capacity is granted or refused. Dollars may be granted in part, countable axes
// are granted whole or not at all; zero is never granted on a capped subject.
func Judge(post PostAdmit, ask Ask) Verdict {
	requested := ask.Requested.Int()
	if ask.Terms.Cap.None() || ask.Unjudged {
		return Verdict{Allowance: requested, Settled: post.Settled, Outstanding: post.Outstanding - requested}
	}
	limit := ask.Terms.Cap.Max().Int()
	v := Verdict{Withheld: withheld(&post, &ask, limit), Settled: post.Settled, Outstanding: post.Outstanding - requested}
	v.PlainRemaining = limit - (post.Settled + post.Outstanding - requested)
	v.Remaining = v.PlainRemaining - v.Withheld

	granted, ok := grant(v.Remaining, requested, &ask)
	if ok {
		v.Allowance = granted
		return v
	}
	v.Refused = true
	_, v.Held = grant(v.PlainRemaining, requested, &ask)
	v.Hopeless = least(&ask) > limit-othersReserves(&ask, limit)
	return v
}

// grant says how much of the ask fits into what remains.
func grant(remaining, requested int64, ask *Ask) (int64, bool) {
	if remaining <= 0 {
		return 0, false
	}
	if !divisible(ask.Subject().Axis) {
		return requested, requested <= remaining
	}
	allowance := min(requested, remaining)
	return allowance, allowance >= ask.Minimum.Int()
}

// divisible says whether less than the ask is worth granting.
func divisible(axis holdfast.Axis) bool { return axis == holdfast.AxisUSD }

// least is the smallest grant that the ask can live with.
func least(ask *Ask) int64 {
	if divisible(ask.Subject().Axis) {
		return max(1, ask.Minimum.Int())
	}
	return ask.Requested.Int()
}

// withheld is what the reservations of other holders take away from this asker:
// of each, the part that its holder does not hold yet (ADR-155, the exact rule).
// On dollar axes what a holder has already spent counts as held.
func withheld(post *PostAdmit, ask *Ask, limit int64) int64 {
	var sum int64
	left := max(0, limit)
	for i, r := range ask.Terms.Reserved {
		effective := min(max(0, r.Amount.Int()), left)
		left -= effective
		if r.Holder == ask.Holder || effective == 0 {
			continue
		}
		sum += max(0, effective-max(0, held(post, r.Holder, ask.Subject().Axis)-promisedBefore(ask.Terms.Reserved[:i], r.Holder)))
	}
	return sum
}

// promisedBefore is what earlier reservations of the same holder already explain of
// what it holds, so that one slot does not fill two reservations.
func promisedBefore(earlier []Reserved, holder holdfast.Identity) int64 {
	var sum int64
	for _, r := range earlier {
		if r.Holder == holder {
			sum += max(0, r.Amount.Int())
		}
	}
	return sum
}

// othersReserves is the sum of the others' reservations, each as cut to the cap.
func othersReserves(ask *Ask, limit int64) int64 {
	var sum int64
	left := max(0, limit)
	for _, r := range ask.Terms.Reserved {
		effective := min(max(0, r.Amount.Int()), left)
		left -= effective
		if r.Holder != ask.Holder {
			sum += effective
		}
	}
	return sum
}

func held(post *PostAdmit, holder holdfast.Identity, axis holdfast.Axis) int64 {
	for i := range post.Holders {
		if post.Holders[i].Holder == holder {
			if axis == holdfast.AxisUSD {
				return post.Holders[i].Outstanding + post.Holders[i].Settled
			}
			return post.Holders[i].Outstanding
		}
	}
	return 0
}
