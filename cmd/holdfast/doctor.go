package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/cmd/internal/config"
	"github.com/holdfast-io/holdfast/pkg/client"
)

// The verdicts of a finding.
const (
	verdictOK   = "ok"
	verdictWarn = "warn"
	verdictFail = "fail"
)

// maxSkew is how far this machine's clock may be from the server's before leases
// are no longer safe.
const maxSkew = 10 * time.Second

// finding is one thing that doctor looked at.
type finding struct {
	Check   string `json:"check"`
	Verdict string `json:"verdict"`
	Detail  string `json:"detail"`
	WayOut  string `json:"way_out,omitempty"`
}

// diagnosis is what doctor answers.
type diagnosis struct {
	Healthy  bool      `json:"healthy"` // nothing failed
	Findings []finding `json:"findings"`
}

func newDoctor(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong with a server and with this machine's access to it",
		Long: `Doctor checks that the server can be reached, that the token is good, that the server
says it is ready (store, queue and what else it names), that the clocks agree, and that
the data folder is for its owner alone. It warns of schedules, cards and webhooks that can
launch nothing as things stand. Each line says what to do. Exit code 1 says that something
failed.`,
		Example: "  holdfast doctor\n  holdfast doctor -o json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := c.diagnose(cmd.Context())
			if err != nil {
				return err
			}
			if err := c.print(d, func(w io.Writer) error { return writeDiagnosis(w, d) }); err != nil {
				return err
			}
			if !d.Healthy {
				return &exitError{code: exitFailed}
			}
			return nil
		},
	}
}

func writeDiagnosis(w io.Writer, d diagnosis) error {
	t := &table{header: []string{"", "CHECK", "FINDING"}}
	for _, f := range d.Findings {
		text := f.Detail
		if f.WayOut != "" {
			text += "; " + f.WayOut
		}
		t.add(f.Verdict, f.Check, text)
	}
	return t.write(w)
}

// dateOf keeps the Date header of the last answer, to compare clocks by.
type dateOf struct {
	http.RoundTripper
	date       string
	asked, got time.Time
	now        func() time.Time
}

func (d *dateOf) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := d.now()
	response, err := d.RoundTripper.RoundTrip(r)
	if err == nil {
		d.date, d.asked, d.got = response.Header.Get("Date"), asked, d.now()
	}
	return response, err
}

func (c *cli) diagnose(ctx context.Context) (diagnosis, error) {
	settings, err := c.settings()
	if err != nil {
		return diagnosis{}, err
	}
	transport := &dateOf{RoundTripper: http.DefaultTransport, now: c.clock}
	server, err := client.New(settings.URL, settings.Token, client.Options{Transport: transport, Timeout: 10 * time.Second})
	if err != nil {
		return diagnosis{}, err
	}
	var findings []finding
	ready := checkServer(ctx, server, settings)
	findings = append(findings, ready...)
	if ready[0].Verdict == verdictOK {
		findings = append(findings, checkToken(ctx, server, settings), checkClock(transport))
		findings = append(findings, checkMaintenance(ctx, server, c.clock())...)
		findings = append(findings, checkWaiting(ctx, server)...)
	}
	findings = append(findings, checkFolder(settings.Data)...)
	failed := slices.ContainsFunc(findings, func(f finding) bool { return f.Verdict == verdictFail })
	return diagnosis{Healthy: !failed, Findings: findings}, nil
}

