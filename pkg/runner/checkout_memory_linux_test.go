package runner_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runner"
)

func TestAForgeThatSendsForEverFillsNoMemory(t *testing.T) {
	t.Parallel()
	const enough = 512 << 20 // bytes after which the forge gives up: git took them all
	sent := make(chan int, 8)
	forge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		refs := []byte("001e# service=git-upload-pack\n0000" + strings.Repeat("003f"+strings.Repeat("a", 40)+" refs/heads/branch\n", 2000))
		n := 0
		for n < enough {
			wrote, err := w.Write(refs)
			n += wrote
			if err != nil {
				break
			}
			refs = refs[strings.Index(string(refs), "003f"):]
		}
		sent <- n
	}))
	defer forge.Close()
	r := newRig(t, newFake(), runner.Options{Secrets: &source{}, CloneMemory: 64 << 20})
	m := agentRun()
	m.Bot.RepoURL, m.Bot.Command = forge.URL+"/tool.git", []string{"true"}
	if report := r.run(t, m); report.Ending != queue.EndStartFailed || !strings.Contains(report.Detail, "memory") {
		t.Errorf("ended as %+v\n%s", report, r.log(t, m))
	}
	if n := <-sent; n >= enough {
		t.Errorf("git took %d MiB", n>>20)
	}
}
