package history

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

const (
	clients = 3
	// sweepAt is the second at which sweeps look; what expires by then is due.
	sweepAt = 5
	// lastSecond is the last at which anything of a history expires.
	lastSecond = 9
	// span is how far the instants of two histories over one store are apart, so that
	// a sweep of one never reaches the other.
	span = 10 * time.Second
)

var begin = time.Date(2026, time.March, 10, 12, 0, 0, 0, time.UTC)

// call is one step of a client. Sweeps name no allocation: they find what is due.
type call struct {
	in    input
	sweep bool
	fault fault
}

// fault is what happens to a call on its way.
type fault uint8

const (
	noFault fault = iota
	cut           // before it reached the store
	dropped       // the reply, after it took effect
)

// plan is one history as its seed makes it.
type plan struct {
	subject holdfast.Subject
	start   time.Time
	hold    time.Duration
	// careful is the use that [NeverTooMuch] speaks of; granted has the ids that
	// somebody was told of.
	careful bool
	granted [ids]atomic.Bool
	// undecided counts the asks that were told that nothing is known of them, without
	// a fault: it may happen where two ask the same id at once, and then leaves nothing.
	undecided atomic.Int32
	allIDs    [ids]holdfast.AllocationID
	runs      [ids]holdfast.RunID
	script    [clients][]call
	dice      [clients]*rand.Rand // for the yields of each client
}

var identities = [holders]holdfast.Identity{
	holdfast.PlatformBot("review-pr"), holdfast.PlatformBot("feature-dev"), holdfast.TeamBot("acme", "docs-writer"),
	holdfast.TeamBot("acme", "somebody-else"), // who asks under another's id
}

// newPlan makes the n-th history.
func newPlan(o Options, n int) *plan {
	seed := o.Seed
	dice := rand.New(rand.NewPCG(seed, uint64(n))) // counts from zero
	team := holdfast.TeamID(fmt.Sprintf("t%07d", n))
	p := &plan{start: begin.Add(time.Duration(n) * span), hold: o.Hold, careful: o.Promise == NeverTooMuch}
	switch dice.IntN(5) {
	case 0, 1:
		p.subject = holdfast.TeamSubject(team, holdfast.AxisUSD, "2026-03")
	case 2:
		p.subject = holdfast.TeamSubject(team, holdfast.AxisRuns, "2026-03")
	default:
		p.subject = holdfast.TeamSubject(team, holdfast.AxisSlots, "")
	}
	for i := range p.allIDs {
		p.runs[i] = holdfast.RunID(fmt.Sprintf("01JQ00Z%07d00000000000%d", n, i))
		p.allIDs[i] = holdfast.NewAllocationID(p.runs[i], p.subject, 0)
	}
	asks := p.asks(dice)
	for c := range p.script {
		p.dice[c] = rand.New(rand.NewPCG(seed^0x9e3779b97f4a7c15, uint64(n*clients+c))) // counts from zero
		// Each client begins with an ask of its own, so that several meet.
		p.script[c] = append(p.script[c], p.again(dice, asks[c]))
		for range 4 + dice.IntN(4) {
			p.script[c] = append(p.script[c], p.call(dice, &asks))
		}
	}
	return p
}

// asks are what the history's ids ask; the terms may differ from try to try.
func (p *plan) asks(dice *rand.Rand) (asks [ids]input) {
	dollars := p.subject.Axis == holdfast.AxisUSD
	limit := int64(1 + dice.IntN(4))
	if dollars {
		limit = int64(10 + dice.IntN(30))
	}
	if dice.IntN(12) == 0 {
		limit = -1
	}
	var reserved [holders]int64
	for h := range reserved[:dice.IntN(holders-1)] {
		reserved[h] = int64(dice.IntN(int(max(1, limit)) + 1))
	}
	for i := range asks {
		in := input{verb: reserve, id: i, holder: dice.IntN(holders - 1), requested: 1, limit: limit, reserved: reserved, expires: 1 + dice.IntN(lastSecond), divisible: dollars, counts: dollars}
		if p.careful {
			in.expires = sweepAt + 1 + dice.IntN(lastSecond-sweepAt)
		}
		switch {
		case dollars:
			in.requested = int64(1 + dice.IntN(20))
			if dice.IntN(2) == 0 {
				in.minimum = 1 + dice.Int64N(in.requested)
			}
		case dice.IntN(6) == 0:
			in.requested = 2
		}
		asks[i] = in
	}
	return asks
}

// again is a try of an ask, at times by somebody else or under a lower cap.
func (p *plan) again(dice *rand.Rand, in input) call {
	switch dice.IntN(16) {
	case 0:
		in.holder = holders - 1
	case 1:
		in.limit = max(in.limit/2, 0)
	case 2:
		in.unjudged = true
	}
	return call{in: in, fault: p.fault(dice)}
}

func (p *plan) fault(dice *rand.Rand) fault {
	switch dice.IntN(20) {
	case 0:
		return cut
	case 1, 2:
		return dropped
	}
	return noFault
}

func (p *plan) call(dice *rand.Rand, asks *[ids]input) call {
	in := input{id: dice.IntN(ids)}
	amount := func() int64 {
		if p.subject.Axis == holdfast.AxisSlots || dice.IntN(3) == 0 {
			return 0 // slots are never used up
		}
		return 1 + dice.Int64N(asks[in.id].requested+2)
	}
	switch at := dice.IntN(24); {
	case at < 9:
		return p.again(dice, asks[in.id])
	case at < 12:
		in.verb, in.attempt, in.sequence, in.spent = renew, 1+dice.IntN(2), int64(dice.IntN(4)), amount()
		in.expires = 1 + dice.IntN(lastSecond)
	case at < 15:
		in.verb, in.attempt, in.sequence, in.spent = settle, 1+dice.IntN(2), int64(dice.IntN(4)), amount()
	case at < 18:
		in.verb = release
	case at < 20:
		return call{sweep: true, fault: p.fault(dice)}
	case at < 21:
		in.verb, in.requested = lower, 1+dice.Int64N(asks[in.id].requested)
	case at < 22:
		return call{in: input{verb: get, id: in.id}}
	default:
		return call{in: input{verb: balance}}
	}
	return call{in: in, fault: p.fault(dice)}
}

func (p *plan) second(n int) time.Time { return p.start.Add(time.Duration(n) * time.Second) }

func (p *plan) secondOf(t time.Time) int { return int(t.Sub(p.start) / time.Second) }

// index is the allocation's place among the history's; -1 of a stranger.
func (p *plan) index(id holdfast.AllocationID) int {
	for i := range p.allIDs {
		if p.allIDs[i] == id {
			return i
		}
	}
	return -1
}

// ask is the call as the ledger takes it.
func (p *plan) ask(in *input) capacityledger.Ask {
	amount := func(n int64) holdfast.Amount { return holdfast.AmountOf(p.subject.Axis.Unit(), n) }
	terms := capacityledger.Terms{Cap: holdfast.NoLimit}
	if in.limit >= 0 {
		terms.Cap = holdfast.AtMost(amount(in.limit))
	}
	for h, n := range in.reserved {
		if n > 0 {
			terms.Reserved = append(terms.Reserved, capacityledger.Reserved{Holder: identities[h], Amount: amount(n)})
		}
	}
	return capacityledger.Ask{
		ID: p.allIDs[in.id], Run: p.runs[in.id], Holder: identities[in.holder], Terms: terms, Requested: amount(in.requested),
		Minimum: amount(in.minimum), Expires: p.second(in.expires), Unjudged: in.unjudged,
	}
}
