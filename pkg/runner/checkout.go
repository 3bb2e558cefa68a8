package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/secrets"
)

// SecretSource asks servers for the secrets of a run's team; pkg/queue/nats has one.
type SecretSource interface {
	// RequestSecrets asks a server. An error means that no answer is known.
	RequestSecrets(ctx context.Context, ask queue.SecretsAsk) (queue.SecretsAnswer, error)
}

// errUnasked: what the attempt needs could not be asked for, so nothing was started.
var errUnasked = errors.New("no server said which secrets the run may have")

// checkout clones the bot's repository into the attempt's workspace. It is a child of
// its own, before the command: metered by the same lease, stopped by the same causes,
// killed as a group, and over when the command begins, so that nothing of the command
// ever runs beside what knows the forge's token. When the command must not begin,
// ended says how the attempt ended.
func (a *attempt) checkout(ctx context.Context, out *output, work workspace) (ended *queue.Report) {
	o := a.runner.options
	end := func(r queue.Report) *queue.Report {
		r.Kind = queue.ReportEnded
		r = a.report(r)
		return &r
	}
	failed := func(err error) *queue.Report {
		fmt.Fprintf(out, "holdfast: the repository was not cloned: %v\n", err)
		r := a.report(notStarted(err))
		return &r
	}
	job, err := a.checkoutJob(ctx, work)
	if err != nil {
		return failed(err)
	}
	text, err := json.Marshal(job)
	if err != nil {
		return failed(err)
	}
	child, err := StartChild(Spec{
		Argv: []string{o.Executable, CheckoutArgument}, Dir: work.tree, Env: work.checkoutEnviron(os.Getenv), Stdin: bytes.NewReader(text),
		Stdout: out, Stderr: out, Wrapper: o.Executable, Deadline: o.CloneWithin, Grace: o.StopGrace,
		Started: func(p Process) error { return a.begun(ctx, p) },
	})
	if err != nil {
		return failed(err)
	}
	a.watch(ctx, child)
	result := child.Wait()
	killStrays(work.report)
	switch result.Ending {
	case queue.EndFinished:
		return nil
	case queue.EndFailed:
		return end(queue.Report{Ending: queue.EndStartFailed, Detail: holdfast.Clip(strings.TrimPrefix(out.lastLine(), "holdfast: "), 400)})
	case queue.EndDeadline:
		return end(queue.Report{Ending: queue.EndStartFailed, Detail: fmt.Sprintf("cloning %s took longer than %s", job.URL, o.CloneWithin)})
	case queue.EndBudget, queue.EndCancelled, queue.EndInterrupted, queue.EndStartFailed, queue.EndLeaseLost:
	}
	return end(queue.Report{Ending: result.Ending, Detail: "while its repository was cloned"})
}

// begun writes down what was started and makes the start known, once.
func (a *attempt) begun(ctx context.Context, p Process) error {
	if err := writeJournal(a.dir, journalEntry{Run: a.message.Run, Attempt: a.number, Process: p}); err != nil {
		return err
	}
	if a.told {
		return nil
	}
	if err := a.tellStart(ctx); err != nil {
		return err
	}
	a.told = true
	return nil
}

// checkoutJob says what to clone, and with which token.
func (a *attempt) checkoutJob(ctx context.Context, work workspace) (checkoutJob, error) {
	bot := a.message.Bot
	u, err := cloneURL(bot.RepoURL)
	if err != nil {
		return checkoutJob{}, err
	}
	if err := checkRef(bot.Ref); err != nil {
		return checkoutJob{}, err
	}
	job := checkoutJob{URL: bot.RepoURL, Ref: bot.Ref, Home: work.temp, Limit: a.runner.options.CloneLimit, Memory: a.runner.options.CloneMemory}
	if u.Scheme == "ssh" || a.runner.options.Secrets == nil {
		return job, nil // ssh has the keys of the runner's own user
	}
	values, err := a.secrets(ctx, secrets.ForgeToken)
	if err != nil {
		return checkoutJob{}, err
	}
	job.Token = strings.TrimSpace(string(values[secrets.ForgeToken]))
	if len(job.Token) > maxToken || strings.ContainsAny(job.Token, "\x00\r\n") {
		return checkoutJob{}, fmt.Errorf("the secret %s is no token: it is longer than %d bytes or has several lines", secrets.ForgeToken, maxToken)
	}
	return job, nil
}

// secrets asks for secrets of the run's team, under a key that is made for this one
// asking. What the team does not have is left out.
func (a *attempt) secrets(ctx context.Context, names ...string) (queue.SecretValues, error) {
	o := a.runner.options
	recipient, err := secrets.NewRecipient()
	if err != nil {
		return nil, err
	}
	ask := queue.SecretsAsk{
		Run: a.message.Run, Attempt: a.number, Runner: o.Name, Nonce: a.nonce, Names: names, PublicKey: recipient.PublicKey(),
	}
	ctx, cancel := context.WithTimeout(ctx, min(askWithin, fenceAfter(o.Lease)/3))
	defer cancel()
	answer, err := o.Secrets.RequestSecrets(ctx, ask)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errUnasked, err)
	case answer.Refused != "":
		return nil, errors.New("no secrets for this run: " + answer.Refused)
	}
	plain, err := recipient.Open(queue.SecretsAbout(ask.Run, ask.Attempt), answer.Sealed)
	if err != nil {
		return nil, err
	}
	var values queue.SecretValues
	if err := json.Unmarshal(plain, &values); err != nil {
		return nil, errors.New("the secrets of this run cannot be read")
	}
	return values, nil
}

// cloneURL reads the address of a repository and refuses what git could understand as
// anything but one: the check of bots is made again here, where it counts.
func cloneURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || strings.HasPrefix(text, "-") || strings.ContainsAny(text, " \t\r\n\x00"):
		return nil, errors.New("repo_url is not the address of a repository")
	case u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "ssh":
		return nil, fmt.Errorf("repo_url has the scheme %q; https, http and ssh are cloned", holdfast.Clip(u.Scheme, 20))
	case strings.HasPrefix(u.Host, "-") || u.User != nil && (u.Scheme != "ssh" || strings.HasPrefix(u.User.Username(), "-")):
		return nil, errors.New("repo_url holds a user or an option")
	}
	return u, nil
}

func checkRef(ref string) error {
	if strings.HasPrefix(ref, "-") || strings.ContainsAny(ref, " \t\r\n\x00~^:?*[\\+") || len(ref) > 255 {
		return errors.New("ref is not a branch, a tag or a commit")
	}
	return nil
}

// passed are the runner's variables that git needs to reach a forge from here.
func passed() []string {
	return []string{
		"PATH", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "SSH_AUTH_SOCK",
	}
}

// checkoutEnviron is the environment of the checkout: nothing of the bot, and the mark
// by which the attempt's processes are known.
func (w workspace) checkoutEnviron(own func(string) string) []string {
	env := []string{"HOME=" + w.temp, "TMPDIR=" + w.temp, "LC_ALL=C", reportVariable + "=" + w.report}
	path := false
	for _, name := range passed() {
		if value := own(name); value != "" {
			env = append(env, name+"="+value)
			path = path || name == "PATH"
		}
	}
	if !path {
		env = append(env, "PATH="+defaultPath)
	}
	return env
}

const (
	defaultCloneWithin = 5 * time.Minute
	defaultCloneLimit  = 2 << 30
	defaultCloneMemory = 2 << 30
	maxToken           = 4096
)
