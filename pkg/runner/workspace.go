package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
)

// workspace is where one attempt lives. It is made empty and removed after.
type workspace struct {
	root   string // everything below is in it
	home   string // the child's HOME, and its folder unless there is a tree: empty
	tree   string // the clone of the bot's repository; empty without one
	temp   string // its TMPDIR
	report string // its report file
}

func workspaceRoot(dir string, run holdfast.RunID, attempt int) string {
	return filepath.Join(dir, workFolder, attemptName(run, attempt))
}

// newWorkspace makes the folders of an attempt, one for a clone with them. A clone is
// never the HOME: files of a repository would be taken for a user's own settings. What a former process left under the
// same name is removed first.
func newWorkspace(dir string, run holdfast.RunID, attempt int, cloned bool) (workspace, error) {
	root := workspaceRoot(dir, run, attempt)
	w := workspace{
		root: root, home: filepath.Join(root, "workspace"), temp: filepath.Join(root, "tmp"),
		report: filepath.Join(root, reportFile),
	}
	if err := removeAll(root); err != nil {
		return workspace{}, fmt.Errorf("workspace: %w", err)
	}
	folders := []string{w.home, w.temp}
	if cloned {
		w.tree = filepath.Join(root, "repo")
		folders = append(folders, w.tree)
	}
	for _, folder := range folders {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return workspace{}, fmt.Errorf("workspace: %w", err)
		}
	}
	if err := os.WriteFile(w.report, nil, 0o600); err != nil {
		return workspace{}, fmt.Errorf("workspace: %w", err)
	}
	return w, nil
}

// dir is the folder that the child starts in.
func (w workspace) dir() string {
	if w.tree != "" {
		return w.tree
	}
	return w.home
}

// removeAll removes a tree, also one whose folders a child made read-only.
func removeAll(root string) error {
	if os.RemoveAll(root) == nil {
		return nil
	}
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, _ error) error {
		if entry != nil && entry.IsDir() {
			_ = os.Chmod(path, 0o700) //nolint:gosec // a folder; the removal below tells whether it helped
		}
		return nil
	})
	return os.RemoveAll(root)
}

// inherited are the variables that a child gets from the runner. Nothing else of the
// runner's environment reaches it: tokens and keys live there.
func inherited() []string { return []string{"PATH", "LANG", "TZ"} }

const (
	defaultPath    = "/usr/local/bin:/usr/bin:/bin"
	reservedPrefix = "HOLDFAST_"
)

// environ is a child's whole environment: what is allowed of the runner's, what the
// bot states, and what the run is. A bot cannot set HOLDFAST_ variables. own looks a
// variable of the runner up.
func (w workspace) environ(m queue.RunMessage, attempt int, budget holdfast.MicroUSD, own func(string) string) []string {
	env := map[string]string{"PATH": defaultPath}
	for _, name := range inherited() {
		if value := own(name); value != "" {
			env[name] = value
		}
	}
	env["HOME"], env["TMPDIR"] = w.home, w.temp
	for name, value := range m.Bot.Env {
		if !strings.HasPrefix(name, reservedPrefix) {
			env[name] = value
		}
	}
	for name := range m.Bot.Inputs {
		env[inputVariable(name)] = inputOf(m, name)
	}
	for name := range m.Inputs {
		env[inputVariable(name)] = inputOf(m, name)
	}
	env["HOLDFAST_RUN"], env["HOLDFAST_TEAM"], env["HOLDFAST_BOT"] = string(m.Run), string(m.Team), string(m.Bot.Name)
	env["HOLDFAST_ATTEMPT"] = fmt.Sprint(attempt)
	env["HOLDFAST_BUDGET_USD"] = budget.String()
	env[reportVariable] = w.report
	if m.Repo != "" {
		env["HOLDFAST_REPO"] = m.Repo
	}
	var list []string
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// inputVariable is the variable of an input: HOLDFAST_INPUT_PULL_REQUEST.
func inputVariable(name string) string {
	return "HOLDFAST_INPUT_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, name)
}

func inputOf(m queue.RunMessage, name string) string {
	if value, given := m.Inputs[name]; given {
		return value
	}
	return m.Bot.Inputs[name].Default
}

// selfCommand is the program name that stands for this binary itself in a bot's command.
const selfCommand = "holdfast"

var placeholder = regexp.MustCompile(`\{\{\s*([A-Za-z0-9][A-Za-z0-9_.-]*)\s*\}\}`)

// arguments is the bot's command with its inputs in place. An input becomes an
// argument or a part of one, whatever it holds: there is no shell, and a value that
// looks like a placeholder is not read again. A placeholder that names no input of
// the bot or of the launch stays as it is. The program itself never comes from an
// input.
func arguments(m queue.RunMessage, executable string) ([]string, error) {
	if len(m.Bot.Command) == 0 {
		return nil, errors.New("the bot has no command")
	}
	argv := []string{m.Bot.Command[0]}
	if argv[0] == selfCommand {
		argv[0] = executable
	}
	for _, argument := range m.Bot.Command[1:] {
		argv = append(argv, placeholder.ReplaceAllStringFunc(argument, func(match string) string {
			name := placeholder.FindStringSubmatch(match)[1]
			_, given := m.Inputs[name]
			_, declared := m.Bot.Inputs[name]
			if !given && !declared {
				return match
			}
			return inputOf(m, name)
		}))
	}
	return argv, nil
}
