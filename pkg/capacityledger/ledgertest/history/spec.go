package history

import (
	"fmt"
	"strings"
)

const (
	ids      = 6 // allocation ids of one history
	attempts = 3 // attempts of one run
	holders  = 4 // the last one asks only under ids that are others
)

// verb is what a client does.
type verb uint8

const (
	reserve verb = iota
	renew
	settle
	release
	lower
	expire // one conditional close of a sweep
	get
	balance
)

var verbNames = [...]string{"reserve", "renew", "settle", "release", "lower", "expire", "get", "balance"}

// input is one call. Amounts are in the grain of the axis.
type input struct {
	verb      verb
	id        int // which allocation
	holder    int
	requested int64
	minimum   int64
	limit     int64          // the cap; negative is none
	reserved  [holders]int64 // what is withheld for each holder, in this order
	unjudged  bool
	attempt   int
	sequence  int64
	spent     int64
	expires   int // a second within the history
	beside    int64
	divisible bool // dollars are granted in part
	counts    bool // what was spent counts for its holder's reserve
}

// kind is how a call ended.
type kind uint8

const (
	done kind = iota
	denied
	closed    // ErrClosed
	mismatch  // ErrMismatch
	unknown   // ErrNotFound
	undecided // ErrUnavailable without a fault
	lost      // the reply; what was done was done, and of a reserve it is known what was granted
)

var kindNames = [...]string{"ok", "denied", "closed", "mismatch", "not found", "undecided", "reply lost"}

// output is what a call was answered. What a verb does not say is zero.
type output struct {
	kind        kind
	amount      int64
	spent       int64
	expires     int
	closes      bool
	outcome     int
	settled     int64
	outstanding int64
	held        [holders]int64
	open        uint8 // the open ids, one bit each
	reservedFor bool  // a denial's cause is a reservation
	hopeless    bool
}

// entry is one allocation in the model; the zero value was never recorded.
type entry struct {
	known    bool
	holder   int
	amount   int64
	by       [attempts + 1]int64
	attempt  int
	sequence int64
	expires  int
	outcome  int // 0 is open
}

// The outcomes.
const (
	open = iota
	settledOutcome
	releasedOutcome
	expiredOutcome
)

// state is the model: the entries and nothing else. It knows no counters; every
// judgement adds up the entries anew.
type state [ids]entry

func (e *entry) spent() int64 {
	var sum int64
	for _, n := range e.by {
		sum += n
	}
	return sum
}

func (e *entry) outstanding() int64 {
	if !e.known || e.outcome != open {
		return 0
	}
	return max(0, e.amount-e.spent())
}

// sums adds up settled and outstanding, in total and what each holder has of them.
func (s *state) sums() (settled, outstanding int64, spentBy, heldBy [holders]int64) {
	for i := range s {
		e := &s[i]
		if !e.known {
			continue
		}
		settled += e.spent()
		outstanding += e.outstanding()
		spentBy[e.holder] += e.spent()
		heldBy[e.holder] += e.outstanding()
	}
	return settled, outstanding, spentBy, heldBy
}

// verdict is the judgement of an ask on the state that leaves it out.
type verdict struct {
	allowance   int64 // 0 is a refusal
	reservedFor bool
	hopeless    bool
}

func (s *state) judge(in *input) verdict {
	if in.limit < 0 || in.unjudged {
		return verdict{allowance: in.requested}
	}
	settled, outstanding, spentBy, heldBy := s.sums()
	plain := in.limit - settled - outstanding
	left, others, withheld := in.limit, int64(0), int64(0)
	for h, amount := range in.reserved {
		promised := min(amount, left)
		left -= promised
		if h == in.holder {
			continue
		}
		has := heldBy[h]
		if in.counts {
			has += spentBy[h]
		}
		others += promised
		withheld += max(0, promised-has)
	}
	fits := func(free int64) int64 {
		switch {
		case free <= 0, !in.divisible && in.requested > free, min(in.requested, free) < in.minimum:
			return 0
		}
		return min(in.requested, free)
	}
	least := in.requested
	if in.divisible {
		least = max(1, in.minimum)
	}
	v := verdict{allowance: fits(plain - withheld)}
	v.reservedFor = v.allowance == 0 && fits(plain) > 0
	v.hopeless = v.allowance == 0 && least > in.limit-others
	return v
}

// report takes over an attempt's cumulative spend: the highest counts.
func (e *entry) report(attempt int, spent int64) {
	e.by[attempt] = max(e.by[attempt], spent)
}

// newest takes over the highest (attempt, sequence) and says whether this is it.
func (e *entry) newest(attempt int, sequence int64) bool {
	if attempt < e.attempt || attempt == e.attempt && sequence < e.sequence {
		return false
	}
	e.attempt, e.sequence = attempt, sequence
	return true
}

// step applies one call to the state and says what it must be answered. A reserve's
// answer comes from the judgement; promise says how far it may differ.
func step(promise Promise, spurious bool, s state, in *input, out *output) (bool, state) {
	if in.verb == reserve {
		return stepReserve(promise, spurious, s, in, out)
	}
	want := output{}
	e := &s[in.id]
	switch {
	case in.verb == balance:
		return s.shows(promise, in, out), s
	case !e.known && in.verb == release:
	case !e.known:
		want.kind = unknown
	default:
		want = e.apply(in)
	}
	return out.kind == lost || want == *out, s
}

