package simulate

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
)

func TestDecimalsAreReadExactly(t *testing.T) {
	for _, row := range []struct {
		text  string
		scale int
		want  int64
	}{
		{"0", 6, 0}, {"1", 6, 1_000_000}, {"0.1", 6, 100_000}, {"5.0056", 6, 5_005_600}, {".5", 6, 500_000}, {"7.", 0, 7},
		{"0.0000005", 6, 1}, {"0.00000049", 6, 0}, {"1e-05", 6, 10}, {"1.5E+3", 0, 1500}, {"12345678901234.5", 0, 12345678901235},
		{"0.30000000000000004", 6, 300_000}, {"00012", 0, 12}, {"1e-40", 6, 0}, {"9223372036854775806", 0, 9223372036854775806},
	} {
		if got, err := decimal(row.text, row.scale); err != nil || got != row.want {
			t.Errorf("decimal(%q, %d) = %d, %v; want %d", row.text, row.scale, got, err, row.want)
		}
	}
	for _, text := range []string{"", "-1", "+", ".", "1e", "1e99", "1,000", "NaN", "Inf", "0x10", "1.2.3", "9223372036854775808", "1e30", strings.Repeat("9", 61)} {
		if got, err := decimal(text, 6); err == nil {
			t.Errorf("decimal(%q) = %d, want an error", text, got)
		}
	}
}

func TestTimesOfManyKindsAreInstantsOrOffsets(t *testing.T) {
	instant := time.Date(2026, 3, 1, 10, 0, 0, 500_000_000, time.UTC)
	for _, text := range []string{"2026-03-01T10:00:00.5Z", "2026-03-01T11:00:00.5+01:00", "2026-03-01 10:00:00.5000000", "1772359200.5", "1772359200500", "1772359200500000", "1772359200500000000"} {
		if got, err := when(text, false); err != nil || got.relative || !got.at.Equal(instant) {
			t.Errorf("when(%q) = %+v, %v", text, got, err)
		}
	}
	for _, row := range []struct {
		text string
		ms   bool
		want time.Duration
	}{{"0", false, 0}, {"1.5", false, 1500 * time.Millisecond}, {"1500", true, 1500 * time.Millisecond}, {"1209000", false, 14*24*time.Hour - 600*time.Second}} {
		if got, err := when(row.text, row.ms); err != nil || !got.relative || got.after != row.want {
			t.Errorf("when(%q, %v) = %+v, %v", row.text, row.ms, got, err)
		}
	}
	for _, text := range []string{"", "soon", "-5", "99999999999999999999", "0001-01-01", "2026-02-30"} {
		if got, err := when(text, false); err == nil {
			t.Errorf("when(%q) = %+v, want an error", text, got)
		}
	}
}

func TestEveryTenantHasANameOfItsOwn(t *testing.T) {
	seen := map[holdfast.TeamID]string{}
	for _, text := range []string{"web", "équipe", "équipé", "acme/site", "acme-site", "///", "日本", "中国", strings.Repeat("x", 80) + "a", strings.Repeat("x", 80) + "b", "a\x00b"} {
		name := teamOf(text)
		if !holdfast.ValidName(string(name)) {
			t.Errorf("teamOf(%q) = %q is not a name", text, name)
		}
		if other, taken := seen[name]; taken {
			t.Errorf("%q and %q are both %s", text, other, name)
		}
		seen[name] = text
	}
}
