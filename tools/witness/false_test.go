package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A deliberately false assertion must be seen to fail: a harness that calls it passed,
// skipped or not run would call every test of this repository right.
func TestADeliberatelyFalseAssertionFails(t *testing.T) {
	root := module(t)
	text := "package rule\n\nimport \"testing\"\n\nfunc TestFiveIsAllowed(t *testing.T) {\n\tif !Allowed(5) {\n\t\tt.Error(\"5 was refused\")\n\t}\n}\n"
	if err := os.WriteFile(filepath.Join(root, "false_test.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m := noticed()
	for name, want := range map[string]verdict{"TestFiveIsAllowed": failed, "TestFourIsRefused": passed, "TestNever": skipped, "TestSixIsAllowed": notRun} {
		m.Test = name
		out, err := test(t.Context(), root, m, pattern(name))
		if got := read(out, name); err != nil || got != want {
			t.Errorf("%s: it %s, %v; want that it %s", name, got, err, want)
		}
	}
}
