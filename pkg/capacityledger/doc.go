// Package capacityledger promises capacity and keeps the promise (ADR-155 §1 to
// §4). A [Ledger] answers asks on subjects with durable allocations; it is a
// concrete type over a [Store], which only moves and records. What is granted is
// decided in one pure function, [Judge], over the total that already contains the
// ask, so a limit of N admits exactly N.
//
// Reading order: ask.go (what is asked and what is promised), judge.go, ledger.go, check.go,
// store.go (the seam; its twins are pkg/store/*/ledger.go), sweeper.go. The
// conformance suite is the package ledgertest.
//
// The package imports the standard library, the vocabulary and the clock, and
// nothing else, so that gates and walks may import it from anywhere.
package capacityledger
