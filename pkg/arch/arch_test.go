package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

type goPackage struct {
	ImportPath     string
	Dir            string
	Doc            string
	GoFiles        []string
	IgnoredGoFiles []string
	TestGoFiles    []string
	XTestGoFiles   []string
	Imports        []string
	Module         *struct{ Dir string }
}

func (p goPackage) name() string {
	if p.ImportPath == Module {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, Module+"/")
}

func load(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,Doc,GoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles,Imports,Module", Module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []goPackage
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func layerOf(name string) int {
	for i, layer := range Layers {
		if slices.Contains(layer, name) {
			return i
		}
	}
	return -1
}

// local is the import's name in the table, when it is one of ours.
func local(path string) (string, bool) {
	if path == Module {
		return ".", true
	}
	return strings.CutPrefix(path, Module+"/")
}

func TestEveryPackageImportsStrictlyLowerLayersOnly(t *testing.T) {
	for _, p := range load(t) {
		name := p.name()
		if slices.Contains(TestSupport, name) {
			continue
		}
		layer := layerOf(name)
		if layer < 0 {
			t.Errorf("%s is in no layer: add it to pkg/arch/layers.go", name)
			continue
		}
		for _, path := range p.Imports {
			imported, ours := local(path)
			switch {
			case !ours:
			case slices.Contains(TestSupport, imported):
				t.Errorf("%s imports the test support package %s", name, imported)
			case layerOf(imported) >= layer:
				t.Errorf("%s (layer %d) imports %s (layer %d): imports point strictly down", name, layer, imported, layerOf(imported))
			}
		}
	}
}

func TestEveryListedPackageExists(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range load(t) {
		seen[p.name()] = true
	}
	for _, name := range slices.Concat(append(slices.Clone(Layers), TestSupport)...) {
		if !seen[name] {
			t.Errorf("layers.go lists %s, which does not exist", name)
		}
	}
}

func TestPurePackagesImportTheStandardLibraryOnly(t *testing.T) {
	for _, p := range load(t) {
		allowed, pure := Pure[p.name()]
		if !pure {
			continue
		}
		for _, path := range p.Imports {
			if imported, ours := local(path); ours && slices.Contains(allowed, imported) {
				continue
			}
			if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") {
				t.Errorf("%s imports %s; it may import the standard library and %v", p.name(), path, allowed)
			}
		}
	}
}

func TestThirdPartyModulesStayWhereTheyBelong(t *testing.T) {
	for _, p := range load(t) {
		for _, path := range p.Imports {
			for module, homes := range Outside {
				if (path == module || strings.HasPrefix(path, module+"/")) && !slices.Contains(homes, p.name()) {
					t.Errorf("%s imports %s, which only %v may", p.name(), path, homes)
				}
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range load(t) {
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package comment", p.name())
		}
	}
}

func TestNoFileGrowsBeyondReading(t *testing.T) {
	for _, p := range load(t) {
		for _, file := range slices.Concat(p.GoFiles, p.IgnoredGoFiles, p.TestGoFiles, p.XTestGoFiles) {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			if lines := bytes.Count(text, []byte("\n")); lines > MaxFileLines {
				t.Errorf("%s/%s has %d lines, more than %d: split it", p.name(), file, lines, MaxFileLines)
			}
		}
	}
}

// clockHomes may read the machine's clock; everybody else is given a clock or an
// instant.
var clockHomes = []string{"pkg/clock", "cmd/", "tools/", "e2e", "pkg/arch"}

func TestOnlyTheClockReadsTheTime(t *testing.T) {
	for _, p := range load(t) {
		if slices.ContainsFunc(clockHomes, func(home string) bool { return strings.HasPrefix(p.name(), home) }) || slices.Contains(TestSupport, p.name()) {
			continue
		}
		for _, file := range slices.Concat(p.GoFiles, p.IgnoredGoFiles) {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			for number, line := range strings.Split(string(text), "\n") {
				code, _, _ := strings.Cut(line, "//")
				for _, call := range []string{"time.Now(", "time.Since(", "time.Until("} {
					if strings.Contains(code, call) {
						t.Errorf("%s/%s:%d calls %s…): take a clock.Clock or the instant as an argument", p.name(), file, number+1, call)
					}
				}
			}
		}
	}
}
