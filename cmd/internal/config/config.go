// Package config reads the settings of the processes that this repository's binary
// starts: defaults, then a YAML file, then the environment, then the flags that
// were typed, each later one winning. It lives below cmd so that the compiler keeps
// every rule package away from the environment.
//
// There are few settings and all are flat, so they are one table ([Settings]) and
// no configuration library: the table gives every error the place that the value
// came from and what is allowed there.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
)

// Options are the settings of `holdfast dev`, `holdfast server` and `holdfast runner`;
// [Setting.For] says which process has which. [DefaultsOf] has their values when
// nobody says anything.
type Options struct {
	Data    string // the folder of all state; created with mode 0700
	Addr    string // host:port that the API listens on; port 0 takes a free one
	Runners int    // runs that the embedded runner executes at the same time; 0 starts no runner

	Lease       time.Duration // how long an allocation of a running run lives after its last renewal
	Heartbeat   time.Duration // how often a running run renews
	SweepEvery  time.Duration // how often the sweep looks for what is overdue
	KeepAudit   int           // days; zero keeps the audit trail for ever
	LaunchLease time.Duration // how long an allocation lives before its run has renewed once
	PolicyTTL   time.Duration // how long a read policy is served before it is read again
	ClockSkew   time.Duration // how far two machines' clocks may be apart; added before anything is expired

	LogLevel slog.Level

	// Of the processes of many machines.
	Name         string        // what the process is called
	Pool         string        // of a runner
	AllowedHosts []string      // further names of the API; "*" is any
	Drain        time.Duration // what is under way may go on for that long after TERM
	StartWait    time.Duration // how long a start waits for what is not there yet; 0 is for ever
	RunnerAddr   string        // host:port at which a runner says how it is; empty: nowhere

	// Of a clone of a bot's repository.
	CloneWithin time.Duration
	CloneMiB    int

	MongoURI, MongoDatabase     string
	NATSURL                     string
	NATSCreds, NATSNKey         string // files
	NATSCA, NATSCert, NATSKey   string // files
	NATSReplicas                int
	NATSMaxAckPending           int // 0: the queue's own default
	LogMiB                      int // output of runs that the queue keeps; 0 keeps none
	OperatorToken, MetricsToken string
	// SecretsKey is the text of a secrets.Keyring: one key or several; empty is none.
	SecretsKey string

	Login Login // of a browser

	// Unknown lists the names in the environment that begin with HOLDFAST_ and
	// mean nothing to this build. They are not errors (a cluster sets such names by
	// itself) and worth one warning.
	Unknown []string
}

// Defaults are the settings of dev when nothing is said.
func Defaults() Options { return DefaultsOf(Dev) }

// DefaultsOf are the settings of a process when nothing is said.
func DefaultsOf(p Process) Options {
	o := Options{
		Addr:        "127.0.0.1:7420",
		Lease:       120 * time.Second,
		Heartbeat:   20 * time.Second,
		SweepEvery:  15 * time.Second,
		KeepAudit:   400,
		LaunchLease: 30 * time.Second,
		PolicyTTL:   30 * time.Second,
		ClockSkew:   15 * time.Second,
		LogLevel:    slog.LevelInfo,
	}
	if p != Server {
		o.CloneWithin, o.CloneMiB = 5*time.Minute, 2048
	}
	switch p {
	case Dev:
		o.Data, o.Runners = "./holdfast-data", 8
	case Server:
		o.Drain, o.MongoDatabase, o.NATSReplicas, o.NATSMaxAckPending, o.LogMiB = 20*time.Second, "holdfast", 1, 256, 1024
	case Runner:
		o.Data, o.Runners, o.Pool, o.Drain = "./holdfast-runner", 8, DefaultPool, 5*time.Minute
	}
	return o
}

// FileName is the file in the data folder that is read when it exists.
const FileName = "holdfast.yaml"

