package mongo_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/capacityledger"
	"github.com/holdfast-io/holdfast/pkg/clock"
	"github.com/holdfast-io/holdfast/pkg/store/mongo"
)

// workload makes asks of a number of subjects, one after the other.
type workload struct {
	subjects []holdfast.Subject
	next     atomic.Int64
}

func newWorkload(prefix string, subjects int) *workload {
	w := &workload{}
	for i := range subjects {
		w.subjects = append(w.subjects, holdfast.TeamSubject(holdfast.TeamID(fmt.Sprintf("%s-%04d", prefix, i)), holdfast.AxisSlots, ""))
	}
	return w
}

func (w *workload) ask() capacityledger.Ask {
	n := w.next.Add(1)
	subject := w.subjects[int(n)%len(w.subjects)]
	run := holdfast.RunID(fmt.Sprintf("01JQ00Z000%016d", n))
	return capacityledger.Ask{
		ID: holdfast.NewAllocationID(run, subject, 0), Run: run, Holder: holdfast.PlatformBot("feature-dev"),
		Terms:     capacityledger.Terms{Cap: holdfast.AtMost(holdfast.SlotAmount(1_000_000))},
		Requested: holdfast.SlotAmount(1), Expires: clock.System{}.Now().Add(time.Hour),
	}
}

// ledgerPair is one reserve and one settle.
func ledgerPair(b *testing.B, ledger *capacityledger.Ledger, w *workload) {
	ctx := context.Background()
	ask := w.ask()
	if a, denial, err := ledger.Reserve(ctx, ask); err != nil || denial.Denied() || a.ID == "" {
		b.Errorf("reserve: %s %v", denial.Public, err)
	}
	if closed, err := ledger.Settle(ctx, ask.ID, capacityledger.Report{Attempt: 1}); err != nil || !closed {
		b.Errorf("settle: %t %v", closed, err)
	}
}

// bare is the pair of writes that a ledger on this server cannot do without: count
// and record in one, and take back in another, with entries like ours.
type bare struct{ subjects *driver.Collection }

func (r bare) pair(b *testing.B, w *workload) {
	ctx := context.Background()
	ask := w.ask()
	subject, err := ask.ID.Subject()
	if err != nil {
		b.Error(err)
	}
	id := bson.D{{Key: "_id", Value: subject.String()}}
	update := bson.D{
		{Key: "$inc", Value: bson.D{{Key: "o", Value: int64(1)}, {Key: "h.feature-dev.o", Value: int64(1)}}},
		{Key: "$push", Value: bson.D{{Key: "open", Value: bareEntry(ask)}}},
	}
	after := options.FindOneAndUpdate().SetReturnDocument(options.After)
	if err := r.subjects.FindOneAndUpdate(ctx, id, update, after).Err(); err != nil {
		b.Error(err)
	}
	result, err := r.subjects.UpdateOne(ctx, append(id, bson.E{Key: "open.id", Value: string(ask.ID)}), bson.D{
		{Key: "$inc", Value: bson.D{{Key: "o", Value: int64(-1)}, {Key: "h.feature-dev.o", Value: int64(-1)}}},
		{Key: "$pull", Value: bson.D{{Key: "open", Value: bson.D{{Key: "id", Value: string(ask.ID)}}}}},
	})
	if err != nil || result.MatchedCount != 1 {
		b.Errorf("%v %v", result, err)
	}
}

func bareEntry(ask capacityledger.Ask) bson.D {
	return bson.D{
		{Key: "id", Value: string(ask.ID)}, {Key: "h", Value: ask.Holder.String()}, {Key: "q", Value: ask.Requested.Int()},
		{Key: "t", Value: ask.Expires}, {Key: "x", Value: ask.Expires}, {Key: "l", Value: int64(1_000_000)},
	}
}

