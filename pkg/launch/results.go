package launch

import (
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/runs"
)

// Preview is what a launch would get now. Nothing was taken for it.
type Preview struct {
	Admitted bool
	Budget   holdfast.MicroUSD // what the run would be held to; zero when refused
	Asked    holdfast.MicroUSD // what was asked, where the run would get less; else zero
	CutBy    runs.Cut          // why it would get less
	Identity holdfast.Identity // nobody when the bot was not resolved
	Checks   []decisions.Check // that were made, in their order
	Denial   holdfast.Denial   // what a launch would be refused with
}

// Explanation is the story of a run or of a decision.
type Explanation struct {
	Run      *runs.Run           // nil for a decision that admitted nothing
	Decision *decisions.Decision // nil when it is no longer kept
	Capacity []SubjectView       // the subjects that it holds on, or was refused by, as they are now
	Summary  []string            // the story in sentences, oldest first
	// Change is the smallest change that would have admitted a refused launch; empty
	// when none is known or nothing was refused.
	Change string
	// Earliest is when a refused launch can fit at the earliest, and Until why; zero
	// when nobody can say.
	Earliest time.Time
	Until    string
}

// SubjectView is one subject's balance as a caller may see it. Withheld and Free
// are those of a caller without a reservation.
type SubjectView struct {
	Subject                              holdfast.Subject
	Cap                                  holdfast.Limit
	Settled, Outstanding, Withheld, Over holdfast.Amount
	Free                                 holdfast.Limit // NoLimit where the cap is none
	Holders                              []HolderView
	NextExpiry                           time.Time // of the earliest open entry; zero when none is open
	Entries                              []EntryView
}

// HolderView is what one holder has on a subject. Nobody as the holder stands for
// all the holders of other teams together.
type HolderView struct {
	holdfast.Holding
	FreeFor holdfast.Limit // what this holder could still be granted
}

// EntryView is one open allocation.
type EntryView struct {
	Allocation holdfast.AllocationID
	Holder     holdfast.Identity
	Run        holdfast.RunID
	Team       holdfast.TeamID // of the run; empty when its document is not there
	Amount     holdfast.Amount
	Spent      holdfast.Amount
	AcquiredAt time.Time
	ExpiresAt  time.Time
	Confirmed  bool
}
