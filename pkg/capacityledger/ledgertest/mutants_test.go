package ledgertest_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

// mutant is a store that is broken in one way, and rows that must notice.
type mutant struct {
	name string
	wrap func(capacityledger.Store) capacityledger.Store
	rows []string
}

// judged breaks the judgement: what it is shown, or what it says.
type judged struct {
	capacityledger.Store
	judge func(capacityledger.PostAdmit, capacityledger.Ask) capacityledger.Verdict
}

func (j judged) Admit(ctx context.Context, now time.Time, subject holdfast.Subject, asks []capacityledger.Ask, _ capacityledger.JudgeFunc) ([]capacityledger.Admission, error) {
	return j.Store.Admit(ctx, now, subject, asks, j.judge)
}

func judging(f func(capacityledger.PostAdmit, capacityledger.Ask) capacityledger.Verdict) func(capacityledger.Store) capacityledger.Store {
	return func(s capacityledger.Store) capacityledger.Store { return judged{s, f} }
}

// hooked breaks single verbs; a nil func leaves its verb whole.
type hooked struct {
	capacityledger.Store
	admit   func(answers []capacityledger.Admission, asks []capacityledger.Ask)
	move    func([]capacityledger.Moving) []capacityledger.Moving
	closing func([]capacityledger.Closing) []capacityledger.Closing
	closed  func([]capacityledger.Closing) []capacityledger.Closed
	due     func(now time.Time, after capacityledger.Cursor, limit int) (time.Time, capacityledger.Cursor, int)
	balance func(*capacityledger.Balance)
}

func (h hooked) Admit(ctx context.Context, now time.Time, subject holdfast.Subject, asks []capacityledger.Ask, judge capacityledger.JudgeFunc) ([]capacityledger.Admission, error) {
	answers, err := h.Store.Admit(ctx, now, subject, asks, judge)
	if h.admit != nil && err == nil {
		h.admit(answers, asks)
	}
	return answers, err
}

func (h hooked) Move(ctx context.Context, now time.Time, movings []capacityledger.Moving) ([]capacityledger.Moved, error) {
	if h.move != nil {
		movings = h.move(movings)
	}
	return h.Store.Move(ctx, now, movings)
}

func (h hooked) Close(ctx context.Context, now time.Time, closings []capacityledger.Closing) ([]capacityledger.Closed, error) {
	if h.closed != nil {
		return h.closed(closings), nil
	}
	if h.closing != nil {
		closings = h.closing(closings)
	}
	return h.Store.Close(ctx, now, closings)
}

func (h hooked) Due(ctx context.Context, now time.Time, after capacityledger.Cursor, limit int) ([]capacityledger.Allocation, error) {
	if h.due != nil {
		now, after, limit = h.due(now, after, limit)
	}
	return h.Store.Due(ctx, now, after, limit)
}

func (h hooked) Balance(ctx context.Context, subject holdfast.Subject) (capacityledger.Balance, error) {
	b, err := h.Store.Balance(ctx, subject)
	if h.balance != nil && err == nil {
		h.balance(&b)
	}
	return b, err
}

// stale reads first and judges what it read, as check-then-act does.
type stale struct{ capacityledger.Store }

func (s stale) Admit(ctx context.Context, now time.Time, subject holdfast.Subject, asks []capacityledger.Ask, _ capacityledger.JudgeFunc) ([]capacityledger.Admission, error) {
	before, err := s.Store.Balance(ctx, subject)
	if err != nil {
		return nil, err
	}
	runtime.Gosched()
	return s.Store.Admit(ctx, now, subject, asks, func(_ capacityledger.PostAdmit, ask capacityledger.Ask) capacityledger.Verdict {
		return capacityledger.Judge(capacityledger.Excluding{Balance: before}.Plus(ask.Holder, ask.Requested), ask)
	})
}

// lossy forgets an increment when two overlap, as read-compute-overwrite does.
type lossy struct {
	capacityledger.Store
	mu     *sync.Mutex
	inside *int
	lost   *int64
}

