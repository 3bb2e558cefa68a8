package sampleagent

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast"
)

func run(t *testing.T, report string, args ...string) (int, string) {
	t.Helper()
	var out bytes.Buffer
	code := Main(args, &out, func(name string) string {
		if name == "HOLDFAST_REPORT" {
			return report
		}
		return ""
	})
	return code, out.String()
}

func TestTheReportedStepsAddUpToTheSpendExactly(t *testing.T) {
	for _, spend := range []string{"0.000001", "0.10", "1", "2.000003", "999999999.999999"} {
		report := filepath.Join(t.TempDir(), "report")
		code, out := run(t, report, "--name", "n", "--seconds", "0.01", "--spend", spend)
		if code != 0 || !strings.Contains(out, "n: done") {
			t.Fatalf("--spend %s: exit code %d, output:\n%s", spend, code, out)
		}
		want, err := holdfast.ParseUSD(spend)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(report)
		if err != nil {
			t.Fatal(err)
		}
		var sum holdfast.MicroUSD
		for line := range strings.Lines(string(text)) {
			part, err := holdfast.ParseUSD(strings.TrimSuffix(strings.TrimPrefix(line, `{"cost_usd": `), "}\n"))
			if err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			sum += part
		}
		if sum != want {
			t.Errorf("--spend %s: the report adds up to %s", spend, sum)
		}
	}
}

func TestItFailsWithTheCodeThatWasAskedFor(t *testing.T) {
	if code, _ := run(t, "", "--seconds", "0", "--fail", "7"); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
}

func TestBadArgumentsAreNamedAndEndWithTwo(t *testing.T) {
	for _, args := range [][]string{
		{"--seconds", "-1"}, {"--seconds", "soon"}, {"--seconds", "1e9"}, {"--spend", "-0.1"}, {"--spend", "1e3"},
		{"--fail", "300"}, {"--colour", "red"}, {"extra"},
	} {
		code, out := run(t, "", args...)
		if code != 2 || !strings.Contains(out, strings.TrimPrefix(args[0], "--")) {
			t.Errorf("%v: exit code %d, output %q", args, code, out)
		}
	}
}

func TestASpendThatCannotBeReportedIsAFailure(t *testing.T) {
	if code, out := run(t, t.TempDir(), "--seconds", "0", "--spend", "1"); code != 1 || !strings.Contains(out, "cannot report spend") {
		t.Errorf("exit code %d, output %q", code, out)
	}
}

func TestASignalEndsItAtOnceWithALine(t *testing.T) {
	stop := make(chan os.Signal, 1)
	stop <- syscall.SIGTERM
	var out bytes.Buffer
	code := settings{name: "n", lasts: most, spend: holdfast.OneUSD}.work(&out, "", stop)
	if code != 143 || !strings.Contains(out.String(), "told to stop after step 0") {
		t.Errorf("exit code %d, output %q", code, out.String())
	}
}
