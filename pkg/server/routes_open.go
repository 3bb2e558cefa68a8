package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"

	"github.com/holdfast-io/holdfast/pkg/api"
)

// openRoutes are those that need no token. They are no part of the OpenAPI document.
func (s *Server) openRoutes() {
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_ = writeJSON(w, http.StatusOK, api.Health{Status: "ok"})
	})
	s.mux.HandleFunc("GET /readyz", s.ready)
	s.mux.HandleFunc("GET /openapi.json", s.described("application/json", func(r reference) []byte { return r.openapi }))
	s.mux.Handle("GET /{$}", http.RedirectHandler("/docs", http.StatusFound)) // who opens the address in a browser
	s.mux.HandleFunc("GET /docs", s.described("text/html; charset=utf-8", func(r reference) []byte { return r.docs }))
	if s.options.Metrics != nil {
		s.mux.HandleFunc("GET /metrics", s.metrics)
	}
}

// described answers one page of the reference.
func (s *Server) described(kind string, of func(reference) []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		pages, err := s.pages()
		if err != nil {
			s.log.Error("the reference cannot be made", "error", err)
			writeProblem(w, failureOf(err))
			return
		}
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		_, _ = w.Write(of(pages))
	}
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	var missing map[string]string
	if s.options.Ready != nil {
		missing = s.options.Ready(r.Context())
	}
	status, health := http.StatusOK, api.Health{Status: "ok"}
	if len(missing) > 0 {
		status, health = http.StatusServiceUnavailable, api.Health{Status: "not_ready", Checks: missing}
	}
	if s.options.Warnings != nil {
		health.Warnings = s.options.Warnings()
	}
	if warning := s.policyWarning(); warning != "" {
		health.Warnings = append(health.Warnings, warning)
	}
	_ = writeJSON(w, status, health)
}

// metrics is open to this machine, and to others with the metrics token.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	if !onLoopback(r) && !s.holdsMetricsToken(r) {
		writeProblem(w, unauthenticated())
		return
	}
	s.options.Metrics.ServeHTTP(w, r)
}

func (s *Server) holdsMetricsToken(r *http.Request) bool {
	bearer, ok := bearerOf(r)
	if !ok || s.options.MetricsToken == "" {
		return false
	}
	given, want := sha256.Sum256([]byte(bearer)), sha256.Sum256([]byte(s.options.MetricsToken))
	return subtle.ConstantTimeCompare(given[:], want[:]) == 1
}