func (l lossy) Admit(ctx context.Context, now time.Time, subject holdfast.Subject, asks []capacityledger.Ask, judge capacityledger.JudgeFunc) ([]capacityledger.Admission, error) {
	l.mu.Lock()
	*l.inside++
	if *l.inside > 1 {
		*l.lost++
	}
	l.mu.Unlock()
	runtime.Gosched()
	defer func() {
		l.mu.Lock()
		*l.inside--
		l.mu.Unlock()
	}()
	return l.Store.Admit(ctx, now, subject, asks, judge)
}

func (l lossy) Balance(ctx context.Context, subject holdfast.Subject) (capacityledger.Balance, error) {
	b, err := l.Store.Balance(ctx, subject)
	l.mu.Lock()
	defer l.mu.Unlock()
	b.Outstanding -= *l.lost
	return b, err
}

// perProcess keeps its counts per ledger, so that a limit becomes limit times replicas.
type perProcess struct {
	capacityledger.Store
	turn *int
	mu   *sync.Mutex
	mine [2]capacityledger.Store
}

func (p perProcess) Admit(ctx context.Context, now time.Time, subject holdfast.Subject, asks []capacityledger.Ask, judge capacityledger.JudgeFunc) ([]capacityledger.Admission, error) {
	p.mu.Lock()
	*p.turn++
	store := p.mine[*p.turn%2]
	p.mu.Unlock()
	return store.Admit(ctx, now, subject, asks, judge)
}

// shown lets the judge see a state that was changed.
func shown(change func(*capacityledger.PostAdmit, capacityledger.Ask)) func(capacityledger.Store) capacityledger.Store {
	return judging(func(post capacityledger.PostAdmit, ask capacityledger.Ask) capacityledger.Verdict {
		holders := make([]capacityledger.Holding, len(post.Holders))
		copy(holders, post.Holders)
		post.Holders = holders
		change(&post, ask)
		return capacityledger.Judge(post, ask)
	})
}

// terms lets the judge see other terms.
func terms(change func(*capacityledger.Ask)) func(capacityledger.Store) capacityledger.Store {
	return judging(func(post capacityledger.PostAdmit, ask capacityledger.Ask) capacityledger.Verdict {
		change(&ask)
		return capacityledger.Judge(post, ask)
	})
}

// said lets the judge be misheard.
func said(change func(*capacityledger.Verdict, capacityledger.Ask)) func(capacityledger.Store) capacityledger.Store {
	return judging(func(post capacityledger.PostAdmit, ask capacityledger.Ask) capacityledger.Verdict {
		v := capacityledger.Judge(post, ask)
		change(&v, ask)
		return v
	})
}

const (
	rowAbove   = "from above: ask N+1 is refused"
	rowBelow   = "from below: with a cap of N, N asks are admitted"
	rowPartial = "a partial grant is written back"
	rowReplay  = "the same id again is the same ask"
	rowRace    = "race: 64 callers on a cap of N get exactly N, 1,000 times"
	rowModel   = "model: random verbs, seed 1"
	rowExact   = "example: with the holder running its reserve, ordinary work takes the last slot"
)

