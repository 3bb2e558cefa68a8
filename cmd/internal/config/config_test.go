package config_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/cmd/internal/config"
)

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWithNothingSaidTheDefaultsHold(t *testing.T) {
	got, err := config.Load([]string{"HOLDFAST_DATA=" + t.TempDir()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Defaults()
	want.Data = got.Data
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFlagsWinOverTheEnvironmentAndTheEnvironmentOverTheFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, config.FileName, "# ours\nlease: 60s\nheartbeat: 5s\nsweep_every: 2s\nrunners: 3\nlog-level: debug\n")
	got, err := config.Load(
		[]string{"HOLDFAST_DATA=" + dir, "HOLDFAST_HEARTBEAT=6s", "HOLDFAST_SWEEP_EVERY=3s", "HOLDFAST_POLICY_TTL="},
		map[string]string{"sweep-every": "4s", "addr": "localhost:0"})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Defaults()
	want.Data, want.Addr, want.Runners = dir, "localhost:0", 3
	want.Lease, want.Heartbeat, want.SweepEvery, want.LogLevel = time.Minute, 6*time.Second, 4*time.Second, slog.LevelDebug
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestANamedFileMustExistAndMayMoveTheDataFolder(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "other.yaml", "data: "+dir+"/elsewhere\n")
	got, err := config.Load(nil, map[string]string{"config": path})
	if err != nil || got.Data != dir+"/elsewhere" {
		t.Errorf("data %q, error %v", got.Data, err)
	}
	_, err = config.Load(nil, map[string]string{"config": filepath.Join(dir, "none.yaml")})
	mustName(t, err, "--config", "no such file")
}

func mustName(t *testing.T, err error, parts ...string) {
	t.Helper()
	var bad *holdfast.InvalidError
	if !errors.As(err, &bad) {
		t.Fatalf("want an *InvalidError, got %v", err)
	}
	if bad.Allowed == "" {
		t.Errorf("the error does not say what is allowed: %v", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in: %v", part, err)
		}
	}
}

func TestAValueThatCannotBeReadNamesItsPlaceAndWhatIsAllowed(t *testing.T) {
	rows := []struct {
		name, file string
		env        []string
		flags      map[string]string
		names      []string
	}{
		{name: "a number without a unit", env: []string{"HOLDFAST_LEASE=120"}, names: []string{"HOLDFAST_LEASE", `"120"`, "30s"}},
		{name: "a negative duration", flags: map[string]string{"heartbeat": "-1s"}, names: []string{"--heartbeat", "-1s", "10ms"}},
		{name: "an absurd duration", env: []string{"HOLDFAST_LEASE=9000h"}, names: []string{"HOLDFAST_LEASE", "24h"}},
		{name: "an overflowing duration", env: []string{"HOLDFAST_LEASE=99999999999999999999h"}, names: []string{"HOLDFAST_LEASE"}},
		{name: "runners as a word", flags: map[string]string{"runners": "many"}, names: []string{"--runners", "many", "256"}},
		{name: "too many runners", flags: map[string]string{"runners": "257"}, names: []string{"--runners", "256"}},
		{name: "an address without a port", flags: map[string]string{"addr": "localhost"}, names: []string{"--addr", "host:port"}},
		{name: "a port out of range", env: []string{"HOLDFAST_ADDR=:70000"}, names: []string{"HOLDFAST_ADDR", "65535"}},
		{name: "a log level that is none", env: []string{"HOLDFAST_LOG_LEVEL=loud"}, names: []string{"HOLDFAST_LOG_LEVEL", "debug, info"}},
		{name: "an empty folder", flags: map[string]string{"data": " "}, names: []string{"--data", "path"}},
		{name: "an unknown key in the file", file: "lease: 60s\nleese: 3s\n", names: []string{"holdfast.yaml line 2", "leese", "lease, heartbeat"}},
		{name: "a key that stands there twice", file: "lease: 60s\nlease: 61s\n", names: []string{"line 2", "lease"}},
		{name: "a nested value", file: "lease:\n  seconds: 3\n", names: []string{"line 1", "lease"}},
		{name: "a list instead of settings", file: "- lease\n", names: []string{"holdfast.yaml", "key: value"}},
		{name: "a file that is not YAML", file: "lease: [\n", names: []string{"holdfast.yaml"}},
		{name: "a bad value in the file", file: "\nrunners: -1\n", names: []string{"line 2", "runners", "-1"}},
		{name: "the data folder in its own file", file: "data: /tmp/x\n", names: []string{"line 1", "--data"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			if row.file != "" {
				write(t, dir, config.FileName, row.file)
			}
			_, err := config.Load(append([]string{"HOLDFAST_DATA=" + dir}, row.env...), row.flags)
			mustName(t, err, row.names...)
		})
	}
}

func TestSettingsThatDoNotFitTogetherAreRefusedAtTheirBoundary(t *testing.T) {
	rows := []struct {
		name  string
		flags map[string]string
		names []string // empty: accepted
	}{
		{"a third of the lease is one heartbeat too few", map[string]string{"lease": "60s", "heartbeat": "20s"}, []string{"--heartbeat", "under 20s", "--lease"}},
		{"just under a third fits", map[string]string{"lease": "60s", "heartbeat": "19s"}, nil},
		{"the launch lease holds two sweeps", map[string]string{"launch-lease": "20s", "sweep-every": "10s"}, nil},
		{"a launch lease under two sweeps", map[string]string{"launch-lease": "19s", "sweep-every": "10s"}, []string{"--launch-lease", "at least 20s", "--sweep-every"}},
		{"a launch lease over the lease", map[string]string{"launch-lease": "121s"}, []string{"--launch-lease", "at most 2m0s"}},
		{"a skew over the lease", map[string]string{"clock-skew": "3m"}, []string{"--clock-skew", "at most 2m0s"}},
		{"the short settings of a crash test", map[string]string{"lease": "900ms", "heartbeat": "200ms", "sweep-every": "100ms", "launch-lease": "400ms", "clock-skew": "0s", "policy-ttl": "0s"}, nil},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			_, err := config.Load([]string{"HOLDFAST_DATA=" + t.TempDir()}, row.flags)
			if len(row.names) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			mustName(t, err, row.names...)
		})
	}
}

