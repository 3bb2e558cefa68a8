package capacityledger

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast"
)

// Errors that callers branch on. None of them is a denial.
var (
	// ErrUnavailable: the store could not be reached or could not write. Nothing is
	// known of what it did; the same id may be asked again.
	ErrUnavailable = errors.New("the capacity ledger is unavailable")
	// ErrMismatch: the id was used before for another ask.
	ErrMismatch = errors.New("the allocation id was used for another ask")
	// ErrClosed: the allocation was closed; a closed id never grants anew.
	ErrClosed = errors.New("the allocation is closed")
	// ErrNotFound: nothing was ever recorded under the id.
	ErrNotFound = errors.New("no such allocation")
	// ErrTooManyOpen: the subject has [holdfast.MaxOpenPerSubject] open entries.
	ErrTooManyOpen = errors.New("the subject has too many open allocations; split it (docs/quotas-and-limits.md)")
	// ErrOverflow: the subject's total would be too large to count; nothing moved.
	ErrOverflow = errors.New("the subject's total would be too large to count")
)

// JudgeFunc is [Judge], as a twin is given it: memory and embedded twins call it
// inside their critical section with the ask already moved, a remote twin on the
// state that its write returned.
type JudgeFunc func(PostAdmit, Ask) Verdict

// Admission is the answer to one ask of a batch. Err is set when the ask could not
// be recorded (ErrMismatch, ErrClosed, ErrTooManyOpen, ErrOverflow); else Verdict says whether
// it was refused; else Allocation is what is now recorded. Replayed marks an ask
// that was recorded before.
type Admission struct {
	Allocation Allocation
	Verdict    Verdict
	// Balance is the state that a refusal rested on, without the ask and without
	// its open entries; nil when nothing was refused.
	Balance  *Balance
	Replayed bool
	Err      error
}

// Moving is one renewal, correction or late report, as the store is given it.
type Moving struct {
	ID       holdfast.AllocationID
	Attempt  int
	Sequence int64
	Spent    holdfast.Amount // cumulative within Attempt; zero reports nothing
	Expires  time.Time       // zero leaves the expiry
	// LowerTo, when it has a unit, lowers the allowance to it (never raises it).
	LowerTo holdfast.Amount
}

// Closing is one conditional close.
type Closing struct {
	ID      holdfast.AllocationID
	Outcome Outcome
	// Attempt, Sequence and Spent are the last report that comes with a settle.
	Attempt  int
	Sequence int64
	Spent    holdfast.Amount
	// IfExpires, when set, closes only an entry whose expiry is still this one: what
	// a sweep read, so that a renewal in between wins.
	IfExpires time.Time
	// IfAttempt, when above zero, closes only while no higher attempt has reported.
	IfAttempt int
}

// Closed is the answer to one closing.
type Closed struct {
	Closed     bool       // this closing closed it; false when it was closed before or the condition failed
	Allocation Allocation // as it is now; zero with Err
	Err        error      // ErrNotFound, ErrOverflow
}

// Moved is the answer to one moving.
type Moved struct {
	Allocation Allocation // as it is now, open or closed; zero with Err
	Err        error      // ErrNotFound, ErrOverflow
}

// Cursor is where a bounded walk over due entries goes on; the zero value begins.
type Cursor struct {
	Expires time.Time
	ID      holdfast.AllocationID
}

// Repaired says what one pass of housekeeping did.
type Repaired struct {
	Subjects int // records whose counters did not equal their entries, now mended
	Archived int // recent closes moved to the history
	Dropped  int // history rows and empty old records removed
}

// Store keeps one record per subject: its counters, its open entries and its recent
// closes. It moves and records; it never judges and never reads a clock. Twins are
// pkg/store/{memory,embedded}/ledger.go; every twin passes every row of ledgertest.
//
// The rules of every twin:
//   - a count and its entry change in one write; no crash separates them;
//   - an acknowledged write survives the process (and, but for memory, the power);
//   - an unreachable store is an error that matches [ErrUnavailable], and then
//     nothing or all of the call may have happened;
//   - slices that are returned belong to the caller.
type Store interface {
	// Admit moves and records the asks of one subject, in their order, as if each
	// came alone after the one before: replay (same id: the same entry, ErrClosed
	// or ErrMismatch) first, then the move, then judge on the state that contains
	// it, then the correction to the allowance or the mirror of a refusal. One
	// answer per ask.
	Admit(ctx context.Context, now time.Time, subject holdfast.Subject, asks []Ask, judge JudgeFunc) ([]Admission, error)
	// Move applies renewals, corrections and late reports, each to its own record:
	// per attempt the highest spend wins and the increase goes from outstanding to
	// settled (in full, above the allowance too, and for closed entries as well);
	// the expiry is that of the highest (attempt, sequence). One answer per moving.
	Move(ctx context.Context, now time.Time, movings []Moving) ([]Moved, error)
	// Close closes each entry that is open and meets its conditions, in one write
	// that also takes the closing's report; a closing that finds the entry closed
	// records its report all the same, exactly once. One answer per closing.
	Close(ctx context.Context, now time.Time, closings []Closing) ([]Closed, error)
	// Balance is the subject's record with its open entries, oldest first; a subject
	// that nobody asked is the zero balance and no error.
	Balance(ctx context.Context, subject holdfast.Subject) (Balance, error)
	// Get is one allocation, open or closed; ErrNotFound when nothing is known of it.
	Get(ctx context.Context, id holdfast.AllocationID) (Allocation, error)
	// Subjects lists subjects that have a record, in their text order after the one
	// named, at most limit.
	Subjects(ctx context.Context, after string, limit int) ([]holdfast.Subject, error)
	// Due lists open entries with an expiry at or before now, by (expiry, id), after
	// the cursor, at most limit. Its cost does not grow with what is closed.
	Due(ctx context.Context, now time.Time, after Cursor, limit int) ([]Allocation, error)
	// Repair mends records whose counters differ from their entries and moves old
	// recent closes to the history, at most limit records of each.
	Repair(ctx context.Context, now time.Time, limit int) (Repaired, error)
}

// Direct is a [Store] that also answers one ask and one closing without the slices of
// a batch: for a twin whose work is less than making the slices. The answers are
// those of Admit and Close. The ledger uses it where a store has it.
type Direct interface {
	Store
	// AdmitOne is Admit of one ask on its own subject.
	AdmitOne(ctx context.Context, now time.Time, ask Ask, judge JudgeFunc) (Admission, error)
	// CloseOne is Close of one closing.
	CloseOne(ctx context.Context, now time.Time, c Closing) (Closed, error)
}
