package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pkg/api"
)

// gate is a server of external runs whose answers a test chooses. A nil func is the
// answer of a healthy server.
type gate struct {
	lease                     time.Duration
	launch, heartbeat, settle func(http.ResponseWriter, *http.Request, int) bool // true: it has answered

	mu       sync.Mutex
	keys     []string
	launches []api.LaunchRequest
	beats    []api.Heartbeat
	settles  []api.Settle
	settled  time.Time
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	decode := func(into any) {
		if err := json.NewDecoder(r.Body).Decode(into); err != nil {
			panic(err)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/api/runs":
		g.keys = append(g.keys, r.Header.Get("Idempotency-Key"))
		g.launches = append(g.launches, api.LaunchRequest{})
		decode(&g.launches[len(g.launches)-1])
		if g.launch != nil && g.launch(w, r, len(g.launches)) {
			return
		}
		reported := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC) // the server's clock is nobody's business
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(api.Run{
			ID: "R1", Team: "web", Identity: api.Identity{Bot: "review-pr", Tier: "platform"}, Status: "running", External: true, Attempt: 1,
			BudgetUSD: holdfast.OneUSD, ReportedAt: reported, Lease: &api.Lease{ExpiresAt: reported.Add(g.lease), HeartbeatEveryS: 1},
			Allocations: []api.Allocation{{ID: "R1~team~web~slots", Subject: "team/web/slots", Amount: slots(1)}},
		})
	case strings.HasSuffix(r.URL.Path, "/heartbeat"):
		g.beats = append(g.beats, api.Heartbeat{})
		decode(&g.beats[len(g.beats)-1])
		if g.heartbeat != nil && g.heartbeat(w, r, len(g.beats)) {
			return
		}
		_ = json.NewEncoder(w).Encode(api.HeartbeatAnswer{})
	case strings.HasSuffix(r.URL.Path, "/settle"):
		g.settles = append(g.settles, api.Settle{})
		decode(&g.settles[len(g.settles)-1])
		if g.settle != nil && g.settle(w, r, len(g.settles)) {
			return
		}
		g.settled = time.Now()
		_ = json.NewEncoder(w).Encode(api.SettleAnswer{Closed: true})
	default:
		http.NotFound(w, r)
	}
}

func refuse(w http.ResponseWriter, p api.Problem) bool {
	w.Header().Set("Content-Type", api.ProblemType)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
	return true
}

func answers(p api.Problem, on func(n int) bool) func(http.ResponseWriter, *http.Request, int) bool {
	return func(w http.ResponseWriter, _ *http.Request, n int) bool { return on(n) && refuse(w, p) }
}

// executed runs `exec` in this process against the gate and returns its code, what it
// said and the status file.
func executed(t *testing.T, g *gate, flags []string, command ...string) (int, string, execStatus) {
	t.Helper()
	if g.lease == 0 {
		g.lease = time.Minute
	}
	server := httptest.NewServer(g)
	defer server.Close()
	var stdout, stderr strings.Builder
	file := filepath.Join(t.TempDir(), "status.json")
	c := &cli{
		stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr,
		environ: append(os.Environ(), "HOLDFAST_URL="+server.URL, "HOLDFAST_TOKEN=hf_secret"),
	}
	args := append([]string{"exec", "--team", "web", "--bot", "review-pr", "--status-file", file}, flags...)
	code := c.run(append(append(args, "--"), command...))
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; stderr %s", err, stderr.String())
	}
	var status execStatus
	if err := json.Unmarshal(text, &status); err != nil {
		t.Fatal(err)
	}
	if status.ExitCode != code {
		t.Errorf("the status file says %d, the code is %d", status.ExitCode, code)
	}
	if strings.Contains(stdout.String()+stderr.String()+string(text), "hf_secret") {
		t.Error("the token was printed")
	}
	return code, stderr.String(), status
}

var sick = api.Problem{Status: 500, Title: "Internal error"}

func TestACommandIsFencedBeforeItsLeaseEndsWhenRenewalsAreNotAcknowledged(t *testing.T) {
	var acknowledged time.Time
	g := &gate{lease: 4 * time.Second}
	g.heartbeat = func(w http.ResponseWriter, _ *http.Request, n int) bool {
		if n == 1 {
			acknowledged = time.Now()
			return false
		}
		return refuse(w, sick)
	}
	code, _, status := executed(t, g, nil, "sleep", "30")
	if code != exitExecStopped || status.StoppedBy != "lease_lost" || !status.Settled {
		t.Errorf("code %d, status %+v", code, status)
	}
	// The answer was asked for shortly before it was given, so the fence may come
	// that much early, and must come before the lease is over.
	if after := g.settled.Sub(acknowledged); after < 2500*time.Millisecond || after > g.lease {
		t.Errorf("it was stopped %v after the last acknowledged renewal of a lease of %v", after, g.lease)
	}
}

