package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/cmd/internal/apply"
	"github.com/holdfast-io/holdfast/examples"
)

const exampleDir = "../../examples/"

// simulated runs "holdfast simulate" in this process.
func simulated(args ...string) (code int, stdout, stderr string) {
	var out, err strings.Builder
	c := &cli{stdin: strings.NewReader(""), stdout: &out, stderr: &err}
	code = c.run(append([]string{"simulate"}, args...))
	return code, out.String(), err.String()
}

// example runs it on the example, with more arguments.
func example(more ...string) (code int, stdout, stderr string) {
	return simulated(append([]string{exampleDir + "trace.csv", "--policy", exampleDir + "policy.yaml", "--caps", exampleDir + "caps.yaml"}, more...)...)
}

func TestSimulatingTheExampleShowsBothSides(t *testing.T) {
	code, out, stderr := example("-o", "json")
	if code != exitDone {
		t.Fatal(code, stderr)
	}
	var answer struct {
		Scenarios []struct {
			Name   string `json:"name"`
			Totals struct {
				Asked    int            `json:"asked"`
				Admitted int            `json:"admitted"`
				Refused  map[string]int `json:"refused"`
				HeldOut  int            `json:"held_out"`
				Waiting  int            `json:"waiting"`
			} `json:"totals"`
			Reserves []struct {
				Subjects    int `json:"subjects"`
				IdlePercent int `json:"idle_percent"`
			} `json:"reserves"`
		} `json:"scenarios"`
		Difference []struct {
			Identity     string
			Gained, Lost int
		} `json:"difference"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatal(err)
	}
	gained, lost := 0, 0
	for _, d := range answer.Difference {
		if d.Identity == "platform/review-pr" {
			gained = d.Gained - d.Lost
		} else {
			lost += d.Lost - d.Gained
		}
	}
	if gained <= 0 || lost <= 0 {
		t.Errorf("the holder gains %d and the others lose %d; both must be there to be seen", gained, lost)
	}
	for _, s := range answer.Scenarios {
		refused := 0
		for _, n := range s.Totals.Refused {
			refused += n
		}
		if s.Totals.Asked != 300 || s.Totals.Admitted+refused+s.Totals.Waiting != s.Totals.Asked {
			t.Errorf("%s does not add up: %+v", s.Name, s.Totals)
		}
		if (s.Totals.HeldOut > 0) != (s.Name == "with") {
			t.Errorf("%s has %d launches held out", s.Name, s.Totals.HeldOut)
		}
	}
	for _, r := range answer.Scenarios[1].Reserves {
		if r.Subjects == 0 || r.IdlePercent <= 0 || r.IdlePercent >= 100 {
			t.Errorf("a reserve of the example is all used, all idle, or holds nothing: %+v", r)
		}
	}
}

func TestTheExamplesReadmeShowsWhatIsPrinted(t *testing.T) {
	t.Chdir("../..")
	code, out, stderr := simulated("examples/trace.csv", "--policy", "examples/policy.yaml", "--caps", "examples/caps.yaml")
	if code != exitDone {
		t.Fatal(code, stderr)
	}
	readme, err := os.ReadFile("examples/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(readme), "```text\n")
	shown, _, _ = strings.Cut(shown, "```")
	if diff := cmp.Diff(out, shown); diff != "" {
		t.Errorf("examples/README.md shows another output than simulate prints (-printed +shown):\n%s", diff)
	}
}

func TestTheExamplesFleetCanBeApplied(t *testing.T) {
	text, err := examples.Files.ReadFile("fleet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := apply.Read([]apply.File{{Name: "fleet.yaml", Text: text}})
	if err != nil {
		t.Fatal(err)
	}
	if len(fleet.Teams) != 3 || len(fleet.Bots) != 1 || fleet.Policy == nil || fleet.Limits == nil {
		t.Errorf("the fleet is %+v", fleet)
	}
}

func TestSimulateComparesTwoPoliciesAndPrintsYAML(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.yaml")
	if err := os.WriteFile(none, []byte("reservations: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, stderr := example("--against", none, "-o", "yaml")
	if code != exitDone || !strings.Contains(out, "against_difference:") || !strings.Contains(out, "name: against") {
		t.Errorf("code %d, %s%s", code, stderr, holdfast.Clip(out, 400))
	}
}

func TestSimulateTakesTheFlagsThatSayHowToRead(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "c91.csv")
	if err := os.WriteFile(trace, []byte("kind,output_tokens\nnight watch,500\n,1000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, stderr := simulated(trace, "--policy", exampleDir+"policy.yaml", "--map", "bot=kind", "--span", "2h", "--model", "gpt-4.1", "--assign", "tenant=nobody,bot=x", "--patience", "1m")
	if code != exitDone {
		t.Fatal(code, stderr)
	}
	for _, words := range []string{"platform/night-watch", "team:c91/default", "evenly over 2h0m0s", "priced as gpt-4.1", "for 1m0s at most", "none given: made of the trace's own peaks", "no row of the trace is platform/review-pr"} {
		if !strings.Contains(out, words) {
			t.Errorf("%q is missing in:\n%s", words, out)
		}
	}
}

func TestSimulateRefusesBadInputWithExitCode2AndSaysWhere(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	trace, policy := exampleDir+"trace.csv", exampleDir+"policy.yaml"
	for _, row := range []struct {
		name string
		args []string
		want string
	}{
		{"no trace", []string{"--policy", policy}, "TRACE is missing"},
		{"no policy", []string{trace}, "--policy is missing"},
		{"a policy that is not there", []string{trace, "--policy", dir + "/none.yaml"}, "none.yaml"},
		{"a broken policy", []string{trace, "--policy", write("p1.yaml", "reservations: [\n")}, "p1.yaml"},
		{"an unknown field of the policy", []string{trace, "--policy", write("p2.yaml", "reservations:\n  - bot: a\n    slots: 2\n")}, "p2.yaml line 3: reservations[0].slots"},
		{"an unknown field of the caps", []string{trace, "--policy", policy, "--caps", write("c1.yaml", "windows:\n  day: {usd: 3}\n")}, "c1.yaml line 2: windows.day"},
		{"caps that cannot be meant", []string{trace, "--policy", policy, "--caps", write("c2.yaml", "windows:\n  week: {usd: 0}\n")}, "c2.yaml: windows.week.usd"},
		{"a negative cap", []string{trace, "--policy", policy, "--caps", write("c3.yaml", "teams:\n  web: {max_concurrent_runs: -1}\n")}, "c3.yaml line 2: teams.web.max_concurrent_runs"},
		{"a broken trace", []string{write("t1.csv", "team,cost\na,\"1\n"), "--policy", policy}, "t1.csv line 2"},
		{"a trace of other columns", []string{write("t2.csv", "x,y\n1,2\n"), "--policy", policy}, "submitted_at"},
		{"a trace that is not there", []string{dir + "/none.csv", "--policy", policy}, "none.csv"},
		{"a map to a column that is not there", []string{trace, "--policy", policy, "--map", "bot=workload"}, `"workload"`},
		{"an assignment without a bot", []string{trace, "--policy", policy, "--assign", "tenant=web"}, "names no bot"},
		{"no span", []string{trace, "--policy", policy, "--span", "0s"}, "span"},
		{"negative patience", []string{trace, "--policy", policy, "--patience", "-1s"}, "patience"},
		{"a duration that is none", []string{trace, "--policy", policy, "--span", "long"}, "span"},
	} {
		t.Run(row.name, func(t *testing.T) {
			code, out, stderr := simulated(row.args...)
			if code != exitUsage || out != "" || !strings.Contains(stderr, row.want) {
				t.Errorf("code %d, stdout %q, stderr %q; want exit code 2 and %q", code, out, stderr, row.want)
			}
		})
	}
}

func TestTheHelpOfSimulateListsEveryColumn(t *testing.T) {
	code, out, _ := simulated("--help")
	if code != exitDone || !strings.Contains(out, "cached_input_tokens") || !strings.Contains(out, "also: timestamp, time") {
		t.Errorf("code %d:\n%s", code, out)
	}
}
