package runner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast"
)

func TestReportLines(t *testing.T) {
	for _, row := range []struct {
		name    string
		text    string
		spent   holdfast.MicroUSD
		skipped int
	}{
		{"nothing", "", 0, 0},
		{"increments", "{\"cost_usd\": 0.12}\n{\"cost_usd\": 0.03}\n", 150_000, 0},
		{"a decimal in a string", "{\"cost_usd\": \"1.5\"}\n", 1_500_000, 0},
		{"other fields beside", "{\"model\": \"m\", \"cost_usd\": 2, \"tokens\": {\"in\": 4}}\n", 2_000_000, 0},
		{"an exponent, as other languages print it", "{\"cost_usd\": 1e-05}\n{\"cost_usd\": 1.25E+1}\n", 12_500_010, 0},
		{"fractions of a micro-dollar add up exactly", strings.Repeat("{\"cost_usd\": 0.0000001}\n", 10), 1, 0},
		{"and are rounded up, never away", "{\"cost_usd\": 0.00000000000000001}\n", 1, 0},
		{"zero", "{\"cost_usd\": 0}\n{\"cost_usd\": 0e9}\n", 0, 0},
		{"blank lines and carriage returns", "\n  \n{\"cost_usd\": 1}\r\n", 1_000_000, 0},
		{"bad lines between good ones", "{\"cost_usd\": 1}\n{\"cost\": 1}\nhello\n[]\nnull\n{\"cost_usd\": true}\n{\"cost_usd\": null}\n{\"cost_usd\": \"\"}\n{\"cost_usd\": 1}\n", 2_000_000, 7},
		{"negative ones", "{\"cost_usd\": -1}\n{\"cost_usd\": -0.000001}\n{\"cost_usd\": \"-0\"}\n", 0, 3},
		{"absurd ones", "{\"cost_usd\": 1e10}\n{\"cost_usd\": 1e999999999}\n{\"cost_usd\": 1000000001}\n{\"cost_usd\": NaN}\n{\"cost_usd\": \"Infinity\"}\n{\"cost_usd\": \"0x10\"}\n{\"cost_usd\": \"1_0\"}\n{\"cost_usd\": \"" + strings.Repeat("1", 61) + "\"}\n", 0, 8},
		{"a sum that would be absurd", "{\"cost_usd\": 999999999}\n{\"cost_usd\": 2}\n{\"cost_usd\": 0.5}\n", 999_999_999_500_000, 1},
		{"an over-long one", "{\"cost_usd\": 1}\n{\"x\": \"" + strings.Repeat("y", maxLine) + "\", \"cost_usd\": 1}\n{\"cost_usd\": 1}\n", 2_000_000, 1},
		{"one of just the length that is allowed", "{\"cost_usd\": 1, \"x\": \"" + strings.Repeat("y", maxLine-24) + "\"}\n", 1_000_000, 0},
		{"the last without its newline", "{\"cost_usd\": 1}\n{\"cost_usd\": 1}", 2_000_000, 0},
		{"the last torn", "{\"cost_usd\": 1}\n{\"cost_usd\": 1", 1_000_000, 1},
		{"bytes that are no text", "\x00\xff\xfe\n{\"cost_usd\": 1}\n", 1_000_000, 1},
	} {
		for _, chunk := range []int{1, 7, 1 << 20} { // however the reads fall
			if len(row.text) > 1000 && chunk == 1 {
				chunk = 1000
			}
			t.Run(fmt.Sprintf("%s in chunks of %d", row.name, chunk), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "report")
				file, err := os.Create(path)
				if err != nil {
					t.Fatal(err)
				}
				defer file.Close()
				m := newMeter(path)
				for text := row.text; len(text) > 0; {
					n := min(chunk, len(text))
					if _, err := file.WriteString(text[:n]); err != nil {
						t.Fatal(err)
					}
					text = text[n:]
					m.read(false)
				}
				m.read(true)
				if spent, skipped := m.total(); spent != row.spent || skipped != row.skipped {
					t.Errorf("spent %s with %d skipped, want %s with %d", spent, skipped, row.spent, row.skipped)
				}
			})
		}
	}
}

func TestALineCountsOnlyWhenItIsComplete(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	m := newMeter(path)
	if m.read(false) {
		t.Error("a missing file raised the sum")
	}
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("{\"cost_usd\": 1}")
	if m.read(false) {
		t.Error("a line without its end raised the sum")
	}
	write("{\"cost_usd\": 1}\n")
	if !m.read(false) {
		t.Error("the completed line did not raise the sum")
	}
	if m.read(false) || m.read(true) {
		t.Error("one line counted twice")
	}
}

func TestAReportFileThatIsWrittenAnewIsReadFromItsStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	m := newMeter(path)
	for _, text := range []string{"{\"cost_usd\": 1}\n{\"cost_usd\": 1}\n", "{\"cost_usd\": 2}\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		m.read(false)
	}
	if spent, _ := m.total(); spent != 4*holdfast.OneUSD {
		t.Errorf("spent %s", spent)
	}
}

func TestWhatIsNoFileIsNotRead(t *testing.T) {
	dir := t.TempDir()
	real := filepath.Join(dir, "real")
	if err := os.WriteFile(real, []byte("{\"cost_usd\": 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, make := range map[string]func(string) error{
		"a link":   func(path string) error { return os.Symlink(real, path) },
		"a pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) }, // reading it would block for ever
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"a device": func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		m := newMeter(path)
		if m.read(true) {
			t.Errorf("%s was read", name)
		}
	}
}

func TestOneReadingIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	line := []byte("{\"cost_usd\": 0.000001, \"x\": \"" + strings.Repeat("y", maxLine/2) + "\"}\n")
	lines := maxRead/len(line) + 50
	if err := os.WriteFile(path, bytes.Repeat(line, lines), 0o600); err != nil {
		t.Fatal(err)
	}
	m := newMeter(path)
	m.read(false)
	if spent, _ := m.total(); spent >= holdfast.MicroUSD(lines) || spent == 0 {
		t.Errorf("%d of %d lines were read at once", spent, lines)
	}
	m.read(false)
	if spent, _ := m.total(); spent != holdfast.MicroUSD(lines) {
		t.Errorf("%d of %d lines were read", spent, lines)
	}
	m = newMeter(path)
	m.read(true)
	if spent, _ := m.total(); spent != holdfast.MicroUSD(lines) {
		t.Errorf("%d of %d lines were read after the end", spent, lines)
	}
}
