package runs

import (
	"time"

	"github.com/holdfast-io/holdfast"
)

// Past is how a run stood before it was queued again. The run's own fields tell of the
// newest attempt only.
type Past struct {
	Attempt    int               `json:"attempt"` // 0: it waited, and no attempt had begun
	Status     Status            `json:"status"`  // running: a runner had claimed the attempt and it never began
	Reason     Reason            `json:"reason,omitempty"`
	Detail     string            `json:"detail,omitempty"`
	Runner     string            `json:"runner,omitempty"`
	StartedAt  time.Time         `json:"started_at,omitzero"`
	EndedAt    time.Time         `json:"ended_at,omitzero"`
	Spent      holdfast.MicroUSD `json:"spent,omitempty"`       // as it was reported by then
	DecisionID string            `json:"decision_id,omitempty"` // that admitted it
}

const (
	// MaxPast is how many of a run's earlier attempts are kept, the newest ones.
	MaxPast = 100
	// maxPastDetail bounds the text of one.
	maxPastDetail = 200
)

// Remember notes how the run stands, before it is queued again. attempt is the one that
// is over, 0 when none had begun.
func (r *Run) Remember(attempt int) {
	r.Past = append(r.Past, Past{
		Attempt: attempt, Status: r.Status, Reason: r.StatusReason, Detail: holdfast.Clip(r.Detail, maxPastDetail), Runner: r.Runner,
		StartedAt: r.StartedAt, EndedAt: r.EndedAt, Spent: r.SpentBy[attempt], DecisionID: r.DecisionID,
	})
	if over := len(r.Past) - MaxPast; over > 0 {
		r.Past = append([]Past(nil), r.Past[over:]...)
	}
}

// Cut says why a run got a smaller budget than its caller named.
type Cut string

// The reasons of a cut.
const (
	CutNone     Cut = ""
	CutBot      Cut = "bot"      // its bot's own budget is smaller
	CutLimits   Cut = "limits"   // max_run_usd of the limits setting is smaller
	CutCapacity Cut = "capacity" // no more was free
)
