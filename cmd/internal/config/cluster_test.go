package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-io/holdfast/cmd/internal/config"
)

// reachable is the least that a server needs.
var reachable = []string{"HOLDFAST_MONGO_URI=mongodb://u:swordfish@db", "HOLDFAST_NATS_URL=nats://n"}

func TestAServerAndARunnerHaveTheirOwnDefaults(t *testing.T) {
	server, err := config.LoadFor(config.Server, reachable, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := config.DefaultsOf(config.Server)
	want.MongoURI, want.NATSURL = "mongodb://u:swordfish@db", "nats://n"
	if diff := cmp.Diff(want, server); diff != "" {
		t.Error(diff)
	}
	dir := t.TempDir()
	runner, err := config.LoadFor(config.Runner, append([]string{"HOLDFAST_DATA=" + dir, "HOLDFAST_DRAIN=10s"}, reachable...), map[string]string{"runners": "2", "name": "r1"})
	if err != nil {
		t.Fatal(err)
	}
	want = config.DefaultsOf(config.Runner)
	want.NATSURL, want.Data, want.Runners, want.Name, want.Drain = "nats://n", dir, 2, "r1", 10*time.Second
	if diff := cmp.Diff(want, runner); diff != "" {
		t.Errorf("a runner reads what is its own and never where the database is: %s", diff)
	}
}

func TestASecretMayComeFromAFileAndIsNeverPrinted(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "uri", "mongodb://u:swordfish@db\n")
	got, err := config.LoadFor(config.Server, []string{"HOLDFAST_MONGO_URI_FILE=" + path, "HOLDFAST_NATS_URL=nats://n"}, nil)
	if err != nil || got.MongoURI != "mongodb://u:swordfish@db" {
		t.Errorf("%q, %v", got.MongoURI, err)
	}
	rows := []struct {
		name  string
		p     config.Process
		env   []string
		flags map[string]string
		want  []string
	}{
		{"no database", config.Server, []string{"HOLDFAST_NATS_URL=nats://n"}, nil, []string{"HOLDFAST_MONGO_URI", "missing"}},
		{"no queue", config.Server, []string{"HOLDFAST_MONGO_URI=mongodb://u:swordfish@db"}, nil, []string{"HOLDFAST_NATS_URL", "missing"}},
		{"a runner without a queue", config.Runner, nil, nil, []string{"HOLDFAST_NATS_URL", "missing"}},
		{"given twice", config.Server, append([]string{"HOLDFAST_MONGO_URI_FILE=" + path}, reachable...), nil, []string{"HOLDFAST_MONGO_URI_FILE", "mongo-uri"}},
		{"a file that is not there", config.Server, []string{"HOLDFAST_OPERATOR_TOKEN_FILE=" + dir + "/none", reachable[0], reachable[1]}, nil, []string{"HOLDFAST_OPERATOR_TOKEN_FILE", "no such file"}},
		{"an empty file", config.Server, []string{"HOLDFAST_OPERATOR_TOKEN_FILE=" + write(t, dir, "empty", "\n"), reachable[0], reachable[1]}, nil, []string{"HOLDFAST_OPERATOR_TOKEN_FILE", "empty"}},
		{"a database of another kind", config.Server, []string{"HOLDFAST_MONGO_URI=postgres://u:swordfish@db", reachable[1]}, nil, []string{"HOLDFAST_MONGO_URI", "mongodb://"}},
		{"a file with what is no queue", config.Runner, []string{"HOLDFAST_NATS_URL_FILE=" + write(t, dir, "web", "nats://n,http://u:swordfish@n")}, nil, []string{"HOLDFAST_NATS_URL_FILE", "nats://"}},
		{"an operator's token that opens nothing", config.Server, append([]string{"HOLDFAST_OPERATOR_TOKEN=swordfish"}, reachable...), nil, []string{"HOLDFAST_OPERATOR_TOKEN", "hf_"}},
		{"a key that seals nothing", config.Server, append([]string{"HOLDFAST_SECRETS_KEY=swordfish"}, reachable...), nil, []string{"HOLDFAST_SECRETS_KEY", "64 hexadecimal digits"}},
		{"a certificate without its key", config.Runner, reachable, map[string]string{"nats-cert": "c.pem"}, []string{"--nats-cert", "HOLDFAST_NATS_KEY"}},
		{"credentials and a seed", config.Runner, reachable, map[string]string{"nats-creds": "c", "nats-nkey": "k"}, []string{"--nats-nkey", "HOLDFAST_NATS_CREDS"}},
		{"a pool that is none", config.Runner, reachable, map[string]string{"pool": "GPU 1"}, []string{"--pool", "runner-pools setting"}},
		{"a runner of nothing", config.Runner, reachable, map[string]string{"runners": "0"}, []string{"--runners", "1 to 256"}},
		{"streams that nobody keeps", config.Server, reachable, map[string]string{"nats-stream-replicas": "0"}, []string{"--nats-stream-replicas", "1 to 5"}},
		{"a heartbeat that does not fit", config.Runner, reachable, map[string]string{"heartbeat": "50s"}, []string{"--heartbeat", "under 40s"}},
		{"a drain that never ends", config.Runner, reachable, map[string]string{"drain": "25h"}, []string{"--drain", "24h"}},
		{"a file that is not there", config.Server, reachable, map[string]string{"config": dir + "/none.yaml"}, []string{"--config"}},
		{"a server's key in a runner's file", config.Runner, append([]string{"HOLDFAST_DATA=" + ofRunner(t)}, reachable...), nil, []string{"line 1", "mongo-uri"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			_, err := config.LoadFor(row.p, row.env, row.flags)
			mustName(t, err, row.want...)
			if err != nil && strings.Contains(err.Error(), "swordfish") {
				t.Errorf("a password is printed: %v", err)
			}
		})
	}
	for _, s := range config.Settings() {
		if s.Secret && s.Default(config.Server) != "" {
			t.Errorf("%s is shown", s.Key)
		}
	}
}

func ofRunner(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, config.FileName), []byte("mongo-uri: mongodb://u:swordfish@db\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestEverySettingHasAProcessAndAMeaning(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range config.Settings() {
		if len(s.For) == 0 || s.Meaning == "" || seen[s.Key] {
			t.Errorf("%s: for %v, %q, seen before: %v", s.Key, s.For, s.Meaning, seen[s.Key])
		}
		seen[s.Key] = true
	}
}
