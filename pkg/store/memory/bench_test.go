package memory_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/clock/clocktest"
	"github.com/holdfast-io/holdfast/pkg/store/memory"
)

// bare is the least that a ledger in memory must do: a map of subjects and a map of
// entries under one mutex, with the same keys and the same entry.
type bare struct {
	mu       sync.Mutex
	subjects map[holdfast.Subject]*[2]int64
	entries  map[holdfast.AllocationID]capacityledger.Allocation
}

func (b *bare) pair(ask capacityledger.Ask, subject holdfast.Subject, now time.Time) {
	b.mu.Lock()
	count := b.subjects[subject]
	if count == nil {
		count = new([2]int64)
		b.subjects[subject] = count
	}
	count[1] += ask.Requested.Int()
	b.entries[ask.ID] = capacityledger.Allocation{
		ID: ask.ID, Subject: subject, Holder: ask.Holder, Run: ask.Run, Requested: ask.Requested, Minimum: ask.Minimum,
		Amount: ask.Requested, AcquiredAt: now, ExpiresAt: ask.Expires, Cap: ask.Terms.Cap,
	}
	b.mu.Unlock()
	b.mu.Lock()
	entry := b.entries[ask.ID]
	delete(b.entries, ask.ID)
	count = b.subjects[subject]
	count[1] -= entry.Amount.Int()
	count[0]++
	b.mu.Unlock()
}

// workload makes asks of a number of subjects, one after the other.
type workload struct {
	subjects []holdfast.Subject
	next     atomic.Int64
	now      time.Time
}

func newWorkload(subjects int) *workload {
	w := &workload{now: clocktest.T0}
	for i := range subjects {
		w.subjects = append(w.subjects, holdfast.TeamSubject(holdfast.TeamID(fmt.Sprintf("team-%04d", i)), holdfast.AxisSlots, ""))
	}
	return w
}

// ask includes making the run's id and the allocation's, which every caller does.
func (w *workload) ask() (capacityledger.Ask, holdfast.Subject) {
	n := w.next.Add(1)
	subject := w.subjects[int(n)%len(w.subjects)]
	var id [26]byte
	copy(id[:], "01JQ00Z0000000000000000000")
	for i := 25; n > 0; i, n = i-1, n/10 {
		id[i] = byte('0' + n%10)
	}
	run := holdfast.RunID(id[:])
	return capacityledger.Ask{
		ID: holdfast.NewAllocationID(run, subject, 0), Run: run, Holder: holdfast.PlatformBot("feature-dev"),
		Terms:     capacityledger.Terms{Cap: holdfast.AtMost(holdfast.SlotAmount(1_000_000))},
		Requested: holdfast.SlotAmount(1), Expires: w.now.Add(30 * time.Second),
	}, subject
}

// spread runs n pairs over the callers and returns the processor time of one, the
// collector's included, and its time by the wall. Other work on the machine disturbs
// the second and hardly the first.
func spread(callers, n int, pair func()) (cpu, wall float64) {
	var done sync.WaitGroup
	start, used := time.Now(), cpuTime()
	for i := range callers {
		share := n / callers
		if i < n%callers {
			share++
		}
		done.Go(func() {
			for range share {
				pair()
			}
		})
	}
	done.Wait()
	runtime.GC()
	return float64(cpuTime()-used) / float64(max(1, n)), float64(time.Since(start)) / float64(max(1, n))
}