// FileKey is the key under which the typed flags name another file than
// [FileName]; that file must exist.
const FileKey = "config"

// value is a text with the place it was written at, for errors.
type value struct{ text, origin string }

// Load reads the settings of dev, see [LoadFor].
func Load(environ []string, flags map[string]string) (Options, error) {
	return LoadFor(Dev, environ, flags)
}

// LoadFor reads the settings of a process. environ has "NAME=value" entries as
// os.Environ does; flags has the flags that were typed, by their name
// ([Setting.Key], or [FileKey]). A value that cannot be read, or settings that do not
// fit together, are a *holdfast.InvalidError that names the place and what is
// allowed. It never holds the value of a secret.
func LoadFor(p Process, environ []string, flags map[string]string) (Options, error) {
	env := environment(environ)
	typed := map[string]value{}
	for key, text := range flags {
		typed[key] = value{text, "--" + key}
	}
	opts := DefaultsOf(p)
	opts.Unknown = unknownNames(environ)

	layers := []map[string]value{env, typed}
	fileLayer, err := readFile(p, env, typed, opts.Data)
	if err != nil {
		return Options{}, err
	}
	layers = append([]map[string]value{fileLayer}, layers...)

	origins := map[string]string{}
	for _, setting := range Of(p) {
		origins[setting.Key] = setting.Key
		v, given := last(layers, setting.Key)
		if !given {
			continue
		}
		if err := setting.set(&opts, v.text); err != nil {
			return Options{}, holdfast.InField(v.origin, err)
		}
		origins[setting.Key] = v.origin
	}
	if err := opts.check(p, origins); err != nil {
		return Options{}, err
	}
	return opts, nil
}

// last is the value of a key in the last layer that has one.
func last(layers []map[string]value, key string) (v value, given bool) {
	for _, layer := range layers {
		if stronger, has := layer[key]; has {
			v, given = stronger, true
		}
	}
	return v, given
}

// environment picks the settings out of the environment. A name that is set and
// empty counts as not set, as shells and compose files write it.
func environment(environ []string) map[string]value {
	layer := map[string]value{}
	for _, setting := range Settings() {
		if text := Env(environ, setting.Env()); text != "" {
			layer[setting.Key] = value{text, setting.Env()}
		}
	}
	return layer
}

// Env is the value of a name in environ, the last one when it stands there twice;
// empty when it is not set.
func Env(environ []string, name string) string {
	for i := len(environ) - 1; i >= 0; i-- {
		if n, text, ok := strings.Cut(environ[i], "="); ok && n == name {
			return text
		}
	}
	return ""
}

// readFile reads the configuration file: the one that was named, else the one in
// the data folder, of a process that has one. The latter may be missing and may not
// move the data folder.
func readFile(p Process, env, typed map[string]value, data string) (map[string]value, error) {
	if named, given := typed[FileKey]; given {
		text, err := os.ReadFile(named.text)
		if err != nil {
			return nil, &holdfast.InvalidError{Field: named.origin, Problem: plainFileError(err), Allowed: "a readable YAML file"}
		}
		return parseFile(p, named.text, text)
	}
	if p == Server {
		return nil, nil
	}
	for _, layer := range []map[string]value{env, typed} {
		if v, given := layer["data"]; given {
			data = v.text
		}
	}
	path := filepath.Join(data, FileName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &holdfast.InvalidError{Field: path, Problem: plainFileError(err), Allowed: "a readable YAML file, or none"}
	}
	layer, err := parseFile(p, path, text)
	if err != nil {
		return nil, err
	}
	if v, given := layer["data"]; given {
		return nil, &holdfast.InvalidError{Field: v.origin, Problem: "the file in the data folder cannot say where the data folder is", Allowed: "--data, HOLDFAST_DATA, or a file named with --config"}
	}
	return layer, nil
}

// plainFileError is an error of a file without the name, which the field has.
func plainFileError(err error) string {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err.Error()
	}
	return fmt.Sprint(err)
}
