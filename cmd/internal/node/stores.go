package node

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/launch"
)

// notReady says what is not ready; it is what /readyz asks. A store that can be read
// and takes no writes is not: on a full disk no launch succeeds.
func (n *Node) notReady(ctx context.Context) map[string]string {
	p := n.parts
	problems := p.store.Health(ctx, p.clock.Now())
	if !n.ready.Load() {
		problems["dev"] = "starting or ending"
	}
	if _, err := p.ledger.Subjects(ctx, "", 1); err != nil {
		problems["ledger"] = err.Error()
	}
	if _, err := p.teams.All(ctx); err != nil {
		problems["records"] = err.Error()
	}
	if !p.bus.Connected() {
		problems["queue"] = "the embedded queue does not answer"
	}
	return problems
}

// warned is what the opening found and a start does not put right by itself.
func (n *Node) warned() []string { return n.warnings }

// crossCheck compares the two stores, before anybody launches. What it finds is for
// the operator to judge: it is logged with both numbers, counted and shown as a
// warning, and nothing is changed.
func (n *Node) crossCheck(ctx context.Context) {
	p := n.parts
	findings, err := p.launch.CrossCheck(ctx, p.clock.Now())
	if err != nil {
		n.options.Log.Error("the ledger and the run documents could not be compared", "error", err)
		n.warnings = append(n.warnings, "the ledger and the run documents could not be compared; the log says why")
		return
	}
	lost := map[launch.Lost]int{}
	for _, f := range findings {
		n.options.Log.Error("a store has lost a part of the month", "lost", f.Lost, "subject", f.Subject.String(),
			"ledger", f.Ledger.String(), "documents", f.Documents.String(), "way_out", f.WayOut())
		p.watcher.metrics.StoreDisagrees(f.Lost)
		lost[f.Lost]++
	}
	// /readyz asks for no token, so no team and no amount is named there.
	for _, which := range []launch.Lost{launch.LostLedger, launch.LostRecords} {
		if lost[which] > 0 {
			n.warnings = append(n.warnings, fmt.Sprintf("at its start the %s store lacked a part of the month on %d subjects; the log names them, both numbers and the way out", which, lost[which]))
		}
	}
}
