package server

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast"
)

// hosts refuses requests under a foreign name: a web page that makes its own name
// point at the reader's machine (DNS rebinding) sends that name as Host, and a page
// that posts across origins sends its own as Origin.
func (s *Server) hosts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("X-Frame-Options", "DENY")
		if !s.options.AnyHost {
			if !s.knownHost(r.Host) {
				s.foreign(w, "Host", r.Host)
				return
			}
			for _, origin := range r.Header.Values("Origin") {
				if u, err := url.Parse(origin); err != nil || u.Host == "" || !s.knownHost(u.Host) {
					s.foreign(w, "Origin", origin)
					return
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) foreign(w http.ResponseWriter, header, value string) {
	f := fail(http.StatusForbidden, "foreign_host", "this server does not answer to that name")
	f.problem.Errors = append(f.problem.Errors, fieldError(header, holdfast.Clip(value, 100)+" is not one of this server's names", "localhost, a loopback address, or a name that the server was started with"))
	writeProblem(w, f)
}

func (s *Server) knownHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if host == "localhost" || slices.Contains(s.options.AllowedHosts, host) {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// onLoopback says whether the request came from this machine and was not passed on
// by a proxy on it.
func onLoopback(r *http.Request) bool {
	if r.Header.Get("Forwarded") != "" || r.Header.Get("X-Forwarded-For") != "" || r.Header.Get("Via") != "" {
		return false
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback()
}
