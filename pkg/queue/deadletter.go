package queue

import (
	"errors"
	"time"

	"github.com/holdfast-io/holdfast"
)

// ErrNoDeadLetter: there is no dead letter of that number, or it is there no more.
var ErrNoDeadLetter = errors.New("there is no such dead letter")

// DeadLetter is a run message that no runner could take, kept as it was. It is kept
// for a week; the run document stays the truth about its run.
type DeadLetter struct {
	Seq        uint64 // its number in the queue of dead letters
	At         time.Time
	Reason     Disposition    // [Unreadable] or [Exhausted]
	Run        holdfast.RunID // as its subject says; empty when that names none
	Pool       string         // empty: the default one
	Deliveries int
	Body       []byte // the message, byte for byte
}

// Republished is how often a sweep queues a run again whose message was delivered too
// often, before the next such message is a dead letter: an outage of the servers
// exhausts a message, too, and is over some time.
const Republished = 2
