package config

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
)

// Setting is one setting of `dev`: its key in the file and name as a flag, what it
// means, and how it is read.
type Setting struct {
	Key     string
	Meaning string
	set     func(*Options, string) error
}

// Env is the setting's name in the environment: HOLDFAST_SWEEP_EVERY for
// sweep-every.
func (s Setting) Env() string {
	return "HOLDFAST_" + strings.ToUpper(strings.ReplaceAll(s.Key, "-", "_"))
}

// Settings lists every setting, in the order in which help shows them.
func Settings() []Setting {
	return []Setting{
		{"data", "folder that holds all state", func(o *Options, text string) error {
			if strings.TrimSpace(text) == "" {
				return &holdfast.InvalidError{Problem: "the folder is empty", Allowed: "a path"}
			}
			o.Data = text
			return nil
		}},
		{"addr", "host:port that the API listens on", func(o *Options, text string) error {
			o.Addr = text
			return checkAddr(text)
		}},
		{"runners", "runs that are executed at the same time; 0 executes none", func(o *Options, text string) error {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 || n > maxRunners {
				return &holdfast.InvalidError{Problem: quoted(text) + " is not a number of runners", Allowed: fmt.Sprintf("a whole number from 0 to %d", maxRunners)}
			}
			o.Runners = n
			return nil
		}},
		duration("lease", "how long a running run keeps its allocation after its last heartbeat", func(o *Options) *time.Duration { return &o.Lease }),
		duration("heartbeat", "how often a running run renews its allocation", func(o *Options) *time.Duration { return &o.Heartbeat }),
		duration("sweep-every", "how often overdue allocations are looked for", func(o *Options) *time.Duration { return &o.SweepEvery }),
		duration("launch-lease", "how long an allocation lives before its run has renewed it once", func(o *Options) *time.Duration { return &o.LaunchLease }),
		duration("policy-ttl", "how long a policy is served before it is read again", func(o *Options) *time.Duration { return &o.PolicyTTL }),
		duration("clock-skew", "how far the clocks of two machines may be apart", func(o *Options) *time.Duration { return &o.ClockSkew }),
		{"log-level", "debug, info, warn or error", func(o *Options, text string) error {
			levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
			level, known := levels[strings.ToLower(text)]
			if !known {
				return &holdfast.InvalidError{Problem: quoted(text) + " is not a log level", Allowed: "debug, info, warn, error"}
			}
			o.LogLevel = level
			return nil
		}},
	}
}

const (
	maxRunners  = 256
	minDuration = 10 * time.Millisecond
	maxDuration = 24 * time.Hour
)

func duration(key, meaning string, field func(*Options) *time.Duration) Setting {
	return Setting{key, meaning, func(o *Options, text string) error {
		d, err := time.ParseDuration(strings.TrimSpace(text))
		if err != nil {
			return &holdfast.InvalidError{Problem: quoted(text) + " is not a duration", Allowed: "a number with a unit, such as 500ms, 30s or 2m"}
		}
		*field(o) = d
		return nil
	}}
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

// check holds the settings against each other: a run that renews every Heartbeat
// must be able to miss two and still be alive, and a queued run, which the sweep
// renews, must be seen twice within its launch lease.
func (o Options) check(origins map[string]string) error {
	bounds := []struct {
		key string
		d   time.Duration
		min time.Duration
	}{
		{"lease", o.Lease, minDuration}, {"heartbeat", o.Heartbeat, minDuration}, {"sweep-every", o.SweepEvery, minDuration},
		{"launch-lease", o.LaunchLease, minDuration}, {"policy-ttl", o.PolicyTTL, 0}, {"clock-skew", o.ClockSkew, 0},
	}
	for _, b := range bounds {
		if b.d < b.min || b.d > maxDuration {
			return &holdfast.InvalidError{Field: origins[b.key], Problem: b.d.String() + " is out of bounds", Allowed: fmt.Sprintf("%v to %v", b.min, maxDuration)}
		}
	}
	switch {
	case 3*o.Heartbeat >= o.Lease:
		return &holdfast.InvalidError{
			Field:   origins["heartbeat"],
			Problem: fmt.Sprintf("a heartbeat every %v does not fit a lease of %v: one late heartbeat would lose the run", o.Heartbeat, o.Lease),
			Allowed: fmt.Sprintf("less than a third of the lease, that is under %v; or a longer %s", o.Lease/3, origins["lease"]),
		}
	case o.LaunchLease < 2*o.SweepEvery:
		return &holdfast.InvalidError{
			Field:   origins["launch-lease"],
			Problem: fmt.Sprintf("a launch lease of %v does not outlive two sweeps of %v: a queued run would lose its allocation", o.LaunchLease, o.SweepEvery),
			Allowed: fmt.Sprintf("at least %v; or a shorter %s", 2*o.SweepEvery, origins["sweep-every"]),
		}
	case o.LaunchLease > o.Lease:
		return &holdfast.InvalidError{
			Field:   origins["launch-lease"],
			Problem: fmt.Sprintf("a launch lease of %v is longer than the lease of %v", o.LaunchLease, o.Lease),
			Allowed: fmt.Sprintf("at most %v; or a longer %s", o.Lease, origins["lease"]),
		}
	case o.ClockSkew > o.Lease:
		return &holdfast.InvalidError{
			Field:   origins["clock-skew"],
			Problem: fmt.Sprintf("a clock skew of %v is longer than the lease of %v", o.ClockSkew, o.Lease),
			Allowed: fmt.Sprintf("at most %v; or a longer %s", o.Lease, origins["lease"]),
		}
	}
	return nil
}

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

// DefaultText is what a setting is when nobody says anything, for help pages.
func DefaultText(key string) string {
	d := Defaults()
	switch key {
	case "data":
		return d.Data
	case "addr":
		return d.Addr
	case "runners":
		return strconv.Itoa(d.Runners)
	case "lease":
		return d.Lease.String()
	case "heartbeat":
		return d.Heartbeat.String()
	case "sweep-every":
		return d.SweepEvery.String()
	case "launch-lease":
		return d.LaunchLease.String()
	case "policy-ttl":
		return d.PolicyTTL.String()
	case "clock-skew":
		return d.ClockSkew.String()
	case "log-level":
		return strings.ToLower(d.LogLevel.String())
	}
	return ""
}
