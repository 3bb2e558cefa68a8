package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
)

// check holds the settings of a process against each other. origins says where each
// was written, for errors.
func (o Options) check(p Process, origins map[string]string) error {
	has := func(key string) bool {
		return slices.ContainsFunc(Of(p), func(s Setting) bool { return s.Key == key })
	}
	bounds := []struct {
		key string
		d   time.Duration
		min time.Duration
	}{
		{"lease", o.Lease, minDuration}, {"heartbeat", o.Heartbeat, minDuration}, {"sweep-every", o.SweepEvery, minDuration},
		{"launch-lease", o.LaunchLease, minDuration}, {"policy-ttl", o.PolicyTTL, 0}, {"clock-skew", o.ClockSkew, 0}, {"drain", o.Drain, 0}, {"start-wait", o.StartWait, 0}, {"clone-within", o.CloneWithin, time.Second},
	}
	for _, b := range bounds {
		if has(b.key) && (b.d < b.min || b.d > maxDuration) {
			return &holdfast.InvalidError{Field: origins[b.key], Problem: b.d.String() + " is out of bounds", Allowed: fmt.Sprintf("%v to %v", b.min, maxDuration)}
		}
	}
	if err := o.checkTimes(p, origins); err != nil {
		return err
	}
	if err := o.checkLogin(); err != nil {
		return err
	}
	if p == Dev {
		return nil
	}
	return o.checkCluster(p, origins)
}

// checkTimes: a run that renews every Heartbeat must be able to miss two and still be
// alive, and a queued run, which the sweep renews, must be seen twice within its
// launch lease. The latter are not a runner's.
func (o Options) checkTimes(p Process, origins map[string]string) error {
	switch {
	case 3*o.Heartbeat >= o.Lease:
		return &holdfast.InvalidError{
			Field:   origins["heartbeat"],
			Problem: fmt.Sprintf("a heartbeat every %v does not fit a lease of %v: one late heartbeat would lose the run", o.Heartbeat, o.Lease),
			Allowed: fmt.Sprintf("less than a third of the lease, that is under %v; or a longer %s", o.Lease/3, origins["lease"]),
		}
	case p == Runner:
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

// checkCluster: what a process of many machines cannot do without, and what belongs
// together.
func (o Options) checkCluster(p Process, origins map[string]string) error {
	name := func(key string) string {
		if origin := origins[key]; origin != key {
			return origin
		}
		return Setting{Key: key}.Env()
	}
	switch {
	case p == Server && o.MongoURI == "":
		return &holdfast.InvalidError{Field: name("mongo-uri"), Problem: "it is missing", Allowed: "the address of a MongoDB, such as mongodb://db:27017; or HOLDFAST_MONGO_URI_FILE"}
	case o.NATSURL == "":
		return &holdfast.InvalidError{Field: name("nats-url"), Problem: "it is missing", Allowed: "the address of a NATS, such as nats://nats:4222; or HOLDFAST_NATS_URL_FILE"}
	case (o.NATSCert == "") != (o.NATSKey == ""):
		return &holdfast.InvalidError{Field: name("nats-cert"), Problem: "a certificate and its key belong together", Allowed: "both " + Setting{Key: "nats-cert"}.Env() + " and " + Setting{Key: "nats-key"}.Env() + ", or neither"}
	case o.NATSCreds != "" && o.NATSNKey != "":
		return &holdfast.InvalidError{Field: name("nats-nkey"), Problem: "credentials are given beside it", Allowed: "one of " + Setting{Key: "nats-creds"}.Env() + " and " + Setting{Key: "nats-nkey"}.Env()}
	case p == Runner && o.Runners < 1:
		return &holdfast.InvalidError{Field: name("runners"), Problem: "a runner that executes nothing", Allowed: fmt.Sprintf("1 to %d", maxRunners)}
	case p == Server && o.NATSReplicas < 1:
		return &holdfast.InvalidError{Field: name("nats-stream-replicas"), Problem: "no server would keep the streams", Allowed: "1 to 5"}
	}
	return nil
}
