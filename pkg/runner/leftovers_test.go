package runner_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast/pkg/runner"
)

// doom starts this binary in a role in which it dies.
func doom(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	command := exec.Command(mustExecutable(t), args...)
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return command
}

func TestNoChildOfAKilledRunnerLivesAfterTheNextStart(t *testing.T) {
	dir := t.TempDir()
	doomed := doom(t, "doomed-runner", dir)
	pids := map[string]int{}
	for _, name := range []string{"leader", "grandchild", "stray"} {
		pids[name] = pidIn(t, filepath.Join(dir, name))
	}
	if err := doomed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = doomed.Wait() // it was killed
	for name, pid := range pids {
		if !alive(pid) {
			t.Fatalf("the %s died with the runner, so this test shows nothing", name)
		}
	}
	// The leader is gone and reaped by nobody that knows it; its group and session are left.
	if err := syscall.Kill(pids["leader"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	left, err := runner.KillLeftovers(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0].Run != "R1" || left[0].Attempt != 1 || left[0].Killed < 2 || left[0].Spent != 250_000 || !left[0].SpentKnown {
		t.Errorf("%+v", left)
	}
	for name, pid := range pids {
		if alive(pid) {
			t.Errorf("the %s is alive", name)
		}
	}
	for _, folder := range []string{"children", "work"} {
		if _, err := os.Stat(filepath.Join(dir, folder)); err == nil {
			t.Errorf("%s is still there", folder)
		}
	}
	if again, err := runner.KillLeftovers(t.Context(), dir); err != nil || again != nil {
		t.Errorf("a second time: %+v, %v", again, err)
	}
}

func TestNoMomentToKillARunnerLeavesAChildAfterTheNextStart(t *testing.T) {
	seed := uint64(os.Getpid())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	seen := 0
	for range 8 {
		dir := t.TempDir()
		doomed := doom(t, "doomed-busy", dir)
		begun, sleeper := random.IntN(24), filepath.Join(dir, "children", "R2-1.json")
		eventually(t, "it works", func() bool {
			entries, err := os.ReadDir(filepath.Join(dir, "runs"))
			_, none := os.Stat(sleeper) // from the middle on, one that does not end is surely there
			return err == nil && len(entries) > begun && (begun < 12 || none == nil)
		})
		if err := doomed.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = doomed.Wait() // it was killed
		left, err := runner.KillLeftovers(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range left {
			seen += l.Killed
		}
		if pids, err := runner.Survivors(dir); err != nil || len(pids) > 0 {
			t.Errorf("processes %v are alive, %v", pids, err)
		}
	}
	t.Logf("%d processes were left and killed", seen)
}

func TestARunnerKilledBeforeItRecordedAChildLeavesNoneRunning(t *testing.T) {
	dir := t.TempDir()
	touched := filepath.Join(dir, "touched")
	_ = doom(t, "doomed-start", filepath.Join(dir, "pid"), touched).Wait() // it kills itself
	pid := pidIn(t, filepath.Join(dir, "pid"))
	eventually(t, "the unreleased child is gone", func() bool { return !alive(pid) })
	if _, err := os.Stat(touched); err == nil {
		t.Error("the command ran")
	}
}

func TestAProcessThatMerelyHasTheRecordedNumberIsLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*runner.Process){
		"another start time":           func(p *runner.Process) { p.Start = "1" },
		"another start of the machine": func(p *runner.Process) { p.Boot = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			var process runner.Process
			stranger, err := runner.StartChild(runner.Spec{
				Argv: []string{"sleep", "3600"}, Env: os.Environ(),
				Started: func(p runner.Process) error { process = p; return nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				stranger.Stop("cancelled", 0)
				stranger.Wait()
			}()
			dir := t.TempDir()
			record(t, dir, process, change)
			if left, err := runner.KillLeftovers(t.Context(), dir); err != nil || len(left) != 1 || left[0].Killed != 0 {
				t.Errorf("%+v, %v", left, err)
			}
			if !alive(process.PID) {
				t.Error("the stranger was killed")
			}
		})
	}
}

// record writes the journal of R1-1, changed.
func record(t *testing.T, dir string, p runner.Process, change func(*runner.Process)) {
	t.Helper()
	change(&p)
	body, err := json.Marshal(map[string]any{"run": "R1", "attempt": 1, "process": p})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "children"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "children", "R1-1.json"), body, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestARecordedGroupWhoseLeaderRunsIsKilledWithoutItsEnvironment(t *testing.T) {
	dir := t.TempDir()
	var process runner.Process
	child, err := runner.StartChild(runner.Spec{
		Argv: []string{"sh", "-c", "sleep 3600 & sleep 3600"}, // an empty environment: only the group tells
		Env:  []string{"PATH=" + os.Getenv("PATH")}, Started: func(p runner.Process) error { process = p; return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	record(t, dir, process, func(*runner.Process) {})
	left, err := runner.KillLeftovers(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0].Killed == 0 || left[0].SpentKnown {
		t.Errorf("%+v", left)
	}
	if result := child.Wait(); result.Signal != syscall.SIGKILL {
		t.Errorf("%+v", result)
	}
}

// orphan starts a process whose group leader has ended, and returns its pid and what
// the leader was. Nothing in its environment says whose it is.
func orphan(t *testing.T) (int, runner.Process) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pid")
	leader := exec.Command("sh", "-c", `sleep 3600 & echo $! > "$0.new"; tr -d '\n' < "$0.new" > "$0"; read line`, file)
	leader.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := leader.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	pid := pidIn(t, file)
	process, err := runner.ProcessOf(leader.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	stdin.Close()
	_ = leader.Wait() // its exit code says nothing
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	return pid, process
}

func TestTheGroupOfALeaderThatIsGoneIsKnownByItsSession(t *testing.T) {
	pid, process := orphan(t)
	dir := t.TempDir()
	record(t, dir, process, func(p *runner.Process) { p.Session++ })
	if left, err := runner.KillLeftovers(t.Context(), dir); err != nil || len(left) != 1 || left[0].Killed != 0 || !alive(pid) {
		t.Errorf("of another session: %+v, %v, alive %v", left, err, alive(pid))
	}
	record(t, dir, process, func(*runner.Process) {})
	if left, err := runner.KillLeftovers(t.Context(), dir); err != nil || len(left) != 1 || left[0].Killed != 1 || alive(pid) {
		t.Errorf("of its session: %+v, %v, alive %v", left, err, alive(pid))
	}
}

func TestAFolderWithoutChildrenHasNoLeftovers(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Join(dir, "missing")} {
		if left, err := runner.KillLeftovers(t.Context(), d); err != nil || left != nil {
			t.Errorf("%s: %+v, %v", d, left, err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "children"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i, body := range []string{"", "{", `{"run":"R1"}`, `{"run":"R1","attempt":1,"process":{"pid":1,"pgid":1}}`} {
		if err := os.WriteFile(filepath.Join(dir, "children", strconv.Itoa(i)+".json"), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	left, err := runner.KillLeftovers(t.Context(), dir)
	if diff := cmp.Diff([]runner.Leftover(nil), left); diff != "" || err != nil {
		t.Errorf("%s, %v", diff, err)
	}
}
