package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/records"
)

const (
	// maxKey is the longest Idempotency-Key, in characters.
	maxKey = 200
	// keepKeys is how long a key is remembered.
	keepKeys = 24 * time.Hour
	// abandoned is after which time a call that never came to its end is believed to
	// have died with its process. It is well above every request's timeout.
	abandoned = 2 * time.Minute
	// maxKeys bounds the keys that one token may have at a time.
	maxKeys = 200_000
	// maxKept is the largest answer that is kept, in bytes; launches are far below.
	maxKept = 2 << 20
)

// remembered is one key of one token: what was asked, and the acceptance if there
// was one.
type remembered struct {
	ID     string `json:"id"` // a hash of token and key: a key is the caller's own text
	Token  string `json:"token"`
	Asked  string `json:"asked"` // a hash of method, path and body
	Done   bool   `json:"done"`
	Status int    `json:"status,omitempty"` // of an acceptance
	Body   []byte `json:"body,omitempty"`
	// Run is the id that a launch under this key was given. Before is that of an earlier
	// call under it that came as far as its document, which is the answer, and then died or
	// could not tell.
	Run    holdfast.RunID `json:"run,omitempty"`
	Before holdfast.RunID `json:"before,omitempty"`
	// Team is what the acceptance is about, where the path does not name it: who left the
	// team is not told it again.
	Team holdfast.TeamID `json:"team,omitempty"`
	At   time.Time       `json:"at"`
}

// keyring remembers idempotency keys.
type keyring struct {
	table *records.Table[remembered]
	clock clock.Clock
	made  func(context.Context, holdfast.RunID) (bool, error) // whether a launch came as far as its document

	mu     sync.Mutex
	counts map[string]int64 // by token; forgotten with every housekeeping
}

const (
	indexKeyAt    = "at"
	indexKeyToken = "token"
)

func newKeyring(ctx context.Context, db records.DB, clock clock.Clock) (*keyring, error) {
	schema := records.Schema{Name: "idempotency_keys", Indexes: []records.Index{{Name: indexKeyAt}, {Name: indexKeyToken}}}
	table, err := records.NewTable(ctx, db, schema, func(r remembered) string { return r.ID }, func(r remembered) map[string]string {
		return map[string]string{indexKeyAt: stamp(r.At), indexKeyToken: r.Token}
	})
	if err != nil {
		return nil, err
	}
	return &keyring{table: table, clock: clock, counts: map[string]int64{}}, nil
}

// stamp is an instant as text that sorts.
func stamp(t time.Time) string { return t.UTC().Format("20060102150405.000") }

// once runs a write under its idempotency key. The key is recorded before the
// handler runs; the same body again replays an acceptance and judges a refusal
// again; while the first runs it is 409 in_progress; with another body it is 422.
func (s *Server) once(w http.ResponseWriter, r *http.Request, rt route, c call, keys []string) error {
	if len(keys) != 1 || !validKey(keys[0]) {
		return invalid("Idempotency-Key", "it is not a key", "one key of 1 to 200 printable ASCII characters")
	}
	entry := remembered{ID: digest(c.TokenID, keys[0]), Token: c.TokenID, Asked: digest(r.Method, r.URL.RequestURI(), string(c.body)), At: s.clock.Now()}
	if rt.id == launchID {
		entry.Run = s.deps.Runs.NewID(entry.At)
	}
	held, err := s.keys.claim(r.Context(), entry)
	if err != nil {
		return err
	}
	if held.Value.Done {
		if team := held.Value.Team; team != "" {
			if err := c.mine(team, "team"); err != nil {
				return err
			}
		}
		return replay(w, held.Value)
	}
	c.run, c.before = held.Value.Run, held.Value.Before
	kept := &keptWriter{header: w.Header()}
	err = rt.serve(kept, r, c)
	held.Value.Team = c.acts.about
	saving, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 5*time.Second)
	defer cancel()
	if saved := s.keys.finish(saving, held, kept, rt, err); saved != nil {
		s.log.Warn("an idempotency key could not be completed; it is free again after a while", "route", rt.path, "error", saved)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(kept.status)
	_, _ = w.Write(kept.body.Bytes())
	return nil
}

func validKey(key string) bool {
	return key != "" && len(key) <= maxKey && !strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' })
}

func digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		sum := sha256.Sum256([]byte(part))
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// claim records the key as under way, or finds what it stood for.
func (k *keyring) claim(ctx context.Context, entry remembered) (records.Versioned[remembered], error) {
	var none records.Versioned[remembered]
	if err := k.room(ctx, entry.Token); err != nil {
		return none, err
	}
	for range 8 {
		held, err := k.table.Insert(ctx, entry)
		if err == nil {
			k.mu.Lock()
			k.counts[entry.Token]++
			k.mu.Unlock()
			return held, nil
		}
		if !errors.Is(err, records.ErrExists) {
			return none, err
		}
		known, err := k.table.Get(ctx, entry.ID)
		if errors.Is(err, records.ErrNotFound) {
			continue // it was just forgotten
		}
		if err != nil {
			return none, err
		}
		next, decided, err := k.again(known, entry)
		if err != nil || decided {
			return next, err
		}
		if next.Value.Before, err = k.earlier(ctx, known.Value); err != nil {
			return none, err
		}
		held, err = k.table.Replace(ctx, next)
		if !errors.Is(err, records.ErrRevision) && !errors.Is(err, records.ErrNotFound) {
			return held, err
		}
	}
	return none, busy()
}

