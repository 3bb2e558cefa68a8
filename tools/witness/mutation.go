package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// mutation takes one rule out of one file and names the test that must notice.
type mutation struct {
	Name    string   `yaml:"name"`
	Checks  []int    `yaml:"checks"` // of the decision record's checklist, where it names this mutation
	Rule    string   `yaml:"rule"`   // what is taken out, in words
	File    string   `yaml:"file"`
	Old     string   `yaml:"old"` // stands in the file exactly once
	New     string   `yaml:"new"`
	Package string   `yaml:"package"` // of the test
	Test    string   `yaml:"test"`    // TestName or TestName/row
	Args    []string `yaml:"args"`    // further arguments of go test
	// Needs is NAME=value of the environment without which the test cannot run, because
	// it needs an engine: `make test-mongo` sets it. Such an entry is left out elsewhere,
	// and said.
	Needs string `yaml:"needs"`
}

func load(file string) ([]mutation, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []mutation
	if err := yaml.UnmarshalWithOptions(text, &all, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	seen := map[string]bool{}
	for _, m := range all {
		if m.Name == "" || m.Rule == "" || m.File == "" || m.Old == "" || m.Package == "" || m.Test == "" {
			return nil, fmt.Errorf("%s: %q lacks a name, rule, file, old, package or test", file, m.Name)
		}
		if seen[m.Name] {
			return nil, fmt.Errorf("%s: %q stands twice", file, m.Name)
		}
		seen[m.Name] = true
	}
	return all, nil
}

// unchanged runs the named tests as the source stands, those of a package in one go,
// and says how each came out. A witness is worth something only beside that.
func unchanged(ctx context.Context, root string, all []mutation) (map[string]verdict, error) {
	groups := map[string][]mutation{}
	for _, m := range all {
		key := m.Package + " " + strings.Join(m.Args, " ")
		groups[key] = append(groups[key], m)
	}
	came := map[string]verdict{}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		group := groups[key]
		patterns := map[string]bool{}
		for _, m := range group {
			patterns[pattern(m.Test)] = true
		}
		out, err := test(ctx, root, group[0], strings.Join(slices.Sorted(maps.Keys(patterns)), "|"))
		if err != nil {
			return nil, err
		}
		for _, m := range group {
			came[m.Name] = read(out, m.Test)
		}
	}
	return came, nil
}

// witness says nil when the named test passed as the source stands, which is what
// before says, and fails with the mutation in it.
func witness(ctx context.Context, root string, m mutation, before verdict) error {
	if before != passed {
		return fmt.Errorf("%s %s without the mutation", m.Test, before)
	}
	scratch, err := os.MkdirTemp("", "witness")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	overlay, err := mutate(root, scratch, m)
	if err != nil {
		return err
	}
	out, err := test(ctx, root, m, pattern(m.Test), "-overlay", overlay)
	if err != nil {
		return err
	}
	if after := read(out, m.Test); after != failed {
		return fmt.Errorf("%s %s with the mutation in it", m.Test, after)
	}
	return nil
}

// mutate writes the changed file and the overlay that puts it in place.
func mutate(root, scratch string, m mutation) (string, error) {
	path, err := filepath.Abs(filepath.Join(root, m.File))
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	old := strings.TrimRight(m.Old, "\n")
	if n := strings.Count(string(source), old); n != 1 {
		return "", fmt.Errorf("the text to replace stands %d times in %s, not once", n, m.File)
	}
	mutant := filepath.Join(scratch, filepath.Base(path))
	changed := strings.Replace(string(source), old, strings.TrimRight(m.New, "\n"), 1)
	if err := os.WriteFile(mutant, []byte(changed), 0o600); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutant}})
	if err != nil {
		return "", err
	}
	file := filepath.Join(scratch, "overlay.json")
	return file, os.WriteFile(file, overlay, 0o600)
}

// verdict is how the named test came out.
type verdict string

const (
	passed   verdict = "passes"
	failed   verdict = "fails"
	skipped  verdict = "is skipped"
	notRun   verdict = "does not run"
	notBuilt verdict = "does not build"
)

// test runs the tests of the mutation's package that the pattern names, and answers
// go test's events, because an exit code alone cannot tell a failed test from one that
// was not built or not found.
func test(ctx context.Context, root string, m mutation, pattern string, more ...string) ([]byte, error) {
	args := append([]string{"test", "-json", "-vet=off", "-timeout=5m", "-run", pattern}, more...)
	args = append(args, m.Args...)
	cmd := exec.CommandContext(ctx, "go", append(args, m.Package)...)
	cmd.Dir = root
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	return out, ctx.Err()
}

// pattern matches the test and its row exactly.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(strings.ReplaceAll(part, " ", "_")) + "$"
	}
	return strings.Join(parts, "/")
}

// read finds the named test's ending among go test's events.
func read(events []byte, name string) verdict {
	name = strings.ReplaceAll(name, " ", "_")
	came, built := notRun, true
	lines := bufio.NewScanner(bytes.NewReader(events))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e struct{ Action, Test, FailedBuild string }
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		if e.Action == "build-fail" || e.FailedBuild != "" {
			built = false
		}
		if e.Test != name {
			continue
		}
		switch e.Action {
		case "pass":
			came = passed
		case "fail":
			came = failed
		case "skip":
			came = skipped
		case "run":
			// A run without an ending is a crash of the test binary: the test did run
			// and did not pass.
			came = failed
		}
	}
	if !built {
		return notBuilt
	}
	return came
}