// checkServer says whether the server answers, and then what it says of itself.
func checkServer(ctx context.Context, server *client.Client, settings config.Client) []finding {
	health, err := server.Ready(ctx)
	var failed *client.Failed
	switch {
	case errors.Is(err, client.ErrUnreachable):
		return []finding{{"server", verdictFail, plain(err), "start one with `holdfast dev`, or set HOLDFAST_URL"}}
	case errors.As(err, &failed):
		return []finding{
			{"server", verdictOK, settings.URL + " answers", ""},
			{"ready", verdictFail, plain(err), "wait a moment; if it stays, the server's log says more"},
		}
	case err != nil:
		return []finding{{"server", verdictFail, plain(err), "is " + settings.URL + " a Holdfast server? set HOLDFAST_URL"}}
	}
	findings := []finding{{"server", verdictOK, settings.URL + " answers", ""}}
	if health.Status == "ok" {
		findings = append(findings, finding{"ready", verdictOK, "the server is ready: its stores and its queue answer", ""})
	} else {
		findings = append(findings, finding{"ready", verdictFail, "the server says " + health.Status, "the lines below say what is missing"})
	}
	for _, name := range sortedKeys(health.Checks) {
		state := health.Checks[name]
		f := finding{name, verdictOK, state, ""}
		if !strings.HasPrefix(state, "ok") {
			f.Verdict, f.WayOut = verdictFail, "the server's log says more"
		}
		findings = append(findings, f)
	}
	for _, warning := range health.Warnings {
		findings = append(findings, finding{"warning", verdictWarn, warning, ""})
	}
	return findings
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// checkToken asks for what any role may see.
func checkToken(ctx context.Context, server *client.Client, settings config.Client) finding {
	if settings.Token == "" {
		return finding{"token", verdictFail, "there is none", "set HOLDFAST_TOKEN, or HOLDFAST_DATA to the data folder of `holdfast dev`"}
	}
	_, err := server.Runs(ctx, client.RunFilter{Window: client.Window{Limit: 1}})
	var unknown *client.Unauthenticated
	switch {
	case errors.As(err, &unknown):
		return finding{"token", verdictFail, "the token from " + settings.TokenFrom + " is not accepted", "ask for a new one, or set HOLDFAST_TOKEN"}
	case err != nil:
		return finding{"token", verdictFail, plain(err), "the server's log says more"}
	}
	return finding{"token", verdictOK, "the token from " + settings.TokenFrom + " is accepted", ""}
}

// checkMaintenance says that nothing launches because of the maintenance fence. Only an
// operator may read it; to others, and while it is down, there is nothing to say.
func checkMaintenance(ctx context.Context, server *client.Client, now time.Time) []finding {
	fence, err := server.Maintenance(ctx)
	if err != nil || !fence.On || !fence.Until.IsZero() && !now.Before(fence.Until) {
		return nil // what is wrong with the server or the token is said by the other checks
	}
	text := "the platform is under maintenance and starts nothing"
	if fence.Message != "" {
		text += ": " + oneLine(fence.Message)
	}
	if !fence.Until.IsZero() {
		text += "; it ends by itself at " + showTime(fence.Until)
	}
	return []finding{{"maintenance", verdictWarn, text, "echo '{on: false}' | holdfast settings set maintenance -f - ends it"}}
}

// checkClock compares this machine's clock with the server's. The Date header has
// whole seconds, so a second of difference is none.
func checkClock(d *dateOf) finding {
	there, err := http.ParseTime(d.date)
	if err != nil {
		return finding{"clock", verdictWarn, "the server does not say what time it is", "compare the clocks by hand"}
	}
	var skew time.Duration
	switch {
	case there.Add(time.Second).Before(d.asked):
		skew = d.asked.Sub(there.Add(time.Second))
	case there.After(d.got):
		skew = there.Sub(d.got)
	}
	text := "this machine and the server agree to a second"
	if skew > 0 {
		text = "this machine and the server are " + showSpan(skew) + " apart"
	}
	switch {
	case skew > maxSkew:
		return finding{"clock", verdictFail, text, "set both by a time server; leases hold up to " + maxSkew.String()}
	case skew > time.Second:
		return finding{"clock", verdictWarn, text, "set both by a time server"}
	}
	return finding{"clock", verdictOK, text, ""}
}

// checkFolder says whether the data folder and the operator's token are for their
// owner alone. A machine that only has clients has no folder.
func checkFolder(folder string) []finding {
	info, err := os.Stat(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return []finding{{"data folder", verdictOK, folder + " is not on this machine", ""}}
	}
	if err != nil {
		return []finding{{"data folder", verdictWarn, plain(err), "run doctor as the user who owns it"}}
	}
	if !info.IsDir() {
		return []finding{{"data folder", verdictFail, folder + " is not a folder", "set HOLDFAST_DATA to another place"}}
	}
	findings := []finding{private("data folder", folder, info, 0o700)}
	token := filepath.Join(folder, config.TokenFile)
	if info, err := os.Stat(token); err == nil {
		findings = append(findings, private("operator token", token, info, 0o600))
	}
	return findings
}

func private(check, path string, info fs.FileInfo, mode fs.FileMode) finding {
	if info.Mode().Perm()&0o077 != 0 {
		return finding{check, verdictFail, fmt.Sprintf("%s can be read by others (mode %04o)", path, info.Mode().Perm()), fmt.Sprintf("chmod %04o %s", mode, path)}
	}
	return finding{check, verdictOK, path + " is for its owner alone", ""}
}
