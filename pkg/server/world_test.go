package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
	"github.com/holdfast-io/holdfast/pkg/audit"
	"github.com/holdfast-io/holdfast/pkg/auth"
	"github.com/holdfast-io/holdfast/pkg/board"
	"github.com/holdfast-io/holdfast/pkg/botsource"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/decisions"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/platformcfg"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/records/recordstest"
	"github.com/holdfast-io/holdfast/pkg/runs"
	"github.com/holdfast-io/holdfast/pkg/secrets"
	"github.com/holdfast-io/holdfast/pkg/server"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
	"github.com/holdfast-io/holdfast/pkg/teams"
)

// world is a server over memory stores, the real gate and a queue that keeps what it
// is given.
type world struct {
	t      testing.TB
	clock  *clocktest.Manual
	http   *httptest.Server
	server *server.Server
	broker *server.Broker
	queue  *fakeQueue
	log    *lockedBuffer
	tokens *auth.Tokens
	runs   *runs.Repository
	teams  *teams.Repository
	ledger *capacityledger.Ledger
	launch *launch.Service
	boards *board.Repository
	dead   *fakeDead
	faults *recordstest.Faults // of the record store
	trail  *audit.Log
	made   map[string]string // things of acme, once they are made

	operator string            // its bearer
	bearers  map[string]string // "acme/viewer" and so on
}

const operatorBearer = "hf_operator-operator-operator-operator-operator"

// build makes a world; change edits the options before the server is made.
func build(t testing.TB, change func(*world, *server.Options)) *world {
	t.Helper()
	return buildBeating(t, 0, change)
}

// buildBeating asks external callers for heartbeats that often; zero is the default.
func buildBeating(t testing.TB, heartbeat time.Duration, change func(*world, *server.Options)) *world {
	t.Helper()
	ctx := t.Context()
	w := &world{t: t, clock: clocktest.New(), queue: &fakeQueue{}, log: &lockedBuffer{}, operator: operatorBearer, bearers: map[string]string{}}
	w.faults = recordstest.NewFaults(memory.NewRecords())
	db, log := w.faults, slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.ledger = capacityledger.New(memory.NewLedger(), capacityledger.Options{Clock: w.clock})
	w.tokens = must(auth.New(ctx, db, w.clock))
	w.runs = must(runs.New(ctx, db))
	w.teams = must(teams.New(ctx, db))
	bots := must(botsource.New(ctx, db))
	resolver := botsource.NewResolver(bots, botsource.Options{})
	settings := must(platformcfg.New(ctx, db, w.clock, platformcfg.Options{}))
	recorder := must(decisions.New(ctx, db, w.clock, decisions.Options{}))
	trail := must(audit.New(ctx, db, w.clock))
	w.trail = trail
	keys := must(secrets.ParseKeyring(secrets.NewKey()))
	vault := must(secrets.NewVault(ctx, db, w.clock, keys))
	w.broker = server.NewBroker(w.clock)
	w.launch = must(launch.New(launch.Deps{
		Ledger: w.ledger, Runs: w.runs, Teams: w.teams, Bots: resolver, Settings: settings, Decisions: recorder, Audit: trail, Queue: w.queue,
	}, launch.Options{Clock: w.clock, Log: log, Heartbeat: heartbeat, Events: launch.Events{
		RunChanged: func(r runs.Run) {
			run := server.RunOnWire(r)
			w.broker.Publish(api.Event{Type: server.EventRun, Team: run.Team, Run: &run})
		},
	}}))
	options := server.Options{Clock: w.clock, Log: log, PollLogs: time.Millisecond}
	if change != nil {
		change(w, &options)
	}
	w.server = must(server.New(ctx, server.Deps{
		Records: db, Launch: w.launch, Runs: w.runs, Teams: w.teams, Tokens: w.tokens, Bots: bots, Resolver: resolver,
		Settings: settings, Decisions: recorder, Audit: trail, Secrets: vault, Surfaces: w.surfaces(db, keys), Broker: w.broker,
	}, options))
	w.http = httptest.NewServer(w.server.Handler())
	t.Cleanup(func() { w.broker.Close(); w.http.Close() })
	if err := w.tokens.EnsureOperator(ctx, w.operator); err != nil {
		t.Fatal(err)
	}
	for _, team := range []string{"acme", "rival"} {
		if _, err := w.teams.Create(ctx, teams.Team{ID: holdfast.TeamID(team), CreatedAt: w.clock.Now(), UpdatedAt: w.clock.Now()}); err != nil {
			t.Fatal(err)
		}
		for _, role := range []auth.Role{auth.Viewer, auth.Member, auth.Admin} {
			_, bearer, err := w.tokens.Issue(ctx, auth.Issue{Team: holdfast.TeamID(team), Name: team + " " + string(role), Role: role})
			if err != nil {
				t.Fatal(err)
			}
			w.bearers[team+"/"+string(role)] = bearer
		}
	}
	return w
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// reply is an answer that was read to its end.
type reply struct {
	t      testing.TB
	status int
	header http.Header
	body   string
}

// call sends a request; who is "operator", "team/role", or empty for nobody. pairs
// are header names and values.
func (w *world) call(who, method, path, body string, pairs ...string) reply {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.http.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	switch bearer := w.bearers[who]; {
	case who == "operator":
		req.Header.Set("Authorization", "Bearer "+w.operator)
	case bearer != "":
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] == "Host" {
			req.Host = pairs[i+1]
			continue
		}
		req.Header.Set(pairs[i], pairs[i+1])
	}
	response, err := w.http.Client().Do(req)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return reply{w.t, response.StatusCode, response.Header, string(text)}
}

