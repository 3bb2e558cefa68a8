package simulate

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/holdfast-io/holdfast"
)

// maxLines is how many bots or teams a table shows before it sums up the rest.
const maxLines = 15

// Text writes the result for a terminal.
func (r Result) Text(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Trace: %d runs of %d teams, %s to %s UTC", r.Trace.Rows, r.Trace.Teams, r.Trace.From.Format("2006-01-02 15:04"), r.Trace.To.Format("2006-01-02 15:04"))
	if r.Trace.Skipped > 0 {
		fmt.Fprintf(&b, "; %d rows could not be read:\n", r.Trace.Skipped)
		list(&b, r.Trace.SkipReasons)
		if more := r.Trace.Skipped - len(r.Trace.SkipReasons); more > 0 {
			fmt.Fprintf(&b, "  - and %d more\n", more)
		}
	} else {
		b.WriteString("\n")
	}
	if len(r.Assumptions) > 0 {
		b.WriteString("Assumed:\n")
		list(&b, r.Assumptions)
	}
	r.capsText(&b)
	for _, warning := range r.Warnings {
		fmt.Fprintf(&b, "Warning: %s\n", warning)
	}
	r.botsText(&b)
	r.teamsText(&b)
	r.reasonsText(&b)
	r.windowsText(&b)
	differencesText(&b, "Both sides (with the policy, compared with none):", r.Difference)
	if r.AgainstDifference != nil {
		differencesText(&b, "Both sides (the other policy, compared with the first):", r.AgainstDifference)
	}
	b.WriteString("\n")
	for _, s := range r.Summary {
		fmt.Fprintln(&b, s)
	}
	_, err := w.Write(trimmed(b.Bytes()))
	return err
}

// trimmed drops the blanks that tables leave at the ends of lines.
func trimmed(text []byte) []byte {
	lines := bytes.Split(text, []byte("\n"))
	for i := range lines {
		lines[i] = bytes.TrimRight(lines[i], " ")
	}
	return bytes.Join(lines, []byte("\n"))
}

func list(w io.Writer, items []string) {
	for _, item := range items {
		fmt.Fprintf(w, "  - %s\n", item)
	}
}

func (r Result) capsText(w io.Writer) {
	if r.Caps.Derived {
		fmt.Fprintln(w, "Caps (none given: made of the trace's own peaks, --caps FILE says otherwise):")
		if len(r.Caps.Said) == 0 {
			fmt.Fprintln(w, "  - none: the trace has no peaks to make any of, so nobody is ever refused")
		}
		list(w, r.Caps.Said)
		return
	}
	fmt.Fprintln(w, "Caps:")
	var items []string
	if s := limits("slots", r.Caps.Platform.MaxConcurrentRuns.Limit(holdfast.UnitSlots), "a month", r.Caps.Platform.MonthlyUSD.Limit(holdfast.UnitUSD)); s != "" {
		items = append(items, "all teams together: "+s)
	}
	names := make([]string, 0, len(r.Caps.Teams))
	for name := range r.Caps.Teams {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		if i == maxLines {
			items = append(items, fmt.Sprintf("and of %d more teams", len(names)-i))
			break
		}
		t := r.Caps.Teams[name]
		s := limits("", t.MaxConcurrentRuns.Limit(holdfast.UnitSlots), "a month", t.MonthlyUSD.Limit(holdfast.UnitUSD), "a month", t.MonthlyRuns.Limit(holdfast.UnitRuns), "launches a minute", t.LaunchesPerMinute.Limit(holdfast.UnitNone))
		if name == everyTeam {
			name = "every team"
		}
		if s != "" {
			items = append(items, name+": "+s)
		}
	}
	for _, win := range []struct {
		name string
		cap  *WindowCap
	}{{"five-hour window", r.Caps.Windows.FiveHour}, {"week", r.Caps.Windows.Week}} {
		if win.cap != nil {
			items = append(items, fmt.Sprintf("%s: %s, used up to %s", win.name, win.cap.USD.Dollars(), holdfast.ShareAmount(win.cap.share())))
		}
	}
	if len(items) == 0 {
		items = []string{"none, so nobody is ever refused"}
	}
	list(w, items)
}

