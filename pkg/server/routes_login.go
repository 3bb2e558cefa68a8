package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/audit"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/login"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
)

// loginRoutes are the pages of a browser's login. They need no token and are no part of
// the OpenAPI document; without a provider there are none.
func (s *Server) loginRoutes() {
	if s.options.Login == nil {
		return
	}
	s.mux.HandleFunc("GET /auth/login", s.browser(s.options.Login.Begin))
	s.mux.HandleFunc("GET /auth/callback", s.browser(s.callback))
	s.mux.HandleFunc("POST /auth/logout", s.browser(s.logout))
}

// browser answers the errors of a login's page.
func (s *Server) browser(page func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), s.options.RequestTimeout)
		defer cancel()
		w.Header().Set("Cache-Control", "no-store")
		err := page(w, r.WithContext(ctx))
		if err == nil {
			return
		}
		f := loginFailure(err)
		s.log.Warn("a login failed", "path", r.URL.Path, "status", f.problem.Status, "request", w.Header().Get(requestID), "error", err)
		writeProblem(w, f)
	}
}

func loginFailure(err error) *failure {
	var refused *login.Refusal
	switch {
	case errors.As(err, &refused):
		return because(fail(http.StatusForbidden, "login_"+refused.Code, refused.Detail), err)
	case errors.Is(err, login.ErrProvider):
		f := because(fail(http.StatusServiceUnavailable, "login_provider", "the provider of logins cannot be reached, so nobody is logged in; try again, or use a token"), err)
		f.header = http.Header{"Retry-After": {"5"}}
		f.problem.RetryAfterS = 5
		return f
	}
	return failureOf(err)
}

// callback is the end of a login. Both ends are in the audit trail.
func (s *Server) callback(w http.ResponseWriter, r *http.Request) error {
	account, err := s.options.Login.Callback(w, r)
	entry := audit.Entry{Action: "login", Target: account.ID, Account: account.ID, Actor: account.ID, Outcome: audit.Done}
	if err != nil {
		f := loginFailure(err)
		entry.Outcome, entry.Detail = audit.Refused, map[string]string{"code": f.problem.Code, "status": http.StatusText(f.problem.Status)}
	}
	s.noteLogin(w, r, entry)
	return err
}

func (s *Server) noteLogin(w http.ResponseWriter, r *http.Request, entry audit.Entry) {
	if entry.Actor == "" {
		entry.Actor, entry.Target = audit.Nobody, "login"
	}
	entry.Request, entry.IP = w.Header().Get(requestID), peer(r)
	s.deps.Audit.Note(entry)
}

func (s *Server) logout(w http.ResponseWriter, r *http.Request) error {
	if err := crossOrigin(r, route{method: http.MethodPost}); err != nil {
		return err
	}
	who, err := s.options.Login.Principal(r.Context(), r)
	if err != nil && !errors.Is(err, auth.ErrUnauthenticated) {
		return err
	}
	if err := s.options.Login.Logout(w, r); err != nil {
		return err
	}
	if who.Account != "" {
		s.noteLogin(w, r, audit.Entry{Action: "logout", Target: who.Account, Account: who.Account, Actor: who.Name, Token: who.TokenID})
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// crossOrigin refuses a write that another site made the browser send with this
// server's cookie. A browser says where a write comes from; one that does not is not
// believed.
func crossOrigin(r *http.Request, rt route) error {
	if !rt.writes() {
		return nil
	}
	stated := r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
	if err := http.NewCrossOriginProtection().Check(r); err != nil || !stated {
		return because(fail(http.StatusForbidden, "cross_origin", "a write with a browser's session must come from this server's own pages; programs send a token"), err)
	}
	return nil
}

func (s *Server) loginSetting() {
	addFamily(s, "login", "what the groups of the logins' provider mean", family[api.LoginRules, platformcfg.LoginRules]{
		setting: s.deps.Settings.Login,
		fromWire: func(w api.LoginRules) platformcfg.LoginRules {
			l := platformcfg.LoginRules{UpdatedAt: w.UpdatedAt}
			for _, g := range w.Groups {
				l.Groups = append(l.Groups, platformcfg.GroupRule(g))
			}
			return l
		},
		toWire: func(l platformcfg.LoginRules) api.LoginRules {
			var w api.LoginRules
			for _, g := range l.Groups {
				w.Groups = append(w.Groups, api.GroupRule(g))
			}
			return w
		},
		state: func(w *api.LoginRules) *api.SettingState { return &w.SettingState },
		token: func(l platformcfg.LoginRules) time.Time { return l.UpdatedAt },
	})
}
