package capacityledger

import (
	"time"

	"github.com/holdfast-io/holdfast"
)

// Reserved is what the policy withholds on a subject for one holder.
type Reserved struct {
	Holder holdfast.Identity
	Amount holdfast.Amount
}

// Terms are what an ask is judged against: the cap and the reservations that
// count on this subject, in the policy's order, the asker's own included. The zero
// Terms allow nothing; [holdfast.NoLimit] as the cap grants everything.
type Terms struct {
	Cap      holdfast.Limit
	Reserved []Reserved
}

// Ask is a wish for capacity on one subject.
type Ask struct {
	// ID is made by the caller (see [holdfast.NewAllocationID]) and holds the
	// subject. The same id again is the same ask, also after a lost reply; with
	// another holder, requested, minimum or run it is [ErrMismatch]. Other terms
	// under the same id are no mismatch.
	ID     holdfast.AllocationID
	Terms  Terms
	Holder holdfast.Identity
	Run    holdfast.RunID
	// Requested is never zero or negative on a slot, run or dollar axis.
	Requested holdfast.Amount
	// Minimum is the least worth having, on dollar axes; zero means the whole of
	// what is asked may be cut. On the countable axes it is Requested.
	Minimum holdfast.Amount
	// Expires is when the allocation lapses unless it is renewed.
	Expires time.Time
	// Unjudged records the ask even above the cap: the adoption of a run that is
	// already under way.
	Unjudged bool
	// Nonce tells one try of the ask from another of the same id. The ledger fills
	// it in; a twin that can lose a reply after the write needs it.
	Nonce string

	subject holdfast.Subject
}

// Subject is the subject that the ask's id holds; zero before the ledger has
// checked the ask.
func (a Ask) Subject() holdfast.Subject { return a.subject }

// Outcome says how an allocation ended. The zero value is an open one.
type Outcome string

// The ways an allocation ends.
const (
	Open     Outcome = ""
	Settled  Outcome = "settled"  // the run ended and said what it used
	Released Outcome = "released" // given back unused, or taken away by an operator
	Expired  Outcome = "expired"  // nobody renewed it and its holder is dead
)

// Allocation is a durable promise: so much of the subject is held for this run
// until it is closed or expires.
type Allocation struct {
	ID        holdfast.AllocationID
	Subject   holdfast.Subject
	Holder    holdfast.Identity
	Run       holdfast.RunID
	Requested holdfast.Amount
	Minimum   holdfast.Amount
	// Amount is the allowance: what was granted, later corrections included.
	Amount holdfast.Amount
	// Spent is what of it was really used and has moved to settled: the sum over
	// the attempts of each one's highest report. It may exceed Amount.
	Spent      holdfast.Amount
	AcquiredAt time.Time
	ExpiresAt  time.Time
	// Confirmed says that its run has renewed it at least once.
	Confirmed bool
	// Attempt and Sequence are the highest report seen; they decide the expiry.
	Attempt  int
	Sequence int64
	// SpentBy has the highest report of each attempt, in the order of first report.
	SpentBy []AttemptSpend
	// Cap is the cap it was asked under; Nonce is the try that was recorded.
	Cap   holdfast.Limit
	Nonce string

	Outcome  Outcome   // Open until it is closed
	ClosedAt time.Time // zero while open
}

// AttemptSpend is the cumulative spend of one attempt.
type AttemptSpend struct {
	Attempt int
	Spent   holdfast.Amount
}

// Outstanding is what of the allocation still counts as promised.
func (a Allocation) Outstanding() holdfast.Amount {
	if a.Outcome != Open {
		return holdfast.AmountOf(a.Amount.Unit(), 0)
	}
	return a.Amount.Minus(a.Spent).Positive()
}

// Renewal pushes an open allocation's expiry and reports what was spent so far.
type Renewal struct {
	// Attempt numbers the run's executions from 1, Sequence the reports of one
	// attempt. The highest pair decides the expiry, to a shorter one too; an older
	// pair's spend is still recorded.
	Attempt  int
	Sequence int64
	// Spent is cumulative within the attempt; less than was reported before changes
	// nothing. The zero Amount reports nothing.
	Spent   holdfast.Amount
	Expires time.Time
	// Terms, when set, judge the renewal as a resume: with nothing requested and
	// the allocation's own remainder left out (ADR-155 §2). A plain renewal of an
	// open allocation is never denied.
	Terms *Terms
}

// Report is the last word on an allocation: what the attempt really used.
type Report struct {
	Attempt  int
	Sequence int64
	Spent    holdfast.Amount
}

// Correction lowers an allowance after it was granted, because the run's budget
// became the smallest of all its allowances.
type Correction struct {
	ID     holdfast.AllocationID
	Amount holdfast.Amount
}

// Holding is what one holder has on a subject.
type Holding struct {
	Holder      holdfast.Identity
	Settled     int64
	Outstanding int64
}

// Balance is a subject's record: its totals, the same per holder, and the open
// entries. Numbers are in the grain of the axis' unit.
type Balance struct {
	Subject     holdfast.Subject
	Settled     int64
	Outstanding int64
	Holders     []Holding
	Open        []Allocation
	NextExpiry  time.Time // of the earliest open entry; zero when none is open
}

// Total is settled plus outstanding.
func (b Balance) Total() int64 { return b.Settled + b.Outstanding }
