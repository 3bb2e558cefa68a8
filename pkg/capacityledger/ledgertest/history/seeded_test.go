package history_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest/history"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

// A seeded bug is a store that is right when one caller is alone and wrong when two
// meet. The histories must find each; `rows` with one caller cannot.
var seeded = map[string]func(*memory.Ledger) capacityledger.Store{
	"checks, then acts":                              func(l *memory.Ledger) capacityledger.Store { return checksThenActs{l} },
	"looks whether it is open, then says it closed":  func(l *memory.Ledger) capacityledger.Store { return looksThenCloses{l} },
	"answers a known id from what it remembers":      func(l *memory.Ledger) capacityledger.Store { return &remembers{Store: l} },
	"lets a sweep close what was renewed in between": func(l *memory.Ledger) capacityledger.Store { return sweepsBlindly{l} },
	"shows refused asks until they are taken back":   func(l *memory.Ledger) capacityledger.Store { return &showsRefused{Store: l} },
	"reads a balance in two halves":                  func(l *memory.Ledger) capacityledger.Store { return readsInHalves{l} },
}

func TestHistoriesFindSeededBugs(t *testing.T) {
	for name, wrap := range seeded {
		t.Run(name, func(t *testing.T) {
			report, err := history.Check(t.Context(), history.Options{Histories: 20_000, Seed: 1, Open: func() (capacityledger.Store, error) { return wrap(memory.NewLedger()), nil }})
			var illegal *history.IllegalError
			if !errors.As(err, &illegal) {
				t.Fatalf("%v; %s", err, report)
			}
			defer os.Remove(illegal.Page)
			t.Logf("found in history %d", illegal.Number)
			if drawing, err := os.ReadFile(illegal.Page); err != nil || !strings.Contains(string(drawing), "<html") {
				t.Errorf("the history is not drawn in %s: %v", illegal.Page, err)
			}
			if !strings.Contains(illegal.Text, "client 0  reserve ") || !strings.Contains(illegal.Error(), "seed 1, history ") {
				t.Errorf("the history is not readable: %s", illegal)
			}
		})
	}
}

// The weaker promise allows what only asks in flight explain, and nothing else.
func TestTheWeakerPromiseCountsSpuriousRefusals(t *testing.T) {
	check := func(wrap func(*memory.Ledger) capacityledger.Store) (history.Report, error) {
		return history.Check(t.Context(), history.Options{Histories: 400, Seed: 1, Promise: history.NeverTooMuch, Open: func() (capacityledger.Store, error) { return wrap(memory.NewLedger()), nil }})
	}
	report, err := check(func(l *memory.Ledger) capacityledger.Store { return l })
	if err != nil || report.Spurious != 0 {
		t.Errorf("an exact twin: %s, %v", report, err)
	}
	report, err = check(func(l *memory.Ledger) capacityledger.Store { return &showsRefused{Store: l} })
	if err != nil || report.Spurious == 0 {
		t.Errorf("a twin that shows refused asks: %s, %v", report, err)
	}
	var illegal *history.IllegalError
	_, err = check(func(l *memory.Ledger) capacityledger.Store { return checksThenActs{l} })
	if !errors.As(err, &illegal) {
		t.Fatalf("a twin that grants too much: %v", err)
	}
	_ = os.Remove(illegal.Page)
}

// checksThenActs judges what it read before.
type checksThenActs struct{ capacityledger.Store }

func (s checksThenActs) Admit(ctx context.Context, now time.Time, subject holdfast.Subject, asks []capacityledger.Ask, judge capacityledger.JudgeFunc) ([]capacityledger.Admission, error) {
	before, err := s.Balance(ctx, subject)
	if err != nil {
		return nil, err
	}
	runtime.Gosched()
	return s.Store.Admit(ctx, now, subject, asks, func(_ capacityledger.PostAdmit, ask capacityledger.Ask) capacityledger.Verdict {
		return judge(capacityledger.Excluding{Balance: before}.Plus(ask.Holder, ask.Requested), ask)
	})
}

// looksThenCloses tells everybody who saw the entry open that they closed it.
type looksThenCloses struct{ capacityledger.Store }

