package runner

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
)

// The hidden commands of a checkout; a program that is a [Spec.Wrapper] calls
// [CheckoutMain] and [CredentialMain] when its first argument is one of them.
const (
	CheckoutArgument   = "__checkout"
	CredentialArgument = "__git-credential"
)

// checkoutJob comes on standard input, because arguments and variables are readable to
// others.
type checkoutJob struct {
	URL   string `json:"url"`
	Ref   string `json:"ref,omitempty"` // empty: the repository's default branch
	Home  string `json:"home"`          // an empty folder
	Token string `json:"token,omitempty"`
	Limit int64  `json:"limit"` // bytes that the clone may have
	// Memory is how many bytes each program of git may have: git keeps a server's list of
	// branches in memory, however long the server makes it.
	Memory int64 `json:"memory"`
}

// credential is what the helper is given, through a pipe that it reads once.
type credential struct {
	Scheme string `json:"scheme"`
	Host   string `json:"host"`
	Token  string `json:"token"`
}

const (
	credentialDescriptor = 3
	sizeEvery            = 250 * time.Millisecond
	maxJob               = 64 << 10
)

// CheckoutMain clones a repository into the working folder, which is empty: the one
// commit that was asked for, and no hook, submodule, filter or configuration of anybody
// is run or read. It returns the exit code; the last line of its output says what went
// wrong.
func CheckoutMain() int {
	var job checkoutJob
	if err := json.NewDecoder(io.LimitReader(os.Stdin, maxJob)).Decode(&job); err != nil {
		fmt.Println("holdfast: " + CheckoutArgument + " is for holdfast itself")
		return 2
	}
	if err := job.run(context.Background()); err != nil {
		fmt.Printf("holdfast: cloning %s failed: %s\n", job.URL, job.clean(err.Error()))
		return 1
	}
	return 0
}

func (j checkoutJob) run(ctx context.Context) error {
	u, err := cloneURL(j.URL)
	if err != nil {
		return err
	}
	if err := checkRef(j.Ref); err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go j.watchSize(ctx, dir, stop)
	ref := j.Ref
	if ref == "" {
		ref = "HEAD"
	}
	what := "the default branch"
	if j.Ref != "" {
		what = j.Ref
	}
	fmt.Printf("holdfast: cloning %s of %s\n", what, j.URL)
	for _, step := range []struct {
		words []string
		token bool
	}{
		{words: []string{"init", "--quiet", "--template=", "."}},
		{words: []string{"fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--end-of-options", j.URL, ref}, token: true},
		{words: []string{"checkout", "--quiet", "--detach", "FETCH_HEAD"}},
		{words: []string{"remote", "add", "--", "origin", j.URL}},
	} {
		if err := j.git(ctx, u, step.token, step.words); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return err
		}
	}
	return j.fits(dir)
}

// git runs one git command. What it says is passed on, without the token, and its last
// line is the error's. The shell sets the limit that git and what it starts inherit;
// where it cannot, a lower one is in force, or the system has none.
func (j checkoutJob) git(ctx context.Context, u *url.URL, token bool, words []string) error {
	program, err := exec.LookPath("git")
	if err != nil {
		return fmt.Errorf("git cannot be started, is it installed? %w", err)
	}
	limited := append([]string{"-c", `ulimit -d "$0" 2>/dev/null; exec "$@"`, strconv.FormatInt(max(1, j.Memory>>10), 10), program}, words...)
	command := exec.CommandContext(ctx, "/bin/sh", limited...)
	command.Env = append(os.Environ(), j.environ(u, token && j.Token != "")...)
	said, err := command.StderrPipe()
	if err != nil {
		return err
	}
	if token && j.Token != "" {
		pipe, err := j.credentialPipe(u)
		if err != nil {
			return err
		}
		defer pipe.Close()
		command.ExtraFiles = []*os.File{pipe}
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("git cannot be started: %w", err)
	}
	last := ""
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if line := strings.TrimSpace(j.clean(lines.Text())); line != "" {
			fmt.Println(line)
			if !strings.HasPrefix(line, "hint:") {
				last = line
			}
		}
	}
	if err := command.Wait(); err != nil {
		if last == "" {
			last = err.Error()
		}
		return fmt.Errorf("git %s: %s", words[0], holdfast.Clip(last, 300))
	}
	return nil
}

