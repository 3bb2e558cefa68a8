package client

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
)

// ErrUnreachable says that the server could not be asked, or that its answer was lost. Nobody
// knows what it did; a call with an idempotency key may be made again.
var ErrUnreachable = errors.New("the server cannot be reached")

// Refused is the gate's "no", with every number that it was judged by.
type Refused struct{ Problem api.Problem }

// InvalidRequest is a request that the server cannot mean: Problem.Errors names the
// fields and what is allowed.
type InvalidRequest struct{ Problem api.Problem }

// Unauthenticated is the answer to a token that is unknown, expired or revoked.
type Unauthenticated struct{ Problem api.Problem }

// Forbidden is the answer to a caller whose role does not allow it.
type Forbidden struct{ Problem api.Problem }

// NotFound is the answer for what does not exist, or is another team's.
type NotFound struct{ Problem api.Problem }

// Conflict is the answer when how the thing stands does not allow it, or somebody was
// faster.
// Problem.Code says which.
type Conflict struct{ Problem api.Problem }

// Failed is an answer that says nothing about the request: the server could not
// tell, or what answered is not a Holdfast server.
type Failed struct{ Problem api.Problem }

// Error says the reason and the arithmetic in one line.
func (e *Refused) Error() string { return "refused (" + e.Problem.Reason + "): " + text(e.Problem) }

// RetryAfter is how long to wait before asking again; zero when the server could
// not say, or when asking again cannot help.
func (e *Refused) RetryAfter() time.Duration {
	return time.Duration(e.Problem.RetryAfterS) * time.Second
}

// Retryable says whether asking again can ever help.
func (e *Refused) Retryable() bool { return e.Problem.Retryable != nil && *e.Problem.Retryable }

// Error names each bad field.
func (e *InvalidRequest) Error() string { return text(e.Problem) }

// Error says what the server said.
func (e *Unauthenticated) Error() string { return text(e.Problem) }

// Error says what the server said.
func (e *Forbidden) Error() string { return text(e.Problem) }

// Error says what the server said.
func (e *NotFound) Error() string { return text(e.Problem) }

// Error says what the server said.
func (e *Conflict) Error() string { return text(e.Problem) }

// Error says what the server said.
func (e *Failed) Error() string { return text(e.Problem) }

// ProblemOf is the problem that an error of this package carries, if it carries one.
func ProblemOf(err error) (api.Problem, bool) {
	var (
		refused         *Refused
		invalid         *InvalidRequest
		unauthenticated *Unauthenticated
		forbidden       *Forbidden
		notFound        *NotFound
		conflict        *Conflict
		failed          *Failed
	)
	switch {
	case errors.As(err, &refused):
		return refused.Problem, true
	case errors.As(err, &invalid):
		return invalid.Problem, true
	case errors.As(err, &unauthenticated):
		return unauthenticated.Problem, true
	case errors.As(err, &forbidden):
		return forbidden.Problem, true
	case errors.As(err, &notFound):
		return notFound.Problem, true
	case errors.As(err, &conflict):
		return conflict.Problem, true
	case errors.As(err, &failed):
		return failed.Problem, true
	}
	return api.Problem{}, false
}

func text(p api.Problem) string {
	out := cmp.Or(p.Detail, p.Title, http.StatusText(p.Status))
	if len(p.Errors) == 0 {
		return out
	}
	var b strings.Builder
	for i, e := range p.Errors {
		if i > 0 {
			b.WriteString("; ")
		}
		if e.Field != "" {
			b.WriteString(e.Field + ": ")
		}
		b.WriteString(e.Problem)
		if e.Allowed != "" {
			b.WriteString(" (allowed: " + e.Allowed + ")")
		}
	}
	return b.String()
}
