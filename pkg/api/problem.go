package api

import (
	"time"

	"github.com/holdfast-io/holdfast"
)

// ProblemType is the media type of every answer that is not a success.
const ProblemType = "application/problem+json"

// FieldError names one bad field of a request: what is wrong, and what is allowed.
type FieldError struct {
	Field   string `json:"field,omitempty" doc:"the path of the field, or of the query parameter or header" example:"limits.monthly_usd"`
	Problem string `json:"problem"`
	Allowed string `json:"allowed,omitempty"`
}

// Problem is every answer that is not a success (RFC 9457). A bad request carries
// Errors; a refusal of the gate carries Reason and every number it was judged by.
type Problem struct {
	Type   string `json:"type" doc:"a URI reference that names the sort of problem" example:"/problems/refused"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty" doc:"says it for people, with the way out"`
	// Code tells problems of one status apart, where no gate reason does.
	Code   string       `json:"code,omitempty" doc:"tells problems of one status apart where there is no reason" example:"in_progress"`
	Errors []FieldError `json:"errors,omitempty"`

	Reason      string    `json:"reason,omitempty" doc:"which check refused" example:"concurrency_cap_exceeded"`
	Cause       string    `json:"cause,omitempty" doc:"capacity_reserved when only a reservation stood in the way"`
	DecisionID  string    `json:"decision_id,omitempty"`
	Subject     string    `json:"subject,omitempty" example:"team/acme/slots"`
	Cap         *Amount   `json:"cap,omitempty"`
	Requested   *Amount   `json:"requested,omitempty"`
	Settled     *Amount   `json:"settled,omitempty"`
	Outstanding *Amount   `json:"outstanding,omitempty"`
	Withheld    *Amount   `json:"withheld,omitempty"`
	Remaining   *Amount   `json:"remaining,omitempty"`
	Holders     []Holding `json:"holders,omitempty"`
	Retryable   *bool     `json:"retryable,omitempty" doc:"false when no return of capacity can ever admit this ask"`
	RetryAfterS int64     `json:"retry_after_s,omitempty" doc:"also in the header Retry-After"`
	ResetAt     time.Time `json:"reset_at,omitzero"`
}

// Holding is what one holder has on a subject.
type Holding struct {
	Holder      string  `json:"holder" example:"platform/review-pr"`
	Reserved    Amount  `json:"reserved"`
	Settled     Amount  `json:"settled"`
	Outstanding Amount  `json:"outstanding"`
	FreeFor     *Amount `json:"free_for,omitempty" doc:"what this holder could still be granted"`
}

// HoldingsOf are holdings on the wire.
func HoldingsOf(holdings []holdfast.Holding) []Holding {
	out := make([]Holding, 0, len(holdings))
	for _, h := range holdings {
		out = append(out, Holding{
			Holder: h.Holder.String(), Reserved: AmountOf(h.Reserved),
			Settled: AmountOf(h.Settled), Outstanding: AmountOf(h.Outstanding),
		})
	}
	return out
}
