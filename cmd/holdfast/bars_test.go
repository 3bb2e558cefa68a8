package main

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
)

var update = flag.Bool("update", false, "write the golden files anew")

func usd(dollars float64) api.Amount {
	return api.AmountOf(holdfast.USDAmount(holdfast.MicroUSD(dollars * 1e6)))
}
func slots(n int64) api.Amount { return api.AmountOf(holdfast.SlotAmount(holdfast.Slots(n))) }
func pointer[T any](v T) *T    { return &v }

var barsNow = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// barSubjects are the shapes that a bar can have.
func barSubjects() []api.SubjectCapacity {
	holder := func(name string, reserved, settled, outstanding api.Amount) api.Holding {
		return api.Holding{Holder: name, Reserved: reserved, Settled: settled, Outstanding: outstanding}
	}
	return []api.SubjectCapacity{
		{Subject: "team/web/slots", Cap: pointer(slots(6)), Settled: slots(0), Outstanding: slots(3), Withheld: slots(1), Free: pointer(slots(2)), Over: slots(0),
			NextExpiry: barsNow.Add(100 * time.Second), Holders: []api.Holding{
				holder("platform/review-pr", slots(2), slots(0), slots(1)), holder("team:web/feature-dev", slots(0), slots(0), slots(2)),
			}},
		{Subject: "team/web/usd@2026-11", Cap: pointer(usd(100)), Settled: usd(40.5), Outstanding: usd(0.01), Withheld: usd(20), Free: pointer(usd(39.49)), Over: usd(0),
			Holders: []api.Holding{holder("platform/review-pr", usd(20), usd(40.5), usd(0.01))}},
		{Subject: "team/empty/slots", Cap: pointer(slots(3)), Settled: slots(0), Outstanding: slots(0), Withheld: slots(0), Free: pointer(slots(3)), Over: slots(0)},
		{Subject: "team/shut/slots", Cap: pointer(slots(0)), Settled: slots(0), Outstanding: slots(0), Withheld: slots(0), Free: pointer(slots(0)), Over: slots(0)},
		{Subject: "team/over/usd@2026-11", Cap: pointer(usd(10)), Settled: usd(12), Outstanding: usd(2), Withheld: usd(0), Free: pointer(usd(0)), Over: usd(4),
			Holders: []api.Holding{holder("platform/review-pr", usd(0), usd(12), usd(2))}},
		{Subject: "platform/all/slots", Cap: pointer(slots(4)), Settled: slots(0), Outstanding: slots(4), Withheld: slots(0), Free: pointer(slots(0)), Over: slots(0),
			Holders: []api.Holding{holder("platform/review-pr", slots(0), slots(0), slots(1))}},
		{Subject: "team/web/runs@2026-11", Settled: api.AmountOf(holdfast.RunAmount(7)), Outstanding: api.AmountOf(holdfast.RunAmount(1)), Withheld: api.AmountOf(holdfast.RunAmount(0)),
			Over: api.AmountOf(holdfast.RunAmount(0))},
	}
}

func TestBarsLookAsRecorded(t *testing.T) {
	for name, style := range map[string]barStyle{"plain": {width: 40}, "colour": {width: 24, colour: true}} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := writeBars(&b, barSubjects(), style, barsNow); err != nil {
				t.Fatal(err)
			}
			path := "testdata/bars_" + name + ".golden"
			if *update {
				if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), b.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNothingThatIsHeldLooksFree(t *testing.T) {
	bar := drawBar([]segment{{'a', "", 1}, {cellFree, "", 1_000_000}}, barStyle{width: 20})
	if want := "[a" + strings.Repeat("·", 19) + "]"; bar != want {
		t.Errorf("%s, want %s", bar, want)
	}
}

func TestABarIsAsWideAsAskedUnlessItHasMorePartsThanCells(t *testing.T) {
	for width := 1; width <= 30; width++ {
		for parts := range 12 {
			var list []segment
			for i := range parts {
				list = append(list, segment{rune('a' + i), "", int64(1 + i*i*977)})
			}
			bar := drawBar(list, barStyle{width: width})
			if got := len([]rune(bar)) - 2; got != max(width, parts) {
				t.Fatalf("%d parts in %d cells are %d wide: %s", parts, width, got, bar)
			}
			for i := range parts {
				if !strings.ContainsRune(bar, rune('a'+i)) {
					t.Fatalf("part %d is missing in %s", i, bar)
				}
			}
		}
	}
}

func TestInAPipeCapacityIsATableWithoutBars(t *testing.T) {
	var b strings.Builder
	c := &cli{now: func() time.Time { return barsNow }}
	if err := c.writeCapacity(&b, barSubjects()); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(b.String(), "█▒·\x1b") || !strings.HasPrefix(b.String(), "SUBJECT") {
		t.Error(b.String())
	}
	c.stdoutTerminal, c.environ, c.width = true, []string{"NO_COLOR=1"}, 80
	b.Reset()
	if err := c.writeCapacity(&b, barSubjects()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "▒") || strings.Contains(b.String(), "\x1b") {
		t.Error(b.String())
	}
}
