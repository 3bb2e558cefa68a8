package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhoHasNoTranscriptsIsShownTheExamplesDay(t *testing.T) {
	home := t.TempDir()
	c := &cli{environ: []string{"HOME=" + home}}
	project := filepath.Join(home, ".claude", "projects", "mine")
	if err := os.MkdirAll(project, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := c.traceLines("bin/holdfast"); !strings.HasPrefix(got, "  bin/holdfast simulate examples/trace.csv ") || !strings.Contains(got, "~/.claude/projects") {
		t.Errorf("without a transcript it is %q", got)
	}
	if err := os.WriteFile(filepath.Join(project, "a.jsonl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := c.traceLines("bin/holdfast"); !strings.HasPrefix(got, "  bin/holdfast simulate ~/.claude/projects ") || strings.Contains(got, "trace.csv") {
		t.Errorf("with one it is %q", got)
	}
}