func TestACommandStopsAtOnceWhenItsAllocationIsClosed(t *testing.T) {
	g := &gate{heartbeat: answers(api.Problem{Status: 409, Code: "allocation_closed", Title: "Closed"}, func(int) bool { return true })}
	code, stderr, status := executed(t, g, nil, "sleep", "30")
	if code != exitExecStopped || status.StoppedBy != "lease_lost" || len(g.beats) != 1 || !strings.Contains(stderr, "stopped (lease_lost)") {
		t.Errorf("code %d, status %+v, %d heartbeats, %s", code, status, len(g.beats), stderr)
	}
}

func TestTheServersWordToStopIsWhatTheStatusSays(t *testing.T) {
	for reason, outcome := range map[string]string{"cancelled_by_caller": "cancelled", "budget_exceeded": "failed", "released_by_operator": "failed"} {
		g := &gate{heartbeat: func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			_ = json.NewEncoder(w).Encode(api.HeartbeatAnswer{Stop: true, Reason: reason})
			return true
		}}
		code, _, status := executed(t, g, nil, "sleep", "30")
		if code != exitExecStopped || status.StoppedBy != reason || len(g.settles) != 1 || g.settles[0].Outcome != outcome {
			t.Errorf("%s: code %d, status %+v, settles %+v", reason, code, status, g.settles)
		}
	}
}

func TestTheSpendThatIsReportedIsCumulativeAndSettledToTheLastLine(t *testing.T) {
	g := &gate{lease: 6 * time.Second}
	reported := make(chan struct{}, 100)
	g.heartbeat = func(http.ResponseWriter, *http.Request, int) bool {
		if g.beats[len(g.beats)-1].SpentUSD == 300_000 {
			reported <- struct{}{}
		}
		return false
	}
	done := filepath.Join(t.TempDir(), "done")
	go func() {
		<-reported
		_ = os.WriteFile(done, nil, 0o600)
	}()
	script := fmt.Sprintf(`for i in 1 2 3; do echo '{"cost_usd": 0.1}' >> "$HOLDFAST_REPORT"; done
		while [ ! -e %s ]; do sleep 0.05; done; printf '{"cost_usd": 0.05}' >> "$HOLDFAST_REPORT"; exit 9`, done)
	code, stderr, status := executed(t, g, nil, "sh", "-c", script)
	if code != 9 || status.SpentUSD != 350_000 || len(g.settles) != 1 || g.settles[0] != (api.Settle{SpentUSD: 350_000, Outcome: "failed"}) {
		t.Errorf("code %d, status %+v, settles %+v, %s", code, status, g.settles, stderr)
	}
}

func TestASignalIsPassedOnAndTheRunIsSettledAsCancelled(t *testing.T) {
	trapped := filepath.Join(t.TempDir(), "trapped")
	if err := syscall.Mkfifo(trapped, 0o600); err != nil {
		t.Fatal(err)
	}
	g := &gate{heartbeat: func(http.ResponseWriter, *http.Request, int) bool {
		_, _ = os.ReadFile(trapped)                    // the shell has its trap once it has written
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM) // exec listens for it by now
		return false
	}}
	code, _, status := executed(t, g, nil, "sh", "-c", `trap 'echo "{\"cost_usd\": 0.2}" >> "$HOLDFAST_REPORT"; exit 41' TERM; echo > "$1"; while :; do sleep 0.05; done`, "sh", trapped)
	if code != 41 || status.SpentUSD != 200_000 || len(g.settles) != 1 || g.settles[0].Outcome != "cancelled" {
		t.Errorf("code %d, status %+v, settles %+v", code, status, g.settles)
	}
}

func TestASignalWhileItAsksGivesBackWhatTheAskIsGranted(t *testing.T) {
	g := &gate{launch: func(http.ResponseWriter, *http.Request, int) bool {
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		time.Sleep(200 * time.Millisecond) // the signal is there before the answer
		return false
	}}
	ran := filepath.Join(t.TempDir(), "ran")
	code, _, status := executed(t, g, []string{"--wait-for", "1h"}, "touch", ran)
	if _, err := os.Stat(ran); code != 143 || err == nil || len(g.settles) != 1 || g.settles[0].Outcome != "cancelled" || status.Outcome != "failed" {
		t.Errorf("code %d, status %+v, settles %+v, the command ran: %v", code, status, g.settles, err == nil)
	}
}

