// Package holdfast is the vocabulary of the product: the words that every other
// package uses, each with one meaning. It imports the standard library only and
// does nothing; start reading here.
//
// # Glossary
//
//   - subject: what can run out. An account's window, a team's month of dollars,
//     its slots. See [Subject].
//   - limit: what a subject's total is judged against. See [Limit]; absence is
//     [NoLimit], never zero.
//   - ask: what a launch wants of one subject.
//   - allowance: what the ask was granted, never more than the ask and never zero
//     on a limited subject.
//   - allocation: a durable promise with an id, a holder and an expiry. See
//     [AllocationID].
//   - balance: settled (really used) plus outstanding (promised and not yet used).
//   - denial: a "no". It is data and not an error. See [Denial].
//   - identity: bot, tier and, for the team tier, the team: what the server's own
//     resolution produced, never the label of a request. See [Identity].
//   - reservation: what a policy withholds from everybody but its holder.
//   - withheld: the part of the reservations of others that they do not hold yet.
//   - reading: what a provider last said of a window.
//   - lease: how long an allocation lives without being renewed.
//
// Verbs come in pairs. The ledger: reserve, then settle, release or expire. The
// gate: admit, then keep or roll back.
//
// Units end a name: amounts of money are [MicroUSD], shares are [BasisPoints],
// concurrency is [Slots]. There are no floating point numbers past the edges.
package holdfast
