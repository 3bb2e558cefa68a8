// Package simulate replays a trace of agent runs against a budget-floor policy, on
// a simulated clock, through the launch gate and the capacity ledger that a server
// uses. It answers what a reservation would have done: what its holder would have
// gained, what the others would have lost, and what would have lain idle.
//
// Reading order: trace.go (what is read), columns.go (the one table of columns),
// caps.go (what the runs are judged against), engine.go (the events), gate.go (the
// real gate, set up for a replay), windows.go (usage windows as dollar-equivalents
// on the ledger), result.go and text.go (what comes out).
//
// Everything that the trace does not say and a replay needs is assumed in the open:
// each assumption is a sentence in the result. The same input gives the same bytes.
package simulate