func TestAnUnknownNameInTheEnvironmentIsToldAndNotFatal(t *testing.T) {
	got, err := config.Load([]string{"HOLDFAST_DATA=" + t.TempDir(), "HOLDFAST_HEARTBEET=3s", "HOLDFAST_TOKEN=x", "PATH=/bin"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"HOLDFAST_HEARTBEET"}, got.Unknown); diff != "" {
		t.Error(diff)
	}
}

func TestTheClientTakesTheTokenOfTheEnvironmentElseTheOperatorsFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, config.TokenFile, "hf_operator\n")
	got, err := config.LoadClient([]string{"HOLDFAST_DATA=" + dir}, "", "")
	want := config.Client{URL: config.DefaultURL, Token: "hf_operator", TokenFrom: filepath.Join(dir, config.TokenFile), Data: dir}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	got, err = config.LoadClient([]string{"HOLDFAST_DATA=" + dir, "HOLDFAST_TOKEN= hf_mine ", "HOLDFAST_URL=http://env:1"}, "https://typed:2/", "")
	want = config.Client{URL: "https://typed:2", Token: "hf_mine", TokenFrom: "HOLDFAST_TOKEN", Data: dir}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	got, err = config.LoadClient(nil, "", t.TempDir())
	if err != nil || got.Token != "" {
		t.Errorf("a missing token file is no error: %v, token %q", err, got.Token)
	}
}

func TestAnAddressThatIsNoServerIsRefused(t *testing.T) {
	for _, bad := range []string{"127.0.0.1:7420", "ftp://x", "http://", "http://u:p@h", "http://h/?q=1", "http://h/#f", "::"} {
		_, err := config.LoadClient([]string{"HOLDFAST_URL=" + bad}, "", t.TempDir())
		mustName(t, err, "HOLDFAST_URL", "http://")
	}
}
