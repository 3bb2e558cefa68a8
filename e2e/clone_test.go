package e2e_test

import (
	"bytes"
	"io"
	"io/fs"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/pkg/api"
)

const forgeToken = "ghp_open-sesame-0123456789"

// forge serves one repository to those who know the token, and says where it is.
func forge(t *testing.T) (url string) {
	t.Helper()
	root := t.TempDir()
	run := func(words ...string) string {
		command := exec.Command("git", words...)
		command.Dir = root
		command.Env = append(os.Environ(), "HOME="+root, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
		text, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", words, err, text)
		}
		return strings.TrimSpace(string(text))
	}
	run("init", "--quiet", "work")
	if err := os.WriteFile(filepath.Join(root, "work", "README"), []byte("what the agent shall see\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run("-C", "work", "add", ".")
	run("-C", "work", "commit", "--quiet", "-m", "first")
	run("clone", "--quiet", "--bare", "work", "tool.git")
	backend := &cgi.Handler{Path: filepath.Join(run("--exec-path"), "git-http-backend"), Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"}, Stderr: io.Discard}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != forgeToken {
			w.Header().Set("WWW-Authenticate", `Basic realm="forge"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/tool.git"
}

// ended waits until a run is over.
func (d *dev) ended(t *testing.T, id string) (run api.Run) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for time.Now().Before(deadline) {
		var err error
		if run, err = d.Run(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if run.Status != "queued" && run.Status != "running" {
			return run
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("run %s is still %s\n%s", id, run.Status, d.output)
	return run
}

func TestARunClonesAPrivateRepositoryAndTheTokenIsInNoFileOfTheServer(t *testing.T) {
	t.Parallel()
	url := forge(t)
	d := start(t, t.TempDir(), short...)
	ctx := t.Context()
	if _, err := d.CreateTeam(ctx, api.TeamCreate{ID: "web"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.PutBot(ctx, "", "reader", api.BotBody{Lane: "command", Command: []string{"cat", "README"}, RepoURL: url}); err != nil {
		t.Fatal(err)
	}
	launch := func() api.Run {
		t.Helper()
		run, err := d.Launch(ctx, api.LaunchRequest{Team: "web", Bot: "reader"}, "")
		if err != nil {
			t.Fatal(err)
		}
		return d.ended(t, run.ID)
	}
	if run := launch(); run.Status != "failed" || run.StatusReason != "start_failed" || !strings.Contains(run.Detail, "could not read Username") {
		t.Errorf("without the token the run ended as %s (%s): %s", run.Status, run.StatusReason, run.Detail)
	}
	if _, created, err := d.PutSecret(ctx, "web", "forge-token", forgeToken); err != nil || !created {
		t.Fatalf("the secret was not kept: %v", err)
	}
	run := launch()
	if run.Status != "finished" {
		t.Fatalf("the run ended as %s (%s): %s\n%s", run.Status, run.StatusReason, run.Detail, d.output)
	}
	log, err := d.Logs(ctx, run.ID, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(log)
	log.Close()
	if err != nil || !strings.Contains(string(text), "what the agent shall see") {
		t.Errorf("the run printed %q, %v", text, err)
	}
	files := 0
	err = filepath.WalkDir(d.data, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		files++
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(forgeToken)) {
			t.Errorf("%s has the token", path)
		}
		return err
	})
	if err != nil || files < 5 {
		t.Fatalf("%d files were looked at: %v", files, err)
	}
	if strings.Contains(d.output.String(), forgeToken) {
		t.Error("the log has the token")
	}
	if about, err := os.Stat(filepath.Join(d.data, "secrets.key")); err != nil || about.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", about, err)
	}
}