// again judges a key that is known: decided says that known answers the call, else
// next is the claim to be stored over it.
func (k *keyring) again(known records.Versioned[remembered], entry remembered) (next records.Versioned[remembered], decided bool, err error) {
	old := known.Value
	age := entry.At.Sub(old.At)
	next = records.Versioned[remembered]{Value: entry, Revision: known.Revision}
	switch {
	case age >= keepKeys:
		return next, false, nil
	case old.Asked != entry.Asked:
		f := fail(http.StatusUnprocessableEntity, "key_reused", "the Idempotency-Key was used for another request; a new request needs a new key")
		f.problem.Errors = append(f.problem.Errors, fieldError("Idempotency-Key", "it was used for another request", "a new key"))
		return next, true, f
	case old.Done && old.Status != 0:
		return known, true, nil
	case !old.Done && age < abandoned:
		return next, true, busy()
	}
	return next, false, nil
}

// earlier is the launch that is the answer to a key under which a call died or could
// not tell: that call's own, or the one that it had found; what neither wrote a document
// for lapses. It is looked for before the key is claimed again, so that a store which
// fails in between does not make the key forget it.
func (k *keyring) earlier(ctx context.Context, old remembered) (holdfast.RunID, error) {
	if old.Done {
		return "", nil
	}
	for _, id := range []holdfast.RunID{old.Before, old.Run} {
		if made, err := k.made(ctx, id); err != nil || made {
			return id, err
		}
	}
	return "", nil
}

func busy() error {
	f := fail(http.StatusConflict, "in_progress", "the first request with this Idempotency-Key is still running")
	f.problem.RetryAfterS = 1
	f.header = http.Header{"Retry-After": {"1"}}
	return f
}

// finish records how the call ended. An answer that nobody could give is left as
// if its process had died: the next call goes on from there at once.
func (k *keyring) finish(ctx context.Context, held records.Versioned[remembered], kept *keptWriter, rt route, err error) error {
	held.Value.Done = true
	switch {
	case err == nil && (rt.secret || kept.body.Len() > maxKept):
		held.Value.Status = http.StatusConflict
	case err == nil:
		held.Value.Status, held.Value.Body = kept.status, kept.body.Bytes()
	case failureOf(err).problem.Status >= 500 && failureOf(err).problem.Reason == "":
		held.Value.Done, held.Value.At = false, held.Value.At.Add(-abandoned)
	}
	_, saved := k.table.Replace(ctx, held)
	return saved
}

// replay answers with the first acceptance.
func replay(w http.ResponseWriter, entry remembered) error {
	if entry.Status == http.StatusConflict {
		return fail(http.StatusConflict, "done_before", "this request was carried out before, and its answer is not kept because it holds a secret; a new key does it again")
	}
	w.Header().Set("Idempotency-Replayed", "true")
	w.Header().Set("Cache-Control", "no-store")
	if len(entry.Body) > 0 {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(entry.Status)
	_, _ = w.Write(entry.Body)
	return nil
}

// room refuses a token that has too many keys. The count is this process's own and
// exact enough: it is read once and then counted on, until the next housekeeping.
func (k *keyring) room(ctx context.Context, token string) error {
	k.mu.Lock()
	count, known := k.counts[token]
	k.mu.Unlock()
	if !known {
		stored, err := k.table.Count(ctx, indexKeyToken, token)
		if err != nil {
			return err
		}
		k.mu.Lock()
		k.counts[token] = max(k.counts[token], stored)
		count = k.counts[token]
		k.mu.Unlock()
	}
	if count < maxKeys {
		return nil
	}
	f := fail(http.StatusTooManyRequests, "too_many_keys", "the token has used too many idempotency keys within 24 hours; leave the header out or wait")
	f.problem.RetryAfterS = 600
	f.header = http.Header{"Retry-After": {"600"}}
	return f
}

// forget removes keys that are older than they are kept.
func (k *keyring) forget(ctx context.Context) error {
	k.mu.Lock()
	k.counts = map[string]int64{}
	k.mu.Unlock()
	old := records.Query{Index: indexKeyAt, AtMost: stamp(k.clock.Now().Add(-keepKeys)), Limit: records.DefaultPage}
	return k.table.Walk(ctx, old, func(v records.Versioned[remembered]) error {
		err := k.table.Delete(ctx, v.Value.ID)
		if errors.Is(err, records.ErrNotFound) {
			return nil
		}
		return err
	})
}

// keptWriter holds an answer back until the key that it belongs to is recorded: what
// a caller was told is what a repetition is told.
type keptWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (w *keptWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *keptWriter) WriteHeader(status int) { w.status = status }

// Write implements http.ResponseWriter.
func (w *keptWriter) Write(text []byte) (int, error) { return w.body.Write(text) }