// apply is every verb on a known entry but reserve.
func (e *entry) apply(in *input) output {
	isOpen := e.outcome == open
	switch in.verb {
	case renew:
		e.report(in.attempt, in.spent)
		if !isOpen {
			return output{kind: closed}
		}
		if e.newest(in.attempt, in.sequence) {
			e.expires = in.expires
		}
		return output{amount: e.amount, spent: e.spent(), expires: e.expires}
	case settle:
		e.report(in.attempt, in.spent)
		if !isOpen || in.attempt < e.attempt {
			return output{}
		}
		e.newest(in.attempt, in.sequence)
		e.outcome = settledOutcome
		return output{closes: true}
	case release:
		if !isOpen {
			return output{}
		}
		e.outcome = releasedOutcome
		return output{closes: true}
	case expire:
		if !isOpen || e.expires != in.expires {
			return output{}
		}
		e.outcome = expiredOutcome
		return output{closes: true}
	case lower:
		if !isOpen {
			return output{kind: closed}
		}
		e.amount = min(e.amount, in.requested)
		return output{}
	default: // get
		return output{amount: e.amount, spent: e.spent(), expires: e.expires, outcome: e.outcome}
	}
}

func stepReserve(promise Promise, spurious bool, s state, in *input, out *output) (bool, state) {
	e := &s[in.id]
	switch {
	case e.known && e.holder != in.holder:
		return out.kind == lost || out.kind == mismatch, s
	case e.known && e.outcome != open:
		return out.kind == lost || out.kind == closed, s
	case e.known:
		return out.kind == lost || *out == output{amount: e.amount, spent: e.spent(), expires: e.expires}, s
	}
	v := s.judge(in)
	settled, outstanding, _, _ := s.sums()
	refused := out.kind == denied || out.kind == lost && out.amount == 0
	if refused && v.allowance > 0 && promise == NeverTooMuch && spurious && in.beside > 0 {
		return true, s
	}
	if v.allowance == 0 {
		if out.kind == lost {
			return refused, s
		}
		beside := int64(0)
		if promise == NeverTooMuch {
			beside = in.beside
		}
		figures := out.settled == settled && out.outstanding >= outstanding && out.outstanding <= outstanding+beside
		words := out.hopeless == v.hopeless && (beside > 0 || out.reservedFor == v.reservedFor)
		return out.kind == denied && figures && words, s
	}
	granted := v.allowance
	if promise == NeverTooMuch && in.beside > 0 && !refused && out.amount >= max(1, in.minimum) && out.amount <= granted {
		granted = out.amount
	}
	*e = entry{known: true, holder: in.holder, amount: granted, expires: in.expires}
	if out.kind == lost {
		return out.amount == granted, s
	}
	return *out == output{amount: granted, expires: in.expires}, s
}

// shows says whether a balance is the state's.
func (s *state) shows(promise Promise, in *input, out *output) bool {
	settled, outstanding, _, heldBy := s.sums()
	var mask uint8
	for i := range s {
		if s[i].known && s[i].outcome == open {
			mask |= 1 << i
		}
	}
	if promise == NeverTooMuch && in.beside > 0 {
		return out.settled == settled && out.outstanding >= outstanding && out.outstanding <= outstanding+in.beside && out.open&mask == mask
	}
	return out.settled == settled && out.outstanding == outstanding && out.held == heldBy && out.open == mask
}

func (s *state) String() string {
	var b strings.Builder
	for i := range s {
		if e := &s[i]; e.known {
			fmt.Fprintf(&b, "%c: h%d %d-%d until %d %s; ", 'A'+i, e.holder, e.amount, e.spent(), e.expires, [...]string{"open", "settled", "released", "expired"}[e.outcome])
		}
	}
	settled, outstanding, _, _ := s.sums()
	fmt.Fprintf(&b, "%d + %d", settled, outstanding)
	return b.String()
}

func describe(in *input, out *output) string {
	var b strings.Builder
	fmt.Fprint(&b, verbNames[in.verb])
	if in.verb != balance {
		fmt.Fprintf(&b, " %c", 'A'+in.id)
	}
	switch in.verb {
	case reserve:
		fmt.Fprintf(&b, " h%d asks %d (least %d) of %d", in.holder, in.requested, in.minimum, in.limit)
		if in.reserved != [holders]int64{} {
			fmt.Fprintf(&b, " reserved %v", in.reserved)
		}
		fmt.Fprintf(&b, " until %d", in.expires)
		if in.unjudged {
			b.WriteString(", unjudged")
		}
	case renew, settle:
		fmt.Fprintf(&b, " attempt %d.%d spent %d", in.attempt, in.sequence, in.spent)
		if in.verb == renew {
			fmt.Fprintf(&b, " until %d", in.expires)
		}
	case lower:
		fmt.Fprintf(&b, " to %d", in.requested)
	case expire:
		fmt.Fprintf(&b, " read until %d", in.expires)
	}
	fmt.Fprintf(&b, " -> %s", kindNames[out.kind])
	switch {
	case out.kind == denied:
		fmt.Fprintf(&b, " at %d + %d", out.settled, out.outstanding)
	case out.kind == lost && in.verb == reserve:
		fmt.Fprintf(&b, ", it said %d", out.amount)
	case out.kind != done:
	case in.verb == balance:
		fmt.Fprintf(&b, " %d + %d, held %v, open %06b", out.settled, out.outstanding, out.held, out.open)
	case in.verb == settle, in.verb == release, in.verb == expire:
		fmt.Fprintf(&b, " closes %t", out.closes)
	case in.verb != lower:
		fmt.Fprintf(&b, " %d, spent %d, until %d, outcome %d", out.amount, out.spent, out.expires, out.outcome)
	}
	return b.String()
}
