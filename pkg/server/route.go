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
	// trail says how the audit trail learns of a success; the zero value records it
	// before it is answered.
	trail trailKind

	serve func(w http.ResponseWriter, r *http.Request, c call) error
}

func (rt route) writes() bool { return rt.method != http.MethodGet }

// changes says whether a success of the route changes something.
func (rt route) changes() bool { return rt.writes() && rt.trail != readsOnly }

// call is who asks.
type call struct {
	auth.Principal
	// need is the role that the route asks for in the team that the request is about.
	need auth.Role
	// acts collects what the call did, for the audit trail.
	acts *acts
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
		s.recordActs(r, rt, c)
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
		err := handle(w, r, c, in)
		if err == nil {
			s.recordActs(r, rt, c)
		}
		return err
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
	c, err := s.admit(w, r, rt)
	if err == nil {
		return
	}
	f := failureOf(err)
	s.noteRefusal(r, rt, c, f)
	level := slog.LevelDebug
	if f.problem.Status >= 500 && f.problem.Reason == "" && !errors.Is(r.Context().Err(), context.Canceled) { // a caller that hung up is no fault of ours
		level = slog.LevelError
	}
	s.log.Log(r.Context(), level, "request failed", "method", r.Method, "route", rt.path, "status", f.problem.Status, "error", err)
	writeProblem(w, f)
}

// admit answers the request, or says why not and whose it was.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, rt route) (call, error) {
	c, err := s.authenticate(r, rt)
	c.acts = &acts{request: w.Header().Get(requestID)}
	if err != nil {
		return c, err
	}
	if rt.writes() {
		if c.body, err = readBody(w, r, s.options.MaxBody); err != nil {
			return c, err
		}
		if key := r.Header.Values("Idempotency-Key"); len(key) > 0 {
			return c, s.once(w, r, rt, c, key)
		}
	}
	return c, rt.serve(w, r, c)
}

// authenticate finds out who asks, and refuses who may not: another team's things
// do not exist (404), the right team without the role is 403. The call says who it was
// also when it is refused.
func (s *Server) authenticate(r *http.Request, rt route) (call, error) {
	principal, err := s.caller(r, rt)
	if err != nil {
		return call{}, err
	}
	c := call{Principal: principal, need: rt.who.role()}
	if name := r.PathValue("team"); name != "" {
		team, err := teamID(name)
		if err != nil {
			return c, err
		}
		if !principal.In(team) {
			return c, notFound("team")
		}
		c.team = team
	}
	if principal.Operator || rt.who == anyToken {
		return c, nil
	}
	role := principal.Best() // of what the request is about, where the path does not say it, the handler judges
	if c.team != "" {
		role = principal.RoleIn(c.team)
	}
	if rt.who == operators || !role.AtLeast(rt.who.role()) {
		return c, fail(http.StatusForbidden, "forbidden", "this needs "+rt.who.String()+"; the caller is "+roleWord(principal, c.team))
	}
	return c, nil
}

// caller is who the bearer token or the browser's session says.
func (s *Server) caller(r *http.Request, rt route) (auth.Principal, error) {
	if len(r.Header.Values("Authorization")) == 0 && s.options.Login != nil && s.options.Login.HasSession(r) {
		if err := crossOrigin(r, rt); err != nil {
			return auth.Principal{}, err
		}
		return s.options.Login.Principal(r.Context(), r)
	}
	bearer, ok := bearerOf(r)
	if !ok {
		return auth.Principal{}, unauthenticated()
	}
	return s.deps.Tokens.Authenticate(r.Context(), bearer)
}

// roleWord says for people what a caller may do in a team, or where no team is named.
func roleWord(p auth.Principal, team holdfast.TeamID) string {
	if team == "" {
		team = p.Team
	}
	switch role := p.RoleIn(team); {
	case p.Operator:
		return "operator"
	case role != "":
		return string(role) + " of " + string(team)
	case len(p.Memberships) > 0:
		return string(p.Best()) + " at most"
	}
	return "in no team"
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
