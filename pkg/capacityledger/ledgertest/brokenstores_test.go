package ledgertest_test

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
)

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
