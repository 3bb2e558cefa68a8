package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var (
	fenced      = regexp.MustCompile("(?s)```.*?```")
	span        = regexp.MustCompile("`[^`\n]+`")
	commandLine = regexp.MustCompile(`(?m)(?:^|[\s` + "`" + `|/])holdfast ([a-z][^\n` + "`" + `#|]*)`)
	flagName    = regexp.MustCompile(`(?:^|\s)--([a-z][a-z-]*)`)
)

// TestEveryCommandThatTheDocumentsNameExists holds the command lines of the documents,
// in code, against the tree of commands and their flags.
func TestEveryCommandThatTheDocumentsNameExists(t *testing.T) {
	files := []string{"../../README.md", "../../CONTRIBUTING.md", "../../examples/README.md"}
	for _, pattern := range []string{"../../docs/*.md", "../../docs/*/*.md"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	seen := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code := strings.Join(fenced.FindAllString(string(text), -1), "\n")
		code += strings.Join(span.FindAllString(fenced.ReplaceAllString(string(text), ""), -1), "\n")
		for _, match := range commandLine.FindAllStringSubmatch(code, -1) {
			seen++
			if problem := unknownIn(match[1]); problem != "" {
				t.Errorf("%s: holdfast %s: %s", file, strings.TrimSpace(match[1]), problem)
			}
		}
	}
	if seen < 12 {
		t.Errorf("only %d command lines were found", seen)
	}
}

// TestTheReadmeShowsWhatTheExampleSimulates: the replay is deterministic, so its lines
// stand in the README as they are printed.
func TestTheReadmeShowsWhatTheExampleSimulates(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	gained, lost, err := twoSides(t.Context(), &out)
	if err != nil {
		t.Fatal(err)
	}
	lines := append(strings.Split(strings.TrimSpace(out.String()), "\n"), fmt.Sprintf("the holder gained %d runs, the others lost %d", gained, lost))
	for _, line := range lines {
		if !strings.Contains(string(readme), strings.TrimSpace(line)) {
			t.Errorf("README.md does not have %q", line)
		}
	}
}

func TestTheReadmeStaysShort(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(readme), "\n"); lines > 120 {
		t.Errorf("README.md has %d lines; 120 is what a newcomer reads", lines)
	}
}

func TestACommandLineThatDoesNotExistIsFound(t *testing.T) {
	for line, want := range map[string]string{
		"teams resume web":                     "resume",
		"lanch review-pr":                      "lanch",
		"launch review-pr --tem web":           "--tem",
		"launch review-pr --team web":          "",
		"teams":                                "",
		"exec --team w --bot b -- x --unknown": "",
	} {
		if got := unknownIn(line); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// unknownIn says which word of a command line is no command and no flag of it.
func unknownIn(line string) string {
	line, _, _ = strings.Cut(line, " -- ")
	cmd := newRoot(&cli{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard})
	words := strings.Fields(line)
	for len(words) > 0 && cmd.HasAvailableSubCommands() && !strings.HasPrefix(words[0], "-") {
		next := subcommand(cmd, words[0])
		switch {
		case next != nil:
			cmd, words = next, words[1:]
			continue
		case cmd.HasParent() && !strings.HasPrefix(cmd.Use, cmd.Name()+" ["): // it takes no argument of its own
			return words[0] + " is no command of " + cmd.CommandPath()
		case !cmd.HasParent():
			return words[0] + " is no command"
		}
		break
	}
	for _, match := range flagName.FindAllStringSubmatch(line, -1) {
		if cmd.Flag(match[1]) == nil && match[1] != "help" && match[1] != "version" {
			return "--" + match[1] + " is no flag of " + cmd.CommandPath()
		}
	}
	return ""
}

func subcommand(cmd *cobra.Command, name string) *cobra.Command {
	for _, sub := range cmd.Commands() {
		if sub.Name() == name {
			return sub
		}
	}
	return nil
}
