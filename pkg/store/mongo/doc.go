// Package mongo keeps the ledger and the records in a MongoDB (or a server that
// speaks its protocol, such as FerretDB over DocumentDB), for any number of server
// replicas at once. It is the twin of `holdfast server`.
//
// It rests on one promise of the server only: a write to one document is atomic and
// ordered. It uses no transactions, no change streams, no clocks of the server but
// for the removal of what is long past, and it does not depend on the driver's
// retries: what is written twice is recognised. Writes are acknowledged by a
// majority; what is read was acknowledged so.
//
// # The protocol of an ask
//
// A subject is one document with its counters and its open entries.
//
//  1. Push. One findOneAndUpdate, which filters on the subject's key alone, adds what is
//     asked to the counters, appends an entry and returns the document after it. The
//     order of the entries is therefore the order of the asks. Each try has a stamp of its
//     own, so nothing that is written about one try touches another try of the same id.
//  2. Judge. What the write returned contains everything that was asked before. An ask
//     that fits beside all of it is granted, and its caller is answered: one round trip.
//     Because every ask counts from the moment it is pushed until it is taken back, and
//     whoever comes later counts it, never too much is granted.
//  3. Take back or lower. What was refused is pulled and subtracted in one write that
//     holds only while the entry is what was pushed; a part is granted by one that lowers.
//
// An entry is decided when somebody has written it again (its stamp is not its nonce
// any more), or when there was nothing to judge. Otherwise only its own asker knows.
// Soon after a grant its process vouches for it by such a write (ledger_vouch.go), on which
// nobody waits; what stays undecided belongs to a process that died in between.
// Three rules follow, each in a file of its own:
//
//   - Who counts whom (ledger_doubt.go). An undecided entry of another process that does
//     not fit beside the decided ones before it was refused, and is left out. That is sound
//     because what stands before it only shrinks. The exceptions (spend beyond a grant, an
//     unjudged entry, other terms) mark the subject as shaken, and then for one launch
//     lease nothing is left out. A refusal that rests on the rest is asked again for at
//     most Options.AskAgainFor.
//   - Whose id it is (ledger_replay.go). A try of an id that has an older entry, or a
//     close, is answered from that and taken back. Where the older entry stays undecided, its
//     asker is gone: it is adopted only where that is right whether or not it had been
//     granted, and else the answer is that nobody can tell yet.
//   - What happened to a write without an answer (lane.lost). The entry may be there and
//     nobody was told: it is taken back when it is seen, or becomes the answer of the next
//     try of its id, or expires.
//
// A renewal, report or close replaces an entry on the condition that its stamp is still
// the one it was worked out from; of two, one starts over from what the other left. A
// close moves the entry to the document's closes in the same write. Closes go on to
// the collection "history", many on a page: they are copied first and pulled then, so
// that one is always in at least one place, and an id that is not above the highest
// closed one is looked for in both.
//
// Calls of one process on one subject share these writes (ledger_lane.go): they are
// pushed together and judged one after the other as if each had come alone. What a lane
// remembers saves it readings: it is a condition of the next write, or what cannot become
// untrue, as that the entry with this stamp was granted. Without it the answers are the same.
//
// Reading order: open.go, ledger.go and, of the files beside it, ledger_document.go
// (what is stored), ledger_lane.go, ledger_admit.go, ledger_vouch.go, ledger_doubt.go,
// ledger_replay.go, ledger_change.go, ledger_history.go and ledger_repair.go; then records.go.
package mongo
