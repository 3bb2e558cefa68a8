package ledgertest_test

import (
	"context"
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
		}, []string{"a renewal between the sweep's reading and its close wins", "what was taken over is not withdrawn, and the other way round"}},
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