func mutants() []mutant {
	return []mutant{
		{"drops the outstanding term", shown(func(p *capacityledger.PostAdmit, ask capacityledger.Ask) { p.Outstanding = ask.Requested.Int() }),
			[]string{rowAbove, rowPartial, rowModel}},
		{"drops the settled term", shown(func(p *capacityledger.PostAdmit, _ capacityledger.Ask) { p.Settled = 0 }),
			[]string{rowPartial, "spend above the allowance is recorded in full", rowModel}},
		{"counts the ask twice", shown(func(p *capacityledger.PostAdmit, ask capacityledger.Ask) { p.Outstanding += ask.Requested.Int() }),
			[]string{rowBelow, "store: the judge sees the ask already counted", rowModel}},
		{"withholds the whole reserve, held or not", shown(func(p *capacityledger.PostAdmit, _ capacityledger.Ask) { p.Holders = nil }),
			[]string{rowExact, "example: cap 50 dollars, reserve 30: what the holder spent is no longer withheld", rowModel}},
		{"forgets what a holder has spent", shown(func(p *capacityledger.PostAdmit, _ capacityledger.Ask) {
			for i := range p.Holders {
				p.Holders[i].Settled = 0
			}
		}), []string{"example: cap 50 dollars, reserve 30: what the holder spent is no longer withheld", rowModel}},
		{"withholds nothing", terms(func(a *capacityledger.Ask) { a.Terms.Reserved = nil }),
			[]string{"example: cap 3, reserve 2: ordinary work gets 1, the holder 3", rowModel}},
		{"judges everybody as the holder", terms(func(a *capacityledger.Ask) {
			if len(a.Terms.Reserved) > 0 {
				a.Holder = a.Terms.Reserved[0].Holder
			}
		}), []string{"example: a team's bot and the platform's of the same name are two holders", rowModel}},
		{"reads a cap of zero as no cap", terms(func(a *capacityledger.Ask) {
			if a.Terms.Cap.Max().IsZero() {
				a.Terms.Cap = holdfast.NoLimit
			}
		}), []string{"a cap of zero grants nothing, and says that retrying is useless"}},
		{"grants more than remains", said(func(v *capacityledger.Verdict, ask capacityledger.Ask) {
			if !v.Refused {
				v.Allowance = ask.Requested.Int()
			}
		}), []string{rowPartial, "example: asks of 30 and 30 on 50 dollars get 30 and 20"}},
		{"grants nothing instead of refusing", said(func(v *capacityledger.Verdict, _ capacityledger.Ask) { v.Refused = false }),
			[]string{rowAbove, rowPartial}},
		{"forgets the mirror of a refusal", forgetMirror, []string{"a denial leaves nothing and is not remembered", rowAbove}},
		{"does not correct a partial grant", uncorrected, []string{rowPartial}},
		{"closes nothing and says it did", func(s capacityledger.Store) capacityledger.Store {
			return hooked{Store: s, closed: func(closings []capacityledger.Closing) []capacityledger.Closed {
				out := make([]capacityledger.Closed, len(closings))
				for i := range out {
					out[i] = capacityledger.Closed{Closed: true}
				}
				return out
			}}
		}, []string{"reserve and settle ten times the cap, nothing sticks (D9)", "an allocation closes once, whoever comes second (E2)"}},
		{"closes whatever the expiry is", func(s capacityledger.Store) capacityledger.Store {
			return hooked{Store: s, closing: func(closings []capacityledger.Closing) []capacityledger.Closing {
				for i := range closings {
					closings[i].IfExpires = time.Time{}
				}
				return closings
			}}
		}, []string{"a renewal between the sweep's reading and its close wins"}},
		{"closes whoever the attempt is", func(s capacityledger.Store) capacityledger.Store {
			return hooked{Store: s, closing: func(closings []capacityledger.Closing) []capacityledger.Closing {
				for i := range closings {
					closings[i].IfAttempt = 0
				}
				return closings
			}}
		}, []string{"a superseded attempt is recorded and closes nothing (E4)"}},
		{"loses the spend of a close", func(s capacityledger.Store) capacityledger.Store {
			return hooked{Store: s, closing: func(closings []capacityledger.Closing) []capacityledger.Closing {
				for i := range closings {
					closings[i].Spent = holdfast.Amount{}
				}
				return closings
			}}
		}, []string{"a settle after an expiry is recorded once", rowPartial}},
		{"charges an expiry the whole allowance", func(s capacityledger.Store) capacityledger.Store {
			return hooked{Store: s, closing: func(closings []capacityledger.Closing) []capacityledger.Closing {
				for i := range closings {
					if a, err := s.Get(context.Background(), closings[i].ID); err == nil && closings[i].Outcome == capacityledger.Expired {
						closings[i].Spent = a.Amount
					}
				}
				return closings
			}}
		}, []string{"expiry closes what is over, charges nothing, and leaves the rest"}},
		{"extends for whatever attempt", func(s capacityledger.Store) capacityledger.Store {
			return hooked{Store: s, move: func(movings []capacityledger.Moving) []capacityledger.Moving {
				for i := range movings {
					movings[i].Attempt, movings[i].Sequence = 1<<20, 1<<40
				}
				return movings
			}}
		}, []string{"a superseded attempt does not extend", "attempts: per attempt the highest spend counts"}},
		{"loses the spend of a renewal", func(s capacityledger.Store) capacityledger.Store {
			return hooked{Store: s, move: func(movings []capacityledger.Moving) []capacityledger.Moving {
				for i := range movings {
					movings[i].Spent = holdfast.Amount{}
				}
				return movings
			}}
		}, []string{"attempts: per attempt the highest spend counts", "a renewal after a close records its spend and says closed"}},
		{"never shortens an expiry", neverShorter, []string{"a shorter expiry is taken over too"}},
		{"lists what is not due", func(s capacityledger.Store) capacityledger.Store {
			return hooked{Store: s, due: func(now time.Time, after capacityledger.Cursor, limit int) (time.Time, capacityledger.Cursor, int) {
				return now.AddDate(100, 0, 0), after, limit
			}}
		}, []string{"store: due entries come by expiry and id, bounded and after the cursor", "expiry closes what is over, charges nothing, and leaves the rest"}},
		{"walks from the beginning every time", func(s capacityledger.Store) capacityledger.Store {
			return hooked{Store: s, due: func(now time.Time, _ capacityledger.Cursor, limit int) (time.Time, capacityledger.Cursor, int) {
				return now, capacityledger.Cursor{}, limit
			}}
		}, []string{"store: due entries come by expiry and id, bounded and after the cursor"}},
		{"has no bound on what is due", func(s capacityledger.Store) capacityledger.Store {
			return hooked{Store: s, due: func(now time.Time, after capacityledger.Cursor, limit int) (time.Time, capacityledger.Cursor, int) {
				return now, after, 100 * limit
			}}
		}, []string{"store: due entries come by expiry and id, bounded and after the cursor"}},
		{"grants a replay anew", grantsAnew, []string{rowReplay, "a closed id answers closed and never grants anew", "race: one id asked from everywhere is one allocation"}},
		{"answers a closed id with its old grant", func(s capacityledger.Store) capacityledger.Store {
			return hooked{Store: s, admit: func(answers []capacityledger.Admission, _ []capacityledger.Ask) {
				for i := range answers {
					if answers[i].Replayed {
						answers[i].Err = nil
					}
				}
			}}
		}, []string{"a closed id answers closed and never grants anew", "the same id for another ask is a mismatch"}},
		{"hides a holder", func(s capacityledger.Store) capacityledger.Store {
			return hooked{Store: s, balance: func(b *capacityledger.Balance) {
				if len(b.Holders) > 1 {
					b.Holders = b.Holders[1:]
				}
			}}
		}, []string{"example: cap 3, reserve 2: ordinary work gets 1, the holder 3"}},
		{"turns an outage into a refusal", func(s capacityledger.Store) capacityledger.Store { return refusing{s} },
			[]string{"store: a caller who has gone is answered an error, not a denial"}},
		{"checks, then acts", func(s capacityledger.Store) capacityledger.Store { return stale{s} }, []string{rowRace, "race: 64 first askers of a new subject, cap 1: exactly one"}},
		{"reads, computes, overwrites", func(s capacityledger.Store) capacityledger.Store {
			return lossy{s, new(sync.Mutex), new(int), new(int64)}
		}, []string{"race: 20,000 asks count 20,000 (A3)"}},
		{"keeps its counts per process", func(s capacityledger.Store) capacityledger.Store {
			return perProcess{s, new(int), new(sync.Mutex), [2]capacityledger.Store{s, memory.NewLedger()}}
		}, []string{rowRace, rowAbove}},
	}
}