// fill gives every subject of both a document and so many open entries.
func fill(b *testing.B, ledger *capacityledger.Ledger, w *workload, r bare, others *workload, live int) {
	b.Helper()
	ctx := context.Background()
	for at := range w.subjects {
		entries := bson.A{}
		for range live {
			entries = append(entries, bareEntry(others.ask()))
		}
		if _, err := r.subjects.InsertOne(ctx, bson.D{{Key: "_id", Value: others.subjects[at].String()}, {Key: "o", Value: int64(live)}, {Key: "h", Value: bson.D{}}, {Key: "open", Value: entries}}); err != nil {
			b.Fatal(err)
		}
	}
	run(32, max(live*len(w.subjects), len(w.subjects)), func() {
		ask := w.ask()
		if _, denial, err := ledger.Reserve(ctx, ask); err != nil || denial.Denied() {
			b.Errorf("%s %v", denial.Public, err)
		}
		if live == 0 {
			if _, err := ledger.Release(ctx, ask.ID); err != nil {
				b.Error(err)
			}
		}
	})
}

// run does n of them with so many callers and returns the time of one.
func run(callers, n int, pair func()) float64 {
	var done sync.WaitGroup
	start := time.Now()
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
	return float64(time.Since(start)) / float64(max(1, n))
}

// BenchmarkPairAgainstBareWrites is one reserve and one settle through the ledger,
// next to the two writes that any ledger on this server needs. Both take turns in
// short rounds of one process. "ratio" is the median of the rounds' ratios of rates:
// 1 is as fast as the bare writes, more is faster.
func BenchmarkPairAgainstBareWrites(b *testing.B) {
	for _, c := range []struct{ callers, subjects, live int }{{1, 1, 0}, {1, 1000, 0}, {64, 1000, 0}, {64, 1, 0}, {64, 1, 500}} {
		b.Run(fmt.Sprintf("callers=%d/subjects=%d/live=%d", c.callers, c.subjects, c.live), func(b *testing.B) {
			d := newDatabases(b)
			store, err := d.fresh()
			if err != nil {
				b.Fatal(err)
			}
			ledger := capacityledger.New(store.Ledger(), capacityledger.Options{})
			w, others := newWorkload("mine", c.subjects), newWorkload("bare", c.subjects)
			r := bare{mongo.DatabaseOf(store).Collection("bare")}
			fill(b, ledger, w, r, others, c.live)
			measure(b, c.callers, func() { ledgerPair(b, ledger, w) }, func() { r.pair(b, others) })
		})
	}
}

// measure runs both in turn for a given time each, so that both are measured through
// the same disturbances of the machine. "cpu-ratio" is the ratio of the processor time
// that the whole machine spent on a pair, so it says something on an idle machine only.
func measure(b *testing.B, callers int, mine, bare func()) {
	b.Helper()
	const rounds = 5
	span := time.Second
	timed := func(pair func()) (rate, busy float64) {
		var count atomic.Int64
		before := machineBusy()
		end := time.Now().Add(span)
		start := time.Now()
		var done sync.WaitGroup
		for range callers {
			done.Go(func() {
				for time.Now().Before(end) {
					pair()
					count.Add(1)
				}
			})
		}
		done.Wait()
		n := float64(max(1, count.Load()))
		return n / time.Since(start).Seconds(), (machineBusy() - before) / n
	}
	var ratios, rates, bares, busies []float64
	timed(mine)
	timed(bare)
	b.ResetTimer()
	for range rounds {
		m, busy := timed(mine)
		t, bareBusy := timed(bare)
		ratios, rates, bares = append(ratios, m/t), append(rates, m), append(bares, t)
		if busy > 0 {
			busies = append(busies, bareBusy/busy)
		}
	}
	b.StopTimer()
	for _, s := range [][]float64{ratios, rates, bares, busies} {
		slices.Sort(s)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(rates[rounds/2], "pairs/s")
	b.ReportMetric(bares[rounds/2], "bare-pairs/s")
	b.ReportMetric(ratios[rounds/2], "ratio")
	b.ReportMetric(ratios[0], "least")
	b.ReportMetric(ratios[rounds-1], "most")
	if len(busies) > 0 {
		b.ReportMetric(busies[len(busies)/2], "cpu-ratio")
	}
}

// machineBusy is how much time the machine's processors have spent on anything, in
// ticks; 0 where it does not tell.
func machineBusy() float64 {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var user, nice, system, idle, wait, irq, soft float64
	if _, err := fmt.Sscanf(line, "cpu %f %f %f %f %f %f %f", &user, &nice, &system, &idle, &wait, &irq, &soft); err != nil {
		return 0
	}
	return user + nice + system + irq + soft
}
