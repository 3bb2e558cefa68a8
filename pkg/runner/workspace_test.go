package runner_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/queue"
	"github.com/holdfast-io/holdfast/pkg/runner"
)

func TestAChildSeesOnlyWhatItMay(t *testing.T) {
	t.Setenv("HOLDFAST_TOKEN", "hf_secret")
	t.Setenv("ANTHROPIC_API_KEY", "secret")
	t.Setenv("TZ", "UTC")
	t.Setenv("LANG", "")
	secret, err := os.Open(os.DevNull) // a descriptor that must not be inherited
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	if _, err := syscall.Dup(int(secret.Fd())); err != nil { // one without close-on-exec, above those of the wrapper
		t.Fatal(err)
	}
	r := newRig(t, newFake(), runner.Options{})
	m := agentRun("environment", "{{pr}}", "--title={{title}}", "{{ unknown }}", "{{.Names}}", "{{note}}")
	m.Repo = "acme/widgets"
	m.Bot.Env = map[string]string{"MODE": "fast", "GORACE": noExitSleep, "HOLDFAST_RUN": "forged", "HOLDFAST_TOKEN": "forged"}
	m.Bot.Inputs = map[string]holdfast.BotInput{"pr": {Required: true}, "title": {Default: "none"}, "note": {}}
	m.Inputs = map[string]string{"pr": "7; rm -rf $HOME {{title}}", "extra-value": "x"}
	if ended := r.run(t, m); ended.Ending != queue.EndFinished {
		t.Fatalf("%+v", ended)
	}
	var got struct {
		Env     []string
		Open    []string
		Dir     string
		Content int
		Args    []string
	}
	if err := json.Unmarshal([]byte(r.log(t, m)), &got); err != nil {
		t.Fatal(err)
	}
	work, err := filepath.EvalSymlinks(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	work = filepath.Join(work, "work", "R1-1")
	want := []string{
		"GORACE=" + noExitSleep, "HOLDFAST_ATTEMPT=1", "HOLDFAST_BOT=probe", "HOLDFAST_BUDGET_USD=100.000000", "HOLDFAST_INPUT_EXTRA_VALUE=x", "HOLDFAST_INPUT_NOTE=",
		"HOLDFAST_INPUT_PR=7; rm -rf $HOME {{title}}", "HOLDFAST_INPUT_TITLE=none", "HOLDFAST_REPO=acme/widgets", "HOLDFAST_REPORT=" + work + "/report.jsonl",
		"HOLDFAST_RUN=R1", "HOLDFAST_TEAM=acme", "HOME=" + work + "/workspace", "MODE=fast", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + work + "/tmp", "TZ=UTC",
	}
	slices.Sort(got.Env)
	if diff := cmp.Diff(want, got.Env); diff != "" {
		t.Errorf("the environment: %s", diff)
	}
	if diff := cmp.Diff([]string{"environment", "7; rm -rf $HOME {{title}}", "--title=none", "{{ unknown }}", "{{.Names}}", ""}, got.Args); diff != "" {
		t.Errorf("the arguments: %s", diff)
	}
	if got.Dir != work+"/workspace" || got.Content != 0 {
		t.Errorf("it ran in %s with %d entries", got.Dir, got.Content)
	}
	if diff := cmp.Diff([]string{"0", "1", "2"}, got.Open); diff != "" && got.Open != nil {
		t.Errorf("its descriptors: %s", diff)
	}
}

func TestTheProgramNeverComesFromAnInput(t *testing.T) {
	r := newRig(t, newFake(), runner.Options{})
	m := agentRun()
	m.Bot.Command = []string{"{{program}}"}
	m.Bot.Inputs = map[string]holdfast.BotInput{"program": {}}
	m.Inputs = map[string]string{"program": "true"}
	if ended := r.run(t, m); ended.Ending != queue.EndStartFailed {
		t.Errorf("%+v", ended)
	}
}
