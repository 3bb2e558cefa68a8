package arch

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast"
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