func forgetMirror(s capacityledger.Store) capacityledger.Store {
	refused := map[holdfast.AllocationID]capacityledger.Verdict{}
	store := said(func(v *capacityledger.Verdict, ask capacityledger.Ask) {
		if v.Refused {
			refused[ask.ID] = *v
			*v = capacityledger.Verdict{Allowance: ask.Requested.Int()}
		}
	})(s)
	return hooked{Store: store, admit: func(answers []capacityledger.Admission, asks []capacityledger.Ask) {
		for i := range answers {
			if v, was := refused[asks[i].ID]; was {
				answers[i] = capacityledger.Admission{Verdict: v, Balance: &capacityledger.Balance{Subject: asks[i].Subject()}}
			}
		}
	}}
}

func uncorrected(s capacityledger.Store) capacityledger.Store {
	said := map[holdfast.AllocationID]int64{}
	store := judging(func(post capacityledger.PostAdmit, ask capacityledger.Ask) capacityledger.Verdict {
		v := capacityledger.Judge(post, ask)
		if !v.Refused {
			said[ask.ID], v.Allowance = v.Allowance, ask.Requested.Int()
		}
		return v
	})(s)
	return hooked{Store: store, admit: func(answers []capacityledger.Admission, asks []capacityledger.Ask) {
		for i := range answers {
			if n, was := said[asks[i].ID]; was {
				answers[i].Allocation.Amount = holdfast.AmountOf(asks[i].Requested.Unit(), n)
			}
		}
	}}
}

