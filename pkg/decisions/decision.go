// Package decisions keeps the gate's judgements with all their arithmetic, so that a
// refusal can be explained afterwards. They are written off the answer's path.
package decisions

import (
	"time"

	"github.com/holdfast-io/holdfast"
)

// Decision is one judgement of the gate.
type Decision struct {
	ID   string          `json:"id"` // time-ordered
	At   time.Time       `json:"at"`
	Team holdfast.TeamID `json:"team"` // as asked for; it may not exist
	// Bot is as the request named it. Identity is as it was resolved, nobody when it
	// was refused before.
	Bot      string            `json:"bot"`
	Identity holdfast.Identity `json:"identity,omitzero"`
	Run      holdfast.RunID    `json:"run,omitempty"`
	Surface  string            `json:"surface,omitempty"`
	Caller   string            `json:"caller,omitempty"`
	Repo     string            `json:"repo,omitempty"`
	Admitted bool              `json:"admitted"`
	// Of a refusal: which check said no, and on what subject.
	Reason     holdfast.DenyReason `json:"reason,omitempty"`
	Cause      holdfast.Cause      `json:"cause,omitempty"`
	Subject    holdfast.Subject    `json:"subject,omitzero"`
	Detail     string              `json:"detail,omitempty"` // in words, as the caller was told
	Retryable  bool                `json:"retryable,omitempty"`
	RetryAfter time.Duration       `json:"retry_after,omitempty"` // nanoseconds
	ResetAt    time.Time           `json:"reset_at,omitzero"`
	// Budget is what the run is held to, of an admission.
	Budget holdfast.MicroUSD `json:"budget,omitempty"`
	// Checks are the checks that ran, in their order. Holders are those of Subject.
	Checks  []Check   `json:"checks,omitempty"`
	Holders []Holding `json:"holders,omitempty"`
	// Count is how many refusals this row stands for: those of one team, bot, reason
	// and subject within a second. LastAt is the last one's time.
	Count  int       `json:"count"`
	LastAt time.Time `json:"last_at,omitzero"`
}

// Verdict is what one check said. The zero value is none.
type Verdict string

// The verdicts.
const (
	Pass    Verdict = "pass"
	Deny    Verdict = "deny"
	Skip    Verdict = "skip"    // it does not apply to this launch
	Unknown Verdict = "unknown" // it could not be made, and the launch went on
)

// Check is one check of the gate.
type Check struct {
	Name    string              `json:"name"`
	Verdict Verdict             `json:"verdict"`
	Reason  holdfast.DenyReason `json:"reason,omitempty"`
	Cause   holdfast.Cause      `json:"cause,omitempty"`
	Detail  string              `json:"detail,omitempty"`
	Subject holdfast.Subject    `json:"subject,omitzero"` // zero where none is judged
	Figures *Figures            `json:"figures,omitempty"`
}

// Figures is the arithmetic of a check, in the grain of its subject's unit.
type Figures struct {
	Cap         *int64 `json:"cap"` // nil: no limit
	Requested   int64  `json:"requested"`
	Minimum     int64  `json:"minimum,omitempty"`
	Settled     int64  `json:"settled"`
	Outstanding int64  `json:"outstanding"`
	Withheld    int64  `json:"withheld"`
	Remaining   int64  `json:"remaining"` // before the ask; may be negative
	Allowance   int64  `json:"allowance"` // what was granted; zero when refused
}

// Amount is one of the figures with the unit of the check's subject.
func (c Check) Amount(n int64) holdfast.Amount { return holdfast.AmountOf(c.Subject.Axis.Unit(), n) }

// Limit is the cap of the figures; no limit without figures.
func (c Check) Limit() holdfast.Limit {
	if c.Figures == nil || c.Figures.Cap == nil {
		return holdfast.NoLimit
	}
	return holdfast.AtMost(c.Amount(*c.Figures.Cap))
}

// CapOf is a limit as [Figures] keep it.
func CapOf(limit holdfast.Limit) *int64 {
	if limit.None() {
		return nil
	}
	n := limit.Max().Int()
	return &n
}

// Holding is what one holder has on the decision's subject, in the grain of its unit.
type Holding struct {
	Holder      holdfast.Identity `json:"holder"`
	Reserved    int64             `json:"reserved"`
	Settled     int64             `json:"settled"`
	Outstanding int64             `json:"outstanding"`
}

// HoldersOf are the holdings as a decision keeps them.
func HoldersOf(holdings []holdfast.Holding) []Holding {
	kept := make([]Holding, 0, len(holdings))
	for _, h := range holdings {
		kept = append(kept, Holding{h.Holder, h.Reserved.Int(), h.Settled.Int(), h.Outstanding.Int()})
	}
	return kept
}

// Holdings are the holders with the unit of the decision's subject.
func (d Decision) Holdings() []holdfast.Holding {
	unit := d.Subject.Axis.Unit()
	holdings := make([]holdfast.Holding, 0, len(d.Holders))
	for _, h := range d.Holders {
		holdings = append(holdings, holdfast.Holding{
			Holder: h.Holder, Reserved: holdfast.AmountOf(unit, h.Reserved),
			Settled: holdfast.AmountOf(unit, h.Settled), Outstanding: holdfast.AmountOf(unit, h.Outstanding),
		})
	}
	return holdings
}

// DenyCheck is the check that refused, with the denial's arithmetic where it judged
// a subject.
func DenyCheck(name string, d holdfast.Denial) Check {
	c := Check{Name: name, Verdict: Deny, Reason: d.Reason, Cause: d.Cause, Detail: d.Public, Subject: d.Subject}
	if !d.Subject.IsZero() {
		c.Figures = &Figures{
			Cap: CapOf(d.Cap), Requested: d.Requested.Int(), Minimum: d.Minimum.Int(), Settled: d.Settled.Int(),
			Outstanding: d.Outstanding.Int(), Withheld: d.Withheld.Int(), Remaining: d.Remaining.Int(),
		}
	}
	return c
}

// Refused fills in what a denial says: all but who asked, and the checks before it.
func (d Decision) Refused(denial holdfast.Denial) Decision {
	d.Admitted = false
	d.Reason, d.Cause, d.Subject, d.Detail = denial.Reason, denial.Cause, denial.Subject, denial.Public
	d.Retryable, d.RetryAfter, d.ResetAt = denial.Retryable, denial.RetryAfter, denial.ResetAt
	d.Holders = HoldersOf(denial.Holders)
	return d
}

// Denial is the denial that the decision recorded; none of an admission.
func (d Decision) Denial() holdfast.Denial {
	denial := holdfast.Denial{
		Reason: d.Reason, Cause: d.Cause, Subject: d.Subject, Public: d.Detail, Holders: d.Holdings(),
		Cap: holdfast.NoLimit, Retryable: d.Retryable, RetryAfter: d.RetryAfter, ResetAt: d.ResetAt,
	}
	for _, c := range d.Checks {
		if c.Verdict != Deny || c.Figures == nil {
			continue
		}
		denial.Cap = c.Limit()
		denial.Requested, denial.Minimum = c.Amount(c.Figures.Requested), c.Amount(c.Figures.Minimum)
		denial.Settled, denial.Outstanding = c.Amount(c.Figures.Settled), c.Amount(c.Figures.Outstanding)
		denial.Withheld, denial.Remaining = c.Amount(c.Figures.Withheld), c.Amount(c.Figures.Remaining)
	}
	return denial
}
