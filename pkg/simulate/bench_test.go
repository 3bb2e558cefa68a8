package simulate

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/budgetfloor"
)

// fleet is a trace of so many runs of eight teams over so many days, as CSV. Its
// numbers come from a fixed sequence.
func fleet(rows, days int) string {
	var b strings.Builder
	b.WriteString("submitted_at,team,bot,duration_s,cost_usd\n")
	state := uint64(155)
	next := func(n uint64) uint64 { // xorshift: the same on every machine
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		return state % n
	}
	step := time.Duration(days) * 24 * time.Hour / time.Duration(rows)
	for i := range rows {
		bot := "feature-dev"
		if next(3) == 0 {
			bot = "review-pr"
		}
		fmt.Fprintf(&b, "%s,team-%d,%s,%d,%d.%02d\n", Origin.Add(step*time.Duration(i)).Format(time.RFC3339), next(8), bot, 60+next(3000), next(9), next(100))
	}
	return b.String()
}

var fleetPolicy = budgetfloor.Policy{Reservations: []budgetfloor.Reservation{{Bot: "review-pr", Tier: holdfast.TierPlatform, FiveHourPercent: 20, ConcurrentRuns: 1}}}

// BenchmarkFourteenDaysOfAFleet replays 920 runs without and with a policy, reading
// included.
func BenchmarkFourteenDaysOfAFleet(b *testing.B) { benchmarkFleet(b, 920, 14) }

// BenchmarkAHundredThousandRuns is the same for a year of a large fleet.
func BenchmarkAHundredThousandRuns(b *testing.B) { benchmarkFleet(b, 100_000, 365) }

func benchmarkFleet(b *testing.B, rows, days int) {
	text := fleet(rows, days)
	for b.Loop() {
		trace, err := ReadFrom("fleet.csv", strings.NewReader(text), ReadOptions{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Run(context.Background(), Input{Trace: trace, Policy: fleetPolicy}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(2*rows*b.N)/b.Elapsed().Seconds(), "launches/s")
}
