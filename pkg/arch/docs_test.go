package arch

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/launch"
	"github.com/holdfast-io/holdfast/pkg/metrics"
)

// quoted finds the reasons that the documentation names, in its order.
var quoted = regexp.MustCompile("`([a-z]+(?:_[a-z]+)+|maintenance)`")

func TestTheDocumentedReasonsAreTheReasonsInTheGatesOrder(t *testing.T) {
	text, err := os.ReadFile("../../docs/quotas-and-limits.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []holdfast.DenyReason
	for _, match := range quoted.FindAllStringSubmatch(string(text), -1) {
		reason := holdfast.DenyReason(match[1])
		if slices.Contains(holdfast.DenyReasons(), reason) && !slices.Contains(documented, reason) {
			documented = append(documented, reason)
		}
	}
	if !slices.Equal(documented, holdfast.DenyReasons()) {
		t.Errorf("docs/quotas-and-limits.md names the reasons as\n%v\nthe code has them as\n%v", documented, holdfast.DenyReasons())
	}
}

// step finds the first column of the table of checks.
var step = regexp.MustCompile(`(?m)^\| \*?([a-z-]+(?: walk)?)\*? \| .*\| [0-9]{3}`)

// The page lists the gate's steps in the gate's own order, and behind them the walk.
func TestTheDocumentedStepsAreTheGatesInItsOrder(t *testing.T) {
	text, err := os.ReadFile("../../docs/quotas-and-limits.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, match := range step.FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, match[1])
	}
	if want := append(new(launch.Service).Order(), "credential walk"); !slices.Equal(documented, want) {
		t.Errorf("docs/quotas-and-limits.md names the steps as\n%v\nthe gate has them as\n%v", documented, want)
	}
}

// A refusal is counted under a word that the page has: every label is a reason of the
// page, or the cause that stands in for one.
func TestEveryLabelOfARefusalIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/quotas-and-limits.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, label := range metrics.ReasonLabels() {
		if !strings.Contains(string(text), label) {
			t.Errorf("docs/quotas-and-limits.md does not name %s", label)
		}
	}
}