// callHead sends a GET and reads the status only, for an answer that has no end.
func (w *world) callHead(who, path string) reply {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	response := w.open(ctx, who, path)
	_ = response.Body.Close()
	return reply{w.t, response.StatusCode, response.Header, ""}
}

// open sends a GET whose body the caller reads.
func (w *world) open(ctx context.Context, who, path string, pairs ...string) *http.Response {
	w.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.http.URL+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	bearer := w.bearers[who]
	if who == "operator" {
		bearer = w.operator
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	for i := 0; i+1 < len(pairs); i += 2 {
		req.Header.Set(pairs[i], pairs[i+1])
	}
	response, err := w.http.Client().Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	return response
}

// want demands a status.
func (r reply) want(status int) reply {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("status %d, want %d: %s", r.status, status, r.body)
	}
	return r
}

func (r reply) into(target any) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(r.body), target); err != nil {
		r.t.Fatalf("%v in %s", err, r.body)
	}
}

// problem demands a problem of the status.
func (r reply) problem(status int) api.Problem {
	r.t.Helper()
	r.want(status)
	if kind := r.header.Get("Content-Type"); kind != api.ProblemType {
		r.t.Fatalf("the problem's media type is %q: %s", kind, r.body)
	}
	var p api.Problem
	r.into(&p)
	if p.Status != status || p.Title == "" || p.Type == "" {
		r.t.Fatalf("an incomplete problem: %s", r.body)
	}
	return p
}

// person makes an account with roles, once, and a token of it: its bearer goes by the
// account's id.
func (w *world) person(id string, roles ...auth.Membership) {
	w.t.Helper()
	if _, known := w.bearers[id]; known {
		return
	}
	w.account(auth.Account{ID: id, Kind: auth.User, Memberships: roles})
}

// account is person for an account as it is given.
func (w *world) account(a auth.Account) {
	w.t.Helper()
	a, err := w.tokens.Accounts().Create(w.t.Context(), a)
	if err != nil {
		w.t.Fatal(err)
	}
	_, bearer, err := w.tokens.Issue(w.t.Context(), auth.Issue{Account: a.ID, Name: "laptop"})
	if err != nil {
		w.t.Fatal(err)
	}
	w.bearers[a.ID] = bearer
}

// limits writes a team's limits.
func (w *world) limits(team, limits string) {
	w.t.Helper()
	w.call("operator", "PATCH", "/api/teams/"+team, `{"limits":`+limits+`}`).want(200)
}

// bot puts a bot of the platform without a budget of its own.
func (w *world) bot(name string) {
	w.t.Helper()
	w.call("operator", "PUT", "/api/bots/"+name, `{"lane":"command","command":["true"]}`).want(201)
}

// launched launches and demands an admission.
func (w *world) launched(who, body string, pairs ...string) api.Run {
	w.t.Helper()
	var run api.Run
	r := w.call(who, "POST", "/api/runs", body, pairs...)
	if r.status != 201 && r.status != 202 {
		w.t.Fatalf("not admitted: %d %s", r.status, r.body)
	}
	r.into(&run)
	return run
}

// outstanding is what a subject has promised.
func (w *world) outstanding(subject string) int64 {
	w.t.Helper()
	s, err := holdfast.ParseSubject(subject)
	if err != nil {
		w.t.Fatal(err)
	}
	balance, err := w.ledger.Outstanding(w.t.Context(), s)
	if err != nil {
		w.t.Fatal(err)
	}
	return balance.Outstanding
}

// fakeQueue keeps the messages.
type fakeQueue struct {
	mu       sync.Mutex
	messages []queue.RunMessage
	fail     error
	gate     chan struct{} // when set, Publish waits for it
	entered  chan struct{} // told when a publish begins
}

func (q *fakeQueue) Publish(ctx context.Context, m queue.RunMessage) error {
	q.mu.Lock()
	gate, entered, fail := q.gate, q.entered, q.fail
	q.mu.Unlock()
	if entered != nil {
		entered <- struct{}{}
	}
	if gate != nil {
		<-gate
	}
	if fail != nil {
		return fail
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.messages = append(q.messages, m)
	return nil
}

func (q *fakeQueue) Cancel(context.Context, holdfast.RunID) error { return nil }

func (q *fakeQueue) Queued(_ context.Context, _ string, run holdfast.RunID) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.messages {
		if m.Run == run {
			return true, nil
		}
	}
	return false, nil
}

func (q *fakeQueue) published() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.messages)
}

func (q *fakeQueue) set(change func(*fakeQueue)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	change(q)
}

// lockedBuffer is a log that tests can read.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lockedBuffer) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}
