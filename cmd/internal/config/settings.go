package config

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
)

// Setting is one setting: its key in the file and name as a flag, what it means, and
// which processes have it.
type Setting struct {
	Key     string
	Meaning string
	// For lists the processes that have it.
	For []Process
	// Secret marks what is never printed and cannot be typed as a flag, which everybody
	// on the machine could read. It may be given as a file, by the setting of the same
	// name and "-file".
	Secret bool

	set  func(*Options, string) error
	show func(Options) string // the value as it would be written; nil of a secret
}

// Env is the setting's name in the environment: HOLDFAST_SWEEP_EVERY for
// sweep-every.
func (s Setting) Env() string {
	return "HOLDFAST_" + strings.ToUpper(strings.ReplaceAll(s.Key, "-", "_"))
}

// Default is what the setting is in a process when nobody says anything, as it would
// be written; empty is nothing.
func (s Setting) Default(p Process) string {
	if s.Secret || s.show == nil {
		return ""
	}
	return s.show(DefaultsOf(p))
}

// Process is one of the processes that have settings.
type Process string

// The processes.
const (
	Dev    Process = "dev"
	Server Process = "server"
	Runner Process = "runner"
)

// Processes lists every process.
func Processes() []Process { return []Process{Dev, Server, Runner} }

// Of lists the settings of a process, in the order in which help shows them.
func Of(p Process) []Setting {
	var list []Setting
	for _, s := range Settings() {
		if slices.Contains(s.For, p) {
			list = append(list, s)
		}
	}
	return list
}

// Settings lists every setting of every process.
func Settings() []Setting {
	return slices.Concat(placeSettings(), clusterSettings(), loginSettings(), timeSettings())
}

// placeSettings say where a process keeps its state, listens and works.
func placeSettings() []Setting {
	return []Setting{
		text("data", "folder that holds all state", func(o *Options) *string { return &o.Data }).of(Dev, Runner),
		Setting{Key: "addr", Meaning: "host:port that the API listens on", set: func(o *Options, text string) error {
			o.Addr = text
			return checkAddr(text)
		}, show: func(o Options) string { return o.Addr }}.of(Dev, Server),
		whole("runners", "runs that are executed at the same time; 0 executes none", maxRunners, func(o *Options) *int { return &o.Runners }).of(Dev, Runner),
		whole("clone-mib", "mebibytes that the clone of a bot's repository may have", 1<<20, func(o *Options) *int { return &o.CloneMiB }).of(Dev, Runner),
		duration("clone-within", "how long cloning a bot's repository may take", func(o *Options) *time.Duration { return &o.CloneWithin }).of(Dev, Runner),
		Setting{Key: "runner-addr", Meaning: "host:port at which a runner answers /healthz and /readyz; none unless it is set", set: func(o *Options, text string) error {
			o.RunnerAddr = text
			return checkAddr(text)
		}, show: func(o Options) string { return o.RunnerAddr }}.of(Runner),
		text("name", "what this process is called in logs, runs and the lists of NATS", func(o *Options) *string { return &o.Name }).of(Server, Runner),
		Setting{Key: "pool", Meaning: "the runner pool whose runs this runner executes", set: func(o *Options, text string) error {
			if !holdfast.ValidName(text) {
				return &holdfast.InvalidError{Problem: quoted(text) + " is not a runner pool's name", Allowed: "1 to 63 lower case letters, digits and single dashes; the runner-pools setting names those that there are"}
			}
			o.Pool = text
			return nil
		}, show: func(o Options) string { return o.Pool }}.of(Runner),
		Setting{Key: "allowed-hosts", Meaning: "names under which the API may be asked, separated by commas; * is any name", set: func(o *Options, text string) error {
			o.AllowedHosts = nil
			for name := range strings.SplitSeq(text, ",") {
				if name = strings.ToLower(strings.TrimSpace(name)); name != "" {
					o.AllowedHosts = append(o.AllowedHosts, name)
				}
			}
			return nil
		}, show: func(o Options) string { return strings.Join(o.AllowedHosts, ",") }}.of(Server),
	}
}

