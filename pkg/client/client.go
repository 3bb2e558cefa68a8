// Package client speaks to a Holdfast server over HTTP. Every method takes a context
// first and answers with the documents of pkg/api. What the server said no to is a
// *[Refused]; what it could not be asked is [ErrUnreachable]; the two are never
// turned into each other. Nothing is repeated behind the caller's back.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
)

// DefaultTimeout bounds one request, its answer included, unless [Options] say
// otherwise. Streams (logs that are followed, events) are bounded by their context.
const DefaultTimeout = 30 * time.Second

// maxAnswer is the largest document that is read, in bytes.
const maxAnswer = 64 << 20

// Options configure a [Client]; the zero value is the documented default.
type Options struct {
	// Timeout bounds one request; zero is [DefaultTimeout], below zero is none.
	Timeout time.Duration
	// UserAgent is sent with every request; empty is "holdfast".
	UserAgent string
	// Transport replaces http.DefaultTransport's clone, as tests need.
	Transport http.RoundTripper
}

// Client is a connection to one server. It may be used from any number of
// goroutines.
type Client struct {
	base    *url.URL
	token   string
	agent   string
	timeout time.Duration
	http    *http.Client
}

// New is a client of the server at baseURL ("http://127.0.0.1:7420"), with the
// caller's bearer token; an empty token sends none. An *holdfast.InvalidError says
// what is wrong with the URL or the token. Nothing is contacted yet.
func New(baseURL, token string, options Options) (*Client, error) {
	base, err := url.Parse(strings.TrimRight(baseURL, "/"))
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, &holdfast.InvalidError{Field: "url", Problem: fmt.Sprintf("%q is not a server's address", holdfast.Clip(baseURL, 200)), Allowed: "http://HOST:PORT or https://HOST, with an optional path"}
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, &holdfast.InvalidError{Field: "token", Problem: "the token holds a blank or a control character", Allowed: "the token as it was shown, without a line end"}
	}
	if options.Timeout == 0 {
		options.Timeout = DefaultTimeout
	}
	if options.UserAgent == "" {
		options.UserAgent = "holdfast"
	}
	if options.Transport == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is what net/http declares it to be
		transport.MaxIdleConnsPerHost = 64
		options.Transport = transport
	}
	c := &Client{base: base, token: token, agent: options.UserAgent, timeout: options.Timeout}
	c.http = &http.Client{Transport: options.Transport, CheckRedirect: c.redirect}
	return c, nil
}

// redirect follows a redirect to the same host and scheme only, so that a token
// never travels anywhere else.
func (c *Client) redirect(r *http.Request, via []*http.Request) error {
	if r.URL.Host != c.base.Host || r.URL.Scheme != c.base.Scheme || len(via) > 3 {
		return fmt.Errorf("the server redirects to %s://%s, which is not followed", r.URL.Scheme, r.URL.Host)
	}
	return nil
}

// request is one call.
type request struct {
	method string
	path   []string // segments, escaped when the URL is made
	query  url.Values
	body   any    // nil sends none
	key    string // Idempotency-Key, empty sends none
}

// do sends the request and decodes a success into answer (nil throws it away). It
// returns the status of a success.
func (c *Client) do(ctx context.Context, r request, answer any) (int, error) {
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	response, err := c.send(ctx, r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return 0, c.unreachable(ctx, err)
	case len(text) > maxAnswer:
		return 0, fmt.Errorf("%s %s: the answer is larger than %d bytes", r.method, response.Request.URL.Path, maxAnswer)
	case answer == nil || response.StatusCode == http.StatusNoContent:
		return response.StatusCode, nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return 0, fmt.Errorf("%s %s: the answer is not what a Holdfast server sends: %w", r.method, response.Request.URL.Path, err)
	}
	return response.StatusCode, nil
}

// send sends the request and returns a success whose body the caller closes.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	var body io.Reader
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(text)
	}
	target, err := c.target(r.path)
	if err != nil {
		return nil, err
	}
	target.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, target.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Accept", "application/json, text/event-stream, text/plain")
	req.Header.Set("User-Agent", c.agent)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	response, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	return nil, problemError(response, text)
}

// target is the URL of a path whose segments may hold anything that a name can hold.
// A segment that would lead elsewhere is refused.
func (c *Client) target(path []string) (*url.URL, error) {
	escaped := make([]string, 0, len(path))
	for _, segment := range path {
		if segment == "" || segment == "." || segment == ".." {
			return nil, &holdfast.InvalidError{Problem: fmt.Sprintf("%q is not a name", segment), Allowed: "a name or id as the server shows it"}
		}
		escaped = append(escaped, url.PathEscape(segment))
	}
	return c.base.JoinPath(escaped...), nil
}

// unreachable keeps a caller's own cancellation what it is, and makes the rest of
// what a transport can say ErrUnreachable.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Canceled
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return fmt.Errorf("%w at %s: %w", ErrUnreachable, c.base.Redacted(), err)
}

// problemError makes the typed error of an answer that is not a success.
func problemError(response *http.Response, text []byte) error {
	var problem api.Problem
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if health, ok := healthIn(response, text); ok {
		return &notReady{health}
	}
	if kind != api.ProblemType || json.Unmarshal(text, &problem) != nil {
		return &Failed{api.Problem{
			Title: http.StatusText(response.StatusCode), Status: response.StatusCode,
			Detail: fmt.Sprintf("the server at %s answered %s and not as a Holdfast server does: %s", response.Request.URL.Host, response.Status, holdfast.Clip(string(text), 200)),
		}}
	}
	problem.Status = response.StatusCode
	switch {
	case problem.Reason != "":
		return &Refused{problem}
	case problem.Status == http.StatusUnauthorized:
		return &Unauthenticated{problem}
	case problem.Status == http.StatusForbidden:
		return &Forbidden{problem}
	case problem.Status == http.StatusNotFound:
		return &NotFound{problem}
	case problem.Status == http.StatusConflict:
		return &Conflict{problem}
	case problem.Status >= 400 && problem.Status < 500:
		return &InvalidRequest{problem}
	}
	return &Failed{problem}
}

// notReady is the answer of a server that is not; it reaches [Client.Ready] alone.
type notReady struct{ health api.Health }

func (e *notReady) Error() string { return "the server says " + e.health.Status }

// healthIn is what a server that is not ready says of itself.
func healthIn(response *http.Response, text []byte) (health api.Health, ok bool) {
	if response.StatusCode != http.StatusServiceUnavailable || path.Base(response.Request.URL.Path) != "readyz" {
		return api.Health{}, false
	}
	err := json.Unmarshal(text, &health)
	return health, err == nil && health.Status == "not_ready"
}