func (s looksThenCloses) Close(ctx context.Context, now time.Time, closings []capacityledger.Closing) ([]capacityledger.Closed, error) {
	seen := make([]bool, len(closings))
	for i, c := range closings {
		a, err := s.Get(ctx, c.ID)
		seen[i] = err == nil && a.Outcome == capacityledger.Open && (c.IfAttempt == 0 || c.IfAttempt >= a.Attempt) && (c.IfExpires.IsZero() || c.IfExpires.Equal(a.ExpiresAt))
	}
	runtime.Gosched()
	answers, err := s.Store.Close(ctx, now, closings)
	for i := range answers {
		answers[i].Closed = seen[i]
	}
	return answers, err
}

// remembers answers an id that it granted with that grant, though it was closed by
// somebody whose close it has not heard of yet.
type remembers struct {
	capacityledger.Store
	mu     sync.Mutex
	closed map[holdfast.AllocationID]bool
}

func (s *remembers) Admit(ctx context.Context, now time.Time, subject holdfast.Subject, asks []capacityledger.Ask, judge capacityledger.JudgeFunc) ([]capacityledger.Admission, error) {
	answers, err := s.Store.Admit(ctx, now, subject, asks, judge)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range answers {
		if errors.Is(answers[i].Err, capacityledger.ErrClosed) && !s.closed[asks[i].ID] {
			answers[i].Err = nil
		}
	}
	return answers, err
}

func (s *remembers) Close(ctx context.Context, now time.Time, closings []capacityledger.Closing) ([]capacityledger.Closed, error) {
	answers, err := s.Store.Close(ctx, now, closings)
	runtime.Gosched()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed == nil {
		s.closed = map[holdfast.AllocationID]bool{}
	}
	for i := range answers {
		if answers[i].Allocation.Outcome != capacityledger.Open {
			s.closed[closings[i].ID] = true
		}
	}
	return answers, err
}

// sweepsBlindly forgets the condition on the expiry that was read.
type sweepsBlindly struct{ capacityledger.Store }

func (s sweepsBlindly) Close(ctx context.Context, now time.Time, closings []capacityledger.Closing) ([]capacityledger.Closed, error) {
	for i := range closings {
		closings[i].IfExpires = time.Time{}
	}
	return s.Store.Close(ctx, now, closings)
}

// showsRefused counts an ask before it is judged and takes it back a moment after it
// was refused; meanwhile others are judged with it.
type showsRefused struct {
	capacityledger.Store
	mu   sync.Mutex
	seen map[holdfast.Subject]int64
}

func (s *showsRefused) Admit(ctx context.Context, now time.Time, subject holdfast.Subject, asks []capacityledger.Ask, judge capacityledger.JudgeFunc) ([]capacityledger.Admission, error) {
	refused := int64(0)
	answers, err := s.Store.Admit(ctx, now, subject, asks, func(post capacityledger.PostAdmit, ask capacityledger.Ask) capacityledger.Verdict {
		s.mu.Lock()
		defer s.mu.Unlock()
		post.Outstanding += s.seen[subject]
		v := judge(post, ask)
		if v.Refused {
			if s.seen == nil {
				s.seen = map[holdfast.Subject]int64{}
			}
			refused = ask.Requested.Int()
			s.seen[subject] += refused
		}
		return v
	})
	for i := range answers {
		if answers[i].Balance != nil {
			answers[i].Balance.Outstanding = answers[i].Verdict.Outstanding
		}
	}
	runtime.Gosched()
	s.mu.Lock()
	defer s.mu.Unlock()
	if refused > 0 {
		s.seen[subject] -= refused
	}
	return answers, err
}

// readsInHalves reads the totals and the holders' parts one after the other.
type readsInHalves struct{ capacityledger.Store }

func (s readsInHalves) Balance(ctx context.Context, subject holdfast.Subject) (capacityledger.Balance, error) {
	first, err := s.Store.Balance(ctx, subject)
	if err != nil {
		return first, err
	}
	runtime.Gosched()
	second, err := s.Store.Balance(ctx, subject)
	second.Settled, second.Outstanding = first.Settled, first.Outstanding
	return second, err
}