func TestAskingAgainIsTheSameAsk(t *testing.T) {
	yes := true
	g := &gate{launch: answers(api.Problem{Status: 429, Reason: "concurrency_cap_exceeded", Retryable: &yes}, func(n int) bool { return n < 3 })}
	code, _, _ := executed(t, g, []string{"--wait-for", "1h", "--budget", "1"}, "true")
	if code != 0 || len(g.keys) != 3 || g.keys[0] == "" || g.keys[0] != g.keys[1] || g.keys[1] != g.keys[2] {
		t.Errorf("code %d, keys %q", code, g.keys)
	}
	if ask := g.launches[2]; !ask.External || ask.Team != "web" || ask.Bot != "review-pr" || *ask.BudgetUSD != holdfast.OneUSD {
		t.Errorf("asked for %+v", ask)
	}
}

func TestSettlingIsTriedAgainAndItsFailureLeavesTheCommandsCode(t *testing.T) {
	g := &gate{settle: answers(sick, func(n int) bool { return n < 3 })}
	code, stderr, status := executed(t, g, nil, "sh", "-c", "exit 6")
	if code != 6 || !status.Settled || len(g.settles) != 3 || !strings.Contains(stderr, "1 slot came back") {
		t.Errorf("code %d, status %+v, %d settles, %s", code, status, len(g.settles), stderr)
	}
	g = &gate{settle: answers(api.Problem{Status: 404, Title: "Not found"}, func(int) bool { return true })}
	code, stderr, status = executed(t, g, nil, "sh", "-c", "exit 6")
	if code != 6 || status.Settled || len(g.settles) != 1 || !strings.Contains(stderr, "its lease gives it back") {
		t.Errorf("code %d, status %+v, %d settles, %s", code, status, len(g.settles), stderr)
	}
}

func TestACommandThatCannotBeExecutedGivesEverythingBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(path, []byte("\x7fELF no program"), 0o700); err != nil { // it has to look executable
		t.Fatal(err)
	}
	g := &gate{}
	code, _, status := executed(t, g, nil, path)
	if code != exitNotExecutable || status.Outcome != "failed" || len(g.settles) != 1 || g.settles[0].SpentUSD != 0 {
		t.Errorf("code %d, status %+v, settles %+v", code, status, g.settles)
	}
}

func TestAServerThatCannotTellIsUnreachableAndARefusalIsNot(t *testing.T) {
	g := &gate{launch: answers(api.Problem{Status: 503, Title: "Store unavailable"}, func(int) bool { return true })}
	if code, _, status := executed(t, g, nil, "false"); code != exitExecUnreachable || status.Outcome != "unreachable" {
		t.Errorf("code %d, status %+v", code, status)
	}
	if code, stderr, status := executed(t, g, []string{"--on-unreachable", "run"}, "sh", "-c", "test -z \"$HOLDFAST_REPORT\" && exit 5"); code != 5 || !status.Unheld {
		t.Errorf("code %d, status %+v, %s", code, status, stderr)
	}
	g = &gate{launch: answers(api.Problem{Status: 403, Reason: "team_suspended", DecisionID: "D1"}, func(int) bool { return true })}
	if code, _, status := executed(t, g, []string{"--on-unreachable", "run"}, "false"); code != exitExecRefused || status.Reason != "team_suspended" || status.DecisionID != "D1" {
		t.Errorf("code %d, status %+v", code, status)
	}
	g = &gate{launch: answers(api.Problem{Status: 401, Title: "Unauthenticated"}, func(int) bool { return true })}
	if code, _, status := executed(t, g, []string{"--on-unreachable", "run"}, "false"); code != exitFailed || status.Outcome != "failed" {
		t.Errorf("code %d, status %+v", code, status)
	}
}

func TestAStatusFileThatCannotBeWrittenIsToldBeforeAnythingIsReserved(t *testing.T) {
	code, _, stderr := command(os.Environ(), "", "exec", "--team", "web", "--bot", "x", "--status-file", filepath.Join(t.TempDir(), "no", "such"), "--", "true")
	if code != exitUsage || !strings.Contains(stderr, "--status-file") {
		t.Errorf("code %d: %s", code, stderr)
	}
}
