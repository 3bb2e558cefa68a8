package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module writes a small module with one rule and one test for it.
func module(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module example.test/rule\n\ngo 1.26\n",
		"rule.go":      "package rule\n\nfunc Allowed(n int) bool { return n <= 3 }\n",
		"rule_test.go": "package rule\n\nimport \"testing\"\n\nfunc TestFourIsRefused(t *testing.T) {\n\tif Allowed(4) {\n\t\tt.Error(\"4 was allowed\")\n\t}\n\tt.Run(\"a row\", func(t *testing.T) {\n\t\tif Allowed(4) {\n\t\t\tt.Error(\"4 was allowed\")\n\t\t}\n\t})\n}\n\nfunc TestNothing(*testing.T) {}\n\nfunc TestNever(t *testing.T) { t.Skip() }\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// try looks at the mutation as run does, by itself.
func try(t *testing.T, root string, m mutation) error {
	t.Helper()
	before, err := unchanged(t.Context(), root, []mutation{m})
	if err != nil {
		t.Fatal(err)
	}
	return witness(t.Context(), root, m, before[m.Name])
}

func noticed() mutation {
	return mutation{Name: "drop the limit", Rule: "the limit", File: "rule.go", Old: "n <= 3", New: "n <= 30", Package: ".", Test: "TestFourIsRefused"}
}

func TestAMutationThatItsTestNoticesIsWitnessed(t *testing.T) {
	root := module(t)
	for _, name := range []string{"TestFourIsRefused", "TestFourIsRefused/a row"} {
		m := noticed()
		m.Test = name
		if err := try(t, root, m); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	source, err := os.ReadFile(filepath.Join(root, "rule.go"))
	if err != nil || !strings.Contains(string(source), "n <= 3 ") {
		t.Errorf("the work tree was touched: %q, %v", source, err)
	}
}

func TestAWitnessThatShowsNothingFails(t *testing.T) {
	root := module(t)
	for want, change := range map[string]func(*mutation){
		"passes with the mutation":          func(m *mutation) { m.Test = "TestNothing" },
		"does not run without the mutation": func(m *mutation) { m.Test = "TestFourIsRefusedAndMore" },
		"is skipped without the mutation":   func(m *mutation) { m.Test = "TestNever" },
		"does not build with the mutation":  func(m *mutation) { m.New = "n <= \"3\"" },
		"stands 0 times":                    func(m *mutation) { m.Old = "n <= 4" },
		"stands 2 times":                    func(m *mutation) { m.Old = "c" },
	} {
		m := noticed()
		change(&m)
		if err := try(t, root, m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

// The tests of one package run together, and each is told apart.
func TestUnchangedTestsRunInOneGo(t *testing.T) {
	var all []mutation
	want := map[string]verdict{"TestFourIsRefused": passed, "TestFourIsRefused/a row": passed, "TestNever": skipped, "TestSixIsAllowed": notRun}
	for name := range want {
		m := noticed()
		m.Name, m.Test = name, name
		all = append(all, m)
	}
	got, err := unchanged(t.Context(), module(t), all)
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("they came out as %v, %v; want %v", got, err, want)
	}
}

func TestTheListIsReadStrictly(t *testing.T) {
	for name, text := range map[string]string{
		"an unknown field": "- name: a\n  rule: b\n  file: c\n  old: d\n  package: e\n  test: f\n  tset: g\n",
		"a missing test":   "- name: a\n  rule: b\n  file: c\n  old: d\n  package: e\n",
		"a name twice":     strings.Repeat("- {name: a, rule: b, file: c, old: d, package: e, test: f}\n", 2),
	} {
		file := filepath.Join(t.TempDir(), "m.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := load(file); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestEveryListedMutationFitsTheSource(t *testing.T) {
	all, err := load("mutations.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if _, err := mutate("../..", t.TempDir(), m); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}
