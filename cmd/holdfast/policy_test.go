package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast/pkg/api"
)

// policyServer keeps one policy and loses the race of the first races writes.
type policyServer struct {
	policy api.BudgetFloor
	races  int
	writes int
}

func (s *policyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodPut {
		s.writes++
		var body api.BudgetFloor
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			panic(err)
		}
		if s.races > 0 { // somebody else was faster
			s.races--
			s.policy.Reservations = append(s.policy.Reservations, api.Reservation{Bot: "other", Tier: "platform", ConcurrentRuns: 1, Note: "theirs"})
			s.policy.UpdatedAt = s.policy.UpdatedAt.Add(time.Millisecond)
		}
		if !body.UpdatedAt.Equal(s.policy.UpdatedAt) {
			refuse(w, api.Problem{Status: http.StatusConflict, Title: "Conflict", Detail: "somebody else wrote the policy"})
			return
		}
		s.policy = body
		s.policy.UpdatedAt = s.policy.UpdatedAt.Add(time.Millisecond)
	}
	if r.Method == http.MethodPost { // a check: what was asked, as it would be stored
		var body api.BudgetFloor
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			panic(err)
		}
		body.Warnings = []string{"it goes too far"}
		_ = json.NewEncoder(w).Encode(body)
		return
	}
	_ = json.NewEncoder(w).Encode(s.policy)
}

func edited(t *testing.T, s *policyServer, args ...string) (int, string, string) {
	t.Helper()
	if s.policy.UpdatedAt.IsZero() {
		s.policy.UpdatedAt = time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	}
	server := httptest.NewServer(s)
	defer server.Close()
	return command([]string{"HOLDFAST_URL=" + server.URL, "HOLDFAST_TOKEN=x"}, "", append([]string{"policy"}, args...)...)
}

func TestAnEditThatLosesTheRaceIsReplayedOnWhatTheOtherWroteOnce(t *testing.T) {
	s := &policyServer{races: 1}
	code, _, stderr := edited(t, s, "reserve", "Review PR", "--concurrent-runs", "2")
	want := []api.Reservation{{Bot: "other", Tier: "platform", ConcurrentRuns: 1, Note: "theirs"}, {Bot: "review-pr", Tier: "platform", ConcurrentRuns: 2}}
	if diff := cmp.Diff(want, s.policy.Reservations); code != 0 || s.writes != 2 || diff != "" {
		t.Errorf("code %d after %d writes, %s%s", code, s.writes, stderr, diff)
	}
	s = &policyServer{races: 2}
	code, _, stderr = edited(t, s, "reserve", "review-pr", "--concurrent-runs", "2")
	if code != exitFailed || s.writes != 2 || !strings.Contains(stderr, "somebody else wrote") {
		t.Errorf("code %d after %d writes: %s", code, s.writes, stderr)
	}
}

// A dry run shows what would be, with the server's warnings, and writes nothing.
func TestADryRunShowsThePolicyAndWritesNothing(t *testing.T) {
	before := []api.Reservation{{Bot: "review-pr", Tier: "platform", ConcurrentRuns: 2}}
	for _, args := range [][]string{
		{"reserve", "review-pr", "--monthly-usd", "$12.50", "--dry-run"}, {"quota", "acme/widgets", "--monthly-usd", "$12.50", "--dry-run"},
		{"suspend", "review-pr", "--until", "2199-01-02", "--dry-run"}, {"rm", "review-pr", "--dry-run"},
	} {
		s := &policyServer{policy: api.BudgetFloor{Reservations: before}}
		code, stdout, stderr := edited(t, s, args...)
		if code != 0 || s.writes != 0 || !strings.Contains(stdout, "Nothing was written") || !strings.Contains(stdout, "it goes too far") {
			t.Errorf("%v: code %d, %d writes: %s%s", args, code, s.writes, stdout, stderr)
		}
		shown := map[string]string{"reserve": "$12.50", "quota": "$12.50", "suspend": "2199-01-02", "rm": "nothing is reserved"}[args[0]]
		if !strings.Contains(stdout, shown) {
			t.Errorf("%v does not show %q:\n%s", args, shown, stdout)
		}
	}
}

func TestAnEditThatTheRulesRefuseIsNeverSent(t *testing.T) {
	for _, args := range [][]string{
		{"reserve", "review-pr", "--five-hour", "101"}, {"reserve", "review-pr", "--concurrent-runs", "-1"}, {"reserve", "review-pr"},
		{"quota", "acme/widgets"}, {"quota", "acme/widgets", "--reserve-share", "10"}, {"rm", "nobody"}, {"suspend", "nobody", "--for", "1h"},
		{"reserve", "no/such/holder", "--concurrent-runs", "1"}, {"reserve", "ü", "--concurrent-runs", "1"},
	} {
		s := &policyServer{}
		code, _, stderr := edited(t, s, args...)
		if code != exitUsage || s.writes != 0 || !strings.Contains(stderr, "allowed") {
			t.Errorf("%v: code %d, %d writes: %s", args, code, s.writes, stderr)
		}
	}
}

func TestAnEditLeavesWhatIsNotTyped(t *testing.T) {
	s := &policyServer{policy: api.BudgetFloor{Reservations: []api.Reservation{
		{Bot: "review-pr", ConcurrentRuns: 2, MonthlyUSD: 5_000_000, Teams: []string{"web"}, Note: "n"}, // written before tiers existed
		{Bot: "review-pr", Tier: "team", Team: "web", ConcurrentRuns: 1},
	}}}
	if code, _, stderr := edited(t, s, "reserve", "review-pr", "--week", "10", "--concurrent-runs", "0"); code != 0 {
		t.Fatal(stderr)
	}
	want := []api.Reservation{
		{Bot: "review-pr", MonthlyUSD: 5_000_000, WeekPercent: 10, Teams: []string{"web"}, Note: "n"},
		{Bot: "review-pr", Tier: "team", Team: "web", ConcurrentRuns: 1},
	}
	if diff := cmp.Diff(want, s.policy.Reservations); diff != "" {
		t.Error(diff)
	}
	if code, _, stderr := edited(t, s, "rm", "team:web/review-pr"); code != 0 || len(s.policy.Reservations) != 1 {
		t.Errorf("%s%+v", stderr, s.policy.Reservations)
	}
}

func TestDoctorJudgesTheClocksByTheSecondsThatTheyMayDiffer(t *testing.T) {
	asked := time.Date(2026, 11, 30, 12, 0, 0, 400e6, time.UTC)
	for ahead, want := range map[time.Duration]string{
		0: verdictOK, 1200 * time.Millisecond: verdictOK, 5 * time.Second: verdictWarn, -5 * time.Second: verdictWarn,
		13 * time.Second: verdictFail, -13 * time.Second: verdictFail,
	} {
		d := &dateOf{date: asked.Add(ahead).Format(http.TimeFormat), asked: asked, got: asked.Add(50 * time.Millisecond)}
		if got := checkClock(d); got.Verdict != want {
			t.Errorf("%v apart is %+v, want %s", ahead, got, want)
		}
	}
	if got := checkClock(&dateOf{}); got.Verdict != verdictWarn {
		t.Errorf("no date is %+v", got)
	}
}

func TestDoctorFindsAFolderThatOthersCanRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := checkFolder(dir); got[0].Verdict != verdictFail || !strings.Contains(got[0].WayOut, "chmod 0700") {
		t.Errorf("%+v", got)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := checkFolder(dir); got[0].Verdict != verdictOK {
		t.Errorf("%+v", got)
	}
}