// clean takes the token out of a text, should a forge ever repeat it.
func (j checkoutJob) clean(text string) string {
	if j.Token == "" {
		return text
	}
	return strings.ReplaceAll(text, j.Token, "***")
}

// credentialPipe is the read end of a pipe that has the token. It fits into the pipe,
// so nobody waits for a reader.
func (j checkoutJob) credentialPipe(u *url.URL) (*os.File, error) {
	text, err := json.Marshal(credential{Scheme: u.Scheme, Host: u.Host, Token: j.Token})
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close()
	if _, err := write.Write(text); err != nil {
		read.Close()
		return nil, err
	}
	return read, nil
}

// environ is what git is told: to read no configuration but this, to run nothing of the
// repository, and to ask nobody.
func (j checkoutJob) environ(u *url.URL, helper bool) []string {
	settings := [][2]string{
		{"core.hooksPath", "/dev/null"},
		{"core.fsmonitor", "false"},
		{"submodule.recurse", "false"},
		{"fetch.recurseSubmodules", "false"},
		{"gc.auto", "0"},
		{"maintenance.auto", "false"},
		{"safe.bareRepository", "explicit"},
		{"transfer.credentialsInUrl", "die"},
		{"http.lowSpeedLimit", "1000"},
		{"http.lowSpeedTime", "60"},
		{"credential.helper", ""},
		{"credential.interactive", "false"},
	}
	if self, err := os.Executable(); helper && err == nil {
		settings = append(settings, [2]string{"credential." + u.Scheme + "://" + u.Host + ".helper", "!" + shellWord(self) + " " + CredentialArgument})
	}
	env := []string{
		"HOME=" + j.Home, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=https:http:ssh",
		"GIT_LFS_SKIP_SMUDGE=1", "GIT_SSH_COMMAND=ssh -o BatchMode=yes -o ConnectTimeout=20",
		fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(settings)),
	}
	for i, s := range settings {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, s[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, s[1]))
	}
	return env
}

func shellWord(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }

// watchSize stops the clone when it has become too large.
func (j checkoutJob) watchSize(ctx context.Context, dir string, stop context.CancelCauseFunc) {
	tick := time.NewTicker(sizeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := j.fits(dir); err != nil {
			stop(err)
			return
		}
	}
}

// fits looks how large the folder is. What vanishes while it looks counts for nothing.
func (j checkoutJob) fits(dir string) error {
	var total int64
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // git removes its own files meanwhile
		}
		if about, err := entry.Info(); err == nil && about.Mode().IsRegular() {
			total += about.Size()
		}
		return nil
	})
	if total > j.Limit {
		return fmt.Errorf("the repository is larger than %d MiB, which is what a clone may have", j.Limit>>20)
	}
	return nil
}

// CredentialMain answers git's question for a password. It answers once, for the host
// of the repository only, and never over a connection that others can read; any other
// question gets no answer, which git takes for "unknown". It returns the exit code.
func CredentialMain(args []string) int {
	if len(args) != 1 || args[0] != "get" {
		return 0 // "store" and "erase": nothing is kept
	}
	asked := map[string]string{}
	for lines := bufio.NewScanner(io.LimitReader(os.Stdin, maxJob)); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), "="); ok {
			asked[name] = value
		}
	}
	pipe := os.NewFile(credentialDescriptor, "credential")
	if pipe == nil {
		return 1
	}
	defer pipe.Close()
	var known credential
	if err := json.NewDecoder(io.LimitReader(pipe, maxJob)).Decode(&known); err != nil {
		return 1
	}
	if asked["protocol"] != known.Scheme || asked["host"] != known.Host || !private(known) {
		return 0
	}
	user, password := "x-access-token", known.Token
	if name, rest, both := strings.Cut(known.Token, ":"); both {
		user, password = name, rest
	}
	fmt.Printf("username=%s\npassword=%s\n", user, password)
	return 0
}

// private says whether a token may go to the host: over TLS, or within this machine.
func private(c credential) bool {
	if c.Scheme == "https" {
		return true
	}
	host, _, err := net.SplitHostPort(c.Host)
	if err != nil {
		host = c.Host
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