// clusterSettings say how the processes of many machines reach what they share.
func clusterSettings() []Setting {
	return slices.Concat(
		secret("mongo-uri", "address of the MongoDB that all servers share, required", func(o *Options) *string { return &o.MongoURI }, checkMongoURI, Server),
		[]Setting{
			text("mongo-database", "name of the database", func(o *Options) *string { return &o.MongoDatabase }).of(Server),
		},
		secret("nats-url", "address of the NATS that servers and runners share, or several separated by commas, required", func(o *Options) *string { return &o.NATSURL }, checkNATSURL, Server, Runner),
		[]Setting{
			text("nats-creds", "file with a NATS user's credentials", func(o *Options) *string { return &o.NATSCreds }).of(Server, Runner),
			text("nats-nkey", "file with a NATS user's nkey seed", func(o *Options) *string { return &o.NATSNKey }).of(Server, Runner),
			text("nats-ca", "PEM file of the certificates that NATS is trusted by, instead of the machine's", func(o *Options) *string { return &o.NATSCA }).of(Server, Runner),
			text("nats-cert", "PEM file of this process's own certificate for NATS", func(o *Options) *string { return &o.NATSCert }).of(Server, Runner),
			text("nats-key", "PEM file of that certificate's key", func(o *Options) *string { return &o.NATSKey }).of(Server, Runner),
			whole("nats-stream-replicas", "NATS servers that keep each stream", 5, func(o *Options) *int { return &o.NATSReplicas }).of(Server),
			whole("nats-max-ack-pending", "runs in the hands of all runners of a pool together, where the pool has no ceiling of its own", 100_000, func(o *Options) *int { return &o.NATSMaxAckPending }).of(Server),
			whole("log-mib", "mebibytes of the newest output of runs that NATS keeps, for seven days", 1<<20, func(o *Options) *int { return &o.LogMiB }).of(Server),
		},
		secret("operator-token", "the operator's token; without one the database's stays as it is", func(o *Options) *string { return &o.OperatorToken }, checkOperatorToken, Server),
		secret("metrics-token", "token that opens /metrics to other machines; without one it is for this machine alone", func(o *Options) *string { return &o.MetricsToken }, anyText, Server),
		secret("secrets-key", "key or keys that seal the secrets of teams, the same for all servers; the first one seals; without one secrets are off, and dev makes a file with one in its folder", func(o *Options) *string { return &o.SecretsKey }, checkSecretsKey, Dev, Server),
	)
}

// timeSettings are the durations and the log level.
func timeSettings() []Setting {
	return []Setting{
		duration("lease", "how long a running run keeps its allocation after its last heartbeat", func(o *Options) *time.Duration { return &o.Lease }).of(Dev, Server, Runner),
		duration("heartbeat", "how often a running run renews its allocation", func(o *Options) *time.Duration { return &o.Heartbeat }).of(Dev, Server, Runner),
		duration("sweep-every", "how often overdue allocations are looked for", func(o *Options) *time.Duration { return &o.SweepEvery }).of(Dev, Server),
		duration("launch-lease", "how long an allocation lives before its run has renewed it once", func(o *Options) *time.Duration { return &o.LaunchLease }).of(Dev, Server),
		whole("keep-audit", "days for which the audit trail is kept; 0 is for ever", 36_500, func(o *Options) *int { return &o.KeepAudit }).of(Dev, Server),
		duration("policy-ttl", "how long a policy is served before it is read again", func(o *Options) *time.Duration { return &o.PolicyTTL }).of(Dev, Server),
		duration("clock-skew", "how far the clocks of two machines may be apart", func(o *Options) *time.Duration { return &o.ClockSkew }).of(Dev, Server),
		duration("start-wait", "how long a start waits for MongoDB and NATS that do not answer yet; 0 is for ever", func(o *Options) *time.Duration { return &o.StartWait }).of(Server, Runner),
		duration("drain", "how long what is under way may go on after INT or TERM; a second one ends it", func(o *Options) *time.Duration { return &o.Drain }).of(Server, Runner),
		Setting{Key: "log-level", Meaning: "debug, info, warn or error", set: func(o *Options, text string) error {
			levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
			level, known := levels[strings.ToLower(text)]
			if !known {
				return &holdfast.InvalidError{Problem: quoted(text) + " is not a log level", Allowed: "debug, info, warn, error"}
			}
			o.LogLevel = level
			return nil
		}, show: func(o Options) string { return strings.ToLower(o.LogLevel.String()) }}.of(Dev, Server, Runner),
	}
}