// limits joins pairs of a word and a limit, leaving out what is not limited.
func limits(pairs ...any) string {
	var parts []string
	for i := 0; i < len(pairs); i += 2 {
		word, limit := pairs[i].(string), pairs[i+1].(holdfast.Limit) //nolint:gosec // they come in pairs
		if limit.None() {
			continue
		}
		text := limit.String()
		if word != "" && word != "slots" {
			text += " " + word
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// table writes lines of cells, the first column to the left and numbers to the right.
func table(w io.Writer, lines [][]string) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	widest := 0
	for _, line := range lines {
		widest = max(widest, len([]rune(line[0])))
	}
	for _, line := range lines {
		fmt.Fprint(tw, line[0]+strings.Repeat(" ", widest-len([]rune(line[0]))))
		for _, cell := range line[1:] {
			fmt.Fprint(tw, "\t"+cell)
		}
		fmt.Fprint(tw, "\t\n")
	}
	_ = tw.Flush() // into memory
}

// heads are the columns of a table of counts.
func (r Result) heads(first string) [][]string {
	over, under := []string{"", ""}, []string{first, "asked"}
	for _, s := range r.Scenarios {
		over = append(over, s.Name, "", "", "")
		under = append(under, "admitted", "refused", "(held)", "spent")
	}
	if r.waits() {
		over, under = append(over, ""), append(under, "waited")
	}
	return [][]string{over, under}
}

func (r Result) waits() bool {
	return slices.ContainsFunc(r.Scenarios, func(s Scenario) bool { return s.Totals.WaitedS > 0 || s.Totals.Waiting > 0 })
}

// cells are a line of counts, one of each scenario.
func (r Result) cells(name string, counts []Count) []string {
	line := []string{name, strconv.Itoa(counts[0].Asked)}
	var waited []string
	for _, c := range counts {
		line = append(line, strconv.Itoa(c.Admitted), strconv.Itoa(c.AllRefused()), fmt.Sprintf("(%d)", c.HeldOut), cents(c.SpentUSD))
		text := "-"
		if c.Admitted > 0 && c.WaitedS > 0 {
			text = fmt.Sprintf("%ds", c.WaitedS/int64(c.Admitted))
		}
		if c.Waiting > 0 {
			text += fmt.Sprintf("+%d", c.Waiting)
		}
		waited = append(waited, text)
	}
	if r.waits() {
		line = append(line, strings.Join(waited, "/"))
	}
	return line
}

// counted is a named line of counts.
type counted struct {
	name   string
	counts []Count
}

// countsText writes a table of counts: the largest first, the rest as one line.
func (r Result) countsText(w io.Writer, title string, rows []counted) {
	slices.SortStableFunc(rows, func(a, b counted) int { return b.counts[0].Asked - a.counts[0].Asked })
	lines := r.heads(title)
	rest := counted{counts: make([]Count, len(r.Scenarios))}
	for i, row := range rows {
		if i < maxLines || len(rows) == maxLines+1 {
			lines = append(lines, r.cells(row.name, row.counts))
			continue
		}
		for k, c := range row.counts {
			rest.counts[k] = rest.counts[k].plus(c)
		}
	}
	if n := len(rows) - maxLines; n > 1 {
		lines = append(lines, r.cells(fmt.Sprintf("%d more", n), rest.counts))
	}
	var totals []Count
	for _, s := range r.Scenarios {
		totals = append(totals, s.Totals)
	}
	lines = append(lines, r.cells("all", totals))
	fmt.Fprintln(w)
	table(w, lines)
}

func (c Count) plus(d Count) Count {
	c.Asked += d.Asked
	c.Admitted += d.Admitted
	refused := map[holdfast.DenyReason]int{}
	for _, side := range []map[holdfast.DenyReason]int{c.Refused, d.Refused} {
		for reason, n := range side {
			refused[reason] += n
		}
	}
	c.Refused = refused
	c.HeldOut += d.HeldOut
	c.Waiting += d.Waiting
	c.CutShort += d.CutShort
	c.SpentUSD += d.SpentUSD
	c.WaitedS += d.WaitedS
	return c
}

func (r Result) botsText(w io.Writer) {
	var rows []counted
	for i, b := range r.Scenarios[0].ByBot {
		row := counted{name: b.Identity.String()}
		for _, s := range r.Scenarios {
			row.counts = append(row.counts, s.ByBot[i].Count)
		}
		rows = append(rows, row)
	}
	r.countsText(w, "bot", rows)
}

func (r Result) teamsText(w io.Writer) {
	if r.Trace.Teams < 2 {
		return
	}
	var rows []counted
	for i, t := range r.Scenarios[0].ByTeam {
		row := counted{name: string(t.Team)}
		for _, s := range r.Scenarios {
			row.counts = append(row.counts, s.ByTeam[i].Count)
		}
		rows = append(rows, row)
	}
	r.countsText(w, "team", rows)
}

func (r Result) reasonsText(w io.Writer) {
	lines := [][]string{{"refused because of"}}
	for _, s := range r.Scenarios {
		lines[0] = append(lines[0], s.Name)
	}
	for _, reason := range holdfast.DenyReasons() {
		line, any := []string{string(reason)}, false
		for _, s := range r.Scenarios {
			n := s.Totals.Refused[reason]
			any = any || n > 0
			line = append(line, strconv.Itoa(n))
		}
		if any {
			lines = append(lines, line)
		}
	}
	fmt.Fprintln(w)
	if len(lines) == 1 {
		fmt.Fprintln(w, "Nobody was refused.")
		return
	}
	table(w, lines)
}

// windowsText draws the use of the windows over time, one line a scenario.
func (r Result) windowsText(w io.Writer) {
	for _, axis := range []holdfast.Axis{holdfast.AxisFiveHour, holdfast.AxisWeek} {
		first := true
		for _, s := range r.Scenarios {
			var seen []Window
			for _, win := range s.Windows {
				if win.Axis == axis {
					seen = append(seen, win)
				}
			}
			if len(seen) == 0 {
				continue
			}
			if first {
				fmt.Fprintf(w, "\nUse of the %s windows (%s each) over time:\n", axis, seen[0].USD.Dollars())
				first = false
			}
			refused := 0
			for _, win := range seen {
				refused += win.Refused
			}
			fmt.Fprintf(w, "  %-8s %s  %d windows, %d launches found one full\n", s.Name, spark(seen), len(seen), refused)
		}
	}
}

// spark draws up to 60 bars of utilisation; of more windows each bar is the highest
// of several.
func spark(seen []Window) string {
	const most = 60
	bars := []rune("▁▂▃▄▅▆▇█")
	per := (len(seen) + most - 1) / most
	var b strings.Builder
	for i := 0; i < len(seen); i += per {
		var eighths int64
		for _, win := range seen[i:min(i+per, len(seen))] {
			full := max(1, int64(win.USD)/8)
			eighths = max(eighths, min(7, int64(win.UsedUSD)/full))
		}
		b.WriteRune(bars[eighths])
	}
	return b.String()
}

func differencesText(w io.Writer, title string, differences []Difference) {
	lines := [][]string{{"bot", "gained", "lost", "gained $", "lost $"}}
	same := 0
	for i, d := range differences {
		if d.Gained == 0 && d.Lost == 0 && i > 0 {
			same++
			continue
		}
		lines = append(lines, []string{d.Identity.String(), fmt.Sprintf("+%d", d.Gained), fmt.Sprintf("-%d", d.Lost), cents(d.GainedUSD), cents(d.LostUSD)})
	}
	fmt.Fprintf(w, "\n%s\n", title)
	table(w, lines)
	switch same {
	case 0:
	case 1:
		fmt.Fprint(w, "1 more bot fares the same.\n")
	default:
		fmt.Fprintf(w, "%d more bots fare the same.\n", same)
	}
}
