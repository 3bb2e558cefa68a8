// Package launch decides who may start a run, holds the capacity of the run while
// it lives, and gives it back.
//
// Reading order: gate.go (the order of the checks), launch.go (a launch from end to
// end), admission.go (what a passage through the gate takes, and how it goes back),
// check_*.go (the checks), terms.go (what an ask is judged against), failopen.go
// (what happens when the ledger cannot be asked; nowhere else is that decided),
// claim.go and report.go (the runner's side), external.go (callers that run the work
// themselves), control.go (cancel, resume, release), settle.go (every way a run
// ends), sweep.go and recover.go (the nets below all of them).
//
// Three things are written for a run, in this order: its allocations in the ledger,
// its document, its message in the queue. A crash between two of them leaves
// allocations that nobody renews and that the launch lease ends, or a queued
// document whose message the sweep publishes. When a run ends the order turns
// around: the document says so first, which is the durable intent, and then the
// allocations are closed; a sweep finishes what was not closed.
package launch
