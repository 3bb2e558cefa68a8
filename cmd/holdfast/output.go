package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
)

// format is how answers are printed: the flag -o. The zero value is a table.
type format string

const (
	formatTable format = "table"
	formatJSON  format = "json"
	formatYAML  format = "yaml"
)

// String implements pflag.Value.
func (f *format) String() string {
	if *f == "" {
		return string(formatTable)
	}
	return string(*f)
}

// Set implements pflag.Value.
func (f *format) Set(text string) error {
	switch format(text) {
	case formatTable, formatJSON, formatYAML:
		*f = format(text)
		return nil
	}
	return fmt.Errorf("%q is not an output format (allowed: table, json, yaml)", holdfast.Clip(text, 40))
}

// Type implements pflag.Value.
func (f *format) Type() string { return "table|json|yaml" }

// structured says whether a program reads the output.
func (c *cli) structured() bool { return c.format == formatJSON || c.format == formatYAML }

// print writes v as -o says; text writes it for people.
func (c *cli) print(v any, text func(io.Writer) error) error {
	if c.structured() {
		return encode(c.stdout, c.format, v)
	}
	return text(c.stdout)
}

// encode writes v as indented JSON or as YAML with the same fields in the same
// order.
func encode(w io.Writer, f format, v any) error {
	text, err := jsonText(v, "  ")
	if err != nil {
		return fmt.Errorf("print as %s: %w", f, err)
	}
	if f == formatYAML {
		if text, err = yamlOfJSON(text); err != nil {
			return fmt.Errorf("print as yaml: %w", err)
		}
	}
	_, err = w.Write(text)
	return err
}

// jsonText is v as JSON with an end of line. What steers a terminal is written as an
// escape: the JSON means the same, and its reader may be a person.
func jsonText(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	text := b.Bytes()
	steers := func(r rune) bool { return r >= 0x7f && holdfast.IsControl(r) } // below it JSON has escapes of its own
	if !bytes.ContainsFunc(text, steers) {
		return text, nil
	}
	var safe bytes.Buffer
	for _, r := range string(text) {
		if steers(r) { // only ever within a string
			fmt.Fprintf(&safe, `\u%04x`, r)
			continue
		}
		safe.WriteRune(r)
	}
	return safe.Bytes(), nil
}

// table is rows under a header, printed in columns of equal width. A cell holds what
// others wrote: it is one line, and steers no terminal.
type table struct {
	header []string
	rows   [][]string
	empty  string // what to say when there are no rows
}

func (t *table) add(cells ...string) {
	for i, cell := range cells {
		cells[i] = oneLine(cell)
	}
	t.rows = append(t.rows, cells)
}

// oneLine is a text of others as one line for a terminal.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if holdfast.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// write prints the table, without a header when it has no rows.
func (t *table) write(w io.Writer) error {
	if len(t.rows) == 0 {
		_, err := fmt.Fprintln(w, t.empty)
		return err
	}
	lines := append([][]string{t.header}, t.rows...)
	widths := make([]int, len(t.header))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, line := range lines {
		var row strings.Builder
		for i, cell := range line {
			row.WriteString(cell)
			row.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		b.WriteString(strings.TrimRight(row.String(), " "))
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// amountOf reads an amount of the wire; the zero Amount when it is not one.
func amountOf(a api.Amount) holdfast.Amount {
	value, negative := strings.CutPrefix(a.Value, "-")
	unit := holdfast.UnitNone
	for _, u := range []holdfast.Unit{holdfast.UnitSlots, holdfast.UnitRuns, holdfast.UnitUSD, holdfast.UnitPercent} {
		if u.String() == a.Unit {
			unit = u
		}
	}
	whole, fraction, _ := strings.Cut(value, ".")
	decimals := map[holdfast.Unit]int{holdfast.UnitUSD: 6, holdfast.UnitPercent: 2}[unit]
	if len(fraction) > decimals {
		return holdfast.Amount{}
	}
	var n int64
	for _, r := range whole + fraction + strings.Repeat("0", decimals-len(fraction)) {
		if r < '0' || r > '9' || n > 1<<59 {
			return holdfast.Amount{}
		}
		n = n*10 + int64(r-'0')
	}
	if negative {
		n = -n
	}
	return holdfast.AmountOf(unit, n)
}

// show prints an amount of the wire for people.
func show(a api.Amount) string { return amountOf(a).String() }

// showLimit prints a limit of the wire; nil is no limit.
func showLimit(a *api.Amount) string {
	if a == nil {
		return "no limit"
	}
	return show(*a)
}

// showTime prints an instant for a table; nothing for one that has not happened.
func showTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// showSpan prints a span of time without more detail than it is worth.
func showSpan(d time.Duration) string {
	switch {
	case d < 0:
		return "now"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// or is the text, or a dash for none.
func or(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
