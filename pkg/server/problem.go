package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/records"
)

// failure is a problem on its way to the caller: the one error type that handlers
// return when they know the answer's status themselves.
type failure struct {
	problem api.Problem
	header  http.Header
	cause   error // logged, never sent
}

// Error is for logs.
func (f *failure) Error() string {
	if f.cause != nil {
		return f.cause.Error()
	}
	return f.problem.Detail
}

// Unwrap gives the cause to errors.Is.
func (f *failure) Unwrap() error { return f.cause }

// fail makes a failure. code tells problems of one status apart.
func fail(status int, code, detail string) *failure {
	return &failure{problem: api.Problem{Type: "/problems/" + code, Title: http.StatusText(status), Status: status, Code: code, Detail: detail}}
}

// invalid is a 400 that names one field.
func invalid(field, problem, allowed string) error {
	return badRequest{{Field: field, Problem: problem, Allowed: allowed}}
}

// notFound is the answer for what does not exist and for what belongs to another
// team; the two are not told apart.
func notFound(what string) *failure {
	return fail(http.StatusNotFound, "not_found", "there is no such "+what)
}

// refusalStatus is the status of each reason of the gate.
func refusalStatus(reason holdfast.DenyReason) int {
	switch reason {
	case holdfast.DenyMaintenance, holdfast.DenyUnknownCapacity:
		return http.StatusServiceUnavailable
	case holdfast.DenyNoTeam, holdfast.DenyRole, holdfast.DenyTeamSuspended:
		return http.StatusForbidden
	case holdfast.DenyUnknownTeam, holdfast.DenyUnknownBot:
		return http.StatusNotFound
	case holdfast.DenyRepoQuota, holdfast.DenyMonthlyRuns, holdfast.DenyMonthlyUSD:
		return http.StatusPaymentRequired
	case holdfast.DenyLaunchRate, holdfast.DenyConcurrency, holdfast.DenyWindowExhausted, holdfast.DenyDonorLimit, holdfast.DenyRunnerPoolInUse:
		return http.StatusTooManyRequests
	case holdfast.DenyLane, holdfast.DenyNoCredential:
		return http.StatusConflict
	}
	return http.StatusTooManyRequests
}

// refusal is a denial with everything that it was judged by. Denial.Operator stays
// here.
func refusal(d holdfast.Denial) *failure {
	status := refusalStatus(d.Reason)
	retryable := d.Retryable
	p := api.Problem{
		Type: "/problems/refused", Title: "Refused: " + string(d.Reason), Status: status, Detail: d.Public,
		Reason: string(d.Reason), Cause: string(d.Cause), DecisionID: d.DecisionID, Retryable: &retryable,
		RetryAfterS: int64(math.Ceil(d.RetryAfter.Seconds())), ResetAt: d.ResetAt,
	}
	if !d.Subject.IsZero() {
		p.Subject = d.Subject.String()
		p.Cap = api.LimitOf(d.Cap)
		for _, number := range []struct {
			to   **api.Amount
			from holdfast.Amount
		}{{&p.Requested, d.Requested}, {&p.Settled, d.Settled}, {&p.Outstanding, d.Outstanding}, {&p.Withheld, d.Withheld}, {&p.Remaining, d.Remaining}} {
			*number.to = amountIn(d.Subject, number.from)
		}
		p.Holders = api.HoldingsOf(d.Holders)
	}
	f := &failure{problem: p}
	if p.RetryAfterS > 0 {
		f.header = http.Header{"Retry-After": {strconv.FormatInt(p.RetryAfterS, 10)}}
	}
	return f
}

// amountIn is an amount in its subject's unit, also when it is the zero Amount.
func amountIn(s holdfast.Subject, a holdfast.Amount) *api.Amount {
	wire := api.AmountOf(holdfast.AmountOf(s.Axis.Unit(), a.Int()))
	return &wire
}

// failureOf finds the answer for an error. What it does not know is our bug or a
// store's, and a 500 that tells nothing of the inside.
func failureOf(err error) *failure {
	var (
		known   *failure
		bad     badRequest
		one     *holdfast.InvalidError
		tooLong *http.MaxBytesError
	)
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &bad):
		return invalidFailure(bad)
	case errors.As(err, &one):
		return invalidFailure(badRequest{*one})
	case errors.As(err, &tooLong):
		f := fail(http.StatusRequestEntityTooLarge, "body_too_large", fmt.Sprintf("the body is larger than %d bytes", tooLong.Limit))
		f.problem.Errors = []api.FieldError{{Field: "body", Problem: "the body is too large", Allowed: fmt.Sprintf("at most %d bytes", tooLong.Limit)}}
		return f
	case errors.Is(err, launch.ErrAllocationClosed):
		return because(fail(http.StatusConflict, "allocation_closed", "the run's allocation is closed; it must stop"), err)
	case errors.Is(err, launch.ErrNotFound), errors.Is(err, records.ErrNotFound), errors.Is(err, capacityledger.ErrNotFound):
		return because(notFound("thing"), err)
	case errors.Is(err, launch.ErrForbidden):
		return because(fail(http.StatusForbidden, "forbidden", "the token's role does not allow this"), err)
	case errors.Is(err, launch.ErrConflict):
		return because(fail(http.StatusConflict, "conflict", holdfast.Clip(strings.TrimSuffix(err.Error(), ": "+launch.ErrConflict.Error()), 300)), err)
	case errors.Is(err, records.ErrExists):
		return because(fail(http.StatusConflict, "exists", "it exists already"), err)
	case errors.Is(err, records.ErrRevision):
		return because(fail(http.StatusConflict, "changed", "it was changed in between; read it again and repeat the change"), err)
	case errors.Is(err, auth.ErrUnauthenticated):
		return because(unauthenticated(), err)
	case errors.Is(err, launch.ErrUnavailable), errors.Is(err, records.ErrUnavailable), errors.Is(err, capacityledger.ErrUnavailable),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		f := because(fail(http.StatusServiceUnavailable, "store_unavailable", "a store cannot be reached; nobody knows, ask again"), err)
		f.header = http.Header{"Retry-After": {"1"}}
		f.problem.RetryAfterS = 1
		return f
	}
	return because(fail(http.StatusInternalServerError, "internal", "the server failed; its log says why"), err)
}

func because(f *failure, cause error) *failure {
	f.cause = cause
	return f
}

func unauthenticated() *failure {
	f := fail(http.StatusUnauthorized, "unauthenticated", "send a valid token as Authorization: Bearer …")
	f.header = http.Header{"Www-Authenticate": {`Bearer realm="holdfast"`}}
	return f
}

func invalidFailure(bad badRequest) *failure {
	f := fail(http.StatusBadRequest, "invalid", bad.Error())
	for _, b := range bad {
		f.problem.Errors = append(f.problem.Errors, api.FieldError{Field: b.Field, Problem: b.Problem, Allowed: b.Allowed})
	}
	return f
}

// writeProblem sends a failure.
func writeProblem(w http.ResponseWriter, f *failure) {
	for name, values := range f.header {
		w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	text, err := json.Marshal(f.problem)
	if err != nil {
		panic(fmt.Sprintf("server: a problem that cannot be encoded: %v", err))
	}
	w.Header().Set("Content-Type", api.ProblemType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(f.problem.Status)
	_, _ = w.Write(append(text, '\n'))
}

// writeJSON sends a success.
func writeJSON(w http.ResponseWriter, status int, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
	return nil
}

// utc is a time as answers have it; zero stays zero.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}