// DefaultPool is the runner pool of runs that name none.
const DefaultPool = "default"

const (
	maxRunners  = 256
	minDuration = 10 * time.Millisecond
	maxDuration = 24 * time.Hour
)

func (s Setting) of(p ...Process) Setting { s.For = p; return s }

func text(key, meaning string, field func(*Options) *string) Setting {
	return Setting{Key: key, Meaning: meaning, set: func(o *Options, text string) error {
		if strings.TrimSpace(text) == "" {
			return &holdfast.InvalidError{Problem: "it is empty", Allowed: "a path or a name; leave the setting out for none"}
		}
		*field(o) = text
		return nil
	}, show: func(o Options) string { return *field(&o) }}
}

func whole(key, meaning string, most int, field func(*Options) *int) Setting {
	return Setting{Key: key, Meaning: meaning, set: func(o *Options, text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > most {
			return &holdfast.InvalidError{Problem: quoted(text) + " is not such a number", Allowed: fmt.Sprintf("a whole number from 0 to %d", most)}
		}
		*field(o) = n
		return nil
	}, show: func(o Options) string { return strconv.Itoa(*field(&o)) }}
}

// maxSecret bounds the file of a secret.
const maxSecret = 64 << 10

// secret is a setting that is never printed, and its twin that names a file. check says
// whether a text can be one.
func secret(key, meaning string, field func(*Options) *string, check func(text string) error, p ...Process) []Setting {
	given := Setting{Key: key, Meaning: meaning, For: p, Secret: true, set: func(o *Options, text string) error {
		*field(o) = strings.TrimSpace(text)
		return check(*field(o))
	}}
	file := Setting{Key: key + "-file", Meaning: "file that holds " + key, For: p, set: func(o *Options, path string) error {
		if *field(o) != "" {
			return &holdfast.InvalidError{Problem: key + " is given beside it", Allowed: "one of the two"}
		}
		text, err := os.ReadFile(path)
		switch {
		case err != nil:
			return &holdfast.InvalidError{Problem: "cannot read " + quoted(path) + ": " + plainFileError(err), Allowed: "a file that can be read"}
		case strings.TrimSpace(string(text)) == "" || len(text) > maxSecret:
			return &holdfast.InvalidError{Problem: quoted(path) + " is empty or too long", Allowed: "a file with one line"}
		}
		*field(o) = strings.TrimSpace(string(text))
		return check(*field(o))
	}}
	return []Setting{given, file}
}

func duration(key, meaning string, field func(*Options) *time.Duration) Setting {
	return Setting{Key: key, Meaning: meaning, set: func(o *Options, text string) error {
		d, err := time.ParseDuration(strings.TrimSpace(text))
		if err != nil {
			return &holdfast.InvalidError{Problem: quoted(text) + " is not a duration", Allowed: "a number with a unit, such as 500ms, 30s or 2m"}
		}
		*field(o) = d
		return nil
	}, show: func(o Options) string { return field(&o).String() }}
}

func checkAddr(text string) error {
	bad := &holdfast.InvalidError{Problem: quoted(text) + " is not an address", Allowed: "host:port with a port from 0 to 65535, such as 127.0.0.1:7420"}
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return bad
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return bad
	}
	return nil
}

func quoted(text string) string { return strconv.Quote(holdfast.Clip(text, 60)) }

// otherNames are names in the environment that belong to other parts of the
// binary: the client's, what a run's child is given, and what tests use.
func otherNames() []string {
	return []string{
		"HOLDFAST_URL", "HOLDFAST_TOKEN", "HOLDFAST_REPORT", "HOLDFAST_RUN", "HOLDFAST_TEAM", "HOLDFAST_BOT",
		"HOLDFAST_BUDGET_USD", "HOLDFAST_ATTEMPT", "HOLDFAST_REPO",
	}
}

func unknownNames(environ []string) []string {
	known := otherNames()
	for _, setting := range Settings() {
		known = append(known, setting.Env())
	}
	var unknown []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "HOLDFAST_") && !strings.HasPrefix(name, "HOLDFAST_INPUT_") && !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return slices.Compact(unknown)
}
