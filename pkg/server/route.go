package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/auth"
)

// access says who may call a route. The gate's own routes ask for a token only: the
// gate says no with a reason and a decision.
type access int

const (
	anyToken access = iota
	viewers
	members
	admins
	operators
)

// String is the word of the documentation.
func (a access) String() string {
	return [...]string{"any token", "viewer", "member", "admin", "operator"}[a]
}

func (a access) role() auth.Role {
	return [...]auth.Role{"", auth.Viewer, auth.Member, auth.Admin, ""}[a]
}

// route is one row of the table of routes: what it is called, who may call it, and
// what it may answer. The handler is bound to it by [register].
type route struct {
	method, path, id, summary string
	group                     string
	who                       access
	status                    int   // of a success; 0 is 200
	also                      []int // further successes
	problems                  []int // besides 400, 401, 403, 404, 500 and 503
	// secret marks an answer that must not be kept for a replay.
	secret bool
	// stream marks an answer without an end: no deadline, no idempotency.
	stream bool
	// text is the media type of an answer that is not JSON.
	text string

	serve func(w http.ResponseWriter, r *http.Request, c call) error
}

func (rt route) writes() bool { return rt.method != http.MethodGet }

// call is who asks.
type call struct {
	auth.Principal
	// team is the team that the path names; empty without one.
	team holdfast.TeamID
	body []byte
	// run is the id that a launch under an idempotency key has, before that of an
	// earlier call under the key that died; both are empty without one.
	run, before holdfast.RunID
}

// answer is what a handler returns: a status (0 is the route's) and the document.
type answer[O any] struct {
	Status int
	Body   O
}

// done is the answer of a route that says nothing but that it worked.
type done struct{}

// register binds a handler to its route and writes the route into the OpenAPI
// document, from the very types that are decoded and encoded.
func register[I, O any](s *Server, rt route, handle func(ctx context.Context, c call, in I) (answer[O], error)) {
	if rt.status == 0 {
		rt.status = http.StatusOK
	}
	document[I, O](s, rt)
	rt.serve = func(w http.ResponseWriter, r *http.Request, c call) error {
		var in I
		if err := bind(r, c.body, &in); err != nil {
			return err
		}
		out, err := handle(r.Context(), c, in)
		if err != nil {
			return err
		}
		if out.Status == 0 {
			out.Status = rt.status
		}
		if _, nothing := any(out.Body).(done); nothing {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		return writeJSON(w, out.Status, out.Body)
	}
	s.add(rt)
}

// registerRaw is register for an answer that is not one JSON document.
func registerRaw[I any](s *Server, rt route, handle func(w http.ResponseWriter, r *http.Request, c call, in I) error) {
	rt.status = http.StatusOK
	document[I, done](s, rt)
	rt.serve = func(w http.ResponseWriter, r *http.Request, c call) error {
		var in I
		if err := bind(r, c.body, &in); err != nil {
			return err
		}
		return handle(w, r, c, in)
	}
	s.add(rt)
}

func (s *Server) add(rt route) {
	s.routes = append(s.routes, rt)
	s.mux.HandleFunc(rt.method+" "+rt.path, func(w http.ResponseWriter, r *http.Request) { s.handle(w, r, rt) })
}

// handle takes a request through authentication, authorisation, its body and the
// idempotency key to the route's handler, and answers every error as a problem.
func (s *Server) handle(w http.ResponseWriter, r *http.Request, rt route) {
	if !rt.stream {
		ctx, cancel := context.WithTimeout(r.Context(), s.options.RequestTimeout)
		defer cancel()
		r = r.WithContext(ctx)
	}
	err := s.admit(w, r, rt)
	if err == nil {
		return
	}
	f := failureOf(err)
	level := slog.LevelDebug
	if f.problem.Status >= 500 && f.problem.Reason == "" && !errors.Is(r.Context().Err(), context.Canceled) { // a caller that hung up is no fault of ours
		level = slog.LevelError
	}
	s.log.Log(r.Context(), level, "request failed", "method", r.Method, "route", rt.path, "status", f.problem.Status, "error", err)
	writeProblem(w, f)
}

func (s *Server) admit(w http.ResponseWriter, r *http.Request, rt route) error {
	c, err := s.authenticate(r, rt)
	if err != nil {
		return err
	}
	if rt.writes() {
		if c.body, err = readBody(w, r, s.options.MaxBody); err != nil {
			return err
		}
		if key := r.Header.Values("Idempotency-Key"); len(key) > 0 {
			return s.once(w, r, rt, c, key)
		}
	}
	return rt.serve(w, r, c)
}

// authenticate finds out who asks, and refuses who may not: another team's things
// do not exist (404), the right team without the role is 403.
func (s *Server) authenticate(r *http.Request, rt route) (call, error) {
	bearer, ok := bearerOf(r)
	if !ok {
		return call{}, unauthenticated()
	}
	principal, err := s.deps.Tokens.Authenticate(r.Context(), bearer)
	if err != nil {
		return call{}, err
	}
	c := call{Principal: principal}
	if name := r.PathValue("team"); name != "" {
		if c.team, err = teamID(name); err != nil {
			return call{}, err
		}
		if !principal.Operator && principal.Team != c.team {
			return call{}, notFound("team")
		}
	}
	if principal.Operator || rt.who == anyToken {
		return c, nil
	}
	if rt.who == operators || !principal.Role.AtLeast(rt.who.role()) {
		return call{}, fail(http.StatusForbidden, "forbidden", "this needs "+rt.who.String()+"; the token is "+roleWord(principal))
	}
	return c, nil
}

func roleWord(p auth.Principal) string {
	if p.Operator {
		return "operator"
	}
	return string(p.Role) + " of " + string(p.Team)
}

// teamID folds a team's name of a path or parameter. What cannot be a name is no
// team's.
func teamID(name string) (holdfast.TeamID, error) {
	folded, err := holdfast.FoldName(name)
	if err != nil {
		return "", holdfast.InField("team", err)
	}
	return holdfast.TeamID(folded), nil
}

func bearerOf(r *http.Request) (string, bool) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", false
	}
	return strings.TrimSpace(token), true
}

