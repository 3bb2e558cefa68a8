package embedded_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/store/embedded"
)

// The benchmarks compare what runs side by side in one process: each takes five
// rounds, in each of which the contenders take turns of a moment each, and reports the
// median of the rounds' ratios with the smallest and the largest. Rates by themselves say
// more about the machine than about the code. The benchmark loop's own count is not
// used; each benchmark measures once.

const (
	rounds  = 5
	turns   = 5
	callers = 64
	moment  = 150 * time.Millisecond
)

var benchTime = time.Date(2026, time.November, 30, 12, 0, 0, 0, time.UTC)

// contender does one reserve and one settle per call; n is unique in the process.
type contender struct {
	name string
	pair func(caller, n int) error
}

// rate runs the contender with so many callers for a moment.
func rate(b *testing.B, c contender, callers int, n *atomic.Int64) float64 {
	b.Helper()
	var group sync.WaitGroup
	var pairs atomic.Int64
	began := time.Now()
	for caller := range callers {
		group.Go(func() {
			for time.Since(began) < moment {
				if err := c.pair(caller, int(n.Add(1))); err != nil {
					b.Error(err)
					return
				}
				pairs.Add(1)
			}
		})
	}
	group.Wait()
	return float64(pairs.Load()) / time.Since(began).Seconds()
}

