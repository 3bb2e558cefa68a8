package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/capacityledger/ledgertest"
)

// correctness is the page that says which test shows what.
const correctness = "../../docs/correctness.md"

var (
	namedTest = regexp.MustCompile("`([a-z0-9./]+)\\s+(Test[A-Za-z0-9]+)`")
	namedRow  = regexp.MustCompile(`row\s+"([^"]+)"`)
	numbered  = regexp.MustCompile(`(?m)^\| (\d+) \| [^|]+ \| (.+) \|$`)
)

// tests are the test functions of a package's folder.
func tests(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range declared.FindAllSubmatch(text, -1) {
			found[string(match[1])] = true
		}
	}
	return found
}

func TestEveryTestThatTheDocumentsNameExists(t *testing.T) {
	text, err := os.ReadFile(correctness)
	if err != nil {
		t.Fatal(err)
	}
	named := namedTest.FindAllSubmatch(text, -1)
	for _, match := range named {
		if folder, name := string(match[1]), string(match[2]); !tests(t, folder)[name] {
			t.Errorf("%s has no %s", folder, name)
		}
	}
	rows := namedRow.FindAllSubmatch(text, -1)
	for _, match := range rows {
		name := strings.Join(strings.Fields(string(match[1])), " ")
		if !slices.ContainsFunc(ledgertest.Rows(), func(r ledgertest.Row) bool { return r.Name == name }) {
			t.Errorf("there is no row %q", name)
		}
	}
	if len(named) < 50 || len(rows) < 20 {
		t.Errorf("only %d tests and %d rows were found: the page is not read as it is written", len(named), len(rows))
	}
}

// The parts of the checklist that are about the ledger and the launch.
var checklist = [][2]int{{36, 72}, {183, 191}, {193, 199}, {207, 211}, {307, 309}}

func TestEveryItemOfTheChecklistIsShownByATest(t *testing.T) {
	text, err := os.ReadFile(correctness)
	if err != nil {
		t.Fatal(err)
	}
	shown := map[int]string{}
	for _, match := range numbered.FindAllStringSubmatch(string(text), -1) {
		number, err := strconv.Atoi(match[1])
		if err != nil {
			t.Fatal(err)
		}
		if shown[number] != "" {
			t.Errorf("item %d stands twice", number)
		}
		shown[number] = match[2]
	}
	for _, part := range checklist {
		for number := part[0]; number <= part[1]; number++ {
			by := shown[number]
			if !namedTest.MatchString(by) && !namedRow.MatchString(by) && !strings.HasPrefix(by, "not part of this build: ") {
				t.Errorf("item %d is shown by %q, which is no test", number, by)
			}
		}
	}
}
