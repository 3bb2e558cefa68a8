package runner

import (
	"testing"

	"github.com/holdfast-io/holdfast"
)

// FuzzReportLines: whatever a program appends to its report, the sum only rises, is
// bounded, and does not depend on how the reads fall.
func FuzzReportLines(f *testing.F) {
	for _, text := range []string{"{\"cost_usd\": 0.12}\n", "{\"cost_usd\": \"1e-05\"}\n{}\nnull\n", "{\"cost_usd\":1e999999999}\n", "\x00\n{\"cost_usd\":{\"cost_usd\":1}}\n", "[[[[[[\n{\"cost_usd\":-0}\n"} {
		f.Add([]byte(text), 3)
	}
	f.Fuzz(func(t *testing.T, text []byte, chunk int) {
		whole, parts := newMeter(""), newMeter("")
		whole.take(text)
		var last holdfast.MicroUSD
		for rest := text; len(rest) > 0; {
			n := min(max(1, chunk), len(rest))
			parts.take(rest[:n])
			rest = rest[n:]
			if parts.spent < last {
				t.Fatalf("the sum fell from %v to %v", last, parts.spent)
			}
			last = parts.spent
			if len(parts.partial) > maxLine+n {
				t.Fatalf("%d bytes of a line are kept", len(parts.partial))
			}
		}
		if whole.spent != parts.spent || whole.rest != parts.rest || whole.skipped != parts.skipped || whole.spent > holdfast.MaxUSD {
			t.Fatalf("%v and %d skipped at once, %v and %d in parts", whole.spent, whole.skipped, parts.spent, parts.skipped)
		}
	})
}