// compare runs the contenders interleaved and reports each one's rate against the
// first one's.
func compare(b *testing.B, dir string, callers int, contenders ...contender) {
	b.Helper()
	var n atomic.Int64
	rates := make([][]float64, len(contenders))
	for round := range rounds + 1 {
		sums := make([]float64, len(contenders))
		for range turns {
			for i, c := range contenders {
				sums[i] += rate(b, c, callers, &n) / turns
			}
		}
		for i := range contenders {
			if round > 0 { // the first one warms up
				rates[i] = append(rates[i], sums[i])
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(fdatasync(b, dir), "fdatasync-p50-µs")
	for i, c := range contenders {
		b.ReportMetric(middle(rates[i]), c.name+"-pairs/s")
		if i == 0 {
			continue
		}
		ratios := make([]float64, rounds)
		for round := range rounds {
			ratios[round] = rates[i][round] / rates[0][round]
		}
		b.ReportMetric(middle(ratios), c.name+"/"+contenders[0].name)
		b.Logf("%s / %s at %d callers: median %.2f (%.2f to %.2f)", c.name, contenders[0].name, callers, middle(ratios), slices.Min(ratios), slices.Max(ratios))
	}
}

func middle(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// fdatasync is the median of writing and syncing 4 KB, in microseconds.
func fdatasync(b *testing.B, dir string) float64 {
	b.Helper()
	f, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close() // a scratch file
	page := make([]byte, 4096)
	var took []float64
	for range 300 {
		began := time.Now()
		if _, err := f.Write(page); err != nil {
			b.Fatal(err)
		}
		if err := datasync(f); err != nil {
			b.Fatal(err)
		}
		took = append(took, float64(time.Since(began).Microseconds()))
	}
	return middle(took)
}

// ledgerPairs is the ledger over an embedded store, each caller on one of the
// subjects after another.
func ledgerPairs(name string, store *embedded.Store, subjects []holdfast.Subject) contender {
	ledger := capacityledger.New(store.Ledger(), capacityledger.Options{})
	holder := holdfast.PlatformBot("review-pr")
	amount := func(n int64) holdfast.Amount { return holdfast.AmountOf(subjects[0].Axis.Unit(), n) }
	terms := capacityledger.Terms{
		Cap:      holdfast.AtMost(amount(1_000_000_000_000)),
		Reserved: []capacityledger.Reserved{{Holder: holdfast.PlatformBot("docs-writer"), Amount: amount(2)}},
	}
	report := capacityledger.Report{Attempt: 1, Sequence: 1}
	if subjects[0].Axis == holdfast.AxisUSD {
		report.Spent = amount(1)
	}
	ctx := context.Background()
	return contender{name, func(caller, n int) error {
		subject := subjects[(n*31+caller)%len(subjects)]
		run := benchRun(n)
		id := holdfast.NewAllocationID(run, subject, 0)
		_, denial, err := ledger.Reserve(ctx, capacityledger.Ask{ID: id, Terms: terms, Holder: holder, Run: run, Requested: amount(3), Expires: time.Now().Add(30 * time.Second)})
		if err != nil || denial.Denied() {
			return fmt.Errorf("reserve: %w %s", err, denial.Public)
		}
		_, err = ledger.Settle(ctx, id, report)
		return err
	}}
}

// benchRun is a time-ordered run id, of the length of a real one.
func benchRun(n int) holdfast.RunID { return holdfast.RunID(fmt.Sprintf("01KBA%021d", n)) }

func teamSlots(n int) []holdfast.Subject {
	subjects := make([]holdfast.Subject, n)
	for i := range subjects {
		subjects[i] = holdfast.TeamSubject(holdfast.TeamID(fmt.Sprintf("team-%06d", i)), holdfast.AxisSlots, "")
	}
	return subjects
}

func openBench(b *testing.B) *embedded.Store {
	b.Helper()
	return openBenchIn(b, b.TempDir())
}

func openBenchIn(b *testing.B, dir string) *embedded.Store {
	b.Helper()
	store, err := embedded.Open(b.Context(), dir, embedded.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	})
	return store
}

// BenchmarkLedgerHot is 64 callers on one subject against the bare driver.
func BenchmarkLedgerHot(b *testing.B) { againstBare(b, callers, 1) }

// BenchmarkLedgerThousand is 64 callers over 1,000 subjects against the bare driver.
func BenchmarkLedgerThousand(b *testing.B) { againstBare(b, callers, 1000) }

// BenchmarkLedgerAlone is one caller on one subject against the bare driver.
func BenchmarkLedgerAlone(b *testing.B) { againstBare(b, 1, 1) }

// BenchmarkLedgerDollars is 64 callers on one subject of dollars, each of which uses
// something up, so that each batch also writes what the subject has settled.
func BenchmarkLedgerDollars(b *testing.B) {
	keys := []holdfast.Subject{holdfast.TeamSubject("acme", holdfast.AxisUSD, "2026-11")}
	compare(b, b.TempDir(), callers, newBare(b, keys).contender(), ledgerPairs("ledger", openBench(b), keys))
}

func againstBare(b *testing.B, callers, subjects int) {
	b.Helper()
	keys := teamSlots(subjects)
	compare(b, b.TempDir(), callers, newBare(b, keys).contender(), ledgerPairs("ledger", openBench(b), keys))
}

// BenchmarkLedgerBehind is the cost of a pair with 100,000 other subjects, and with
// 1,000,000 closed allocations, behind it; and, for information, of pairs that go
// around all 100,000 subjects, of which 10,000 fit into memory. The rates are against
// those of an empty ledger: a cost of 1.25 is a rate of 0.8.
func BenchmarkLedgerBehind(b *testing.B) {
	many, old := b.TempDir(), b.TempDir()
	seed(b, many, `INSERT INTO subjects SELECT printf('team/team-%06d/slots', value), '{"platform/review-pr":7}', 0 FROM n`, 100_000)
	seed(b, old, fmt.Sprintf(`INSERT INTO allocations (id, ask, state, outcome) SELECT printf('01K00%%021d~team~team-%%06d~slots', value, value %% 1000),
		'{"holder":"platform/review-pr","requested":1,"minimum":0,"cap":1000,"acquired":%[1]d,"nonce":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}',
		'{"amount":1,"expires":%[1]d,"closed":%[1]d}', 'settled' FROM n`, benchTime.UnixMilli()), 1_000_000)
	one, all := teamSlots(1), teamSlots(100_000)
	manyStore := openBenchIn(b, many)
	compare(b, b.TempDir(), callers,
		ledgerPairs("empty", openBench(b), one),
		ledgerPairs("beside-100k-subjects", manyStore, one),
		ledgerPairs("behind-1M-closed", openBenchIn(b, old), one),
		ledgerPairs("around-100k-subjects", manyStore, all))
}

// seed fills a store's ledger from a series of numbers.
func seed(b *testing.B, dir, statement string, n int) {
	b.Helper()
	store, err := embedded.Open(b.Context(), dir, embedded.Options{})
	if err != nil {
		b.Fatal(err)
	}
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, embedded.LedgerFile))
	if err != nil {
		b.Fatal(err)
	}
	series := fmt.Sprintf("WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < %d) ", n)
	if _, err := db.ExecContext(b.Context(), series+statement); err != nil {
		b.Fatal(err)
	}
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
}