func neverShorter(s capacityledger.Store) capacityledger.Store {
	return hooked{Store: s, move: func(movings []capacityledger.Moving) []capacityledger.Moving {
		for i := range movings {
			a, err := s.Get(context.Background(), movings[i].ID)
			if err == nil && movings[i].Expires.Before(a.ExpiresAt) {
				movings[i].Expires = a.ExpiresAt
			}
		}
		return movings
	}}
}

// anew answers a known id with an allocation under another one.
type anew struct{ capacityledger.Store }

func grantsAnew(s capacityledger.Store) capacityledger.Store { return anew{s} }

func (a anew) Admit(ctx context.Context, now time.Time, subject holdfast.Subject, asks []capacityledger.Ask, judge capacityledger.JudgeFunc) ([]capacityledger.Admission, error) {
	for i := range asks {
		if _, err := a.Get(ctx, asks[i].ID); err == nil {
			asks[i].ID = holdfast.NewAllocationID(asks[i].Run, subject, int(now.UnixNano()%1000)+2)
		}
	}
	return a.Store.Admit(ctx, now, subject, asks, judge)
}

// refusing answers an outage with a refusal.
type refusing struct{ capacityledger.Store }

func (r refusing) Admit(ctx context.Context, now time.Time, subject holdfast.Subject, asks []capacityledger.Ask, judge capacityledger.JudgeFunc) ([]capacityledger.Admission, error) {
	answers, err := r.Store.Admit(ctx, now, subject, asks, judge)
	if err != nil {
		return []capacityledger.Admission{{Verdict: capacityledger.Verdict{Refused: true}, Balance: &capacityledger.Balance{}}}, nil
	}
	return answers, nil
}

// Every row that is said to notice a mutant passes over the whole store and fails
// over the broken one.
func TestRowsNoticeBrokenStores(t *testing.T) {
	rows := map[string]ledgertest.Row{}
	for _, row := range ledgertest.Rows() {
		if _, twice := rows[row.Name]; twice {
			t.Fatalf("two rows are called %q", row.Name)
		}
		rows[row.Name] = row
	}
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			for _, name := range m.rows {
				row, ok := rows[name]
				if !ok {
					t.Fatalf("there is no row %q", name)
				}
				harness := ledgertest.Harness{Open: func() (capacityledger.Store, error) { return m.wrap(memory.NewLedger()), nil }}
				if err := row.Run(t.Context(), harness); err == nil {
					t.Errorf("the row %q did not notice", name)
				} else {
					t.Logf("%s: %v", name, err)
				}
			}
		})
	}
}
