package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runner"
	"github.com/holdfast-io/holdfast/pkg/secrets"
)

const forgeToken = "ghp_open-sesame-0123456789"

// git runs git in a folder and returns what it printed.
func git(t *testing.T, dir string, words ...string) string {
	t.Helper()
	command := exec.Command("git", words...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "HOME="+dir,
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	text, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", words, err, text)
	}
	return strings.TrimSpace(string(text))
}

// forge serves repositories over HTTP with git's own program, to those who know the
// token.
type forge struct {
	root, url string

	mu    sync.Mutex
	asked []string // method, path and user of each request
	hold  chan struct{}
}

// newForge has the repository "tool" with two commits on main and a branch "feature".
func newForge(t *testing.T) *forge {
	t.Helper()
	f := &forge{root: t.TempDir()}
	bare := filepath.Join(f.root, "tool.git")
	git(t, f.root, "init", "--quiet", "--bare", "--initial-branch=main", bare)
	git(t, bare, "config", "uploadpack.allowReachableSHA1InWant", "true")
	work := t.TempDir()
	git(t, work, "init", "--quiet", "--initial-branch=main")
	for _, text := range []string{"first", "second"} {
		f.commit(t, work, "README", text)
	}
	git(t, work, "push", "--quiet", bare, "main")
	git(t, work, "checkout", "--quiet", "-b", "feature")
	f.commit(t, work, "README", "feature")
	git(t, work, "push", "--quiet", bare, "feature")
	backend := &cgi.Handler{Path: filepath.Join(git(t, work, "--exec-path"), "git-http-backend"), Env: []string{"GIT_PROJECT_ROOT=" + f.root, "GIT_HTTP_EXPORT_ALL=1"}, Stderr: io.Discard}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		f.mu.Lock()
		f.asked = append(f.asked, r.Method+" "+r.URL.Path+" "+user)
		hold := f.hold
		f.mu.Unlock()
		if password != forgeToken {
			w.Header().Set("WWW-Authenticate", `Basic realm="forge"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		if hold != nil {
			select {
			case <-hold:
			case <-r.Context().Done():
				return
			}
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	f.url = server.URL + "/tool.git"
	return f
}

func (f *forge) commit(t *testing.T, work, name, text string) string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(work, name), []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	git(t, work, "add", name)
	git(t, work, "commit", "--quiet", "-m", text)
	return git(t, work, "rev-parse", "HEAD")
}

// source answers askings for secrets with the forge's token.
type source struct {
	mu     sync.Mutex
	asked  []queue.SecretsAsk
	answer func(queue.SecretsAsk) (queue.SecretsAnswer, error)
}

func (s *source) RequestSecrets(_ context.Context, ask queue.SecretsAsk) (queue.SecretsAnswer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, ask)
	if s.answer != nil {
		return s.answer(ask)
	}
	return sealed(ask, queue.SecretValues{secrets.ForgeToken: []byte(forgeToken + "\n")})
}

func sealed(ask queue.SecretsAsk, values queue.SecretValues) (queue.SecretsAnswer, error) {
	plain, err := json.Marshal(values)
	if err != nil {
		return queue.SecretsAnswer{}, err
	}
	text, err := secrets.SealTo(ask.PublicKey, queue.SecretsAbout(ask.Run, ask.Attempt), plain)
	return queue.SecretsAnswer{Sealed: text}, err
}

// clones is a run of a shell script in a clone of the forge's repository.
func clones(f *forge, ref, script string) queue.RunMessage {
	m := agentRun()
	m.Bot.RepoURL, m.Bot.Ref, m.Bot.Command = f.url, ref, []string{"sh", "-c", script}
	return m
}

func TestARunStartsInAShallowCloneOfItsRepository(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	first := git(t, filepath.Join(f.root, "tool.git"), "rev-parse", "main~1")
	for ref, want := range map[string]string{"": "second", "main": "second", "feature": "feature", "refs/heads/feature": "feature", first: "first"} {
		q, s := newFake(), &source{}
		r := newRig(t, q, runner.Options{Secrets: s})
		m := clones(f, ref, `cat README; git log --oneline | wc -l; git remote get-url origin; test "$HOME" != "$PWD" && test -z "$(ls -A "$HOME")" && echo home is empty`)
		if report := r.run(t, m); report.Ending != queue.EndFinished {
			t.Errorf("ref %q ended as %+v\n%s", ref, report, r.log(t, m))
			continue
		}
		lines := strings.Split(strings.TrimSpace(r.log(t, m)), "\n")
		if got := strings.Join(lines[1:], "|"); strings.ReplaceAll(got, " ", "") != want+"|1|"+f.url+"|homeisempty" {
			t.Errorf("ref %q: the run saw %q", ref, got)
		}
		if ask := s.asked[0]; len(s.asked) != 1 || ask.Run != "R1" || ask.Attempt != 1 || ask.Nonce == "" || len(ask.Names) != 1 || ask.Names[0] != secrets.ForgeToken {
			t.Errorf("the servers were asked %+v", s.asked)
		}
		empty(t, filepath.Join(r.dir, "work"))
	}
}

func TestTheForgeTokenIsNowhereWhereTheAgentCanLook(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	r := newRig(t, newFake(), runner.Options{Secrets: &source{}})
	// The needle is in a file, so that neither the script nor grep's arguments are a match.
	script := `printf 'ghp_open-%s' sesame > "$TMPDIR/needle"
env | grep -c -f "$TMPDIR/needle"
cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\0' '\n' | grep -c -f "$TMPDIR/needle"
grep -r --exclude=needle -f "$TMPDIR/needle" .. | wc -l
cat .git/config`
	m := clones(f, "", script)
	if report := r.run(t, m); report.Ending != queue.EndFinished {
		t.Fatalf("ended as %+v\n%s", report, r.log(t, m))
	}
	log := r.log(t, m)
	if lines := strings.Split(log, "\n"); strings.Join(lines[1:4], ",") != "0,0,0" {
		t.Errorf("the agent found the token:\n%s", log)
	}
	if strings.Contains(log, "sesame") {
		t.Errorf("the log has the token:\n%s", log)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, request := range f.asked {
		if strings.Contains(request, "sesame") {
			t.Errorf("the token is part of an address: %s", request)
		}
	}
	if last := f.asked[len(f.asked)-1]; !strings.HasSuffix(last, " x-access-token") {
		t.Errorf("the forge was never shown the token: %q", f.asked)
	}
}

func TestACloneThatFailsEndsTheRunWithItsReason(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	for name, c := range map[string]struct {
		change func(*queue.RunMessage, *runner.Options, *source)
		want   string
		ending queue.Ending
	}{
		"a branch that is not there": {func(m *queue.RunMessage, _ *runner.Options, _ *source) { m.Bot.Ref = "nowhere" }, "nowhere", ""},
		"no repository": {func(m *queue.RunMessage, _ *runner.Options, _ *source) {
			m.Bot.RepoURL = strings.Replace(f.url, "tool", "none", 1)
		}, "not found", ""},
		"no token": {func(_ *queue.RunMessage, _ *runner.Options, s *source) {
			s.answer = func(ask queue.SecretsAsk) (queue.SecretsAnswer, error) { return sealed(ask, nil) }
		}, "could not read Username", ""},
		"a wrong token": {func(_ *queue.RunMessage, _ *runner.Options, s *source) {
			s.answer = func(ask queue.SecretsAsk) (queue.SecretsAnswer, error) {
				return sealed(ask, queue.SecretValues{secrets.ForgeToken: []byte("ghp_wrong")})
			}
		}, "Authentication failed", ""},
		"refused secrets": {func(_ *queue.RunMessage, _ *runner.Options, s *source) {
			s.answer = func(queue.SecretsAsk) (queue.SecretsAnswer, error) {
				return queue.SecretsAnswer{Refused: "secrets are off"}, nil
			}
		}, "secrets are off", ""},
		"secrets for somebody else": {func(_ *queue.RunMessage, _ *runner.Options, s *source) {
			s.answer = func(ask queue.SecretsAsk) (queue.SecretsAnswer, error) {
				ask.Attempt++
				return sealed(ask, queue.SecretValues{secrets.ForgeToken: []byte(forgeToken)})
			}
		}, "not sealed to this asking", ""},
		"no server answers": {func(_ *queue.RunMessage, _ *runner.Options, s *source) {
			s.answer = func(queue.SecretsAsk) (queue.SecretsAnswer, error) {
				return queue.SecretsAnswer{}, errors.New("nobody")
			}
		}, "no server said", queue.EndInterrupted},
		"too large": {func(_ *queue.RunMessage, o *runner.Options, _ *source) { o.CloneLimit = 100 }, "larger than", ""},
		"a file": {func(m *queue.RunMessage, _ *runner.Options, _ *source) {
			m.Bot.RepoURL = "file://" + f.root + "/tool.git"
		}, "not the address", ""},
		"another transport": {func(m *queue.RunMessage, _ *runner.Options, _ *source) { m.Bot.RepoURL = "ext://sh" }, "scheme", ""},
		"an option as ref":  {func(m *queue.RunMessage, _ *runner.Options, _ *source) { m.Bot.Ref = "--upload-pack=touch" }, "ref is not", ""},
		"an option as host": {func(m *queue.RunMessage, _ *runner.Options, _ *source) {
			m.Bot.RepoURL = "ssh://-oProxyCommand=touch/x"
		}, "option", ""},
		"a password in there": {func(m *queue.RunMessage, _ *runner.Options, _ *source) { m.Bot.RepoURL = "https://a:b@example.org/x" }, "user", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, o := &source{}, runner.Options{}
			m := clones(f, "", "echo the command ran")
			c.change(&m, &o, s)
			o.Secrets = s
			r := newRig(t, newFake(), o)
			report := r.run(t, m)
			want := c.ending
			if want == "" {
				want = queue.EndStartFailed
			}
			if report.Ending != want || !strings.Contains(report.Detail, c.want) || strings.Contains(report.Detail, forgeToken) {
				t.Errorf("ended as %+v, want %s because of %q", report, want, c.want)
			}
			if log := r.log(t, m); strings.Contains(log, "the command ran") || strings.Contains(log, "ghp_") {
				t.Errorf("the log says %s", log)
			}
			empty(t, filepath.Join(r.dir, "work"))
			empty(t, filepath.Join(r.dir, "children"))
		})
	}
}

func TestARepositoryRunsNothingOfItsOwn(t *testing.T) {
	t.Parallel()
	f := newForge(t)
	touched := filepath.Join(t.TempDir(), "touched")
	work, bare := t.TempDir(), filepath.Join(f.root, "tool.git")
	git(t, work, "clone", "--quiet", bare, ".")
	for name, text := range map[string]string{
		".gitattributes":           "* filter=evil\n",
		".gitconfig":               "[filter \"evil\"]\nsmudge = touch " + touched + "\n[core]\nfsmonitor = touch " + touched + "\n",
		".gitmodules":              "[submodule \"x\"]\npath = x\nurl = " + f.url + "\nupdate = !touch " + touched + "\n",
		".githooks/post-checkout":  "#!/bin/sh\ntouch " + touched + "\n",
		".git-hooks/post-checkout": "#!/bin/sh\ntouch " + touched + "\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(work, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	git(t, work, "add", ".")
	git(t, work, "commit", "--quiet", "-m", "evil")
	git(t, work, "push", "--quiet", bare, "HEAD:main")
	r := newRig(t, newFake(), runner.Options{Secrets: &source{}})
	m := clones(f, "", "git status --short; ls .git/hooks 2>/dev/null; echo done")
	if report := r.run(t, m); report.Ending != queue.EndFinished {
		t.Fatalf("ended as %+v\n%s", report, r.log(t, m))
	}
	if _, err := os.Stat(touched); err == nil {
		t.Errorf("a repository had something run:\n%s", r.log(t, m))
	}
	if lines := strings.Split(strings.TrimSpace(r.log(t, m)), "\n"); strings.Join(lines[1:], "|") != "done" {
		t.Errorf("the clone has hooks or is changed:\n%s", r.log(t, m))
	}
}

func TestACloneIsRenewedStoppedAndBoundedAsTheCommandIs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options runner.Options
		act     func(*testing.T, *rig)
		want    queue.Ending
		detail  string
	}{
		"cancelled": {act: func(_ *testing.T, r *rig) { r.cancel("R1") }, want: queue.EndCancelled},
		"shut down": {act: func(_ *testing.T, r *rig) { go r.stop() }, want: queue.EndInterrupted},
		"too long":  {options: runner.Options{CloneWithin: 300 * time.Millisecond}, want: queue.EndStartFailed, detail: "took longer than 300ms"},
		"lease lost": {act: func(_ *testing.T, r *rig) {
			r.claims(func(_ context.Context, c queue.Claim) (queue.Grant, error) {
				return queue.Grant{Verdict: queue.GrantStop, Reason: queue.StopLeaseLost}, nil
			})
		}, want: queue.EndLeaseLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, q := newForge(t), newFake()
			f.mu.Lock()
			f.hold = make(chan struct{})
			f.mu.Unlock()
			defer close(f.hold)
			renewed := make(chan queue.Claim, 64)
			q.claims(func(_ context.Context, c queue.Claim) (queue.Grant, error) {
				if c.Attempt > 0 {
					select {
					case renewed <- c:
					default:
					}
				}
				return granted, nil
			})
			c.options.Secrets = &source{}
			r := newRig(t, q, c.options)
			m := clones(f, "", "echo the command ran")
			r.deliver(m)
			if started := next(t, r.reports); started.Kind != queue.ReportStarted {
				t.Fatalf("the first report is %+v", started)
			}
			next(t, renewed)
			if c.act != nil {
				c.act(t, r)
			}
			report := r.endOf(t)
			if report.Ending != c.want || !strings.Contains(report.Detail, c.detail) {
				t.Errorf("ended as %+v, want %s %q", report, c.want, c.detail)
			}
			if log := r.log(t, m); strings.Contains(log, "the command ran") {
				t.Errorf("the command ran: %s", log)
			}
		})
	}
}

func TestATokenGoesToItsOwnHostOnlyAndNotOverAnOpenConnection(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		given, asked string
		want         string
	}{
		"its own host":     {`{"scheme":"https","host":"git.example.org","token":"t0ken"}`, "protocol=https\nhost=git.example.org\n\n", "username=x-access-token\npassword=t0ken\n"},
		"a user with it":   {`{"scheme":"https","host":"git.example.org","token":"bob:t0ken"}`, "protocol=https\nhost=git.example.org\n\n", "username=bob\npassword=t0ken\n"},
		"this machine":     {`{"scheme":"http","host":"127.0.0.1:3000","token":"t0ken"}`, "protocol=http\nhost=127.0.0.1:3000\n\n", "username=x-access-token\npassword=t0ken\n"},
		"another host":     {`{"scheme":"https","host":"git.example.org","token":"t0ken"}`, "protocol=https\nhost=evil.example.org\n\n", ""},
		"another scheme":   {`{"scheme":"https","host":"git.example.org","token":"t0ken"}`, "protocol=http\nhost=git.example.org\n\n", ""},
		"an open way":      {`{"scheme":"http","host":"git.example.org","token":"t0ken"}`, "protocol=http\nhost=git.example.org\n\n", ""},
		"nearly localhost": {`{"scheme":"http","host":"localhost.example.org","token":"t0ken"}`, "protocol=http\nhost=localhost.example.org\n\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer read.Close()
			if _, err := write.WriteString(c.given); err != nil {
				t.Fatal(err)
			}
			write.Close()
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			command := exec.Command(self, runner.CredentialArgument, "get")
			command.Env = append(os.Environ(), "GORACE="+noExitSleep)
			command.ExtraFiles, command.Stdin = []*os.File{read}, strings.NewReader(c.asked)
			got, err := command.Output()
			if err != nil || string(got) != c.want {
				t.Errorf("answered %q, %v, want %q", got, err, c.want)
			}
		})
	}
}
