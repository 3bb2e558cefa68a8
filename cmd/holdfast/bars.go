package main

import (
	"fmt"
	"io"
	"sort"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
)

// The cells of a bar. What a holder has outstanding is drawn with the holder's
// letter, so that a bar reads the same with and without colours.
const (
	cellSettled  = '█'
	cellWithheld = '▒'
	cellFree     = '·'
	cellOthers   = 'z' // of holders that the viewer may not see
)

// segment is one stretch of a bar.
type segment struct {
	cell   rune
	colour string // of a terminal: the number of an SGR foreground colour
	size   int64
}

// holderColours are given to the holders of one subject in turn.
var holderColours = []string{"36", "35", "33", "34", "32", "31"}

// barStyle says how bars are drawn.
type barStyle struct {
	width  int // cells of a bar
	colour bool
}

// maxHolders is how many holders of a subject are drawn with a letter of their own;
// the others share the last one.
const maxHolders = 25

// writeBars draws each subject as a bar with its numbers and its holders below.
// now is what next expiries are counted from.
func writeBars(w io.Writer, subjects []api.SubjectCapacity, style barStyle, now time.Time) error {
	var b strings.Builder
	for i, subject := range subjects {
		if i > 0 {
			b.WriteByte('\n')
		}
		writeBar(&b, subject, style, now)
	}
	if len(subjects) > 0 {
		fmt.Fprintf(&b, "\n%c settled  a b c outstanding by holder  %c withheld for a reservation  %c free\n",
			cellSettled, cellWithheld, cellFree)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeBar(b *strings.Builder, s api.SubjectCapacity, style barStyle, now time.Time) {
	holders := byOutstanding(s.Holders)
	b.WriteString(s.Subject + "\n")
	if s.Cap != nil {
		b.WriteString("  " + drawBar(segments(s, holders), style) + "\n")
	}
	b.WriteString("  " + numbers(s, now) + "\n")
	width := 0
	for _, h := range holders {
		width = max(width, len(h.Holder))
	}
	for i, h := range holders {
		letter := " "
		if amountOf(h.Outstanding).Int() > 0 {
			letter = string(holderCell(i))
		}
		fmt.Fprintf(b, "  %s %-*s  %s\n", paint(letter, holderColour(i), style), width, h.Holder, holderNumbers(h))
	}
	others := amountOf(s.Outstanding)
	for _, h := range holders {
		others = others.Minus(amountOf(h.Outstanding).Positive())
	}
	if others.Int() > 0 {
		fmt.Fprintf(b, "  %c %-*s  outstanding %s\n", cellOthers, width, "others", others)
	}
}

// numbers is the line below a bar.
func numbers(s api.SubjectCapacity, now time.Time) string {
	parts := []string{"no cap"}
	if s.Cap != nil {
		parts = []string{"cap " + show(*s.Cap)}
	}
	if !amountOf(s.Settled).IsZero() {
		parts = append(parts, "settled "+show(s.Settled))
	}
	parts = append(parts, "outstanding "+show(s.Outstanding))
	if !amountOf(s.Withheld).IsZero() {
		parts = append(parts, "withheld "+show(s.Withheld))
	}
	if s.Free != nil {
		parts = append(parts, "free "+show(*s.Free))
	}
	if !amountOf(s.Over).IsZero() {
		parts = append(parts, "over the cap by "+show(s.Over))
	}
	if !s.NextExpiry.IsZero() {
		parts = append(parts, "next expiry in "+showSpan(s.NextExpiry.Sub(now)))
	}
	return strings.Join(parts, "  ")
}

func holderNumbers(h api.Holding) string {
	var parts []string
	if !amountOf(h.Settled).IsZero() {
		parts = append(parts, "settled "+show(h.Settled))
	}
	parts = append(parts, "outstanding "+show(h.Outstanding))
	if !amountOf(h.Reserved).IsZero() {
		parts = append(parts, "reserved "+show(h.Reserved))
	}
	if h.FreeFor != nil {
		parts = append(parts, "free for it "+show(*h.FreeFor))
	}
	return strings.Join(parts, "  ")
}

// byOutstanding orders holders by what they hold, then by name.
func byOutstanding(holders []api.Holding) []api.Holding {
	ordered := append([]api.Holding(nil), holders...)
	sort.SliceStable(ordered, func(i, j int) bool {
		a, b := amountOf(ordered[i].Outstanding).Int(), amountOf(ordered[j].Outstanding).Int()
		if a != b {
			return a > b
		}
		return ordered[i].Holder < ordered[j].Holder
	})
	return ordered
}

func holderCell(i int) rune { return rune('a' + min(i, maxHolders-1)) }

func holderColour(i int) string { return holderColours[i%len(holderColours)] }

// segments are the stretches of a subject's bar: settled, each holder's
// outstanding, withheld, free. What is over the cap is drawn behind them.
func segments(s api.SubjectCapacity, holders []api.Holding) []segment {
	list := []segment{{cellSettled, "37", amountOf(s.Settled).Int()}}
	var held int64
	for i, h := range holders {
		n := amountOf(h.Outstanding).Int()
		held += max(0, n)
		list = append(list, segment{holderCell(i), holderColour(i), n})
	}
	list = append(list, segment{cellOthers, "37", amountOf(s.Outstanding).Int() - held})
	list = append(list, segment{cellWithheld, "90", amountOf(s.Withheld).Int()})
	if s.Free != nil {
		list = append(list, segment{cellFree, "90", amountOf(*s.Free).Int()})
	}
	return list
}

// drawBar fills the width with the segments in proportion. A segment that is not
// nothing gets at least one cell, so that nothing that is held looks free; the
// largest segments give or take what rounding leaves.
func drawBar(list []segment, style barStyle) string {
	var shown []segment
	var total float64
	for _, s := range list {
		if s.size > 0 {
			shown = append(shown, s)
			total += float64(s.size)
		}
	}
	cells := make([]int, len(shown))
	left := style.width
	for i, s := range shown {
		cells[i] = max(1, int(float64(s.size)*float64(style.width)/total+0.5))
		left -= cells[i]
	}
	for left != 0 && len(shown) > 0 {
		largest := 0
		for i := range cells {
			if cells[i] > cells[largest] {
				largest = i
			}
		}
		step := max(-1, min(1, left))
		if cells[largest]+step < 1 {
			break // more segments than cells: the bar is as long as it has to be
		}
		cells[largest] += step
		left -= step
	}
	var b strings.Builder
	b.WriteByte('[')
	for i, s := range shown {
		b.WriteString(paint(strings.Repeat(string(s.cell), cells[i]), s.colour, style))
	}
	b.WriteString(strings.Repeat(" ", max(0, left)))
	b.WriteByte(']')
	return b.String()
}

// paint colours a text on a terminal.
func paint(text, colour string, style barStyle) string {
	if !style.colour || strings.TrimSpace(text) == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