// protect turns a panic of a handler into a 500 that tells nothing of the inside.
func (s *Server) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := &sentWriter{ResponseWriter: w}
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(cause)
			}
			s.log.Error("a handler panicked", "method", r.Method, "path", holdfast.Clip(r.URL.Path, 200), "panic", cause, "stack", string(debug.Stack()))
			if sent.sent {
				panic(http.ErrAbortHandler) // half an answer is cut off, not finished
			}
			writeProblem(w, fail(http.StatusInternalServerError, "internal", "the server failed; its log says why"))
		}()
		next.ServeHTTP(sent, r)
	})
}

// sentWriter knows whether an answer began.
type sentWriter struct {
	http.ResponseWriter
	sent bool
}

// WriteHeader implements http.ResponseWriter.
func (w *sentWriter) WriteHeader(status int) {
	w.sent = true
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *sentWriter) Write(text []byte) (int, error) {
	w.sent = true
	return w.ResponseWriter.Write(text)
}

// Unwrap lets http.ResponseController find the connection's own writer.
func (w *sentWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// unmatched answers what no route has: 405 with the methods that there are, or 404.
func (s *Server) unmatched(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe := r.Clone(r.Context())
		probe.Method = method
		if _, pattern := s.mux.Handler(probe); pattern != "/" && pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		writeProblem(w, fail(http.StatusNotFound, "not_found", "there is nothing at this path; /docs lists what there is"))
		return
	}
	f := fail(http.StatusMethodNotAllowed, "method", holdfast.Clip(r.Method, 20)+" is not for this path")
	f.problem.Errors = []api.FieldError{fieldError("method", "it is not for this path", strings.Join(allowed, ", "))}
	f.header = http.Header{"Allow": {strings.Join(allowed, ", ")}}
	writeProblem(w, f)
}

func fieldError(field, problem, allowed string) api.FieldError {
	return api.FieldError{Field: field, Problem: problem, Allowed: allowed}
}

var _ huma.Adapter = silentAdapter{}
