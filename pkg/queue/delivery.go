package queue

// Delivery is one run message in the hands of a runner. The same message may be
// delivered again, to the same or to another runner: when its acknowledgement is
// late, when the runner died, when it was handed back. The claim decides, not the
// delivery.
type Delivery struct {
	Message RunMessage
	// Count is 1 at the first delivery of this publication.
	Count int
	// Extend tells the queue that the message is still worked on; without it the
	// message is delivered again after half a lease. Never nil.
	Extend func() error
}

// Disposition is how a runner's work on a delivery ended, which decides what
// becomes of the message. The zero value is none and reads as [Later]: what nobody
// answered for is handed out again.
type Disposition string

// The dispositions. The transport has the table that maps each to an
// acknowledgement.
const (
	// Done: the attempt is over and its ended report is durable.
	Done Disposition = "done"
	// Drop: the claim said that the message is stale or the run is over; nothing was started.
	Drop Disposition = "drop"
	// Later: it cannot be told now; the message is delivered again after a delay.
	Later Disposition = "later"
	// Return: the runner is shutting down and started nothing; another may have it at once.
	Return Disposition = "return"
	// Leave: this runner executes the run already; the delivery that started it answers.
	Leave Disposition = "leave"
	// Unreadable: the bytes are no run message, and never will be.
	Unreadable Disposition = "unreadable"
	// Newer: the message is of a version that this build does not read; another runner may.
	Newer Disposition = "newer"
	// Exhausted: it was delivered too often; the sweep publishes the run again from its document.
	Exhausted Disposition = "exhausted"
)

// Dispositions lists every disposition.
func Dispositions() []Disposition {
	return []Disposition{Done, Drop, Later, Return, Leave, Unreadable, Newer, Exhausted}
}

// The reasons of a [GrantStop], which decide how the attempt ends; they are the run
// document's words. Any other text reads as StopLeaseLost.
const (
	StopCancelled = "cancelled_by_caller" // [EndCancelled]
	StopLeaseLost = "lease_lost"          // its allocation is closed: [EndLeaseLost]
)