// cpuTime is what this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkPairAgainstBareMap is one reserve and one settle through the ledger over
// the memory twin, next to a bare map under a mutex. Both take turns in short rounds
// of one process; "ratio" is the median of the rounds, by processor time.
func BenchmarkPairAgainstBareMap(b *testing.B) {
	for _, callers := range []int{1, 64} {
		for _, subjects := range []int{1, 1000} {
			b.Run(fmt.Sprintf("callers=%d/subjects=%d", callers, subjects), func(b *testing.B) {
				w, others := newWorkload(subjects), newWorkload(10)
				for i := range others.subjects {
					others.subjects[i].ID = fmt.Sprintf("other-%d", i)
				}
				ledger := capacityledger.New(memory.NewLedger(), capacityledger.Options{Clock: clocktest.New()})
				floor := &bare{subjects: map[holdfast.Subject]*[2]int64{}, entries: map[holdfast.AllocationID]capacityledger.Allocation{}}
				ctx := context.Background()
				pair := func() {
					ask, _ := w.ask()
					if a, denial, err := ledger.Reserve(ctx, ask); err != nil || denial.Denied() || a.ID == "" {
						b.Errorf("%s %v", denial.Public, err)
					}
					if closed, err := ledger.Settle(ctx, ask.ID, capacityledger.Report{Attempt: 1}); err != nil || !closed {
						b.Errorf("settle: %t %v", closed, err)
					}
				}
				bare := func() {
					ask, subject := w.ask()
					floor.pair(ask, subject, w.now)
				}
				for i := range 10_000 { // both carry as many live entries as a busy fleet has
					ask, subject := others.ask()
					if _, _, err := ledger.Reserve(ctx, ask); err != nil {
						b.Fatal(err)
					}
					floor.entries[ask.ID] = capacityledger.Allocation{ID: ask.ID, Subject: subject, Holder: ask.Holder, Run: ask.Run, Sequence: int64(i)}
				}
				b.ReportAllocs()
				rounds(b, callers, pair, bare)
			})
		}
	}
}

// rounds measures both in turn.
func rounds(b *testing.B, callers int, pair, bare func()) {
	b.Helper()
	const count = 5
	n := max(callers, b.N/count)
	spread(callers, n/4, pair)
	spread(callers, n/4, bare)
	var ratios, walls, pairs, bares []float64
	b.ResetTimer()
	for range count {
		mine, mineWall := spread(callers, n, pair)
		theirs, theirsWall := spread(callers, n, bare)
		pairs, bares = append(pairs, mine), append(bares, theirs)
		ratios, walls = append(ratios, mine/max(1, theirs)), append(walls, mineWall/max(1, theirsWall))
	}
	b.StopTimer()
	for _, s := range [][]float64{ratios, walls, pairs, bares} {
		slices.Sort(s)
	}
	b.ReportMetric(pairs[count/2], "cpu-ns/pair")
	b.ReportMetric(bares[count/2], "cpu-ns/bare")
	b.ReportMetric(ratios[count/2], "ratio")
	b.ReportMetric(ratios[count-1]-ratios[0], "spread")
	b.ReportMetric(walls[count/2], "wall-ratio")
}

// BenchmarkPairOnAFullLedger is the pair on a ledger that has 100,000 subjects and
// 1,000,000 closed allocations behind it, next to an empty one; "ratio" is what the
// past costs.
func BenchmarkPairOnAFullLedger(b *testing.B) {
	ctx := context.Background()
	pairs := func(ledger *capacityledger.Ledger, w *workload) func() {
		return func() {
			ask, _ := w.ask()
			if _, denial, err := ledger.Reserve(ctx, ask); err != nil || denial.Denied() {
				b.Errorf("%s %v", denial.Public, err)
			}
			if _, err := ledger.Settle(ctx, ask.ID, capacityledger.Report{Attempt: 1}); err != nil {
				b.Error(err)
			}
		}
	}
	full := capacityledger.New(memory.NewLedger(), capacityledger.Options{Clock: clocktest.New()})
	past := newWorkload(100_000)
	fill := pairs(full, past)
	for range 1_000_000 {
		fill()
	}
	hot, fresh := newWorkload(1), newWorkload(1)
	hot.next.Store(10_000_000)
	empty := capacityledger.New(memory.NewLedger(), capacityledger.Options{Clock: clocktest.New()})
	b.ReportAllocs()
	rounds(b, 1, pairs(full, hot), pairs(empty, fresh))
}
